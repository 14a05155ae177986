//! An origin as a device that keeps its own record true. The record serves the next start, or the
//! next reply after a loss of the server.
//!
//! Invariant: a write reaches the device below only after a record that allows
//! it is durable (`Keep`).
//!
//! Not here: the place of the record.

use crate::record::OriginRecord;
use crate::survey;
use crate::verdict::{DoubtReason, OriginVerdict, judge_but_for};
use crate::watch::{Left, WriteWatch};
use block::{
    Device, Env, Extent, Fua, IoErrorKind, IoResult, Layer, Lba, Mutex, Nanos, Sectors, SharedBuf,
};
use layout::DeviceIdentity;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

/// Shortest interval between two narrowings of the record.
const NARROW_PERIOD: Nanos = Nanos::from_secs(10);
/// Makes the bytes of a record durable.
pub type Keep = Box<dyn Fn(Vec<u8>) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A guarded origin; clones are the same device.
pub struct Guarded<D: Device>(Rc<GuardShared<D>>);

struct GuardShared<D: Device> {
    device: D,
    env: Env,
    watch: RefCell<WriteWatch>,
    /// `None` if the record lasts only as long as the device is open.
    keep: Option<Keep>,
    keeping: Mutex,
    /// Number of changes of the record, and of durable ones among them.
    changes: Cell<u64>,
    durable: Cell<u64>,
    narrowed: Cell<Nanos>,
}

impl<D: Device> Clone for Guarded<D> {
    fn clone(&self) -> Self {
        Guarded(self.0.clone())
    }
}

impl<D: Device> Guarded<D> {
    /// Guards `device` with the true record `record`. No write may begin before [`Guarded::begin`]
    /// has ended.
    pub fn new(device: D, env: Env, record: OriginRecord, keep: Keep) -> Guarded<D> {
        Guarded::with(device, env, record, Some(keep))
    }

    /// Guards `device` for as long as it is open. No record is kept; the [`Recogniser`] compares a
    /// device that answers later with this one.
    pub fn watching(device: D, env: Env, record: OriginRecord) -> Guarded<D> {
        Guarded::with(device, env, record, None)
    }

    fn with(device: D, env: Env, record: OriginRecord, keep: Option<Keep>) -> Guarded<D> {
        Guarded(Rc::new(GuardShared {
            device,
            narrowed: Cell::new(env.timer.now()),
            env,
            watch: RefCell::new(WriteWatch::new(record)),
            keep,
            keeping: Mutex::default(),
            changes: Cell::new(1),
            durable: Cell::new(0),
        }))
    }

    /// The recogniser of this device.
    pub fn recogniser(&self) -> Recogniser<D> {
        Recogniser(Rc::downgrade(&self.0))
    }

    /// Makes the record durable.
    pub async fn begin(&self) {
        self.0.make_durable(1).await;
    }

    /// Makes a new record of the device, and makes this record durable for the next survey. The
    /// device is not written meanwhile.
    pub async fn renew(&self, identity: DeviceIdentity, seed: u64) -> IoResult {
        let inner = &self.0;
        let record = survey::take(&inner.device, &inner.env.pool, identity, seed).await?;
        *inner.watch.borrow_mut() = WriteWatch::new(record);
        let change = inner.changed();
        inner.make_durable(change).await;
        Ok(())
    }
}

/// Recognises a guarded device, without keeping it open.
pub struct Recogniser<D: Device>(Weak<GuardShared<D>>);

impl<D: Device> Clone for Recogniser<D> {
    fn clone(&self) -> Self {
        Recogniser(self.0.clone())
    }
}

