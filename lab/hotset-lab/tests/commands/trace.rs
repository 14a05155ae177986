//! `hotset-lab trace`: from and to Parquet.

use crate::common::{Place, lab, refused, run};
use std::fmt::Write;
use std::fs;

/// Requests of two volumes in hotset's text form.
fn text() -> String {
    let mut text = "ts_us,op,offset_bytes,len_bytes,volume\n".to_owned();
    for i in 0..5000u64 {
        let op = if i % 3 == 0 { 'W' } else { 'R' };
        let at = i * 7919 % 1000 * 4096;
        writeln!(text, "{},{op},{at},{},{}", i * 37, 512 << (i % 8), i % 2).unwrap();
    }
    text
}

#[test]
fn a_trace_survives_parquet() {
    let place = Place::new();
    let text = text();
    fs::write(place.path("0.csv"), &text).unwrap();
    let mut from = place.text("0.csv");
    for form in ["1.parquet", "2.hottrace", "3.parquet", "4.csv"] {
        let to = place.text(form);
        let output = run(lab().args(["trace", "convert", &from, &to]));
        assert!(output.contains("5000 requests"), "{output}");
        from = to;
    }
    assert_eq!(fs::read_to_string(&from).unwrap(), text);
    let sizes = ["0.csv", "1.parquet"];
    let sizes = sizes.map(|name| fs::metadata(place.path(name)).unwrap().len());
    assert!(sizes[1] * 3 < sizes[0], "{sizes:?}");
}

#[test]
fn a_cut_off_parquet_is_refused() {
    let place = Place::new();
    fs::write(place.path("t.csv"), text()).unwrap();
    let (from, file) = (place.text("t.csv"), place.text("t.parquet"));
    run(lab().args(["trace", "convert", &from, &file]));
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - whole.len() / 3]).unwrap();
    // The directory of the file is at its end: nothing can be read without the directory.
    let to = place.text("u.csv");
    let convert = ["trace", "convert", &file, &to, "--lenient"];
    refused(lab().args(convert), 1, &["t.parquet"]);
    assert!(!place.path("u.csv").exists());
}
