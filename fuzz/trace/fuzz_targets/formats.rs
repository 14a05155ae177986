//! Every importer over any bytes: `cargo +nightly fuzz run formats` in
//! `fuzz/trace`. The first byte chooses the format and the strictness;
//! `HOTSET_FUZZ_FORMAT`, a name, fixes the format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::path::Path;
use trace::{BINARY_MAGIC, Format, Reader, Strictness};

/// An event of blktrace begins so, little-endian.
const BLKTRACE_MAGIC: [u8; 4] = [0x07, 0x74, 0x61, 0x65];

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    let format = match std::env::var("HOTSET_FUZZ_FORMAT") {
        Ok(name) => Format::from_name(&name).expect("a format's name"),
        Err(_) => Format::ALL[usize::from(*choice) % Format::ALL.len()],
    };
    let strictness = if *choice < 128 {
        Strictness::Strict
    } else {
        Strictness::Lenient
    };
    // Compressed here, so that the fuzzer reaches the records themselves.
    let input = match format {
        Format::Binary => {
            let packed = zstd::encode_all(body, 1).expect("compresses");
            [&BINARY_MAGIC[..], &packed].concat()
        }
        Format::Blktrace => [&BLKTRACE_MAGIC, body].concat(),
        // An archive of a text. Its header is the fuzzer's, except for the magic of an archive.
        Format::Csv if body.len() > 512 => {
            let mut archive = body.to_vec();
            archive[257..262].copy_from_slice(b"ustar");
            archive
        }
        _ => body.to_vec(),
    };
    let _ = Format::sniff(body);
    let path = Path::new("fuzz");
    let Ok(reader) = Reader::new(path, Cursor::new(input), Some(format), strictness) else {
        return;
    };
    let mut latest = None;
    for record in reader.flatten() {
        assert!(record.len_bytes > 0);
        assert!(latest.is_none_or(|time| time <= record.time));
        assert!(record.offset_bytes.checked_add(record.len_bytes.into()).is_some());
        latest = Some(record.time);
    }
});
