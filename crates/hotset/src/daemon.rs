//! A running daemon: its devices, pools and volumes, and changing them.
//!
//! Invariants:
//!     a device is open ⟺ a volume or a pool uses it, and only one does
//!     one change runs at a time; a change that fails has changed nothing
//!
//! Everything lives on one shard.

mod controlled;
mod pool;
mod stop;
mod waiting;

pub use controlled::Controlled;
pub use pool::Pool;

use crate::arrays::{Devices, Source};
use crate::devices::{Leaf, Opened, Opener, Role};
use crate::memory;
use crate::origins::Origin;
use crate::record::Sink;
use block::{BoxDevice, Device, Nanos, Sectors};
use cache::{DeviceState, Mode, PoolDevice, VolumeConfig};
use control::config::{self, Config, Name};
use control::protocol::{NamedOrNew, Request};
use filter::{Profiled, Tap, Tapped};
use nbd::serve::{CONNECTIONS_MAX, ExportOptions, Limits, Server, connections_for};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use waiting::Waiting;

/// How often ejected devices are looked for.
const EJECTIONS_PERIOD: Nanos = Nanos::from_secs(1);

/// How often profiles are told the time.
const PROFILE_TICK: Nanos = Nanos::from_secs(1);

/// What clients see.
pub type Export = Profiled<cache::Volume<Leaf>>;

/// A volume that is served.
#[derive(Clone)]
pub struct Served {
    pub volume: Export,
    pub guard: Origin,
    pub tap: Tap<Sink>,
    pub origin: Name,
    pub pool: Name,
}

/// What runs.
pub struct Daemon {
    pub opener: Opener,
    pub began: Nanos,
    pub server: Rc<Server<Tapped<Export, Sink>>>,
    /// Where it listens, as URIs.
    pub listeners: Vec<String>,
    pub pools: BTreeMap<Name, Pool>,
    pub volumes: RefCell<BTreeMap<Name, Served>>,
    /// Volumes of the configuration that could not be served when last tried.
    pub waiting: RefCell<BTreeMap<Name, Waiting>>,
    pub devices: Rc<Devices>,
    grace: Nanos,
    stop: Nanos,
    changing: Cell<bool>,
}

/// Why a change was refused: one line with the remedy.
type Refusal = String;

