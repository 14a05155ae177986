//! Counts of a server, which other shards may read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of a server; see [`crate::serve::NbdServer::stats`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NbdStats {
    /// Connections that have a place.
    pub connections: u32,
    /// Handshakes under way.
    pub handshakes: u32,
    /// Connections accepted, refused ones included.
    pub accepted: u64,
    /// Connections closed after their handshake because there were too many.
    pub refused: u64,
    /// Connections ended for a violation, a stall or a failed handshake.
    pub failed: u64,
    /// READ requests that succeeded.
    pub reads: u64,
    /// WRITE requests that succeeded.
    pub writes: u64,
    /// FLUSH requests that succeeded.
    pub flushes: u64,
    /// Other requests that succeeded.
    pub others: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl NbdStats {
    /// The counts of two servers together.
    pub fn and(self, other: NbdStats) -> NbdStats {
        NbdStats {
            connections: self.connections + other.connections,
            handshakes: self.handshakes + other.handshakes,
            accepted: self.accepted + other.accepted,
            refused: self.refused + other.refused,
            failed: self.failed + other.failed,
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            flushes: self.flushes + other.flushes,
            others: self.others + other.others,
            errors: self.errors + other.errors,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

/// A count that one thread changes and any may read.
#[derive(Default)]
pub(super) struct SharedCount(AtomicU64);

impl SharedCount {
    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed) + more, Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counts behind [`NbdStats`].
#[derive(Default)]
pub struct NbdCounters {
    pub(super) connections: SharedCount,
    pub(super) handshakes: SharedCount,
    pub(super) accepted: SharedCount,
    pub(super) refused: SharedCount,
    pub(super) failed: SharedCount,
    pub(super) reads: SharedCount,
    pub(super) writes: SharedCount,
    pub(super) flushes: SharedCount,
    pub(super) others: SharedCount,
    pub(super) errors: SharedCount,
    pub(super) read_bytes: SharedCount,
    pub(super) written_bytes: SharedCount,
}

impl NbdCounters {
    /// The counts so far, from any thread; one by one, and not all of one moment.
    pub fn stats(&self) -> NbdStats {
        NbdStats {
            connections: self.connections.get() as u32,
            handshakes: self.handshakes.get() as u32,
            accepted: self.accepted.get(),
            refused: self.refused.get(),
            failed: self.failed.get(),
            reads: self.reads.get(),
            writes: self.writes.get(),
            flushes: self.flushes.get(),
            others: self.others.get(),
            errors: self.errors.get(),
            read_bytes: self.read_bytes.get(),
            written_bytes: self.written_bytes.get(),
        }
    }
}
