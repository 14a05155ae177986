//! The disks that one shard has used, with their names in its ring.
//!
//! A key names a disk for as long as any operation of this shard is on it,
//! even when the host has given its number to another target.

use crate::disk::DiskHandle;
use crate::open::OpenDisk;
use crate::port::PORTS_MAX;
use crate::ring::KernelRing;
use crate::syncs::Syncs;
use block::TargetId;
use io_uring::squeue;
use slab::Slab;
use std::sync::Arc;

/// Number of disks that a ring knows as registered files; further disks work as well, a little
/// slower.
pub(crate) const REGISTERED_MAX: u32 = 256;

const UNKNOWN: usize = usize::MAX;

pub(crate) struct DiskTable {
    list: Slab<LocalDisk>,
    /// Keys in `list` by target number, where open; else `UNKNOWN`.
    keys: Vec<usize>,
    /// Keys below this are registered files.
    registered: u32,
    /// Operations that a ring has in flight at once.
    entries: u32,
}

pub(crate) struct LocalDisk {
    id: TargetId,
    pub(crate) disk: Arc<OpenDisk>,
    pub(crate) handle: DiskHandle,
    pub(crate) syncs: Syncs,
}

impl DiskTable {
    /// None yet; room for registered ones if `wanted` and the kernel agrees.
    pub(crate) fn new(ring: &KernelRing, wanted: bool, entries: u32) -> DiskTable {
        let submitter = ring.io.submitter();
        let agreed = wanted
            && submitter
                .register_files_sparse(REGISTERED_MAX + PORTS_MAX)
                .is_ok();
        DiskTable {
            list: Slab::new(),
            keys: Vec::new(),
            registered: if agreed { REGISTERED_MAX } else { 0 },
            entries,
        }
    }

    /// The key of an open disk that this shard has used before.
    #[inline]
    pub(crate) fn find(&self, id: TargetId) -> Option<usize> {
        let key = *self.keys.get(id.0 as usize)?;
        let local = self.list.get(key)?;
        (!local.disk.is_closed()).then_some(key)
    }

    #[inline]
    pub(crate) fn get(&self, key: usize) -> &LocalDisk {
        &self.list[key]
    }

    pub(crate) fn syncs(&mut self, key: usize) -> &mut Syncs {
        &mut self.list[key].syncs
    }

    /// Adds a disk at its first use here.
    pub(crate) fn add(&mut self, id: TargetId, disk: Arc<OpenDisk>, ring: &KernelRing) -> usize {
        let entry = self.list.vacant_entry();
        let key = entry.key();
        let fd = disk.fd();
        let update = |key| {
            ring.io
                .submitter()
                .register_files_update(key, &[fd])
                .is_ok()
        };
        let mut handle = match u32::try_from(key) {
            Ok(key) if key < self.registered && update(key) => DiskHandle::registered(key),
            _ => DiskHandle::plain(fd),
        };
        if disk.may_block {
            handle.flags |= squeue::Flags::ASYNC;
        }
        entry.insert(LocalDisk {
            id,
            disk,
            handle,
            syncs: Syncs::new(self.entries as usize),
        });
        let number = id.0 as usize;
        if self.keys.len() <= number {
            self.keys.resize(number + 1, UNKNOWN);
        }
        self.keys[number] = key;
        key
    }

    /// Releases closed disks, except those in use. Returns true when none is left.
    pub(crate) fn release_closed(
        &mut self,
        ring: &KernelRing,
        in_use: impl Fn(usize) -> bool,
    ) -> bool {
        let DiskTable {
            keys, registered, ..
        } = self;
        let mut none_left = true;
        self.list.retain(|key, local| {
            if !local.disk.is_closed() {
                return true;
            }
            if in_use(key) {
                none_left = false;
                return true;
            }
            let known = &mut keys[local.id.0 as usize];
            if *known == key {
                *known = UNKNOWN;
            }
            if let Ok(key) = u32::try_from(key)
                && key < *registered
            {
                // After a failure, the file stays open in the ring until the ring ends.
                let _ = ring.io.submitter().register_files_update(key, &[-1]);
            }
            false
        });
        none_left
    }
}
