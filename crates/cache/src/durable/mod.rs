//! The memory of a cache over restarts: the pool's metadata and the rules of writing it.
//!
//! ```text
//! a client's write ─> mark ──────────> bitmap of every member ─> origin
//! a change of the map ─> changes ─> commit ─> log ─> checkpoint ─> map
//! a member lost ─> superblocks of all others and of the witness
//! ```
//!
//! Invariants, at every instant:
//!     a write to the origin in region r is in flight
//!         ⟹ every member that may ever be trusted again has r marked
//!     a member was lost ⟹ no region that the member has not marked is written before
//!         all others, and the witness, know that the member is stale
//!     an id of a volume is in a log, or a write under that id is in flight
//!         ⟹ the superblocks of all members and of the witness have given the id
//!     r is not marked on a member ⟹ its log and its map agree with the durable
//!         contents of the origin in r
//!
//! The order of steps is in the file of each operation. `docs/failure-model.md` lists the failures
//! that a pool survives, and those that it does not.

mod bitmap;
pub(crate) mod changes;
mod commit;
mod discards;
mod durability;
mod hints;
mod io;
mod membership;
mod open;
mod readmit;
mod store;
mod superblocks;
mod table;
mod trim;
mod volumes;
mod warm;

pub(crate) use bitmap::Marking;
use discards::ClientDiscards;
pub use durability::Durability;
pub use open::{DeviceFindings, OpenReport, OpenedPool, origin_record_on};
use store::SuperblockCopies;
pub(crate) use store::{MemberStore, NewStore};
use table::Bits;

use crate::writes::OriginDurability;
use block::{BoxDevice, Mutex, Proof, Signal};
use layout::{PoolSuperblock, Uuid, VolumeRecord, VolumeTable};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use table::DurableVolumes;

/// Blocks of a region that a bit stands for: 4 MiB. The bits of a volume up
/// to 126 GiB are exact to this, those of larger ones share bits.
pub(crate) const REGION_BLOCKS: u32 = 1024;

/// The state of a pool that is kept on its devices.
pub(crate) struct PoolMetadata {
    pub(crate) label: String,
    pub(crate) host: String,
    pub(crate) witness: Option<BoxDevice>,
    witness_uuid: Cell<Uuid>,
    /// The superblock of the witness.
    record: RefCell<Option<PoolSuperblock>>,
    witness_copies: SuperblockCopies,
    pub(crate) pool: Uuid,
    /// The content of all superblocks, and the part that is known to be on all.
    superblock: block::Durable<PoolState>,
    /// Volumes that were encoded last, and how.
    encoded: RefCell<(Volumes, VolumeTable)>,
    /// Incarnation of log blocks written since the pool was opened.
    incarnation: Cell<u32>,
    /// A member was lost since the superblocks were written.
    departed: Cell<bool>,
    /// The devices have bits that are not wanted any more.
    image_due: Cell<bool>,
    /// Members whose map is being read.
    loading: Cell<usize>,
    closed: Cell<bool>,
    table: DurableVolumes,
    /// Places of failed writes that may land yet, with the volume's id.
    loose: RefCell<Vec<(u32, Range<u64>)>>,
    /// Discards of clients that are to be handed on to the pool.
    discarded: ClientDiscards,
    /// Writes of the volumes' origins, by id.
    origins: RefCell<BTreeMap<u32, Rc<OriginDurability>>>,
    /// Held during writes of superblocks or bitmaps.
    lock: Mutex,
    /// Held during a commit.
    committing: Mutex,
    signal: Signal,
    marked: Signal,
    activity: Signal,
    warmed: Signal,
}

/// The content of all superblocks of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    epoch: u64,
    /// The pool was closed in order.
    clean: bool,
    /// The id of the next volume that comes.
    next_volume: u32,
    volumes: Volumes,
}

/// The volumes that a pool remembers, by id. Images share one map until it changes.
type Volumes = Rc<BTreeMap<u32, VolumeRecord>>;

impl PoolState {
    /// True without room for another volume than `room`, or without another id.
    fn is_full(&self, room: usize) -> bool {
        self.next_volume >= crate::lines::VOLUME_IDS || self.volumes.len() >= room
    }

