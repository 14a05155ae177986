//! A running node: its devices, pools and volumes, and changing them.
//!
//! Invariants:
//!     a device is open ⟺ a volume or a pool uses it, and only one does
//!     one change runs at a time; a change that fails has changed nothing
//!
//! Everything lives on one shard.

mod controlled;
mod pool;
mod refusal;
mod retry;
mod stop;
mod waiting;

pub use controlled::Controlled;
pub use pool::Pool;

use crate::arrays::{Devices, Source};
use crate::event::Event;
use crate::frontend::{About, Frontend};
use crate::leaf::Leaf;
use crate::nanos;
use crate::origins::Origin;
use crate::place::{Opened, Role};
use crate::platform::Platform;
use crate::sink::Sink;
use block::{BoxDevice, Device, Env, IoResult, Nanos, Sectors};
use cache::{DeviceState, Mode, PoolDevice, VolumeConfig};
use control::config::{self, Config, Name};
use control::protocol::{NamedOrNew, Request};
use filter::{Profiled, Tap, Tapped};
use futures_util::future::join_all;
use refusal::{Refusal, refusal};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use waiting::Waiting;

/// How often ejected devices are looked for.
const EJECTIONS_PERIOD: Nanos = Nanos::from_secs(1);

/// How often profiles get the time.
const PROFILE_TICK: Nanos = Nanos::from_secs(1);

/// A volume of a node.
pub type Export<D> = Profiled<cache::Volume<Leaf<D>>>;

/// What frontends offer to clients.
pub type Door<D> = Tapped<Export<D>, Sink>;

/// A volume that is served.
pub struct Served<P: Platform> {
    pub volume: Export<P::Driver>,
    pub guard: Origin<P::Driver>,
    pub tap: Tap<Sink>,
    pub origin: Name,
    pub pool: Name,
}

impl<P: Platform> Clone for Served<P> {
    fn clone(&self) -> Served<P> {
        Served {
            volume: self.volume.clone(),
            guard: self.guard.clone(),
            tap: self.tap.clone(),
            origin: self.origin.clone(),
            pool: self.pool.clone(),
        }
    }
}

/// By what its volumes are reached.
pub type Frontends<D> = Vec<Rc<dyn Frontend<Door<D>>>>;

/// What runs.
pub struct Node<P: Platform> {
    pub(crate) platform: P,
    pub(crate) began: Nanos,
    pub(crate) frontends: Frontends<P::Driver>,
    pub(crate) pools: BTreeMap<Name, Pool<P::Driver>>,
    pub(crate) volumes: RefCell<BTreeMap<Name, Served<P>>>,
    /// Volumes of the configuration that could not be served when last tried.
    waiting: RefCell<BTreeMap<Name, Waiting>>,
    /// Its devices and arrays.
    pub devices: Rc<Devices<P>>,
    grace: Nanos,
    stop: Nanos,
    changing: Cell<bool>,
    stopped: Cell<bool>,
}

impl<P: Platform> Node<P> {
    /// Opens everything that `config` names. Volumes that cannot be served yet are
    /// tried again while the others are.
    pub async fn start(
        config: &Config,
        platform: P,
        frontends: Frontends<P::Driver>,
    ) -> Result<Rc<Node<P>>, Refusal> {
        refuse_claimed(config, &platform)?;
        let mut pools = BTreeMap::new();
        let devices = Devices::new(config, platform.clone());
        for pool in &config.pools {
            let opened = Pool::open(pool, &devices).await?;
            pools.insert(pool.name.value.clone(), opened);
        }
        let node = Rc::new(Node {
            began: platform.local().env().timer.now(),
            platform,
            frontends,
            pools,
            volumes: RefCell::default(),
            waiting: RefCell::default(),
            devices,
            grace: nanos(config.daemon.grace.value),
            stop: nanos(config.daemon.stop.value),
            changing: Cell::new(false),
            stopped: Cell::new(false),
        });
        for (name, pool) in &node.pools {
            let here = |volume: &config::Volume| volume.pool.value == *name;
            for (volume, _) in pool.cache.remembered() {
                let mut volumes = config.volumes.iter().filter(|v| here(v));
                if !volumes.any(|v| v.name.as_str() == volume) {
                    pool.cache.forget(&volume);
                }
            }
            // What moved elsewhere is written there from now on, and may come back.
            pool.cache.remember().await;
        }
        node.begin_volumes(&config.volumes).await;
        Ok(node)
    }