impl Daemon {
    /// Opens everything that `config` names. Volumes that cannot be served yet are
    /// tried again while the others are.
    pub async fn start(
        config: &Config,
        opener: Opener,
        listeners: Vec<String>,
    ) -> Result<Rc<Daemon>, Refusal> {
        let env = opener.local.env();
        let memory = env.pool.total_bytes() / 2;
        let connections = config
            .daemon
            .connections
            .as_ref()
            .map(|number| number.value);
        let connections =
            connections.unwrap_or_else(|| CONNECTIONS_MAX.min(connections_for(memory as u64)));
        let limits = Limits {
            connections_max: connections,
            handshakes_max: connections,
            requests_max: config.daemon.requests.value,
            memory_bytes_max: memory,
            ..Limits::default()
        };
        let log = Rc::new(|line: &str| eprintln!("hotset: {line}"));
        let server = Server::new(env.clone(), limits, None, log).map_err(told)?;
        memory::refuse_claimed(config)?;
        let mut pools = BTreeMap::new();
        let devices = Devices::new(config, opener.clone());
        for pool in &config.pools {
            let opened = Pool::open(config, pool, &devices).await?;
            pools.insert(pool.name.value.clone(), opened);
        }
        let daemon = Rc::new(Daemon {
            began: env.timer.now(),
            opener,
            server,
            listeners,
            pools,
            volumes: RefCell::default(),
            waiting: RefCell::default(),
            devices,
            grace: nanos(config.daemon.grace.value),
            stop: nanos(config.daemon.stop.value),
            changing: Cell::new(false),
        });
        for (name, pool) in &daemon.pools {
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
        daemon.begin_volumes(&config.volumes).await;
        Ok(daemon)
    }

    fn known(&self, name: &Name) -> Result<Source, Refusal> {
        self.devices.find(name).ok_or_else(|| {
            format!("the configuration has no device {name}; give the path of a file or device")
        })
    }

    fn pool(&self, name: &str) -> Result<(Name, &Pool), Refusal> {
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
        let lease = self.devices.open(device, Role::Pool).await.map_err(told)?;
        let member = PoolDevice::whole(lease.leaf.clone(), lease.controller.clone());
        let joined = pool.cache.join(member, memory::uuid()).await;
        let id = lease.settle(joined).await.map_err(told)?;
        pool.devices.borrow_mut().insert(device.name().clone(), id);
        Ok(())
    }

    async fn remove_device(&self, pool: &str, device: &str) -> Result<(), Refusal> {
        let (_, pool) = self.pool(pool)?;
        let name = Name::new(device)?;
        let id = pool.devices.borrow_mut().remove(&name);
        let id =
            id.ok_or_else(|| format!("the pool has no device {name}; see `hotset pool list`"))?;
        pool.cache.remove_device(id).await.map_err(told)?;
        self.devices.close(&name).await.map_err(told)
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
            .map_err(told)?;
        let served = self.serve_volume(volume, origin, &lease).await;
        lease.settle(served).await
    }

    /// Serves `volume` from its origin, which is open.
    async fn serve_volume(
        &self,
        volume: &config::Volume,
        origin: &Source,
        opened: &Opened,
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
        opened.leaf.flush().await.map_err(told)?;
        let env = self.opener.local.env();
        let guarded = Origin::guard(&pool.cache, name, size, opened, &env).await;
        let guarded = guarded.map_err(told)?;
        let below = BoxDevice::new(guarded.device());
        let cached = pool.cache.add_volume(config, below).map_err(told)?;
        guarded.begin().await;
        let now = self.opener.local.env().timer.now();
        let exported = Profiled::new(cached, pool.line_bytes, now);
        let options = ExportOptions {
            description: format!("{} cached in pool {pool_name}", opened.place),
            read_only: volume.read_only.value,
        };
        let export = Tapped::new(exported.clone(), self.opener.local.env().timer);
        let tap = export.tap();
        if let Err(error) = self.server.add(name.as_str(), export, &options) {
            exported.inner().close().await;
            return Err(told(error));
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
        // device is let go of.
        self.server
            .remove(name.as_str(), self.grace)
            .await
            .map_err(told)?;
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

    fn volume(&self, name: &str) -> Result<Export, Refusal> {
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

    /// Forgets what is cached of a volume, and knows its origin anew.
    async fn invalidate(&self, name: &str) -> Result<(), Refusal> {
        let volume = self.volume(name)?;
        let stood = volume.inner().is_quiesced();
        if !stood {
            volume.inner().quiesce().await.map_err(told)?;
        }
        let guard = self.volumes.borrow()[&Name::new(name)?].guard.clone();
        let mut done = volume.inner().invalidate().await;
        if done.is_ok() {
            done = guard.renew().await;
        }
        if !stood {
            volume.inner().resume().map_err(told)?;
        }
        done.map_err(told)
    }

    async fn change(&self, request: Request) -> Result<(), Refusal> {
        match request {
            Request::Status
            | Request::Observe { .. }
            | Request::Explain { .. }
            | Request::Record { .. }
            | Request::TakeRecords => Ok(()),
            Request::SetMode { volume, mode } => self.set_mode(&volume, &mode),
            Request::Quiesce { volume } => {
                self.volume(&volume)?.inner().quiesce().await.map_err(told)
            }
            Request::Resume { volume } => self.volume(&volume)?.inner().resume().map_err(told),
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

    /// Says on standard error when a pool device is ejected, until dropped.
    pub async fn tell_ejections(daemon: Rc<Daemon>) {
        let timer = daemon.opener.local.env().timer;
        let mut told = HashSet::new();
        loop {
            timer.sleep(EJECTIONS_PERIOD).await;
            for (pool_name, pool) in &daemon.pools {
                for report in pool.cache.devices() {
                    let DeviceState::Ejected(fault) = report.state else {
                        continue;
                    };
                    if told.insert((pool_name.clone(), report.id)) {
                        eprintln!(
                            "hotset: {} was ejected from pool {pool_name} ({}): its hits are lost, \
                             no data is; check it, then remove it from the pool and add it again",
                            report.name,
                            fault.name(),
                        );
                    }
                }
            }
        }
    }

    /// Tells the profiles of all volumes the time, until dropped.
    pub async fn tell_time(daemon: Rc<Daemon>) {
        let timer = daemon.opener.local.env().timer;
        loop {
            timer.sleep(PROFILE_TICK).await;
            let now = timer.now();
            for served in daemon.volumes.borrow().values() {
                served.volume.tick(now);
            }
        }
    }
}

fn nanos(span: std::time::Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

fn told(error: impl ToString) -> Refusal {
    error.to_string()
}
