//! A trace in numbers.

use crate::{RecordOp, TraceRecord};
use block::Nanos;
use rustc_hash::FxHashMap;

/// Granularity of footprint and reuse.
const BLOCK_BYTES: u64 = 4096;

/// Totals over the records seen. Memory grows with the footprint, not with the
/// number of requests.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// Requests.
    pub requests: u64,
    /// Read requests.
    pub reads: u64,
    /// Forced writes among the requests.
    pub forced: u64,
    /// Flushes, which are no requests here.
    pub flushes: u64,
    /// Bytes asked for, reads and writes.
    pub bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Accesses to 4 KiB blocks.
    pub block_accesses: u64,
    /// Requests that begin where the volume's last request ended.
    pub sequential: u64,
    /// The highest byte address touched, plus one.
    pub end_bytes: u64,
    /// The time of the first request.
    pub first: Nanos,
    /// The time of the last request.
    pub last: Nanos,
    ends: FxHashMap<u32, Ends>,
    touches: FxHashMap<(u32, u64), Touches>,
}

/// Kinds of access that a block has had.
#[derive(Clone, Copy, Debug, Default)]
struct Touches {
    again: bool,
    read: bool,
    written: bool,
}

/// Ends of the requests of a volume.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    last: Option<u64>,
    highest: u64,
}

impl Info {
    /// Counts one request, or a flush.
    pub fn add(&mut self, record: &TraceRecord) {
        if record.is_flush() {
            self.flushes += 1;
            return;
        }
        self.forced += u64::from(record.forced);
        if self.requests == 0 {
            self.first = record.time;
        }
        self.last = record.time;
        let len = u64::from(record.len_bytes);
        self.requests += 1;
        self.bytes += len;
        if record.op == RecordOp::Read {
            self.reads += 1;
            self.read_bytes += len;
        }
        let end = record.offset_bytes + len;
        let ends = self.ends.entry(record.volume).or_default();
        if ends.last.replace(end) == Some(record.offset_bytes) {
            self.sequential += 1;
        }
        ends.highest = ends.highest.max(end);
        self.end_bytes = self.end_bytes.max(end);
        for block in record.blocks(BLOCK_BYTES) {
            self.block_accesses += 1;
            let touches = self.touches.entry((record.volume, block)).or_default();
            touches.again |= touches.read | touches.written;
            match record.op {
                RecordOp::Read => touches.read = true,
                RecordOp::Write => touches.written = true,
            }
        }
    }

    /// Distinct 4 KiB blocks touched.
    pub fn unique_blocks(&self) -> u64 {
        self.touches.len() as u64
    }

    /// Bytes of the distinct blocks touched.
    pub fn footprint_bytes(&self) -> u64 {
        self.unique_blocks() * BLOCK_BYTES
    }

    /// Distinct blocks touched more than once.
    pub fn reused_blocks(&self) -> u64 {
        self.count(|touches| touches.again)
    }

    /// Distinct blocks that were read.
    pub fn read_blocks(&self) -> u64 {
        self.count(|touches| touches.read)
    }

    /// Distinct blocks that were written.
    pub fn written_blocks(&self) -> u64 {
        self.count(|touches| touches.written)
    }

    fn count(&self, which: impl Fn(&Touches) -> bool) -> u64 {
        self.touches
            .values()
            .filter(|touches| which(touches))
            .count() as u64
    }

    /// Volumes seen.
    pub fn volumes(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Each volume and the highest byte address touched there, plus one, in order.
    pub fn volume_ends(&self) -> Vec<(u32, u64)> {
        let ends = self
            .ends
            .iter()
            .map(|(volume, ends)| (*volume, ends.highest));
        let mut ends: Vec<_> = ends.collect();
        ends.sort_unstable();
        ends
    }

    /// Block accesses that were not the first to their block, as a share: the
    /// hit ratio of an unbounded cache.
    pub fn reuse_share(&self) -> f64 {
        if self.block_accesses == 0 {
            return 0.0;
        }
        1.0 - self.unique_blocks() as f64 / self.block_accesses as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_was_asked() {
        let mut info = Info::default();
        let record = |op, offset_bytes, len_bytes| TraceRecord {
            op,
            offset_bytes,
            len_bytes,
            ..TraceRecord::default()
        };
        info.add(&record(RecordOp::Read, 0, 8192));
        info.add(&record(RecordOp::Read, 8192, 4096));
        info.add(&record(RecordOp::Write, 100, 512));
        info.add(&TraceRecord::flush(Nanos(5), 0));
        let forced = |info: &Info| (info.flushes, info.forced);
        assert_eq!((forced(&info), info.last), ((1, 0), Nanos(0)));
        assert_eq!((info.requests, info.reads, info.sequential), (3, 2, 1));
        assert_eq!((info.block_accesses, info.unique_blocks()), (4, 3));
        assert_eq!((info.reused_blocks(), info.end_bytes), (1, 12_288));
        assert_eq!((info.read_blocks(), info.written_blocks()), (3, 1));
        assert_eq!(info.volume_ends(), [(0, 12_288)]);
        assert!((info.reuse_share() - 0.25).abs() < 1e-9);
    }
}
