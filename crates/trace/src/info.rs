//! What a trace is, in numbers.

use crate::{Op, Record};
use block::Nanos;
use std::collections::HashMap;

/// Granularity of footprint and reuse.
const BLOCK_BYTES: u64 = 4096;

/// Totals over the records seen. Memory grows with the footprint, not with the
/// number of requests.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// Requests.
    pub requests: u64,
    /// Of them, reads.
    pub reads: u64,
    /// Bytes asked for, reads and writes.
    pub bytes: u64,
    /// Of them, bytes read.
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
    ends: HashMap<u32, u64>,
    touches: HashMap<(u32, u64), u32>,
}

impl Info {
    /// Counts one request.
    pub fn add(&mut self, record: &Record) {
        if self.requests == 0 {
            self.first = record.time;
        }
        self.last = record.time;
        let len = u64::from(record.len_bytes);
        self.requests += 1;
        self.bytes += len;
        if record.op == Op::Read {
            self.reads += 1;
            self.read_bytes += len;
        }
        let end = record.offset_bytes + len;
        if self.ends.insert(record.volume, end) == Some(record.offset_bytes) {
            self.sequential += 1;
        }
        self.end_bytes = self.end_bytes.max(end);
        for block in record.blocks(BLOCK_BYTES) {
            self.block_accesses += 1;
            *self.touches.entry((record.volume, block)).or_default() += 1;
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
        self.touches.values().filter(|n| **n > 1).count() as u64
    }

    /// Volumes seen.
    pub fn volumes(&self) -> u64 {
        self.ends.len() as u64
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
        let record = |op, offset_bytes, len_bytes| Record {
            op,
            offset_bytes,
            len_bytes,
            ..Record::default()
        };
        info.add(&record(Op::Read, 0, 8192));
        info.add(&record(Op::Read, 8192, 4096));
        info.add(&record(Op::Write, 100, 512));
        assert_eq!((info.requests, info.reads, info.sequential), (3, 2, 1));
        assert_eq!((info.block_accesses, info.unique_blocks()), (4, 3));
        assert_eq!((info.reused_blocks(), info.end_bytes), (1, 12_288));
        assert!((info.reuse_share() - 0.25).abs() < 1e-9);
    }
}
