//! Any text of an operator is read or refused.
//!
//! Run with `cargo +nightly fuzz run --fuzz-dir fuzz/control text`.
#![no_main]

#[path = "../../../crates/control/tests/common/drive.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drive::drive(bytes);
});
