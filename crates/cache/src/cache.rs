//! A cache: the devices of its pool and the volumes that share them.

use crate::budget::PromotionBudget;
use crate::busy::Busy;
use crate::config::Config;
use crate::contents::PoolContents;
use crate::core::CacheCore;
use crate::counters::{CacheCounters, Counter, CounterSnapshot};
use crate::devices::{DeviceId, DeviceReport, DeviceState, NewDeviceRoom, PoolDevices};
use crate::durable::{NewStore, PoolMetadata};
use crate::history::GhostHistory;
use crate::lines::{LineShape, VOLUME_IDS};
use crate::pool_device::NewPoolDevice;
use crate::resting::RestingLines;
use crate::state::CacheState;
use crate::watchdog::{PERIODS_PER_LIMIT, Watchdog, watch};
use block::{Device, Env, IoError, IoErrorKind, IoResult, Nanos};
use policy::Policy;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Longest time that the removal of a pool device waits for operations in flight; then they end by
/// themselves.
const DRAIN_MAX: Nanos = Nanos::from_secs(1);

/// Bytes in flight to the pool hold at most one in this many of the shard's
/// buffers, so that a pool device that hangs cannot starve clients of memory.
const BUFFERS_PER_FILL: u64 = 8;

/// A pool of devices and the volumes cached on the pool; clones are the same cache.
///
/// A cache belongs to one shard. Its devices are of one type, so that a hit is a direct call.
pub struct Cache<P: Device>(pub(crate) Rc<CacheCore<P>>);

impl<P: Device> Clone for Cache<P> {
    fn clone(&self) -> Self {
        Cache(self.0.clone())
    }
}

impl<P: Device> Cache<P> {
    /// A cache without devices, which passes everything to the origins, and which remembers
    /// nothing: no metadata is written to its devices. `policy` is to be fresh and without slots.
    ///
    /// See [`Cache::open`].
    pub fn new(config: Config, policy: Box<dyn Policy>, env: Env) -> IoResult<Cache<P>> {
        Cache::with(config, policy, env, None)
    }

    pub(crate) fn with(
        config: Config,
        policy: Box<dyn Policy>,
        env: Env,
        durable: Option<Rc<PoolMetadata>>,
    ) -> IoResult<Cache<P>> {
        config.check()?;
        let shape = LineShape::new(config.line_bytes);
        let in_flight_max = config
            .fill_in_flight_bytes_max
            .min(env.pool.total_bytes() as u64 / BUFFERS_PER_FILL);
        let counters = Rc::new(CacheCounters::new());
        let state = CacheState {
            shape,
            policy,
            contents: PoolContents::new(shape, durable.is_some(), config.hit_latency_max),
            busy: Busy::new(),
            devices: PoolDevices::new(),
            resting: RestingLines::default(),
            budget: PromotionBudget::new(in_flight_max, config.fill_bytes_per_s, env.timer.now()),
            history: GhostHistory::new(env.timer.clone()),
            counters: counters.clone(),
            durable: durable.clone(),
        };
        let core = Rc::new(CacheCore {
            shape,
            state: RefCell::new(state),
            counters,
            volume_counters: RefCell::default(),
            watchdog: Watchdog::default(),
            background: Rc::default(),
            durable,
            next_volume: Cell::new(0),
            env,
            config,
        });
        let period = Nanos(core.config.hit_latency_max.0 / PERIODS_PER_LIMIT);
        let watching = watch(Rc::downgrade(&core), core.env.timer.clone(), period);
        core.env.spawn.spawn(watching);
        Ok(Cache(core))
    }

    /// Puts a device into a pool that remembers nothing. Its bytes are
    /// overwritten. See [`Cache::join`] for a pool that remembers.
    pub fn add_device(&self, device: NewPoolDevice<P>) -> IoResult<DeviceId> {
        self.add_member(device, None)
    }

    /// Puts a device into the pool, with the state of its metadata in `store`.
    pub(crate) fn add_member(
        &self,
        device: NewPoolDevice<P>,
        store: Option<NewStore>,
    ) -> IoResult<DeviceId> {
        let lines = device.lines(self.0.shape)?;
        let store = store.map(|store| store.build(&device, self.0.shape, &self.0.env));
        let store = store.transpose()?;
        let lines = store.as_ref().map_or(lines, |store| store.plan.slots);
        let mut state = self.0.state.borrow_mut();
        let Some(room) = state.devices.place(lines) else {
            let geometry = device.device.geometry();
            return Err(geometry.error(
                IoErrorKind::Invalid,
                "too many lines in one pool: choose longer ones",
            ));
        };
        let slots = match room {
            NewDeviceRoom::Reused(slots) => {
                state.policy.revive(std::slice::from_ref(&slots));
                slots
            }
            NewDeviceRoom::Added(slots) => {
                state.policy.grow(slots.end);
                state.contents.grow(slots.end);
                slots
            }
        };
        state.counters.count(Counter::DevicesAdded);
        // Until their lines are known the slots of such a device are not used.
        if store.as_ref().is_some_and(|store| !store.warm.get()) {
            state.policy.retire(slots.clone());
        }
        let id = state.devices.add(device, slots, self.0.shape, store);
        state.share();
        Ok(id)
    }

