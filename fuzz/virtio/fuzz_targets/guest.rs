//! A guest with any bytes in its memory: descriptors, headers and rings.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| virtio::hostile(bytes));
