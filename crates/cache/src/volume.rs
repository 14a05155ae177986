//! A volume: an origin with a cache in front, as clients see it.

use crate::cache::Cache;
use crate::core::CacheCore;
use crate::counters::{CacheCounters, Counter, CounterSnapshot};
use crate::devices::DeviceId;
use crate::flights::OriginOpsInFlight;
use crate::freeze::Freeze;
use crate::inner::CacheShared;
use crate::lines::{BLOCK_SECTORS, covering};
use crate::modes::CacheMode;
use crate::origin::CachedOrigin;
use crate::sequential::Sequential;
use crate::writes::OriginDurability;
use crate::{read, write};
use block::{
    BoxDevice, Buf, Content, Device, Extent, Fua, Generations, Geometry, IoErrorKind, IoResult,
    KeptHits, Lba, LocatedEnd, LocatedFate, LocatedRead, LocatedUnit, Sectors, SharedBuf,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The definition of a volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its name in errors and reports.
    pub name: Arc<str>,
    /// Its size; all of the origin if `None`.
    pub sectors: Option<Sectors>,
    /// The first mode.
    pub mode: CacheMode,
}

impl VolumeConfig {
    /// A volume of all of the origin, in the first mode of all.
    pub fn whole(name: impl Into<Arc<str>>) -> VolumeConfig {
        VolumeConfig {
            name: name.into(),
            sectors: None,
            mode: CacheMode::default(),
        }
    }
}

/// A cached volume; clones are the same volume.
///
/// Reads and writes go through the pool by the volume's [`CacheMode`]. In any state of the pool, an
/// operation fails only if the origin fails it.
pub struct Volume<P: Device>(pub(crate) Rc<CacheShared<P>>);

impl<P: Device> Clone for Volume<P> {
    fn clone(&self) -> Self {
        Volume(self.0.clone())
    }
}

impl<P: Device> Cache<P> {
    /// Adds a volume over `origin`, cached here from now on. A pool that remembers knows the volume
    /// by its name, and gives it its lines of an earlier run.
    pub fn add_volume(&self, config: VolumeConfig, origin: BoxDevice) -> IoResult<Volume<P>> {
        Volume::new(self.0.clone(), config, origin)
    }
}

impl<P: Device> Volume<P> {
    fn new(core: Rc<CacheCore<P>>, config: VolumeConfig, origin: BoxDevice) -> IoResult<Volume<P>> {
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
        let flights = Rc::<OriginOpsInFlight>::default();
        let writes = Rc::new(OriginDurability::new(id, origin.clone(), flights.clone()));
        if let Some(durable) = &core.durable {
            durable.attach(&writes);
        }
        let counters = Rc::new(CacheCounters::new());
        core.volume_counters.borrow_mut().push(counters.clone());
        Ok(Volume(Rc::new(CacheShared {
            freeze: Freeze::default(),
            origin: CachedOrigin::new(origin),
            geometry,
            cacheable_end: Lba(blocks * BLOCK_SECTORS),
            flights,
            sequential: RefCell::new(Sequential::new(core.config.sequential_bytes)),
            counters,
            writes,
            mode: Cell::new(config.mode),
            closed: Cell::new(false),
            core,
        })))
    }

    /// The mode of the pool's use now.
    pub fn mode(&self) -> CacheMode {
        self.0.mode.get()
    }

    /// Changes the mode for the requests that begin from now on.
    pub fn set_mode(&self, mode: CacheMode) {
        if self.0.mode.replace(mode) != mode {
            self.refuse_all();
            self.0.counters.count(Counter::ModeSwitches);
        }
    }

    /// Refuses all located reads: they are no longer to be found as they were.
    fn refuse_all(&self) {
        let state = self.0.core.state.borrow();
        state.contents.generations().change_all();
    }

    /// The counters of this volume since it was added.
    pub fn counters(&self) -> CounterSnapshot {
        self.0.counters.snapshot()
    }

    /// True if a request would be a part of a sequential stream, which is not promoted.
    pub fn is_streamed(&self, extent: Extent) -> bool {
        self.0.sequential.borrow().is_sequential(&covering(extent))
    }

    /// True if changes are held back; see [`Volume::quiesce`].
    pub fn is_quiesced(&self) -> bool {
        self.0.freeze.is_frozen()
    }

    /// Brings the origin to a standstill for a snapshot: from the first poll, writes, zeroes and
    /// discards wait; those in flight end, and the origin is flushed. Reads go on. A pool that
    /// remembers records the standstill durably: the next incarnation does not trust its lines of
    /// the volume, unless [`Volume::resume`] comes first.
    ///
    /// `Busy` if the volume is quiesced already. If the flush fails, or one has since the last
    /// standstill, all goes on: a snapshot would lack the lost writes.
    pub async fn quiesce(&self) -> IoResult {
        if !self.0.freeze.freeze() {
            let what = "it is quiesced already; resume it first";
            return Err(self.0.geometry.error(IoErrorKind::Busy, what));
        }
        self.0.flights.writing.idle().await;
        let stands = self.0.writes.flush_for_back_end(&self.0.core).await;
        if stands.is_err() {
            self.0.freeze.thaw();
            return stands;
        }
        let cache = Cache(self.0.core.clone());
        cache.set_quiesced(self.0.id(), true);
        cache.remember().await;
        Ok(())
    }

