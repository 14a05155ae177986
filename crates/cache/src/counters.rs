//! Every decision of the engine under a name of its own.
//!
//! The table below is the one definition: of the enum, the stable names that metrics use, and the
//! help text.

use std::cell::Cell;

macro_rules! counters {
    ($($variant:ident, $name:literal, $help:literal;)*) => {
        /// A counter.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Counter {
            $(#[doc = $help] $variant,)*
        }

        impl Counter {
            /// Every counter, in the order of [`CounterSnapshot::iter`].
            pub const ALL: &[Counter] = &[$(Counter::$variant,)*];

            /// A stable identifier for metrics and reports.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }

            /// Its meaning, in one line.
            pub const fn help(self) -> &'static str {
                match self { $(Counter::$variant => $help,)* }
            }
        }
    };
}

counters! {
    ReadsHit, "reads_hit", "Reads of which every block was in the pool.";
    ReadsMissed, "reads_missed", "Reads of which at least one block was not in the pool.";
    ReadsPassed, "reads_passed", "Reads that the mode, or a place that cannot be cached, sent to the origin.";
    BlocksHit, "blocks_hit", "4 KiB blocks found in the pool.";
    BlocksMissed, "blocks_missed", "4 KiB blocks not found in the pool.";
    BlocksStreamed, "blocks_streamed", "4 KiB blocks not found in the pool that were read as a part of a sequential stream.";
    ReadsJoined, "reads_joined", "Missing runs that waited for another request's origin read.";
    JoinsFailed, "joins_failed", "Joined reads that then had to read the origin themselves.";
    OriginReads, "origin_reads", "Reads sent to the origin for missing blocks.";
    OriginReadErrors, "origin_read_errors", "Origin reads that failed.";
    LinesAdmitted, "lines_admitted", "Lines given a slot.";
    LinesEvicted, "lines_evicted", "Lines that made room for another.";
    LinesTrimmed, "lines_trimmed", "Lines of forgotten volumes, or emptied by discards, that were discarded on their pool device.";
    LinesPassedOn, "lines_passed_on", "Lines given a slot on another pool device, because the one in turn is slow or worn.";
    LinesDropped, "lines_dropped", "Lines given up because nothing valid was left in them.";
    Promotions, "promotions", "Runs of blocks written to the pool after a miss.";
    BlocksPromoted, "blocks_promoted", "4 KiB blocks written to the pool after a miss.";
    RejectedSequential, "rejected_sequential", "Lines not admitted: part of a sequential stream.";
    RejectedInFlight, "rejected_in_flight", "Lines not admitted or runs not written: too many bytes in flight to the pool.";
    RejectedRate, "rejected_rate", "Lines not admitted: the allowance of promoted bytes a second is used up.";
    RejectedCold, "rejected_cold", "Lines not admitted by the policy: colder than the victim.";
    RejectedPinned, "rejected_pinned", "Lines not admitted: every candidate for eviction, or the slot, was in use.";
    RejectedNoSlots, "rejected_no_slots", "Lines not admitted: the pool has no usable slot.";
    RejectedMemory, "rejected_memory", "Runs not promoted: no buffer was free.";
    RejectedOverwritten, "rejected_overwritten", "Runs not promoted: a write overlapped the origin read.";
    RejectedEvicted, "rejected_evicted", "Runs not promoted: the line lost its slot first.";
    RejectedCollision, "rejected_collision", "Runs not written to the pool: another pool write to those blocks was in flight.";
    Writes, "writes", "Client writes.";
    OriginWriteErrors, "origin_write_errors", "Writes, zeroes and discards that the origin failed.";
    OriginFlushErrors, "origin_flush_errors", "Flushes that the origin failed: what was cached of writes since the last one is dropped.";
    BlocksUpdated, "blocks_updated", "4 KiB blocks that client writes made valid in the pool.";
    BlocksInvalidated, "blocks_invalidated", "Valid 4 KiB blocks dropped because a client overwrote them.";
    Zeroes, "zeroes", "Client requests to zero.";
    Discards, "discards", "Client requests to discard.";
    Flushes, "flushes", "Client flushes.";
    HitsTorn, "hits_torn", "Hits read again from the origin because the pool block was rewritten meanwhile.";
    HitsLate, "hits_late", "Hits given up for the origin because the pool device took too long.";
    HitsFailed, "hits_failed", "Hits read again from the origin because the pool device failed.";
    HitsKept, "hits_kept", "Located hits of other shards whose place was kept there, so that nothing was looked up.";
    HitsLocated, "hits_located", "Hits looked up for a frontend that reads the pool device itself.";
    HitsRefused, "hits_refused", "Such hits that had to be read again: late, damaged, or rewritten meanwhile. Each counts as two reads.";
    BlocksCorrupt, "blocks_corrupt", "4 KiB blocks dropped because their checksum did not match.";
    PoolWritesFailed, "pool_writes_failed", "Writes to the pool that failed.";
    PoolWritesInVain, "pool_writes_in_vain", "Writes to the pool discarded because the origin failed the same write.";
    PoolWritesPoisoned, "pool_writes_poisoned", "Writes to the pool discarded because a later client write overlapped them.";
    PoolWritesLate, "pool_writes_late", "Writes to the pool that took too long.";
    DevicesAdded, "devices_added", "Pool devices added.";
    DevicesRemoved, "devices_removed", "Pool devices removed by request.";
    DevicesEjected, "devices_ejected", "Pool devices ejected for faults.";
    DevicesReturned, "devices_returned", "Pool devices taken back that were ejected for being late.";
    LinesRestored, "lines_restored", "Lines taken over from an earlier run, or with a pool device that is back.";
    LinesSuspect, "lines_suspect", "Lines of an earlier run, or of a pool device that is back, dropped, since a write may have overtaken them.";
    BitmapCommits, "bitmap_commits", "Writes of the write-intent bitmap to the pool, each for all writes that waited.";
    MapCommits, "map_commits", "Writes of changes of the map to a pool device.";
    LogWraps, "log_wraps", "Times that the log of a pool device came round to its start.";
    Checkpoints, "checkpoints", "Whole maps written to a pool device.";
    SuperblockWrites, "superblock_writes", "Writes of superblocks to the pool.";
    MetadataBytes, "metadata_bytes", "Bytes of metadata written to the pool.";
    WitnessErrors, "witness_errors", "Failed writes of the record beside the pool.";
    MapsDamaged, "maps_damaged", "Pool devices whose map could not be trusted.";
    MapPagesDamaged, "map_pages_damaged", "Pages of a map dropped because they were damaged.";
    HintsDamaged, "hints_damaged", "Policy hints dropped, since they were damaged or of another policy.";
    Invalidations, "invalidations", "Times that all lines of a volume were forgotten by request.";
    ModeSwitches, "mode_switches", "Changes of a volume's mode.";
}

