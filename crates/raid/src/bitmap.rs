//! The write-intent bitmap: the regions in which members may differ after a crash, and those that
//! an absent member has missed.
//!
//! Invariants, at every instant:
//!     a write is in flight to r ⟹ r is marked durably on every live member
//!     a bit is cleared    ⟹ all members are in sync, and a flush has covered
//!                             the writes to r
//!     the map is written  ⟹ every live member has the write before (`writes`), so that one with
//!                             less is an older image of itself
//!
//! A bit costs a write. So the bits near a write are set with its own, and a bit that is set again
//! soon after was cleared in vain: where most were, bits are left longer.
//!
//! Not here: copying regions (`maintenance`).

use crate::members::ArrayMembers;
use crate::progress::SuspectRegions;
use block::{Extent, Intent, IoResult, Mutex, Nanos, Proof, Regions, Sectors};
use futures_util::future::join_all;
use layout::array::bitmap::{self, REGIONS, REGIONS_MAX};
use layout::{BLOCK_BYTES, Uuid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// Bits are left at most this many doublings of the least time.
const STRETCH_MAX: u32 = 6;

pub(crate) struct IntentBitmap {
    intent: Intent,
    region: Sectors,
    data_at: Sectors,
    /// The blocks of the bitmap with marks that are not written.
    stale: RefCell<BTreeSet<usize>>,
    writing: Mutex,
    /// The number of bits that the last round cleared, those of them that were not marked since,
    /// and the number of those that were.
    cleared: Cell<usize>,
    unmarked: RefCell<BTreeSet<usize>>,
    again: Cell<usize>,
    /// Number of doublings of the time that bits are left.
    stretch: Cell<u32>,
    /// The members have all of the last write of the map.
    is_written: Cell<bool>,
}

/// Least region of a bitmap of more than one block: smaller regions would cost more writes than
/// they save.
const REGION: Sectors = Sectors::from_mib(64);

/// Returns the size of an array's regions, a multiple of its stripes: as small as one block of the
/// bitmap has bits for, but for large arrays [`REGION`], and at least 64 KiB.
pub(crate) fn region_for(sectors: Sectors, width: Sectors) -> Sectors {
    let of = |regions: usize| sectors.0.div_ceil(regions as u64);
    let least = of(REGIONS).min(REGION.0).max(of(REGIONS_MAX)).max(128);
    Sectors(least.div_ceil(width.0) * width.0)
}

impl IntentBitmap {
    pub fn new(sectors: Sectors, region: Sectors, data_at: Sectors) -> IntentBitmap {
        let regions = sectors.0.div_ceil(region.0) as usize;
        IntentBitmap {
            intent: Intent::new(regions),
            region,
            data_at,
            stale: RefCell::default(),
            writing: Mutex::default(),
            cleared: Cell::new(0),
            unmarked: RefCell::default(),
            again: Cell::new(0),
            stretch: Cell::new(0),
            is_written: Cell::new(true),
        }
    }

    /// Returns the idle time of a region until its bit is cleared, at least `least`.
    pub fn clear_after(&self, least: Nanos) -> Nanos {
        Nanos(least.0.saturating_mul(1 << self.stretch.get()))
    }

    /// Adapts the idle time to the bits that the last round cleared.
    fn adapt(&self) {
        let (cleared, again) = (self.cleared.replace(0), self.again.replace(0));
        let stretch = self.stretch.get();
        self.stretch.set(match cleared {
            0 => stretch,
            _ if 2 * again > cleared => STRETCH_MAX.min(stretch + 1),
            _ => stretch.saturating_sub(1),
        });
    }

    pub fn regions(&self) -> usize {
        self.intent.regions()
    }

    /// True if no region is marked.
    fn is_clear(&self) -> bool {
        self.intent.marked().is_empty()
    }

    pub fn region_of(&self, extent: Extent) -> Range<usize> {
        let first = extent.start.0 / self.region.0;
        let end = extent.end().0.div_ceil(self.region.0);
        first as usize..end as usize
    }

    /// Returns the sectors of a region.
    pub fn extent(&self, region: usize, array: Sectors) -> Extent {
        let start = region as u64 * self.region.0;
        let len = self.region.0.min(array.0 - start);
        Extent::new(block::Lba(start), Sectors(len))
    }

    /// Returns the number of blocks of the bitmap.
    pub fn blocks(&self) -> usize {
        bitmap::blocks(self.regions())
    }

    /// Returns the place of a block of the bitmap on a member.
    pub fn place(&self, block: usize) -> Sectors {
        bitmap::place(self.regions(), self.data_at, block)
    }

    /// Continues after `writes` writes of the bitmap. The last one counts as being on all members
    /// only with `is_written`.
    pub fn resume_after(&self, members: &ArrayMembers, writes: u32, is_written: bool) {
        members.set_map_writes(writes);
        self.is_written.set(is_written);
    }

    /// True if nothing is marked, and every live member has the last write.
    pub fn is_known(&self) -> bool {
        self.is_clear() && self.is_written.get()
    }

    /// Takes over a block of the bitmap that was found on a member.
    pub fn adopt(&self, number: usize, block: &[u8], array: Uuid) {
        let regions = self.regions();
        bitmap::decode(block, array, number, |index| {
            let region = number * REGIONS + index;
            if region < regions {
                self.intent.mark(region);
            }
        });
    }

    /// Returns the regions that are marked.
    pub fn marked_regions(&self) -> Vec<usize> {
        self.intent.marked().iter().collect()
    }

    /// Begins a write to `extent`; returns once its regions are durably marked. `Err`: the members
    /// must not be touched. [`IntentBitmap::end`] follows either.
    pub async fn begin(&self, members: &Rc<ArrayMembers>, extent: Extent) -> IoResult<Proof> {
        let range = self.region_of(extent);
        for region in range.clone() {
            if self.intent.begin(region) {
                self.note_marked(region);
            }
        }
        let proof = || self.intent.proof(range.clone());
        if let Some(proof) = proof() {
            return Ok(proof);
        }
        let now = members.env.timer.now();
        self.mark_ahead(&range, members.options.mark_ahead, now);
        let unproved = |region: &usize| self.intent.proof(*region..region + 1).is_none();
        let stale = range.clone().filter(unproved).map(|r| r / REGIONS);
        self.stale.borrow_mut().extend(stale);
        Box::pin(self.write(members, || proof().is_some())).await?;
        Ok(proof().expect("marked, and written since"))
    }

    /// Marks the regions near `range`, of the blocks that are written for that anyhow.
    fn mark_ahead(&self, range: &Range<usize>, ahead: Sectors, now: Nanos) {
        let group = ((ahead.0 / self.region.0) as usize).max(1);
        let first = (range.start / group * group).max(range.start / REGIONS * REGIONS);
        let end = range.end.next_multiple_of(group);
        let end = end
            .min(range.end.next_multiple_of(REGIONS))
            .min(self.regions());
        for region in first..end {
            if self.intent.expect(region, now.0) {
                self.note_marked(region);
            }
        }
    }

    /// Notes that a region was marked, which may have been cleared in vain.
    fn note_marked(&self, region: usize) {
        let in_vain = self.unmarked.borrow_mut().remove(&region);
        self.again.set(self.again.get() + usize::from(in_vain));
    }

    /// Ends a write.
    pub fn end(&self, extent: Extent, now: Nanos) {
        for region in self.region_of(extent) {
            self.intent.end(region, now.0);
        }
    }

    /// Writes the stale blocks of the bitmap to every live member, unless `is_done` by then.
    async fn write(&self, members: &Rc<ArrayMembers>, is_done: impl Fn() -> bool) -> IoResult {
        let _alone = self.writing.lock().await;
        if is_done() {
            return Ok(());
        }
        let mut stale = std::mem::take(&mut *self.stale.borrow_mut());
        let image = self.intent.image();
        match self.is_written.get() {
            // Another write has taken the blocks. A count that no member has got would make two
            // writes of one.
            true if stale.is_empty() => {}
            true => members.set_map_writes(members.map_writes().wrapping_add(1)),
            // A write that was cut short is written again, with the same count.
            false => stale.extend(0..self.blocks()),
        }
        self.is_written.set(false);
        self.write_blocks(members, &stale, &image).await?;
        // The blocks that are not stale are as the last image had them.
        let _ = image.written();
        self.is_written.set(true);
        Ok(())
    }

    async fn write_blocks(
        &self,
        members: &Rc<ArrayMembers>,
        blocks: &BTreeSet<usize>,
        marked: &Regions,
    ) -> IoResult {
        for block in blocks {
            let mut buf = members.env.pool.take(BLOCK_BYTES);
            let (first, end) = (block * REGIONS, self.regions().min((block + 1) * REGIONS));
            let here = (first..end).filter(|region| marked.has(*region));
            let here: Vec<_> = here.map(|region| region - first).collect();
            bitmap::encode(
                &mut buf,
                members.meta().array,
                *block,
                members.map_writes(),
                &here,
            );
            let (image, place) = (buf.share(), self.place(*block));
            let live = members.live();
            let writes = live
                .iter()
                .map(|(_, member)| member.write_meta(place, image.clone()));
            let results = join_all(writes).await;
            for ((_, member), result) in live.iter().zip(results) {
                if members.judge(member, result)? {
                    member.lacks_map.set(false);
                }
            }
        }
        members.commit().await
    }

    /// Writes all of the bitmap as it is marked.
    pub async fn write_now(self: &Rc<IntentBitmap>, members: &Rc<ArrayMembers>) -> IoResult {
        self.stale.borrow_mut().extend(0..self.blocks());
        let (bitmap, writing) = (self.clone(), members.clone());
        let writes = async move { bitmap.write(&writing, || false).await };
        // A write that has begun keeps the next out, even if its caller has given up.
        members.env.spawn.persist(writes).await
    }

    /// Rewrites the blocks of the bitmap that members cannot read; returns their number.
    pub async fn mend(&self, members: &Rc<ArrayMembers>) -> IoResult<u64> {
        let mut illegible = 0;
        for block in 0..self.blocks() {
            let _alone = self.writing.lock().await;
            for (role, member) in members.live() {
                let buf = members.env.pool.take(BLOCK_BYTES);
                let (buf, result) = member.read_meta(self.place(block), buf).await;
                let legible =
                    result.is_ok() && bitmap::is_legible(&buf, members.meta().array, block);
                if members.is_in_sync(role) && !legible {
                    illegible += 1;
                    self.stale.borrow_mut().insert(block);
                }
            }
        }
        if illegible > 0 {
            self.write(members, || false).await?;
        }
        Ok(illegible)
    }

    /// Clears the bits of regions that are idle since `before`. A flush has covered the writes to
    /// them. All members must be in sync, and the copies of `suspects` may differ.
    pub async fn clear(
        &self,
        members: &Rc<ArrayMembers>,
        suspects: &SuspectRegions,
        before: Nanos,
    ) -> IoResult {
        self.adapt();
        let mut idle = self.intent.idle(before.0);
        idle.retain(|region| !suspects.has(*region));
        self.cleared.set(self.intent.clear(&idle, before.0));
        let blocks = idle.iter().map(|region| region / REGIONS);
        self.stale.borrow_mut().extend(blocks);
        // A write that has begun is waited for, and one that has failed is repeated.
        let any = !idle.is_empty() || !self.is_written.get();
        *self.unmarked.borrow_mut() = idle.into_iter().collect();
        match any {
            true => self.write(members, || false).await,
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_region_ends_with_the_array() {
        let bitmap = IntentBitmap::new(Sectors(1000), Sectors(128), Sectors(2048));
        assert_eq!(bitmap.regions(), 8);
        let last = bitmap.extent(7, Sectors(1000));
        assert_eq!(last, Extent::new(block::Lba(896), Sectors(104)));
        assert_eq!(bitmap.region_of(last), 7..8);
        assert_eq!(bitmap.extent(0, Sectors(1000)).len, Sectors(128));
    }

    #[test]
    fn regions_of_large_arrays_have_64_mib() {
        let width = Sectors(8);
        let tib = |tib: u64| Sectors::from_mib(tib << 20);
        assert_eq!(region_for(Sectors::from_mib(1), width), Sectors(128));
        assert_eq!(region_for(tib(1), width).bytes() >> 20, 34);
        assert_eq!(region_for(tib(20), width), REGION);
        assert_eq!(region_for(tib(100), width).bytes() >> 20, 213);
        assert!(tib(100).0.div_ceil(region_for(tib(100), width).0) <= REGIONS_MAX as u64);
    }

    #[test]
    fn what_is_marked_ahead_lies_in_the_group_and_the_block_of_a_write() {
        let sectors = Sectors(128 * (REGIONS as u64 + 8));
        let marked = |range: Range<usize>, ahead| {
            let bitmap = IntentBitmap::new(sectors, Sectors(128), Sectors(2048));
            bitmap.mark_ahead(&range, Sectors(ahead), Nanos(1));
            let marked = bitmap.marked_regions();
            marked
                .first()
                .map(|first| *first..marked[marked.len() - 1] + 1)
        };
        assert_eq!(marked(5..6, 0), Some(5..6));
        assert_eq!(marked(5..6, 128 * 4), Some(4..8));
        assert_eq!(marked(3..6, 128 * 4), Some(0..8));
        let end = REGIONS - 1..REGIONS;
        assert_eq!(marked(end, 128 * 7), Some(REGIONS / 7 * 7..REGIONS));
        let last = REGIONS + 7..REGIONS + 8;
        assert_eq!(marked(last, 128 * 4096), Some(REGIONS..REGIONS + 8));
    }

    /// Bits are left twice as long where more than half were cleared in vain.
    #[test]
    fn bits_that_were_cleared_in_vain_are_left_longer() {
        let bitmap = IntentBitmap::new(Sectors(1024), Sectors(128), Sectors(2048));
        let after = |cleared, again| {
            bitmap.cleared.set(cleared);
            bitmap.again.set(again);
            bitmap.adapt();
            bitmap.clear_after(Nanos(10)).0
        };
        assert_eq!(after(4, 2), 10);
        assert_eq!(after(4, 3), 20);
        assert_eq!(after(0, 0), 20, "nothing is learnt of nothing");
        assert_eq!(after(1, 1), 40);
        assert_eq!(after(4, 2), 20);
        for _ in 0..2 * STRETCH_MAX {
            after(1, 1);
        }
        assert_eq!(after(1, 1), 10 << STRETCH_MAX);
        assert_eq!(after(1, 0), 10 << (STRETCH_MAX - 1));
    }
}