    /// How many volumes clients can reach.
    pub fn volumes_served(&self) -> usize {
        self.volumes.borrow().len()
    }

    fn env(&self) -> Env {
        self.platform.local().env()
    }

    fn known(&self, name: &Name) -> Result<Source, Refusal> {
        self.devices.find(name).ok_or_else(|| {
            format!("the configuration has no device {name}; give the path of a file or device")
        })
    }

    fn pool(&self, name: &str) -> Result<(Name, &Pool<P::Driver>), Refusal> {
        let found = self.pools.iter().find(|(known, _)| known.as_str() == name);
        let found = found.map(|(name, pool)| (name.clone(), pool));
        found.ok_or_else(|| format!("no pool is named {name}; see `hotset pool list`"))
    }

    /// The device of a request.
    fn named_or_new(&self, device: NamedOrNew) -> Result<Source, Refusal> {
        match device {
            NamedOrNew::Named(name) => self.known(&Name::new(&name)?),
            NamedOrNew::New(text) => {
                let device = config::Device::parse(&text)?;
                if self.devices.find(&device.name.value).is_some() {
                    return Err(format!(
                        "the configuration has a device {}; name that, or choose another name",
                        device.name.value
                    ));
                }
                Ok(Source::Device(Box::new(device)))
            }
        }
    }

    async fn add_device(&self, pool: &Name, device: &Source) -> Result<(), Refusal> {
        let pool = &self.pools[pool];
        let lease = self
            .devices
            .open(device, Role::Pool)
            .await
            .map_err(refusal)?;
        let member = PoolDevice::whole(lease.leaf.clone(), lease.controller.clone());
        let joined = pool.cache.join(member, self.platform.uuid()).await;
        let id = lease.settle(joined).await.map_err(refusal)?;
        pool.devices.borrow_mut().insert(device.name().clone(), id);
        Ok(())
    }

    async fn remove_device(&self, pool: &str, device: &str) -> Result<(), Refusal> {
        let (_, pool) = self.pool(pool)?;
        let name = Name::new(device)?;
        let id = pool.devices.borrow_mut().remove(&name);
        let id =
            id.ok_or_else(|| format!("the pool has no device {name}; see `hotset pool list`"))?;
        pool.cache.remove_device(id).await.map_err(refusal)?;
        self.devices.close(&name).await.map_err(refusal)
    }

    async fn add_volume(&self, volume: &config::Volume, origin: &Source) -> Result<(), Refusal> {
        let name = &volume.name.value;
        if self.volumes.borrow().contains_key(name) {
            return Err(format!("a volume is named {name}; choose another name"));
        }
        if let Some(waiting) = self.waiting.borrow().get(name) {
            return Err(format!(
                "volume {name} of the configuration is not served yet: {}; mend that, or remove \
                 the volume first",
                waiting.why
            ));
        }
        if origin.is_read_only() && !volume.read_only.value {
            return Err(format!(
                "volume {name} is writable on a read-only device; make it read-only too"
            ));
        }
        self.open_volume(volume, origin).await
    }

    /// Opens the origin of `volume`, and serves it.
    async fn open_volume(&self, volume: &config::Volume, origin: &Source) -> Result<(), Refusal> {
        let lease = self
            .devices
            .open(origin, Role::Origin)
            .await
            .map_err(refusal)?;
        let served = self.serve_volume(volume, origin, &lease).await;
        lease.settle(served).await
    }

