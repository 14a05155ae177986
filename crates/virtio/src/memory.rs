//! A guest's memory, as passed by its monitor: mapped parts of files.

use crate::fault::MappingWatch;
use std::io;
use std::ops::Deref;
use vm_memory::MmapRegion;
use vm_memory::{
    GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};

/// Memory that its monitor may take away; reads give zeroes then.
pub(crate) struct Memory {
    /// Dropped before the mappings.
    watches: Vec<MappingWatch>,
    parts: GuestMemoryMmap<()>,
}

impl Memory {
    /// Memory of these parts, each at its address.
    pub(crate) fn new(parts: Vec<(GuestAddress, MmapRegion)>) -> io::Result<Memory> {
        let overlap = || io::Error::other("parts of the guest's memory overlap");
        let placed = parts
            .into_iter()
            .map(|(at, map)| GuestRegionMmap::new(map, at));
        let mut placed: Vec<_> = placed.collect::<Option<_>>().ok_or_else(overlap)?;
        placed.sort_by_key(GuestMemoryRegion::start_addr);
        let parts = GuestMemoryMmap::from_regions(placed).map_err(io::Error::other)?;
        let watches = parts.iter().map(|part| {
            // SAFETY: a mapping of its own, which belongs to a value that outlives the watch and is
            // accessed by volatile copies alone.
            unsafe { MappingWatch::begin(part.as_ptr(), part.size()) }
        });
        let watches = watches.collect::<io::Result<_>>()?;
        Ok(Memory { watches, parts })
    }

    /// Returns the memory as `vm-memory` and `virtio-queue` take it.
    pub(crate) fn parts(&self) -> &GuestMemoryMmap<()> {
        &self.parts
    }

    /// True if a part was taken away, so that earlier reads may be wrong.
    pub(crate) fn is_lost(&self) -> bool {
        self.watches.iter().any(MappingWatch::is_lost)
    }
}

impl Deref for Memory {
    type Target = GuestMemoryMmap<()>;

    fn deref(&self) -> &GuestMemoryMmap<()> {
        &self.parts
    }
}