    /// Resumes the writes that [`Volume::quiesce`] holds back. `Invalid` if none are held back.
    pub fn resume(&self) -> IoResult {
        if !self.0.freeze.thaw() {
            let what = "it is not quiesced";
            return Err(self.0.geometry.error(IoErrorKind::Invalid, what));
        }
        Cache(self.0.core.clone()).set_quiesced(self.0.id(), false);
        Ok(())
    }

    /// Forgets every line of this volume, at a cost that does not depend on their number, for the
    /// contents of its origin may have been replaced. Durable when it returns. Writes wait
    /// meanwhile, as for [`Volume::quiesce`].
    ///
    /// Reads in flight may still return the former bytes. The lines make room as others need it,
    /// and are discarded meanwhile.
    pub async fn invalidate(&self) -> IoResult {
        let held = self.0.freeze.freeze();
        let forgotten = self.forget_lines().await;
        if held {
            self.0.freeze.thaw();
        }
        forgotten
    }

    /// No write may run meanwhile: a write is marked under the volume's id at its beginning.
    async fn forget_lines(&self) -> IoResult {
        self.0.come_to_rest().await?;
        let volume = self.0.clone();
        let forget = async move {
            let cache = Cache(volume.core.clone());
            let old = volume.id();
            let id = cache.other_id(old)?;
            cache.suspect_again(old, id).await;
            // Earlier reads are neither joined nor promoted any more.
            drop(volume.flights.begin_write(0..u64::MAX));
            volume.writes.set_id(id);
            Volume(volume.clone()).refuse_all();
            volume.counters.count(Counter::Invalidations);
            cache.remember().await;
            cache.trim_forgotten();
            Ok(())
        };
        self.0.core.env.spawn.persist(forget).await
    }

    /// Ends the volume: later operations fail with `Gone`. Returns when the last write has ended at
    /// the origin. The volume's lines are never found again, and make room as others need it.
    pub async fn close(&self) {
        self.0.closed.set(true);
        self.refuse_all();
        self.0.freeze.thaw();
        self.0.flights.writing.idle().await;
    }
}

impl<P: Device> Device for Volume<P> {
    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        read::read(&self.0, at, buf)
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.0.freeze.thawed().await;
        let extent = self.0.check_transfer(at, data.len())?;
        write::write(&self.0, extent, data, fua).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.0.freeze.thawed().await;
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
        self.0.writes.flush_for_user(&self.0.core).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.0.freeze.thawed().await;
        self.0.check(extent)?;
        self.0.counters.count(Counter::Discards);
        write::change(&self.0, extent, async move |origin| {
            origin.discard(extent).await
        })
        .await?;
        self.0.core.hand_on_discard(self.0.id(), extent);
        Ok(())
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.0.check(extent)?;
        self.0.origin.extents(extent, out).await
    }

    fn announce(&self, extent: Extent) {
        let mut sequential = self.0.sequential.borrow_mut();
        sequential.announce(covering(extent));
    }

    fn locate(&self, extent: Extent) -> Option<LocatedRead> {
        read::locate(&self.0, extent)
    }

    fn locate_unit(&self, at: Lba) -> Option<LocatedUnit> {
        read::locate_unit(&self.0, at)
    }

    fn refuse_located(&self, extent: Extent) {
        let core = &self.0.core;
        let state = core.state.borrow();
        let (generations, blocks) = (state.contents.generations(), covering(extent));
        if core.shape.lines(&blocks) > u64::from(state.policy.slots().used()) {
            return generations.change_all();
        }
        for part in core.shape.parts(self.0.id(), blocks) {
            if let Some(slot) = state.policy.peek(part.key) {
                generations.change(slot.0);
            }
        }
    }

    fn generations(&self) -> Option<Arc<Generations>> {
        let state = self.0.core.state.borrow();
        Some(state.contents.generations().clone())
    }

    fn located(&self, end: &LocatedEnd) {
        if end.fate != LocatedFate::Accepted {
            self.0.counters.count(Counter::HitsRefused);
        }
        let state = &mut *self.0.core.state.borrow_mut();
        // A device that was removed meanwhile is counted no more.
        let Some(member) = state.devices.get(DeviceId(end.member)) else {
            return;
        };
        match end.fate {
            LocatedFate::Accepted => {
                member.health.operation();
                member.device.located(end);
            }
            LocatedFate::Late => state.late_hit(&member, self.0.core.env.timer.now()),
            LocatedFate::Refused => {}
        }
    }

    fn kept(&self, hits: &KeptHits) {
        read::count_kept(&self.0, hits);
    }
}