    /// Serves `volume` from its origin, which is open.
    async fn serve_volume(
        &self,
        volume: &config::Volume,
        origin: &Source,
        opened: &Opened<P>,
    ) -> Result<(), Refusal> {
        let name = &volume.name.value;
        let (pool_name, pool) = self.pool(volume.pool.as_str())?;
        let below = opened.leaf.geometry();
        let sectors = match &volume.size {
            None => None,
            Some(size) if size.value.0 > below.sectors.bytes() => {
                return Err(format!(
                    "volume {name} of {} is larger than its origin {} of {}; \
                     make the origin larger, or the volume smaller",
                    size.value,
                    below.name,
                    config::Bytes(below.sectors.bytes()),
                ));
            }
            Some(size) => Some(Sectors(size.value.0 / block::SECTOR_BYTES)),
        };
        let config = VolumeConfig {
            name: name.as_str().into(),
            sectors,
            mode: volume.mode.value,
        };
        let size = config.sectors.unwrap_or(below.sectors);
        // What others left in its volatile cache, it may lose without a word to us.
        opened.leaf.flush().await.map_err(refusal)?;
        let guarded = Origin::guard(&self.platform, &pool.cache, name, size, opened).await;
        let guarded = guarded.map_err(refusal)?;
        let below = BoxDevice::new(guarded.device());
        let cached = pool.cache.add_volume(config, below).map_err(refusal)?;
        guarded.begin().await;
        let timer = self.env().timer;
        let exported = Profiled::new(cached, pool.line_bytes, timer.now());
        let about = About {
            description: format!("{} cached in pool {pool_name}", opened.place),
            read_only: volume.read_only.value,
        };
        let door = Tapped::new(exported.clone(), timer);
        let tap = door.tap();
        if let Err(error) = self.offer(name, &door, &about).await {
            exported.inner().close().await;
            return Err(refusal(error));
        }
        let origin = origin.name().clone();
        let served = Served {
            volume: exported,
            guard: guarded,
            tap,
            origin,
            pool: pool_name,
        };
        self.volumes.borrow_mut().insert(name.clone(), served);
        Ok(())
    }

