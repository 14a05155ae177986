//! A guest's memory, as its monitor has passed it: files that are mapped here and there.

use crate::fault::Watch;
use std::io;
use std::ops::Deref;
use vm_memory::MmapRegion;
use vm_memory::{
    GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};

/// Memory that its monitor may take away; what is read then is zeroes.
pub(crate) struct Memory {
    /// Dropped before what they watch.
    watches: Vec<Watch>,
    parts: GuestMemoryMmap<()>,
}

impl Memory {
    /// Of these parts, each at its address.
    pub(crate) fn new(parts: Vec<(GuestAddress, MmapRegion)>) -> io::Result<Memory> {
        let overlap = || io::Error::other("parts of the guest's memory overlap");
        let placed = parts
            .into_iter()
            .map(|(at, map)| GuestRegionMmap::new(map, at));
        let mut placed: Vec<_> = placed.collect::<Option<_>>().ok_or_else(overlap)?;
        placed.sort_by_key(GuestMemoryRegion::start_addr);
        let parts = GuestMemoryMmap::from_regions(placed).map_err(io::Error::other)?;
        let watches = parts.iter().map(|part| {
            // SAFETY: a mapping of its own, which is part of what outlives the watch and is
            // reached by volatile copies alone.
            unsafe { Watch::begin(part.as_ptr(), part.size()) }
        });
        let watches = watches.collect::<io::Result<_>>()?;
        Ok(Memory { watches, parts })
    }

    /// What `vm-memory` and `virtio-queue` take.
    pub(crate) fn parts(&self) -> &GuestMemoryMmap<()> {
        &self.parts
    }

    /// Whether some of it was taken away, so that what was read of it may be wrong.
    pub(crate) fn is_lost(&self) -> bool {
        self.watches.iter().any(Watch::is_lost)
    }
}

impl Deref for Memory {
    type Target = GuestMemoryMmap<()>;

    fn deref(&self) -> &GuestMemoryMmap<()> {
        &self.parts
    }
}
