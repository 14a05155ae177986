//! Which regions may be written, in memory: the bits that are wanted, those
//! that every device has, and the writes in flight under each.
//!
//! Invariants:
//!     a write of a client to the origin is in flight in r
//!         ⟹ r is in `durable` and in `wanted`
//!     r is in `durable` ⟹ every member has it on its device, and no write of
//!         bitmap without r is in flight
//!     r leaves `wanted` ⟹ nothing was in flight in r since a commit of the map
//!         began, which is durable, as are the origin's writes before it
//!
//! **What a bit costs.** A region's first write waits for a write and a flush
//! of every pool device. A load that touches ever new regions would pay that for
//! each group of its writes, so each such wait must be earned by
//! [`WRITES_PER_BIT`] writes; if it was not, the run of regions that is marked
//! at once doubles, and shrinks again when it was. After a crash more lines are
//! dropped then, never fewer.

use layout::{BITMAP_BITS, Bitmap};
use std::ops::Range;

/// Writes that pay for one wait. With a flush each 32, that is a wait for each
/// 20 flushes, so under 5% even where a pool's flush costs what an origin's does.
pub(crate) const WRITES_PER_BIT: u32 = 640;
/// Waits that are free at first.
const CREDIT_MAX: u32 = 8 * WRITES_PER_BIT;

pub(crate) struct Table {
    pub(crate) wanted: Bitmap,
    pub(crate) durable: Bitmap,
    in_flight: Vec<u32>,
    /// The tick at which a write in the region last began or ended.
    touched: Vec<u32>,
    tick: u32,
    region_shift: u32,
    span: u32,
    credit: u32,
}

/// The bits under a write: so many from the first one on, around the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bits {
    first: u32,
    count: u32,
}

impl Bits {
    fn iter(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |i| (self.first + i) % BITMAP_BITS)
    }
}

impl Table {
    /// `regions` of so many blocks, a power of two.
    pub(crate) fn new(region_blocks: u32) -> Table {
        Table {
            wanted: Bitmap::none(),
            durable: Bitmap::none(),
            in_flight: vec![0; BITMAP_BITS as usize],
            touched: vec![0; BITMAP_BITS as usize],
            tick: 0,
            region_shift: region_blocks.trailing_zeros(),
            span: 1,
            credit: CREDIT_MAX,
        }
    }

    fn bits(&self, volume: u32, blocks: &Range<u64>) -> Bits {
        let first = blocks.start >> self.region_shift;
        let last = (blocks.end - 1) >> self.region_shift;
        Bits {
            first: Bitmap::bit(volume, first),
            count: (last - first + 1).min(u64::from(BITMAP_BITS)) as u32,
        }
    }

    /// A write to `blocks` begins. It may go to the origin once
    /// [`Table::is_marked`].
    pub(crate) fn begin(&mut self, volume: u32, blocks: &Range<u64>) -> Bits {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
        let bits = self.bits(volume, blocks);
        let mut missing = false;
        for bit in bits.iter() {
            self.in_flight[bit as usize] += 1;
            missing |= !self.wanted.get(bit);
            self.wanted.set(bit);
        }
        if missing && self.span > 1 {
            let span = u64::from(self.span);
            let first = (blocks.start >> self.region_shift) / span * span;
            let last = (blocks.end - 1) >> self.region_shift;
            let count = (last / span * span + span - first).min(u64::from(BITMAP_BITS));
            let run = Bits {
                first: Bitmap::bit(volume, first),
                count: count as u32,
            };
            run.iter().for_each(|bit| self.wanted.set(bit));
        }
        bits
    }

    /// Whether every device knows of a write that has begun.
    #[inline]
    pub(crate) fn is_marked(&self, bits: Bits) -> bool {
        bits.iter().all(|bit| self.durable.get(bit))
    }

    /// A write has ended.
    pub(crate) fn end(&mut self, bits: Bits) {
        for bit in bits.iter() {
            self.in_flight[bit as usize] -= 1;
            self.touched[bit as usize] = self.tick;
        }
    }

    /// Whether a line of `volume` that holds `block` may differ from the origin.
    pub(crate) fn is_suspect(&self, volume: u32, block: u64) -> bool {
        self.wanted
            .get(Bitmap::bit(volume, block >> self.region_shift))
    }

    /// Whether bits are wanted that are not on the devices.
    pub(crate) fn is_due(&self) -> bool {
        self.wanted.exceeds(&self.durable)
    }