    fn named(&self, name: &str) -> Option<&VolumeRecord> {
        self.volumes.values().find(|volume| volume.name == name)
    }

    fn forget(&mut self, name: &str) {
        if let Some(id) = self.named(name).map(|volume| volume.id) {
            Rc::make_mut(&mut self.volumes).remove(&id);
        }
    }
}

impl PoolMetadata {
    /// A member is out of the pool, in memory so far.
    pub(crate) fn member_left(&self) {
        self.departed.set(true);
        self.signal.notify();
    }

    /// The cache is gone: the tasks end.
    pub(crate) fn end(&self) {
        self.signal.notify();
        self.activity.notify();
    }

    /// The map or the bitmap has changed.
    pub(crate) fn note(&self) {
        self.activity.notify();
    }

    /// The greatest sequence number that the witness has given.
    fn given(&self) -> u64 {
        self.record
            .borrow()
            .as_ref()
            .map_or(0, |superblock| superblock.given)
    }

    /// True if ids were given that the superblocks do not have. Neither a write nor a record of the
    /// log may be under such an id, for after a crash the id is given again.
    pub(crate) fn ids_are_due(&self) -> bool {
        self.ids_known().is_none()
    }

    /// Proof that the superblocks have all ids which were given.
    fn ids_known(&self) -> Option<Proof> {
        let next = self.superblock.now().next_volume;
        self.superblock.proof(|held| held.next_volume >= next)
    }

    /// The volumes of `pool` as superblocks have them.
    fn table_of(&self, pool: &PoolState) -> VolumeTable {
        let mut encoded = self.encoded.borrow_mut();
        if !Rc::ptr_eq(&encoded.0, &pool.volumes) {
            let table = VolumeTable::of(pool.volumes.values());
            *encoded = (pool.volumes.clone(), table);
        }
        encoded.1.clone()
    }

    /// Returns the id of a volume: a new one if the volume is not remembered, or has another size.
    /// `None` if as many are remembered as there is `room` for.
    pub(crate) fn volume_id(&self, name: &str, sectors: u64, room: usize) -> Option<u32> {
        {
            let now = self.superblock.now();
            match now.named(name) {
                Some(known) if known.sectors == sectors => return Some(known.id),
                None if now.is_full(room) => return None,
                _ => {}
            }
        }
        let id = self.superblock.change(|pool| {
            // Its end may have been cut off and grown again since.
            pool.forget(name);
            if pool.is_full(room) {
                return None;
            }
            let id = pool.next_volume;
            pool.next_volume += 1;
            let volume = VolumeRecord {
                id,
                flags: 0,
                sectors,
                name: name.to_owned(),
                origin: Vec::new(),
            };
            Rc::make_mut(&mut pool.volumes).insert(id, volume);
            Some(id)
        });
        self.activity.notify();
        id
    }

    /// Lines of its id are known from now on for a volume that exists.
    pub(crate) fn attach(&self, writes: &Rc<OriginDurability>) {
        let mut origins = self.origins.borrow_mut();
        origins.insert(writes.id(), writes.clone());
    }

    pub(crate) fn detach(&self, id: u32) {
        self.origins.borrow_mut().remove(&id);
    }

    /// True if an entry of the map with this key may be trusted now.
    pub(crate) fn is_trusted(&self, key: policy::LineKey, line_shift: u32) -> bool {
        let (volume, line) = crate::lines::split_key(key);
        self.knows(key) && !self.is_suspect(volume, line << line_shift)
    }

    /// True if the volume of the line `key` has lines still.
    fn knows(&self, key: policy::LineKey) -> bool {
        let (volume, _) = crate::lines::split_key(key);
        self.superblock.now().volumes.contains_key(&volume)
    }

    /// True if every superblock says that there is no volume with this id, which is never given
    /// again.
    fn has_forgotten(&self, id: u32) -> bool {
        let is_gone = |held: &PoolState| !held.volumes.contains_key(&id);
        is_gone(&self.superblock.now()) && self.superblock.proof(is_gone).is_some()
    }

    /// True if a line of `volume` that holds `block` may differ from the origin.
    pub(crate) fn is_suspect(&self, volume: u32, block: u64) -> bool {
        self.table.is_suspect(volume, block)
    }
}