    /// Takes a device out of the pool, in any state. From the first poll no operation begins on the
    /// device. Returns when those in flight have ended, or after a second: then they end by
    /// themselves, and the device is dropped with the last of them.
    pub async fn remove_device(&self, id: DeviceId) -> IoResult {
        let core = self.0.clone();
        let member = {
            let mut state = core.state.borrow_mut();
            let Some(member) = state.devices.take(id) else {
                let what = format!("the pool has no device {}; see `hotset pool list`", id.0);
                return Err(IoError::new(IoErrorKind::Invalid, what));
            };
            state.retire(&member, DeviceState::Leaving);
            state.counters.count(Counter::DevicesRemoved);
            member
        };
        let timer = core.env.timer.clone();
        let spawn = core.env.spawn.clone();
        let drained = spawn.persist(async move {
            member.operations.idle().await;
            let slots = member.slots.clone();
            core.state.borrow_mut().devices.vacate(slots);
        });
        // Out of time or not, the device is out of the pool.
        let _ = timer.timeout(DRAIN_MAX, drained).await;
        Ok(())
    }

    /// Records the share of its rated writes that a device has used up: a worn one gets fewer new
    /// lines.
    pub fn set_worn(&self, id: DeviceId, worn: f32) {
        if let Some(member) = self.0.state.borrow().devices.get(id) {
            member.health.set_worn(worn);
        }
    }

    /// The devices of the pool.
    pub fn devices(&self) -> Vec<DeviceReport> {
        self.0.state.borrow().devices.reports()
    }

    /// Returns the id of a volume's keys: of an earlier run if the volume is remembered, else one
    /// that was never given.
    pub(crate) fn volume_id(&self, name: &str, sectors: u64) -> IoResult<u32> {
        let Some(durable) = &self.0.durable else {
            return self.unused_id();
        };
        if layout::fitting(name) != name {
            let most = layout::NAME_BYTES_MAX;
            let what = format!("a pool remembers names of at most {most} bytes: shorten it");
            return Err(IoError::new(IoErrorKind::Invalid, what).on(name.to_owned()));
        }
        let room = self.0.volumes_max(durable);
        durable.volume_id(name, sectors, room).ok_or_else(|| {
            let what = format!(
                "the pool has no room to remember another volume than {room}: remove one first, or \
                 use larger pool devices"
            );
            IoError::new(IoErrorKind::Invalid, what)
        })
    }

    /// An id that was never given, for the volume that has had `old`.
    pub(crate) fn other_id(&self, old: u32) -> IoResult<u32> {
        let Some(durable) = &self.0.durable else {
            return self.unused_id();
        };
        durable.renumber(old).ok_or_else(|| {
            let what = "the pool's volume IDs are exhausted: format it";
            IoError::new(IoErrorKind::Invalid, what)
        })
    }

    fn unused_id(&self) -> IoResult<u32> {
        let id = self.0.next_volume.get();
        if id == VOLUME_IDS {
            let what = "this cache's volume IDs are exhausted: restart it";
            return Err(IoError::new(IoErrorKind::Invalid, what));
        }
        self.0.next_volume.set(id + 1);
        Ok(id)
    }

    pub(crate) fn core(&self) -> &CacheCore<P> {
        &self.0
    }

    /// The counters of this cache and its volumes since the cache was made.
    pub fn counters(&self) -> CounterSnapshot {
        let mut sum = self.0.counters.snapshot();
        for volume in self.0.volume_counters.borrow().iter() {
            sum.merge(&volume.snapshot());
        }
        sum
    }

    /// Lines in use, and lines that fit in the pool.
    pub fn lines(&self) -> (u32, u32) {
        let state = self.0.state.borrow();
        (state.policy.slots().used(), state.policy.slots().live())
    }

    /// Memory for validity and checksums, which grows with the pool; the
    /// policy's own comes on top.
    pub fn memory_bytes(&self) -> usize {
        self.0.state.borrow().contents.memory_bytes()
    }

    /// 4 KiB blocks that would be hits. Costs O(lines).
    pub fn valid_blocks(&self) -> u64 {
        self.0.state.borrow().contents.valid_blocks()
    }

    /// Promotions and updates in flight to the pool.
    pub fn filling(&self) -> u32 {
        self.0.background.count()
    }

    /// Waits until nothing is in flight to the pool.
    pub async fn settle(&self) {
        self.0.background.idle().await;
    }

    /// Panics if the tables contradict each other. Costs O(lines).
    pub fn check(&self) {
        let state = self.0.state.borrow();
        state.policy.check();
        state.busy.check(&state.contents);
    }
}
