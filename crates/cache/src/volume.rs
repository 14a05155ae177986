//! A volume: an origin as its clients see it, with a cache in front.

use crate::cache::{Cache, Core};
use crate::counters::{Counter, Counters, Snapshot};
use crate::durable::Writes;
use crate::flights::Flights;
use crate::lines::BLOCK_SECTORS;
use crate::modes::{Mode, Rules};
use crate::sequential::Sequential;
use crate::{read, write};
use block::{
    BoxDevice, Buf, Content, Device, Extent, Fua, Geometry, IoResult, Kind, Lba, Sectors, Shared,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// What a volume is to be.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// What errors and reports call it.
    pub name: Arc<str>,
    /// Its size; all of the origin if `None`.
    pub sectors: Option<Sectors>,
    /// The mode it starts in.
    pub mode: Mode,
}

/// A cached volume; clones are the same volume.
///
/// Reads and writes go through the pool as its [`Mode`] says. Whatever happens
/// to the pool, an operation fails only if the origin fails it.
pub struct Volume<P: Device>(pub(crate) Rc<Inner<P>>);

pub(crate) struct Inner<P: Device> {
    pub(crate) core: Rc<Core<P>>,
    pub(crate) id: u32,
    pub(crate) origin: BoxDevice,
    pub(crate) geometry: Geometry,
    /// Blocks from here on do not fit whole into the volume, or have no key.
    pub(crate) cacheable_end: Lba,
    pub(crate) flights: Rc<Flights>,
    pub(crate) sequential: RefCell<Sequential>,
    pub(crate) counters: Rc<Counters>,
    /// How far the origin's writes are durable, for a pool that remembers.
    pub(crate) writes: Option<Rc<Writes>>,
    mode: Cell<Mode>,
    closed: Cell<bool>,
}

impl<P: Device> Clone for Volume<P> {
    fn clone(&self) -> Self {
        Volume(self.0.clone())
    }
}

impl<P: Device> Volume<P> {
    pub(crate) fn new(
        core: Rc<Core<P>>,
        config: VolumeConfig,
        origin: BoxDevice,
    ) -> IoResult<Volume<P>> {
        let below = origin.geometry();
        let sectors = config.sectors.unwrap_or(below.sectors);
        below.check(Extent::new(Lba::ZERO, sectors))?;
        let geometry = Geometry {
            name: config.name,
            sectors,
            rotational: false,
            ..below.clone()
        };
        let blocks = (sectors.0 / BLOCK_SECTORS).min(core.shape.blocks_max());
        let id = Cache(core.clone()).volume_id(&geometry.name, sectors.0)?;
        let durable = core.durable.as_ref();
        let writes = durable.map(|durable| durable.attach(id, origin.clone()));
        let counters = Rc::new(Counters::new());
        core.volume_counters.borrow_mut().push(counters.clone());
        Ok(Volume(Rc::new(Inner {
            id,
            origin,
            geometry,
            cacheable_end: Lba(blocks * BLOCK_SECTORS),
            flights: Rc::default(),
            sequential: RefCell::new(Sequential::new(core.config.sequential_bytes)),
            counters,
            writes,
            mode: Cell::new(config.mode),
            closed: Cell::new(false),
            core,
        })))
    }

    /// How the pool is used now.
    pub fn mode(&self) -> Mode {
        self.0.mode.get()
    }

    /// Changes the mode for the requests that begin from now on.
    pub fn set_mode(&self, mode: Mode) {
        if self.0.mode.replace(mode) != mode {
            self.0.counters.count(Counter::ModeSwitches);
        }
    }

    /// What was decided for this volume since it was added.
    pub fn counters(&self) -> Snapshot {
        self.0.counters.snapshot()
    }

    /// Ends the volume: operations that begin from now on fail with `Gone`.
    /// Returns when the last write has ended at the origin. Its lines are never
    /// found again, and make room as others need it.
    pub async fn close(&self) {
        self.0.closed.set(true);
        self.0.flights.writing.idle().await;
    }
}

impl<P: Device> Inner<P> {
    #[inline]
    pub(crate) fn rules(&self) -> &'static Rules {
        self.mode.get().rules()
    }

    #[inline]
    fn check_open(&self) -> IoResult {
        if self.closed.get() {
            return Err(self.geometry.error(Kind::Gone, "the volume was removed"));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn check_transfer(&self, at: Lba, bytes: usize) -> IoResult<Extent> {
        self.check_open()?;
        self.geometry.transfer(at, bytes)
    }

    fn check(&self, extent: Extent) -> IoResult {
        self.check_open()?;
        self.geometry.check(extent)
    }
}

impl<P: Device> Drop for Inner<P> {
    fn drop(&mut self) {
        let mut live = self.core.volume_counters.borrow_mut();
        live.retain(|counters| !Rc::ptr_eq(counters, &self.counters));
        self.core.counters.absorb(&self.counters.snapshot());
        if let Some(durable) = &self.core.durable {
            durable.detach(self.id);
        }
    }
}

impl<P: Device> Device for Volume<P> {
    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        read::read(&self.0, at, buf)
    }

    async fn write(&self, at: Lba, data: Shared, fua: Fua) -> IoResult {
        let extent = self.0.check_transfer(at, data.len())?;
        write::write(&self.0, extent, data, fua).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.0.check(extent)?;
        self.0.counters.count(Counter::Zeroes);
        write::change(&self.0, extent, async move |origin| {
            origin.zero(extent).await
        })
        .await
    }

    async fn flush(&self) -> IoResult {
        self.0.check_open()?;
        self.0.counters.count(Counter::Flushes);
        match &self.0.writes {
            None => self.0.origin.flush().await,
            Some(writes) => writes.flush(&self.0.origin).await,
        }
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.0.check(extent)?;
        self.0.counters.count(Counter::Discards);
        write::change(&self.0, extent, async move |origin| {
            origin.discard(extent).await
        })
        .await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.0.check(extent)?;
        self.0.origin.extents(extent, out).await
    }
}
