//! A guest for tests: memory, and a ring in that memory with any contents.

use crate::device::DiskLock;
use crate::inflight::Marks;
use crate::memory::Memory;
use std::sync::Arc;
use std::sync::atomic::{Ordering::*, fence};
use vm_memory::{Bytes, GuestAddress, MmapRegion};

/// Beginning of the memory, and its bytes.
pub(crate) const BASE: u64 = 1 << 20;
pub(crate) const BYTES: u64 = 8 << 20;
const AVAILABLE: u64 = BASE + 0x1_0000;
const USED: u64 = BASE + 0x2_0000;
/// Beginning of the buffers.
pub(crate) const BUFFERS: u64 = BASE + 0x4_0000;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// A descriptor in the format of the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawDescriptor {
    pub(crate) at: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

pub(crate) struct GuestMemory {
    pub(crate) memory: Arc<Memory>,
    pub(crate) len: u16,
    offered: u16,
    seen: u16,
}

impl GuestMemory {
    pub(crate) fn new(len: u16) -> GuestMemory {
        GuestMemory::with(len, MmapRegion::new(BYTES as usize).unwrap())
    }

    /// A guest with this memory.
    pub(crate) fn with(len: u16, map: MmapRegion) -> GuestMemory {
        GuestMemory {
            memory: Arc::new(Memory::new(vec![(GuestAddress(BASE), map)]).unwrap()),
            len,
            offered: 0,
            seen: 0,
        }
    }

    /// Sets the guest's ring up as the first of `disk`.
    pub(crate) fn attach(&self, disk: &DiskLock, marks: Option<&Marks>) {
        let mut device = disk.lock();
        let ring = &mut device.rings[0];
        ring.queue.try_set_size(self.len).unwrap();
        for (set, at) in [
            (ring.queue.try_set_desc_table_address(GuestAddress(BASE)), 0),
            (
                ring.queue
                    .try_set_avail_ring_address(GuestAddress(AVAILABLE)),
                1,
            ),
            (ring.queue.try_set_used_ring_address(GuestAddress(USED)), 2),
        ] {
            assert!(set.is_ok(), "address {at}");
        }
        ring.enabled = true;
        let marks = marks.map(|marks| marks.ring(0, self.len).unwrap());
        ring.start(self.memory.clone(), marks).unwrap();
        device.rouse();
    }

    /// Puts a descriptor into the table at `table`.
    pub(crate) fn put(&self, table: u64, at: u16, raw: RawDescriptor) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&raw.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&raw.len.to_le_bytes());
        bytes[12..14].copy_from_slice(&raw.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&raw.next.to_le_bytes());
        let place = GuestAddress(table + u64::from(at) * 16);
        self.memory.write_slice(&bytes, place).unwrap();
    }

    /// Makes the chain that begins at `head` available.
    pub(crate) fn offer(&mut self, head: u16) {
        let place = AVAILABLE + 4 + u64::from(self.offered % self.len) * 2;
        self.memory.write_obj(head, GuestAddress(place)).unwrap();
        self.jump(self.offered.wrapping_add(1));
    }

    /// Sets the number of chains made available.
    pub(crate) fn jump(&mut self, offered: u16) {
        fence(SeqCst);
        self.offered = offered;
        let place = GuestAddress(AVAILABLE + 2);
        self.memory.write_obj(offered, place).unwrap();
    }

    /// Returns the next chain that was given back, and the number of bytes written to that chain.
    pub(crate) fn used(&mut self) -> Option<(u32, u32)> {
        let used: u16 = self.memory.read_obj(GuestAddress(USED + 2)).unwrap();
        fence(SeqCst);
        if used == self.seen {
            return None;
        }
        let place = USED + 4 + u64::from(self.seen % self.len) * 8;
        self.seen = self.seen.wrapping_add(1);
        let head = self.memory.read_obj(GuestAddress(place)).unwrap();
        Some((head, self.memory.read_obj(GuestAddress(place + 4)).unwrap()))
    }
}