    /// Offers `door` by every frontend, or by none.
    async fn offer(&self, name: &Name, door: &Door<P::Driver>, about: &About) -> IoResult {
        for (n, frontend) in self.frontends.iter().enumerate() {
            if let Err(error) = frontend.add(name.as_str(), door.clone(), about) {
                self.withdraw(name, n).await?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Withdraws a volume from the first `most` frontends.
    async fn withdraw(&self, name: &Name, most: usize) -> IoResult {
        let frontends = self.frontends.iter().take(most);
        let each = frontends.map(|frontend| frontend.withdraw(name.as_str(), self.grace));
        join_all(each).await.into_iter().collect()
    }

    async fn remove_volume(&self, name: &str) -> Result<(), Refusal> {
        let name = Name::new(name)?;
        if self.give_up_waiting(&name)? {
            return Ok(());
        }
        let none = || format!("no volume is named {name}; see `hotset volume list`");
        let volume = self.volumes.borrow().get(&name).map(|v| v.volume.clone());
        let volume = volume.ok_or_else(none)?;
        // What is held back for a snapshot goes on: it is to end.
        let _ = volume.inner().resume();
        // Clients' writes that were acknowledged are made durable before the
        // device is released.
        self.withdraw(&name, self.frontends.len())
            .await
            .map_err(refusal)?;
        let flushed = volume.flush().await;
        volume.inner().close().await;
        let served = self.volumes.borrow_mut().remove(&name).ok_or_else(none)?;
        let cache = &self.pools[&served.pool].cache;
        cache.forget(name.as_str());
        cache.remember().await;
        let closed = self.devices.close(&served.origin).await;
        flushed.and(closed).map_err(|error| {
            format!("the volume is removed, but its origin may have lost writes: {error}; check it")
        })
    }

    fn volume(&self, name: &str) -> Result<Export<P::Driver>, Refusal> {
        let volumes = self.volumes.borrow();
        let found = volumes.iter().find(|(known, _)| known.as_str() == name);
        let found = found.map(|(_, served)| served.volume.clone());
        found.ok_or_else(|| format!("no volume is named {name}; see `hotset volume list`"))
    }

    fn set_mode(&self, volume: &str, mode: &str) -> Result<(), Refusal> {
        let Some(mode) = Mode::from_name(mode) else {
            let names = Mode::ALL.map(Mode::name).join(", ");
            return Err(format!("{mode:?} is no mode; choose one of {names}"));
        };
        self.volume(volume)?.inner().set_mode(mode);
        Ok(())
    }

    /// Forgets what is cached of a volume, and identifies its origin again.
    async fn invalidate(&self, name: &str) -> Result<(), Refusal> {
        let volume = self.volume(name)?;
        let was_quiesced = volume.inner().is_quiesced();
        if !was_quiesced {
            volume.inner().quiesce().await.map_err(refusal)?;
        }
        let guard = self.volumes.borrow()[&Name::new(name)?].guard.clone();
        let mut done = volume.inner().invalidate().await;
        if done.is_ok() {
            done = guard.renew().await;
        }
        if !was_quiesced {
            volume.inner().resume().map_err(refusal)?;
        }
        done.map_err(refusal)
    }

    async fn change(&self, request: Request) -> Result<(), Refusal> {
        match request {
            Request::Status
            | Request::Observe { .. }
            | Request::Explain { .. }
            | Request::Record { .. }
            | Request::TakeRecords => Ok(()),
            Request::SetMode { volume, mode } => self.set_mode(&volume, &mode),
            Request::Quiesce { volume } => self
                .volume(&volume)?
                .inner()
                .quiesce()
                .await
                .map_err(refusal),
            Request::Resume { volume } => self.volume(&volume)?.inner().resume().map_err(refusal),
            Request::Invalidate { volume } => self.invalidate(&volume).await,
            Request::AddVolume { volume, device } => {
                let volume = config::Volume::parse(&volume)?;
                let origin = match device {
                    Some(text) => self.named_or_new(NamedOrNew::New(text))?,
                    None => self.known(&volume.origin.value)?,
                };
                self.add_volume(&volume, &origin).await
            }
            Request::RemoveVolume { volume } => self.remove_volume(&volume).await,
            Request::AddDevice { pool, device } => {
                let (pool, _) = self.pool(&pool)?;
                let device = self.named_or_new(device)?;
                self.add_device(&pool, &device).await
            }
            Request::FailMember { array, member } => {
                self.devices.fail_member(&array, &member).await
            }
            Request::AddMember {
                array,
                device,
                overwrite,
            } => {
                let device = self.named_or_new(device)?;
                let devices = &self.devices;
                devices.give_member(&array, None, &device, overwrite).await
            }
            Request::ReplaceMember {
                array,
                member,
                device,
                overwrite,
            } => {
                let (device, member) = (self.named_or_new(device)?, Some(member.as_str()));
                let devices = &self.devices;
                devices
                    .give_member(&array, member, &device, overwrite)
                    .await
            }
            Request::Scrub { array, repair } => self.devices.scrub(&array, repair),
            Request::RemoveDevice { pool, device } => self.remove_device(&pool, &device).await,
        }
    }

    /// What a node does by itself, until it is stopped.
    pub fn supervise(node: &Rc<Self>) {
        let spawn = node.env().spawn;
        spawn.spawn(Node::report_ejections(node.clone()));
        spawn.spawn(node.devices.clone().supervise());
        spawn.spawn(Node::serve_waiting(node.clone()));
        spawn.spawn(Node::tick_policies(node.clone()));
    }

    /// Says when a pool device is ejected.
    async fn report_ejections(node: Rc<Self>) {
        let timer = node.env().timer;
        let mut reported = HashSet::new();
        while !node.stopped.get() {
            timer.sleep(EJECTIONS_PERIOD).await;
            for (pool_name, pool) in &node.pools {
                for report in pool.cache.devices() {
                    let DeviceState::Ejected(fault) = report.state else {
                        continue;
                    };
                    if reported.insert((pool_name.clone(), report.id)) {
                        node.platform.event(Event::PoolDeviceEjected {
                            pool: pool_name.clone(),
                            device: report.name.clone(),
                            fault,
                        });
                    }
                }
            }
        }
    }

    /// Passes the time to the profiles of all volumes.
    async fn tick_policies(node: Rc<Self>) {
        let timer = node.env().timer;
        while !node.stopped.get() {
            timer.sleep(PROFILE_TICK).await;
            let now = timer.now();
            for served in node.volumes.borrow().values() {
                served.volume.tick(now);
            }
        }
    }
}

/// Refuses volumes that a pool which is not in the configuration remembers: its
/// lines would be stale when it comes back.
fn refuse_claimed<P: Platform>(config: &Config, platform: &P) -> Result<(), Refusal> {
    let ours: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    for other in platform.other_pools(&ours).map_err(refusal)? {
        let claimed = |v: &&config::Volume| other.volumes.iter().any(|n| n == v.name.as_str());
        if let Some(volume) = config.volumes.iter().find(claimed) {
            return Err(format!(
                "volume {} is claimed by two pools, {} and {}, which is not in the configuration; put it back there, or give it up by removing {}",
                volume.name.value,
                volume.pool.value,
                other.pool,
                other.file.display()
            ));
        }
    }
    Ok(())
}
