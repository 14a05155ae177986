//! The regions of volumes that may be written: their bits in the write-intent bitmap, and the
//! number of bits that are marked at once.
//!
//! Invariants:
//!     a write of a client to the origin is in flight in r
//!         ⟹ there was a `Proof` that every member has the bit of r (`Intent`)
//!     r is cleared ⟹ no write was in flight in r since a commit of the map
//!         began; that commit is durable, as are the origin's writes before it
//!
//! **The cost of a bit.** A region's first write waits for a write and a flush of every pool
//! device. A load that touches ever new regions would pay that for each group of its writes. So
//! each such wait must be earned by [`WRITES_PER_BIT`] writes. After a wait that was not earned,
//! the run of regions that is marked at once doubles; after one that was, the run shrinks again.
//! With longer runs more lines are dropped after a crash, never fewer.

use block::{Intent, Proof, Regions, StateImage};
use layout::{BITMAP_BITS, Bitmap};
use std::cell::Cell;
use std::ops::Range;

const BITS: usize = BITMAP_BITS as usize;
/// Writes that pay for one wait. With a flush every 32 writes, that is a wait every 20 flushes:
/// a cost under 5% even where a pool's flush takes as long as an origin's.
pub(crate) const WRITES_PER_BIT: u32 = 640;
/// Waits that are free at first.
const CREDIT_MAX: u32 = 8 * WRITES_PER_BIT;

pub(crate) struct DurableVolumes {
    pub(crate) intent: Intent,
    tick: Cell<u64>,
    region_shift: u32,
    span: Cell<u32>,
    credit: Cell<u32>,
}

/// The bits under a write: a number of bits from the first one on, around the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bits {
    first: u32,
    count: u32,
}

impl Bits {
    fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..self.count).map(move |i| (self.first + i) as usize % BITS)
    }
}

impl DurableVolumes {
    /// A table with regions of `region_blocks` blocks, a power of two.
    pub(crate) fn new(region_blocks: u32) -> DurableVolumes {
        DurableVolumes {
            intent: Intent::new(BITS),
            tick: Cell::new(0),
            region_shift: region_blocks.trailing_zeros(),
            span: Cell::new(1),
            credit: Cell::new(CREDIT_MAX),
        }
    }

    fn bits(&self, volume: u32, regions: Range<u64>) -> Bits {
        Bits {
            first: Bitmap::bit(volume, regions.start),
            count: (regions.end - regions.start).min(u64::from(BITMAP_BITS)) as u32,
        }
    }

    /// Begins a write to `blocks`. The write may go to the origin once there is a [`DurableVolumes::proof`].
    pub(crate) fn begin(&self, volume: u32, blocks: &Range<u64>) -> Bits {
        self.credit.set((self.credit.get() + 1).min(CREDIT_MAX));
        let first = blocks.start >> self.region_shift;
        let last = (blocks.end - 1) >> self.region_shift;
        let bits = self.bits(volume, first..last + 1);
        let mut missing = false;
        for bit in bits.iter() {
            missing |= self.intent.begin(bit);
        }
        let span = u64::from(self.span.get());
        if missing && span > 1 {
            let run = first / span * span..last / span * span + span;
            let run = self.bits(volume, run);
            run.iter().for_each(|bit| _ = self.intent.mark(bit));
        }
        bits
    }

    /// Proof that every device has the marks of a write that has begun.
    #[inline]
    pub(crate) fn proof(&self, bits: Bits) -> Option<Proof> {
        self.intent.proof(bits.iter())
    }

    /// A write has ended.
    pub(crate) fn end(&self, bits: Bits) {
        for bit in bits.iter() {
            self.intent.end(bit, self.tick.get());
        }
    }

    /// True if a line of `volume` that holds `block` may differ from the origin.
    pub(crate) fn is_suspect(&self, volume: u32, block: u64) -> bool {
        let bit = Bitmap::bit(volume, block >> self.region_shift);
        self.intent.marked().has(bit as usize)
    }

