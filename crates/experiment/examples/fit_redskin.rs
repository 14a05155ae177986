//! Prints what the disk does with several sites, given as FILES:EXPONENT: the two
//! parameters of the experiment that no printed figure gives. 179.5 requests a second of
//! the short list were printed, and 371.7 of the long one.

use experiment::redskin::{Drive, HOUR, SHORT, Scale, run_list};

fn main() {
    for site in std::env::args().skip(1) {
        let (files, exponent) = site.split_once(':').expect("FILES:EXPONENT");
        let scale = Scale {
            files: files.parse().expect("a number of files"),
            exponent: exponent.parse().expect("an exponent"),
            ..Scale::FULL
        };
        for list in [SHORT, HOUR] {
            let (measured, pages) = run_list(1, scale, Drive::Hdd, list).expect("a run");
            println!("{site} {}: {measured:?} {pages:?}", list.name);
        }
    }
}
