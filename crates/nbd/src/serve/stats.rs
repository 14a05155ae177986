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
    /// Adds the counts so far to `to`, from any thread; one by one, and not all of one moment.
    pub fn add_to(&self, to: &mut NbdStats) {
        to.connections += self.connections.get() as u32;
        to.handshakes += self.handshakes.get() as u32;
        to.accepted += self.accepted.get();
        to.refused += self.refused.get();
        to.failed += self.failed.get();
        to.reads += self.reads.get();
        to.writes += self.writes.get();
        to.flushes += self.flushes.get();
        to.others += self.others.get();
        to.errors += self.errors.get();
        to.read_bytes += self.read_bytes.get();
        to.written_bytes += self.written_bytes.get();
    }

    /// The counts so far, as [`NbdCounters::add_to`] adds them.
    pub fn stats(&self) -> NbdStats {
        let mut stats = NbdStats::default();
        self.add_to(&mut stats);
        stats
    }
}
