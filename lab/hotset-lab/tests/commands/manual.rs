//! The manual pages of the laboratory.

use crate::common::{Place, faultless_pages, lab, run};
use std::fs;
use std::path::PathBuf;

#[test]
fn each_command_of_the_laboratory_has_a_manual_page() {
    let place = Place::new();
    run(lab().args(["man", "--directory"]).arg(place.path("")));
    let pages = fs::read_dir(place.path("")).unwrap();
    let pages: Vec<PathBuf> = pages.map(|page| page.unwrap().path()).collect();
    for name in [
        "hotset-lab",
        "hotset-lab-crash",
        "hotset-lab-sim",
        "hotset-lab-trace-workload",
    ] {
        assert!(pages.contains(&place.path(&format!("{name}.1"))), "{name}");
    }
    faultless_pages(&pages);
}
