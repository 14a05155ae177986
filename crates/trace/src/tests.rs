//! Parquet is known by its name and its first bytes, and refused with the command that reads such a
//! file.

use crate::{Format, PARQUET_MAGIC, Strictness, TraceReader, Writer};
use std::io::Cursor;
use std::path::Path;

#[test]
fn parquet_is_refused_with_the_command_that_converts_it() {
    for format in [None, Some(Format::Parquet)] {
        let input = Cursor::new(PARQUET_MAGIC);
        let opened = TraceReader::new(Path::new("t"), input, format, Strictness::Strict);
        let error = opened.err().expect("refused").to_string();
        assert!(error.contains("hotset-lab trace convert"), "{error}");
    }
    assert!(Writer::new(Path::new("t"), Vec::new(), Format::Parquet).is_err());
}