/// A set of counters.
pub(crate) struct CacheCounters([Cell<u64>; Counter::ALL.len()]);

impl CacheCounters {
    pub(crate) fn new() -> CacheCounters {
        CacheCounters(std::array::from_fn(|_| Cell::new(0)))
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let cell = &self.0[counter as usize];
        cell.set(cell.get() + n);
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(crate) fn absorb(&self, other: &CounterSnapshot) {
        for (counter, n) in other.iter() {
            self.add(counter, n);
        }
    }

    pub(crate) fn snapshot(&self) -> CounterSnapshot {
        CounterSnapshot(std::array::from_fn(|i| self.0[i].get()))
    }
}

/// The counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterSnapshot([u64; Counter::ALL.len()]);

impl CounterSnapshot {
    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Every counter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().copied().zip(self.0)
    }

    /// Adds `other` to each counter.
    pub fn merge(&mut self, other: &CounterSnapshot) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_stable_identifiers() {
        let names: HashSet<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Counter::ALL.len());
        for (i, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, i);
            assert!(
                counter
                    .name()
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_')
            );
            assert!(counter.help().ends_with('.'));
        }
    }

    #[test]
    fn sets_add_up() {
        let (a, b) = (CacheCounters::new(), CacheCounters::new());
        a.count(Counter::Writes);
        b.add(Counter::Writes, 4);
        b.absorb(&a.snapshot());
        let mut sum = a.snapshot();
        sum.merge(&b.snapshot());
        assert_eq!(sum.get(Counter::Writes), 6);
        assert_eq!(sum.iter().map(|(_, n)| n).sum::<u64>(), 6);
    }
}
