//! Prints the results of the lists, given PARAMETER=VALUE of unpublished parameters, to see the
//! effect of each. Of the disk 179.5 requests a second of the short list were printed, and 371.7 of
//! the long one.

use block::Nanos;
use experiment::redskin::{HOUR, RedskinScale, SHORT, SiteDrive, run_list};

fn main() {
    let mut scale = RedskinScale::FULL;
    let args: Vec<String> = std::env::args().skip(1).collect();
    for arg in &args {
        let (name, value) = arg.split_once('=').expect("PARAMETER=VALUE");
        let value: f64 = value.parse().expect("a number");
        match name {
            "files" => scale.files = value as u32,
            "exponent" => scale.exponent = value,
            "memory_mib" => scale.memory_pages = (value as u32) << 8,
            "answer_us" => scale.client.answer = Nanos::from_micros(value as u64),
            "between_us" => scale.client.between = Nanos::from_micros(value as u64),
            "processor_us" => scale.processor = Nanos::from_micros(value as u64),
            _ => panic!("no parameter is called {name}"),
        }
    }
    for list in [SHORT, HOUR] {
        for drive in SiteDrive::ALL {
            let (measured, pages) = run_list(1, scale, drive, list).expect("a run");
            let name = drive.name();
            println!("{args:?} {} {name}: {measured:?} {pages:?}", list.name);
        }
    }
}
