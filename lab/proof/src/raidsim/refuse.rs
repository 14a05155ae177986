//! A disk that refuses writes on command, as a disk with a broken head does: the disk answers,
//! reads, and fails each write with a medium error. A refused write may have landed in part, or in
//! whole.

use block::{
    BoxDevice, Device, Extent, Fua, IoErrorKind, IoResult, Layer, Lba, SECTOR_BYTES, Sectors,
    SharedBuf,
};
use sim::SimRng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// All of a disk.
pub(crate) const ANYWHERE: Extent = Extent {
    start: Lba::ZERO,
    len: Sectors(u64::MAX),
};

/// A disk that is to refuse writes.
#[derive(Clone, Copy)]
struct Armed {
    disk: usize,
    /// Writes still to be refused, of those that touch `within`.
    left: u64,
    within: Extent,
    /// Writes that are taken before the first refusal.
    skipped: u64,
}

/// The disk of an array that refuses, and its refusals so far.
pub(crate) struct Refusals {
    armed: Cell<Option<Armed>>,
    /// Writes refused so far, those included that are being refused.
    pub(crate) count: Cell<u64>,
    /// The disk that refused each write, and the write's first sector.
    by: RefCell<Vec<(usize, Lba)>>,
    being: Cell<u64>,
    rng: RefCell<SimRng>,
}

impl Refusals {
    pub(crate) fn new(rng: SimRng) -> Rc<Refusals> {
        Rc::new(Refusals {
            armed: Cell::new(None),
            count: Cell::new(0),
            by: RefCell::default(),
            being: Cell::new(0),
            rng: RefCell::new(rng),
        })
    }

    /// The disks that refused writes after the first `count` refusals.
    pub(crate) fn since(&self, count: u64) -> BTreeSet<usize> {
        let by = self.by.borrow();
        by[count as usize..].iter().map(|(disk, _)| *disk).collect()
    }

    /// The first sectors of the writes that were refused after the first `count`.
    pub(crate) fn places_since(&self, count: u64) -> Vec<Lba> {
        let by = self.by.borrow();
        by[count as usize..].iter().map(|(_, at)| *at).collect()
    }

    /// From now on `disk` refuses `writes` writes to `within`, after `skipped` of them, and no
    /// other.
    pub(crate) fn arm(&self, disk: usize, writes: u64, within: Extent, skipped: u64) {
        self.armed.set(Some(Armed {
            disk,
            left: writes,
            within,
            skipped,
        }));
    }

    /// From now on no disk refuses a new write.
    pub(crate) fn disarm(&self) {
        self.armed.set(None);
    }

    /// True if a write may be refused now.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.get().is_some() || self.being.get() > 0
    }

    /// The power is gone, and the refused writes in flight with it.
    pub(crate) fn cut(&self) {
        self.disarm();
        self.being.set(0);
    }

    /// Returns the number of the `blocks` of a write to `extent` that land although the write
    /// fails; `None` if the write does not fail.
    fn strike(&self, disk: usize, extent: Extent, blocks: u64) -> Option<u64> {
        let strikes = |armed: &Armed| armed.disk == disk && armed.within.overlaps(extent);
        let armed = self.armed.get().filter(strikes)?;
        if armed.skipped > 0 {
            let skipped = armed.skipped - 1;
            self.armed.set(Some(Armed { skipped, ..armed }));
            return None;
        }
        let left = armed.left - 1;
        self.armed
            .set((left > 0).then_some(Armed { left, ..armed }));
        self.count.set(self.count.get() + 1);
        self.by.borrow_mut().push((disk, extent.start));
        Some(self.rng.borrow_mut().between(0, blocks))
    }
}

/// A disk that may refuse.
pub(crate) struct Refusing {
    pub(crate) disk: BoxDevice,
    pub(crate) index: usize,
    pub(crate) refusals: Rc<Refusals>,
}

impl Refusing {
    fn landing(&self, extent: Extent) -> Option<Sectors> {
        let block = self.disk.geometry().block.0;
        let blocks = extent.len.0 / block;
        let landed = self.refusals.strike(self.index, extent, blocks)?;
        Some(Sectors(landed * block))
    }

    /// Lets a part of a write land, then fails the write.
    async fn refuse(&self, extent: Extent, landing: impl Future<Output = IoResult>) -> IoResult {
        let being = &self.refusals.being;
        being.set(being.get() + 1);
        // If the disk is gone as well, that is reported instead.
        let landed = landing.await;
        being.set(being.get() - 1);
        landed?;
        let error = self
            .disk
            .geometry()
            .error(IoErrorKind::Media, "a write refused");
        Err(error.at(extent))
    }
}

impl Layer for Refusing {
    type Below = BoxDevice;

    fn below(&self) -> &BoxDevice {
        &self.disk
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let extent = Extent::new(at, Sectors(data.len() as u64 / SECTOR_BYTES));
        let Some(landed) = self.landing(extent) else {
            return self.disk.write(at, data, fua).await;
        };
        let landing = async {
            match landed.bytes() as usize {
                0 => Ok(()),
                len => self.disk.write(at, data.slice(0..len), fua).await,
            }
        };
        self.refuse(extent, landing).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let Some(landed) = self.landing(extent) else {
            return self.disk.zero(extent).await;
        };
        let landing = async {
            match landed {
                Sectors::ZERO => Ok(()),
                len => self.disk.zero(Extent::new(extent.start, len)).await,
            }
        };
        self.refuse(extent, landing).await
    }
}
