//! A device that another can replace while clients use it.
//!
//! Invariants:
//!     `pause` has ended ⟹ nothing is in flight below, and nothing begins
//!     writes were acknowledged that no flush has covered when the device is swapped
//!         ⟹ the next flush fails, once: the new device may not have them
//!
//! Not here: requests with dropped futures, which may still be in flight below; the check that the
//! new device has the data of the old one.

use block::{
    Buf, Content, Device, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult, Lba, SharedBuf,
    Signal,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A device that can be swapped. Clones are the same device.
#[derive(Clone)]
pub struct Swappable<D>(Rc<SwapShared<D>>);

struct SwapShared<D> {
    geometry: Geometry,
    device: RefCell<D>,
    /// The reason that the device below is not used.
    closed_by: RefCell<Option<IoError>>,
    paused: Cell<bool>,
    in_flight: Cell<u32>,
    changed: Signal,
    /// Number of changes that were acknowledged.
    acknowledged: Cell<u64>,
    /// Number of them that a flush has covered.
    covered: Cell<u64>,
    has_forgotten: Cell<bool>,
}

/// A request in flight; its end is when this is dropped.
struct SwapRequest<'a, D> {
    inner: &'a SwapShared<D>,
    device: D,
}

impl<D> Drop for SwapRequest<'_, D> {
    fn drop(&mut self) {
        let left = self.inner.in_flight.get() - 1;
        self.inner.in_flight.set(left);
        if left == 0 && self.inner.paused.get() {
            self.inner.changed.notify();
        }
    }
}

impl<D: Device + Clone> SwapShared<D> {
    async fn begin(&self) -> IoResult<SwapRequest<'_, D>> {
        self.changed.until(|| !self.paused.get()).await;
        if let Some(why) = &*self.closed_by.borrow() {
            let gone = self.geometry.error(IoErrorKind::Gone, "it is not open");
            return Err(gone.because(why.duplicate()));
        }
        self.in_flight.set(self.in_flight.get() + 1);
        Ok(SwapRequest {
            inner: self,
            device: self.device.borrow().clone(),
        })
    }

    fn acknowledge(&self, result: &IoResult) {
        if result.is_ok() {
            self.acknowledged.set(self.acknowledged.get() + 1);
        }
    }
}

impl<D: Device + Clone> Swappable<D> {
    /// Begins with `device`.
    pub fn new(device: D) -> Swappable<D> {
        Swappable(Rc::new(SwapShared {
            geometry: device.geometry().clone(),
            device: RefCell::new(device),
            closed_by: RefCell::default(),
            paused: Cell::new(false),
            in_flight: Cell::new(0),
            changed: Signal::default(),
            acknowledged: Cell::new(0),
            covered: Cell::new(0),
            has_forgotten: Cell::new(false),
        }))
    }

    /// Returns the present device below.
    pub fn device(&self) -> D {
        self.0.device.borrow().clone()
    }

    /// Lets requests wait, and returns once none is in flight.
    pub async fn pause(&self) {
        self.0.paused.set(true);
        let none = || self.0.in_flight.get() == 0;
        self.0.changed.until(none).await;
    }

    /// Puts `device` below. The filter must be paused, and `device` of the same shape as the old
    /// one.
    pub fn swap(&self, device: D) -> IoResult {
        let (was, is) = (&self.0.geometry, device.geometry());
        if (was.sectors, was.block) != (is.sectors, is.block) {
            let shape =
                |g: &Geometry| format!("{} sectors in blocks of {}", g.sectors.0, g.block.0);
            let what = format!("had {} and has {} now; restore it", shape(was), shape(is));
            return Err(IoError::new(IoErrorKind::Invalid, what).on(is.name.to_string()));
        }
        self.0.device.replace(device);
        self.0.closed_by.take();
        let acknowledged = self.0.acknowledged.get();
        if self.0.covered.replace(acknowledged) != acknowledged {
            self.0.has_forgotten.set(true);
        }
        Ok(())
    }

    /// Fails requests with `Gone`, and this reason, until another device is put below.
    pub fn close(&self, why: IoError) {
        self.0.closed_by.replace(Some(why));
    }

    /// Lets requests go on.
    pub fn resume(&self) {
        self.0.paused.set(false);
        self.0.changed.notify();
    }
}

impl<D: Device + Clone> Device for Swappable<D> {
    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        match self.0.begin().await {
            Ok(begun) => begun.device.read(at, buf).await,
            Err(error) => (buf, Err(error)),
        }
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let begun = self.0.begin().await?;
        let result = begun.device.write(at, data, fua).await;
        if fua == Fua::No {
            self.0.acknowledge(&result);
        }
        result
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let begun = self.0.begin().await?;
        let result = begun.device.zero(extent).await;
        self.0.acknowledge(&result);
        result
    }

    async fn flush(&self) -> IoResult {
        let begun = self.0.begin().await?;
        if self.0.has_forgotten.take() {
            let what =
                "it was lost before a flush; writes acknowledged until then may not be durable";
            return Err(self.0.geometry.error(IoErrorKind::Gone, what));
        }
        let acknowledged = self.0.acknowledged.get();
        begun.device.flush().await?;
        self.0.covered.set(self.0.covered.get().max(acknowledged));
        Ok(())
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let begun = self.0.begin().await?;
        begun.device.discard(extent).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        let begun = self.0.begin().await?;
        begun.device.extents(extent, out).await
    }
}