impl<D: Device> Recogniser<D> {
    /// Returns the reason why `now` is not this device; `None` if nothing contradicts. Places that
    /// may be half written count neither way.
    pub async fn doubt(&self, now: &impl Device) -> IoResult<Option<DoubtReason>> {
        let Some(inner) = self.0.upgrade() else {
            return Ok(None);
        };
        let record = inner.watch.borrow().record().clone();
        let touches = inner.watch.borrow().touches();
        let pool = &inner.env.pool;
        let survey = survey::again(now, pool, record.identity.clone(), &record).await;
        if !survey.hashes.is_empty() && survey.hashes.iter().all(|(_, hash)| hash.is_none()) {
            return Err(now
                .geometry()
                .error(IoErrorKind::Media, "nothing of it can be read"));
        }
        let watch = inner.watch.borrow();
        match judge_but_for(&record, &survey, |place| watch.is_unsteady(place, &touches)) {
            OriginVerdict::Changed(reason) => Ok(Some(reason)),
            OriginVerdict::Same | OriginVerdict::Unknown(_) => Ok(None),
        }
    }
}

impl<D: Device> GuardShared<D> {
    fn changed(&self) -> u64 {
        self.changes.set(self.changes.get() + 1);
        self.changes.get()
    }

    /// Returns when the record is durable as it was at `change`, or later.
    async fn make_durable(&self, change: u64) {
        let Some(keep) = &self.keep else { return };
        let _held = self.keeping.lock().await;
        if self.durable.get() < change {
            let upto = self.changes.get();
            let bytes = self.watch.borrow().record().encode();
            keep(bytes).await;
            self.durable.set(upto);
        }
    }

    async fn change(
        &self,
        extent: Extent,
        left: Left<'_>,
        fua: Fua,
        work: impl Future<Output = IoResult>,
    ) -> IoResult {
        let (mark, grown) = self.watch.borrow_mut().begin_write(extent, left);
        // Another change of the same place may still be making the record durable.
        let change = if grown {
            self.changed()
        } else {
            self.changes.get()
        };
        if self.durable.get() < change && mark.is_watched() {
            self.make_durable(change).await;
        }
        let result = work.await;
        let mut watch = self.watch.borrow_mut();
        watch.end_write(mark, &result);
        if result.is_ok() && fua == Fua::Yes && self.keep.is_none() {
            watch.end_durable(mark);
            watch.narrow();
        }
        result
    }

    /// Narrows the record, so that more places can be compared after a crash.
    fn narrow(self: &Rc<Self>) {
        let now = self.env.timer.now();
        if now - self.narrowed.get() < NARROW_PERIOD {
            return;
        }
        let unsettled = self.watch.borrow().unsettled();
        if !self.watch.borrow_mut().narrow() && unsettled.is_empty() {
            return;
        }
        self.narrowed.set(now);
        let (inner, change) = (self.clone(), self.changed());
        self.env.spawn.spawn(async move {
            inner.make_durable(change).await;
            // A new file system discards the whole device first. Without these reads, no place
            // could be compared until all of it was written again.
            for place in unsettled {
                let read = survey::read(&inner.device, &inner.env.pool, place.extent).await;
                if let Ok(bytes) = read {
                    inner.watch.borrow_mut().settle(place, &bytes);
                }
            }
            if inner.watch.borrow_mut().narrow() {
                let change = inner.changed();
                inner.make_durable(change).await;
            }
        });
    }
}

impl<D: Device> Layer for Guarded<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.0.device
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let inner = &self.0;
        let len = Sectors(data.len() as u64 / block::SECTOR_BYTES);
        let extent = Extent::new(at, len);
        let bytes = data.clone();
        let write = inner.device.write(at, data, fua);
        inner.change(extent, Left::Bytes(&bytes), fua, write).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let zero = self.0.device.zero(extent);
        self.0.change(extent, Left::Zeroes, Fua::No, zero).await
    }

    async fn flush(&self) -> IoResult {
        let mark = self.0.watch.borrow().begin_flush();
        let flushed = self.0.device.flush().await;
        if flushed.is_err() {
            self.0.watch.borrow_mut().fail_flush(mark);
        }
        flushed?;
        self.0.watch.borrow_mut().end_flush(mark);
        if self.0.keep.is_none() {
            self.0.watch.borrow_mut().narrow();
        }
        self.0.narrow();
        Ok(())
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let discard = self.0.device.discard(extent);
        self.0.change(extent, Left::Unknown, Fua::No, discard).await
    }
}
