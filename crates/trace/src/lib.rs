//! Block traces: the requests of a volume, in order.
//!
//! [`TraceReader`] streams any supported format as [`TraceRecord`]s in bounded memory;
//! the formats themselves are pure functions from a line (or a binary record)
//! to a record, one file each under `format/`, in one table by which a file's
//! format is recognised. A file may be compressed, and in a tar archive.
//!
//! Invariants of a reader's records:
//!     len_bytes > 0, or the record is a flush and flushes were asked for
//!     forced ⟹ the record is a write; offset_bytes + len_bytes does not overflow
//!     time never runs back
//!
//! Input that breaks them is one error that names the file and the line, or
//! with [`Strictness::Lenient`] a counted skip.
//!
//! Not here: Parquet (`trace-formats`), captures of several processors joined, the target of a
//! replay, or any opinion of caches.

mod archive;
mod compressed;
mod error;
mod format;
mod info;
mod merge;
mod reader;
mod tape;
#[cfg(test)]
mod tests;
mod writer;

pub use compressed::Input;
pub use error::Error;
pub use format::{Format, PARQUET_MAGIC, binary::MAGIC as BINARY_MAGIC};
pub use info::Info;
pub use reader::{DecodedRecords, DeviceFilter, Skipped, Strictness, TraceReader, plain};
pub use tape::{RecordTape, TapeReader};
pub use writer::{RecordRows, Writer};

use block::Nanos;

/// Read or write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RecordOp {
    /// A read.
    #[default]
    Read,
    /// A write.
    Write,
}

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceRecord {
    /// Time since the epoch of the trace; zero throughout if not recorded.
    pub time: Nanos,
    /// Read or write.
    pub op: RecordOp,
    /// Offset on the volume, in bytes.
    pub offset_bytes: u64,
    /// Length in bytes; zero of a flush.
    pub len_bytes: u32,
    /// The volume: an identifier of the trace's own.
    pub volume: u32,
    /// True of a write that has to be durable once answered (FUA).
    pub forced: bool,
}

impl TraceRecord {
    /// A flush: a forced write of no bytes.
    pub fn flush(time: Nanos, volume: u32) -> TraceRecord {
        TraceRecord {
            time,
            op: RecordOp::Write,
            volume,
            forced: true,
            ..TraceRecord::default()
        }
    }

    /// True of a flush.
    pub fn is_flush(&self) -> bool {
        self.len_bytes == 0
    }

    /// End of the request, in bytes; does not overflow in a reader's records.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + u64::from(self.len_bytes)
    }

    /// The numbers of the blocks of `block_bytes` that the request touches.
    pub fn blocks(&self, block_bytes: u64) -> std::ops::RangeInclusive<u64> {
        let last = self.offset_bytes + u64::from(self.len_bytes.max(1)) - 1;
        self.offset_bytes / block_bytes..=last / block_bytes
    }
}

/// zstd's default level: 400 MB/s here, far above any recording.
pub const ZSTD_LEVEL: i32 = 3;
