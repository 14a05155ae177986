//! A client that sends any bytes, on a connection of its own.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| web::hostile(bytes));