    /// The bitmap to be written now, from whose begin on no region without a bit
    /// may be written.
    pub(crate) fn begin_image(&mut self) -> Bitmap {
        if self.credit >= WRITES_PER_BIT {
            self.credit -= WRITES_PER_BIT;
            self.span = (self.span / 2).max(1);
        } else {
            self.span = (self.span * 2).min(BITMAP_BITS.next_power_of_two() / 2);
        }
        let image = self.wanted.clone();
        self.durable.keep_only(&image);
        image
    }

    /// Every device has `image`.
    pub(crate) fn end_image(&mut self, image: Bitmap) {
        self.durable = image;
    }

    /// A device comes, and is about to get the bits that are wanted: what others
    /// have beyond these, or nobody had to have, it will not have.
    pub(crate) fn begin_newcomer(&mut self) {
        self.durable.keep_only(&self.wanted);
    }

    /// No device is left that must know: every region may be written.
    pub(crate) fn no_members(&mut self) {
        self.durable.set_all();
    }

    /// A period has passed.
    pub(crate) fn tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
    }

    /// Bits under which nothing is in flight, nor was for `ticks` periods.
    pub(crate) fn idle(&self, ticks: u32) -> Vec<u32> {
        let idle = |bit: &u32| {
            let at = *bit as usize;
            self.in_flight[at] == 0 && self.tick.wrapping_sub(self.touched[at]) >= ticks
        };
        self.wanted.iter().filter(idle).collect()
    }

    /// Clears those of `bits` that are still idle; whether there were any. They
    /// are on the devices until the next image.
    pub(crate) fn clear(&mut self, bits: &[u32], ticks: u32) -> bool {
        let mut any = false;
        for bit in bits {
            let at = *bit as usize;
            if self.in_flight[at] == 0 && self.tick.wrapping_sub(self.touched[at]) >= ticks {
                self.wanted.clear(*bit);
                self.durable.clear(*bit);
                any = true;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(table: &mut Table) {
        let image = table.begin_image();
        table.end_image(image);
    }

    #[test]
    fn a_region_is_written_only_under_a_durable_bit() {
        let mut table = Table::new(1024);
        let write = table.begin(1, &(1000..1030));
        assert!(!table.is_marked(write) && table.is_due());
        commit(&mut table);
        assert!(table.is_marked(write) && !table.is_due());
        assert!(table.is_suspect(1, 0) && table.is_suspect(1, 2047) && !table.is_suspect(1, 2048));
        assert!(table.idle(0).is_empty());
        table.end(write);
        let idle = table.idle(0);
        assert_eq!((idle.len(), table.idle(1).len()), (2, 0));
        table.tick();
        assert_eq!(table.idle(1), idle);
        let again = table.begin(1, &(0..1));
        assert!(table.is_marked(again));
        assert!(table.clear(&idle, 1));
        assert!(table.is_suspect(1, 0) && !table.is_suspect(1, 1024));
        table.end(again);
        assert!(!table.clear(&idle[..1], 1), "it was touched meanwhile");
    }

    #[test]
    fn while_a_bitmap_without_a_region_is_written_it_waits() {
        let mut table = Table::new(1024);
        let write = table.begin(1, &(0..1));
        commit(&mut table);
        table.end(write);
        let image = table.begin_image();
        table.clear(&table.idle(0), 0);
        table.end_image(image);
        // The devices still have the bit, but the next image has not.
        let next = table.begin_image();
        let write = table.begin(1, &(0..1));
        assert!(!table.is_marked(write));
        table.end_image(next);
        assert!(!table.is_marked(write) && table.is_due());
    }

    #[test]
    fn a_device_that_comes_when_nobody_listened_must_know_first() {
        let mut table = Table::new(1024);
        table.no_members();
        let before = table.begin(1, &(0..1));
        assert!(table.is_marked(before));
        table.begin_newcomer();
        let after = table.begin(1, &(1024..1025));
        assert!(
            table.is_marked(before),
            "it is wanted, so the device gets it"
        );
        assert!(!table.is_marked(after) && table.is_due());
    }

    #[test]
    fn writes_all_over_mark_in_ever_longer_runs() {
        let mut table = Table::new(1024);
        let (mut waits, mut x) = (0, 1u64);
        for _ in 0..50_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (x >> 33) % 25_000 * 1024;
            let write = table.begin(1, &(at..at + 1));
            if !table.is_marked(write) {
                commit(&mut table);
                waits += 1;
            }
            table.end(write);
        }
        assert!(waits < 50_000 / WRITES_PER_BIT + 20, "{waits} waits");
        let mut calm = Table::new(1024);
        for i in 0..5 {
            let write = calm.begin(1, &(i * 1024..i * 1024 + 1));
            commit(&mut calm);
            calm.end(write);
        }
        assert_eq!(calm.wanted.count(), 5, "few bits are exact");
    }
}
