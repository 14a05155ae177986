//! The formats of traces that the laboratory has.

use command::traces::Formats;
use trace::Format;

/// All formats of traces.
pub const ALL_FORMATS: Formats = Formats {
    open: trace_formats::open,
    read: trace_formats::read,
    write: trace_formats::write,
    writable: &[
        Format::Binary,
        Format::Parquet,
        Format::Csv,
        Format::OracleGeneral,
    ],
};
