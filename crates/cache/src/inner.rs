//! The state that the paths of a volume share.

use crate::core::CacheCore;
use crate::counters::CacheCounters;
use crate::flights::OriginOpsInFlight;
use crate::freeze::Freeze;
use crate::modes::CacheMode;
use crate::origin::CachedOrigin;
use crate::sequential::Sequential;
use crate::writes::OriginDurability;
use block::{Device, Extent, Geometry, IoErrorKind, IoResult, Lba};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(crate) struct CacheShared<P: Device> {
    pub(crate) core: Rc<CacheCore<P>>,
    pub(crate) freeze: Freeze,
    pub(crate) origin: CachedOrigin,
    pub(crate) geometry: Geometry,
    /// Blocks from here on do not fit whole into the volume, or have no key.
    pub(crate) cacheable_end: Lba,
    pub(crate) flights: Rc<OriginOpsInFlight>,
    pub(crate) sequential: RefCell<Sequential>,
    pub(crate) counters: Rc<CacheCounters>,
    pub(crate) writes: Rc<OriginDurability>,
    pub(crate) mode: Cell<CacheMode>,
    pub(crate) closed: Cell<bool>,
}

impl<P: Device> CacheShared<P> {
    /// The part of the keys of its lines.
    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.writes.id()
    }

    /// Waits until no write is in flight, and all are durable.
    pub(crate) async fn come_to_rest(&self) -> IoResult {
        self.flights.writing.idle().await;
        self.writes.flush(&self.core).await
    }

    #[inline]
    pub(crate) fn check_open(&self) -> IoResult {
        if self.closed.get() {
            return Err(self
                .geometry
                .error(IoErrorKind::Gone, "the volume was removed"));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn check_transfer(&self, at: Lba, bytes: usize) -> IoResult<Extent> {
        self.check_open()?;
        self.geometry.transfer(at, bytes)
    }

    pub(crate) fn check(&self, extent: Extent) -> IoResult {
        self.check_open()?;
        self.geometry.check(extent)
    }
}

impl<P: Device> Drop for CacheShared<P> {
    fn drop(&mut self) {
        let mut live = self.core.volume_counters.borrow_mut();
        live.retain(|counters| !Rc::ptr_eq(counters, &self.counters));
        self.core.counters.absorb(&self.counters.snapshot());
        if let Some(durable) = &self.core.durable {
            durable.detach(self.id());
        }
    }
}
