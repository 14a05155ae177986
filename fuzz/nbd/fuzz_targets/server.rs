//! On any bytes of a peer, the server neither panics nor answers out of bounds.
//!
//! Run with `cargo +nightly fuzz run --fuzz-dir fuzz/nbd server`.
#![no_main]

#[allow(dead_code, reason = "each target drives one side")]
#[path = "../../../crates/nbd/tests/common/drive.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drive::server(bytes);
});