    /// Returns the bitmap to be written now, for the writes that have begun.
    pub(crate) fn image(&self) -> StateImage<'_, Regions> {
        match self.credit.get().checked_sub(WRITES_PER_BIT) {
            Some(left) => {
                self.credit.set(left);
                self.span.set((self.span.get() / 2).max(1));
            }
            None => {
                let most = BITMAP_BITS.next_power_of_two() / 2;
                self.span.set((self.span.get() * 2).min(most));
            }
        }
        self.intent.image()
    }

    /// A period has passed.
    pub(crate) fn tick(&self) {
        self.tick.set(self.tick.get() + 1);
    }

    /// Bits under which nothing is in flight, nor was for `ticks` periods.
    pub(crate) fn idle(&self, ticks: u32) -> Vec<usize> {
        self.intent.idle(self.before(ticks))
    }

    /// Clears those of `bits` that are still idle. Returns true if there were any.
    pub(crate) fn clear(&self, bits: &[usize], ticks: u32) -> bool {
        self.intent.clear(bits, self.before(ticks)) > 0
    }

    /// The first tick after those from which on `ticks` periods have passed.
    fn before(&self, ticks: u32) -> u64 {
        (self.tick.get() + 1).saturating_sub(u64::from(ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(table: &DurableVolumes) {
        let _proof = table.image().written();
    }

    #[test]
    fn a_region_is_written_only_under_a_durable_bit() {
        let table = DurableVolumes::new(1024);
        let write = table.begin(1, &(1000..1030));
        assert!(table.proof(write).is_none() && table.intent.is_due());
        commit(&table);
        assert!(table.proof(write).is_some() && !table.intent.is_due());
        assert!(table.is_suspect(1, 0) && table.is_suspect(1, 2047) && !table.is_suspect(1, 2048));
        assert!(table.idle(0).is_empty());
        table.end(write);
        let idle = table.idle(0);
        assert_eq!((idle.len(), table.idle(1).len()), (2, 0));
        table.tick();
        assert_eq!(table.idle(1), idle);
        let again = table.begin(1, &(0..1));
        assert!(table.proof(again).is_some());
        assert!(table.clear(&idle, 1));
        assert!(table.is_suspect(1, 0) && !table.is_suspect(1, 1024));
        table.end(again);
        assert!(!table.clear(&idle[..1], 1), "it was touched meanwhile");
    }

    #[test]
    fn while_a_bitmap_without_a_region_is_written_it_waits() {
        let table = DurableVolumes::new(1024);
        let write = table.begin(1, &(0..1));
        commit(&table);
        table.end(write);
        let image = table.image();
        table.clear(&table.idle(0), 0);
        let _proof = image.written();
        // The devices still have the bit, but the next image has not.
        let next = table.image();
        let write = table.begin(1, &(0..1));
        assert!(table.proof(write).is_none());
        let _proof = next.written();
        assert!(table.proof(write).is_none() && table.intent.is_due());
    }

    #[test]
    fn a_device_that_comes_when_nobody_listened_must_know_first() {
        let table = DurableVolumes::new(1024);
        table.intent.no_holders();
        let before = table.begin(1, &(0..1));
        assert!(table.proof(before).is_some());
        drop(table.intent.image());
        let after = table.begin(1, &(1024..1025));
        assert!(
            table.proof(before).is_some(),
            "it is wanted, so the device gets it"
        );
        assert!(table.proof(after).is_none() && table.intent.is_due());
    }

    #[test]
    fn writes_all_over_mark_in_ever_longer_runs() {
        let table = DurableVolumes::new(1024);
        let (mut waits, mut x) = (0, 1u64);
        for _ in 0..50_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (x >> 33) % 25_000 * 1024;
            let write = table.begin(1, &(at..at + 1));
            if table.proof(write).is_none() {
                commit(&table);
                waits += 1;
            }
            table.end(write);
        }
        assert!(waits < 50_000 / WRITES_PER_BIT + 20, "{waits} waits");
        let calm = DurableVolumes::new(1024);
        for i in 0..5 {
            let write = calm.begin(1, &(i * 1024..i * 1024 + 1));
            commit(&calm);
            calm.end(write);
        }
        assert_eq!(calm.intent.marked().count(), 5, "few bits are exact");
    }
}
