//! A write-intent bitmap in memory: the regions that may differ after a crash, the devices'
//! knowledge of them, and the writes in each.
//!
//! Invariants:
//!     a write begins ⟹ its regions are marked until they are cleared
//!     there is a `Proof` that regions are marked ⟹ after a power cut at any point of the writes of
//!         the bitmap so far, every holder has them marked (`Durable`)
//!     a region is cleared ⟹ no write is in it, nor ended in it since the given time
//!
//! Not here: the holders of the bitmap and its write; the state that has to be durable before a
//! region is cleared; the time before that, and the number of regions marked at once, so that marks
//! cost little.

use crate::{Durable, Proof, Regions, StateImage};
use std::cell::{Ref, RefCell};

/// The writes in a region.
#[derive(Clone, Copy, Debug, Default)]
struct RegionWrites {
    in_flight: u32,
    /// Time at which the last of them ended, by the user's clock.
    ended: u64,
}

/// A write-intent bitmap of a number of regions.
#[derive(Debug)]
pub struct Intent {
    marked: Durable<Regions>,
    writes: RefCell<Vec<RegionWrites>>,
}

impl Intent {
    /// No region is marked, nor any known to be.
    pub fn new(regions: usize) -> Intent {
        Intent {
            marked: Durable::found(Regions::none(regions), 0),
            writes: RefCell::new(vec![RegionWrites::default(); regions]),
        }
    }

    /// The number of regions.
    pub fn regions(&self) -> usize {
        self.writes.borrow().len()
    }

    /// The regions that are marked, if not on every device yet.
    pub fn marked(&self) -> Ref<'_, Regions> {
        self.marked.now()
    }

    /// Marks a region. Returns true if the region was not marked.
    pub fn mark(&self, region: usize) -> bool {
        let new = !self.marked.now().has(region);
        if new {
            self.marked.change(|marked| marked.add(region));
        }
        new
    }

    /// Marks a region in which a write is expected, as if one had ended `now`. Returns true if the
    /// region was not marked.
    pub fn expect(&self, region: usize, now: u64) -> bool {
        let new = self.mark(region);
        if new {
            self.writes.borrow_mut()[region].ended = now;
        }
        new
    }

    /// Marks the regions that a device has marked.
    pub fn found(&self, regions: &Regions) {
        self.marked.change(|marked| marked.merge(regions));
    }

    /// Marks every region, for the bitmap found is unusable.
    pub fn found_all(&self) {
        self.marked.change(Regions::add_all);
    }

    /// Begins a write to a region, which marks the region. Returns true if it was not marked.
    /// Nothing may be written before there is a [`Intent::proof`]. [`Intent::end`] must follow.
    pub fn begin(&self, region: usize) -> bool {
        self.writes.borrow_mut()[region].in_flight += 1;
        self.mark(region)
    }

    /// A write has ended, now.
    pub fn end(&self, region: usize, now: u64) {
        let writes = &mut self.writes.borrow_mut()[region];
        writes.in_flight -= 1;
        writes.ended = now;
    }

    /// Proof that every holder has all of `regions` marked.
    #[inline]
    pub fn proof(&self, regions: impl Iterator<Item = usize> + Clone) -> Option<Proof> {
        self.marked
            .proof(|held| regions.clone().all(|region| held.has(region)))
    }

    /// True if a region is marked that some holder may not have.
    pub fn is_due(&self) -> bool {
        let marked = self.marked.now();
        self.marked.proof(|held| marked.are_in(held)).is_none()
    }

    /// The bitmap to be written now to every holder. From its begin on no region outside the bitmap
    /// may be written.
    pub fn image(&self) -> StateImage<'_, Regions> {
        self.marked.begin()
    }

    /// Notes that no holder is left that must know: every region may be written. A new holder is
    /// given an [`Intent::image`] first.
    pub fn no_holders(&self) {
        self.marked.no_holders();
    }

    /// The marked regions in which nothing is in flight, and nothing has ended since `before`.
    pub fn idle(&self, before: u64) -> Vec<usize> {
        let marked = self.marked.now();
        let regions = marked.iter();
        regions.filter(|r| self.is_idle(*r, before)).collect()
    }

    /// Clears those of `regions` that are still idle. Returns their number. Holders have them
    /// marked until the next image.
    pub fn clear(&self, regions: &[usize], before: u64) -> usize {
        let idle = regions.iter().filter(|r| self.is_idle(**r, before));
        let idle: Vec<_> = idle.collect();
        if !idle.is_empty() {
            self.marked
                .change(|marked| idle.iter().for_each(|region| marked.remove(**region)));
        }
        idle.len()
    }

    fn is_idle(&self, region: usize, before: u64) -> bool {
        let writes = self.writes.borrow()[region];
        writes.in_flight == 0 && writes.ended < before
    }
}
