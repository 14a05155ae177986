//! The volumes that a pool remembers, and the records of their origins.

use super::PoolMetadata;
use super::bitmap::Marking;
use super::superblocks::write_superblocks;
use crate::cache::Cache;
use block::{Device, Sectors};
use layout::{ORIGIN_RECORD_BYTES_MAX, VOLUME_QUIESCED, VolumeRecord};
use std::rc::Rc;

impl<P: Device> Cache<P> {
    fn durable(&self) -> Option<&Rc<PoolMetadata>> {
        self.0.durable.as_ref()
    }

    /// The names and sizes of the volumes that may have lines in the pool.
    pub fn remembered(&self) -> Vec<(String, Sectors)> {
        self.durable().map_or_else(Vec::new, |durable| {
            let pool = durable.superblock.now();
            let each = pool
                .volumes
                .values()
                .map(|v| (v.name.clone(), Sectors(v.sectors)));
            each.collect()
        })
    }

    /// The last record of a volume's origin; empty if none exists.
    pub fn origin_record(&self, volume: &str) -> Vec<u8> {
        let find = |durable: &Rc<PoolMetadata>| {
            let pool = durable.superblock.now();
            pool.named(volume).map(|v| v.origin.clone())
        };
        self.durable().and_then(find).unwrap_or_default()
    }

    /// Keeps `record` about the origin of a volume, from the next
    /// [`Cache::remember`] on. False, and nothing is changed, if the pool does
    /// not remember the volume or the record is too long.
    pub fn set_origin_record(&self, volume: &str, record: &[u8]) -> bool {
        let Some(durable) = self.durable() else {
            return false;
        };
        let Some(id) = durable.superblock.now().named(volume).map(|v| v.id) else {
            return false;
        };
        if record.len() > ORIGIN_RECORD_BYTES_MAX {
            return false;
        }
        durable.change_volume(id, |row| row.origin = record.to_vec());
        durable.note();
        true
    }

    /// Keeps the lines of a volume until it is added with `sectors`: more than before, with the
    /// same contents in all earlier sectors. Durable by the next [`Cache::remember`].
    pub fn grow(&self, volume: &str, sectors: Sectors) {
        let Some(durable) = self.durable() else {
            return;
        };
        let known = durable.superblock.now().named(volume).map(|v| v.id);
        if let Some(id) = known {
            durable.change_volume(id, |row| row.sectors = sectors.0);
            durable.note();
        }
    }

    /// Forgets the lines of a volume that has not been added: once added, it has none. O(1);
    /// durable by the next [`Cache::remember`].
    pub fn forget(&self, volume: &str) {
        let Some(durable) = self.durable() else {
            return;
        };
        durable.superblock.change(|pool| pool.forget(volume));
        durable.note();
    }

    /// Makes the pool's table of volumes durable.
    pub async fn remember(&self) {
        let Some(durable) = self.durable().cloned() else {
            return;
        };
        let core = self.0.clone();
        let writing = async move {
            // The holder of the lock may still be writing them.
            let _held = durable.lock.lock().await;
            if durable.superblock.is_due() {
                write_superblocks(&core, &durable).await;
            }
        };
        // Memory takes writes in flight for written.
        self.0.env.spawn.persist(writing).await;
    }

    /// Makes blocks that are suspect under the id `old` of a volume suspect under `id` too: a
    /// failed write may land there yet. Every member knows that on return.
    pub(crate) async fn suspect_again(&self, old: u32, id: u32) {
        let Some(durable) = self.durable() else {
            return;
        };
        let loose = durable.loose.borrow().clone();
        for (_, blocks) in loose.iter().filter(|(volume, _)| *volume == old) {
            let marking = Marking::begin(durable, id, blocks);
            marking.stay();
            let _known = marking.known().await;
        }
    }

    /// Sets whether the next incarnation forgets the lines of the volume with this id; durable by
    /// the next [`Cache::remember`].
    pub(crate) fn set_quiesced(&self, id: u32, quiesced: bool) {
        let Some(durable) = self.durable() else {
            return;
        };
        let flag = if quiesced { VOLUME_QUIESCED } else { 0 };
        let differs = |v: &VolumeRecord| v.flags & VOLUME_QUIESCED != flag;
        if !durable
            .superblock
            .now()
            .volumes
            .get(&id)
            .is_some_and(differs)
        {
            return;
        }
        durable.change_volume(id, |row| row.flags ^= VOLUME_QUIESCED);
        durable.note();
    }
}

impl PoolMetadata {
    fn change_volume(&self, id: u32, change: impl FnOnce(&mut VolumeRecord)) {
        self.superblock.change(|pool| {
            if let Some(row) = Rc::make_mut(&mut pool.volumes).get_mut(&id) {
                change(row);
            }
        });
    }

    /// Gives the volume with the id `old` another, under which the volume has no lines and no
    /// record of its origin. O(1); durable by the next [`Cache::remember`]. No write of the volume
    /// may be in flight, or not be durable: its bits are found by its id. `None` if there are no
    /// more ids.
    pub(crate) fn renumber(&self, old: u32) -> Option<u32> {
        let id = self.superblock.now().next_volume;
        let is_known = self.superblock.now().volumes.contains_key(&old);
        if !is_known || id >= crate::lines::VOLUME_IDS {
            return None;
        }
        self.superblock.change(|pool| {
            pool.next_volume += 1;
            let volumes = Rc::make_mut(&mut pool.volumes);
            if let Some(mut row) = volumes.remove(&old) {
                row.id = id;
                row.origin.clear();
                volumes.insert(id, row);
            }
        });
        let mut origins = self.origins.borrow_mut();
        if let Some(origin) = origins.remove(&old) {
            origins.insert(id, origin);
        }
        self.note();
        Some(id)
    }
}
