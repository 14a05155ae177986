//! The metadata on one member, in the memory of the cache.

use crate::lines::LineShape;
use crate::pool_device::NewPoolDevice;
use block::{Buf, Device, Env, IoError, IoErrorKind, IoResult, Lba};
use layout::{
    BLOCK_BYTES, Bitmap, LayoutPlan, PlanError, PlannedArea, PoolSuperblock, Uuid, VolumeTable,
};
use std::cell::{Cell, RefCell};

/// The state of the two copies of a superblock.
#[derive(Default)]
pub(crate) struct SuperblockCopies {
    /// Index of the copy that is written last.
    pub(super) last: Cell<Option<usize>>,
    /// The rows of which each table area has its part.
    pub(super) tables: RefCell<[Option<VolumeTable>; 2]>,
}

impl SuperblockCopies {
    /// Their content is unknown.
    pub(super) fn forget(&self) {
        self.last.set(None);
        self.tables.take();
    }
}

/// The metadata of one member.
pub(crate) struct MemberStore {
    pub(crate) device: Uuid,
    pub(crate) name: String,
    pub(crate) plan: LayoutPlan,
    /// First sector of the part of the device.
    pub(crate) base: Lba,
    /// Map of the newest checkpoint, of its two.
    pub(crate) map: Cell<Option<u8>>,
    pub(crate) generation: Cell<u32>,
    /// The first block of the log that the checkpoint does not cover.
    pub(crate) log_start: Cell<u64>,
    /// Next block of the log; all earlier ones are durable.
    pub(crate) log_next: Cell<u64>,
    /// The policy's hints: which of the two areas, bytes, their checksum, which part.
    pub(crate) hints: Cell<Option<(u8, u32, u32, u32)>>,
    pub(super) copies: SuperblockCopies,
    /// The version of the bitmap last written.
    pub(crate) bitmap_version: Cell<u64>,
    /// The marks at the opening of the pool.
    pub(crate) found: Option<Recovered>,
    /// Its map is known; until then its lines are not used.
    pub(crate) warm: Cell<bool>,
    /// The line of each slot that is not in use yet; 0 for none.
    pub(crate) keys: RefCell<Vec<u64>>,
    /// True if its map is to be written as a whole: lines are in use that its log lacks.
    pub(crate) checkpoint_due: Cell<bool>,
    /// Memory for the bitmap, so that a client's write never waits for any.
    pub(crate) bitmap_buffer: RefCell<Option<Buf>>,
}

/// The metadata to read back before a member's lines can be used.
pub(crate) struct Recovered {
    /// The log reaches at least up to here, or the map cannot be trusted.
    pub(crate) log_end_min: u64,
    /// The bitmap of the member; `None` if it cannot be read.
    pub(crate) bitmap: Option<Bitmap>,
}

impl MemberStore {
    /// Place of block `n` of `area`.
    pub(crate) fn at(&self, area: PlannedArea, n: u64) -> Lba {
        area.lba(self.base, n)
    }

    /// Place of block `sequence` of the log.
    pub(crate) fn log_at(&self, sequence: u64) -> Lba {
        self.at(self.plan.log, sequence % self.plan.log.blocks)
    }

    /// Blocks of the log that no checkpoint covers.
    pub(crate) fn log_used(&self) -> u64 {
        self.log_next.get() - self.log_start.get()
    }
}

/// The metadata of a device that is about to be a member.
pub(crate) enum NewStore {
    New(Uuid),
    Known {
        plan: Box<LayoutPlan>,
        superblock: Box<PoolSuperblock>,
        bitmap: Option<Bitmap>,
    },
}

impl NewStore {
    /// The metadata of `device`, with lines of this shape.
    pub(crate) fn build<P: Device>(
        self,
        device: &NewPoolDevice<P>,
        shape: LineShape,
        env: &Env,
    ) -> IoResult<MemberStore> {
        let plan = match &self {
            NewStore::Known { plan, .. } => **plan,
            NewStore::New(_) => {
                let plan = LayoutPlan::new(device.extent.len, shape.blocks());
                let what = |error| match error {
                    PlanError::TooSmall => {
                        "too small for a line beside the metadata: give it more room"
                    }
                    PlanError::TooManyLines => "too many lines: choose longer ones",
                };
                plan.map_err(|error| {
                    let name = device.device.geometry().name.to_string();
                    IoError::new(IoErrorKind::Invalid, what(error)).on(name)
                })?
            }
        };
        let blank = |uuid| MemberStore {
            device: uuid,
            name: device.device.geometry().name.to_string(),
            plan,
            base: device.extent.start,
            map: Cell::new(None),
            generation: Cell::new(0),
            log_start: Cell::new(1),
            log_next: Cell::new(1),
            hints: Cell::new(None),
            copies: SuperblockCopies::default(),
            bitmap_version: Cell::new(0),
            found: None,
            warm: Cell::new(true),
            keys: RefCell::default(),
            checkpoint_due: Cell::new(false),
            bitmap_buffer: RefCell::new(env.pool.try_get(2 * BLOCK_BYTES)),
        };
        Ok(match self {
            NewStore::New(uuid) => blank(uuid),
            NewStore::Known {
                superblock, bitmap, ..
            } => {
                let by_bitmap = bitmap.as_ref().map_or(0, |bitmap| bitmap.log_end);
                let by_superblock = if superblock.clean {
                    superblock.log_end
                } else {
                    superblock.log_start
                };
                let log_end_min = by_bitmap.max(by_superblock);
                MemberStore {
                    map: Cell::new(superblock.map),
                    generation: Cell::new(superblock.generation),
                    log_start: Cell::new(superblock.log_start),
                    log_next: Cell::new(log_end_min),
                    hints: Cell::new(superblock.hints),
                    bitmap_version: Cell::new(bitmap.as_ref().map_or(0, |bitmap| bitmap.version)),
                    found: Some(Recovered {
                        log_end_min,
                        bitmap,
                    }),
                    warm: Cell::new(false),
                    ..blank(superblock.device)
                }
            }
        })
    }
}
