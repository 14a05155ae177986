//! A running node: its devices, pools and volumes, and their changes.
//!
//! Invariants:
//!     a device is open ⟺ one volume, pool or array uses it; there is no second user
//!     one change runs at a time; a change that fails has changed nothing
//!
//! Everything lives on one shard.

mod again;
mod change;
mod controlled;
mod ending;
mod job;
mod jobs;
mod late;
mod look;
mod made;
mod pool;
mod pools;
mod queue;
mod refusal;
mod reload;
mod reservations;
mod retry;
mod returns;
mod snapshot;
mod stop;
mod switch;
mod troubles;
mod turns;
mod volumes;
mod waiting;
mod wear;
mod write_back;

pub use controlled::Controlled;
pub use ending::EndWait;
pub(crate) use pool::AbsentDevice;
pub use pool::NodePool;
pub(crate) use write_back::changed;

use crate::arrays::{DeviceSource, OpenDevices};
use crate::frontend::{Frontend, VolumeAbout};
use crate::nanos;
use crate::origins::GuardedOrigin;
use crate::place::RawRole;
use crate::platform::{LogWitness, Platform};
use crate::served_volume::ServedVolume;
use block::{Deadline, Device as _, Env, Extent, Gate, InFlight, Nanos, Sectors, Signal};
use cache::NewPoolDevice;
use control::config::{Config, Name, VolumeMode};
use control::meant;
use ending::NodeEnd;
use job::{Detaching, Jobs};
use late::Returns;
use queue::ChangeQueue;
use refusal::{Refusal, refusal};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use troubles::{Failing, Losses, Troubles};
use waiting::{Reservations, WaitingVolume};

/// Size of each discard of a device that has left its pool, and time limit of all discards.
const TRIM_STEP: Sectors = Sectors(1 << 21);
const TRIM_MAX: Nanos = Nanos::from_secs(10);
/// Interval at which profiles get the time.
const PROFILE_TICK: Nanos = Nanos::from_secs(1);
/// Interval of a node's looks while its shard has no other work. Work of the shard alone changes what is
/// looked at, and hastens the next look.
pub(crate) const IDLE_PERIOD: Nanos = Nanos::from_secs(10);

/// A served volume.
pub struct NodeVolume<P: Platform> {
    pub gate: Gate<ServedVolume<P::Driver>>,
    pub about: VolumeAbout,
    pub volume: ServedVolume<P::Driver>,
    pub guard: GuardedOrigin<P::Driver>,
    pub origin: Name,
    pub pool: Name,
    /// Place of an origin that is reserved for this host.
    pub(crate) reserved: Option<Rc<str>>,
}

impl<P: Platform> Clone for NodeVolume<P> {
    fn clone(&self) -> NodeVolume<P> {
        NodeVolume {
            gate: self.gate.clone(),
            about: self.about.clone(),
            volume: self.volume.clone(),
            guard: self.guard.clone(),
            origin: self.origin.clone(),
            pool: self.pool.clone(),
            reserved: self.reserved.clone(),
        }
    }
}

/// The frontends of a node.
pub type Frontends<D> = Vec<Rc<dyn Frontend<ServedVolume<D>>>>;

/// A running node.
pub struct Node<P: Platform> {
    pub(crate) platform: P,
    pub(crate) began: Nanos,
    pub(crate) frontends: Frontends<P::Driver>,
    pub(crate) pools: RefCell<BTreeMap<Name, Rc<NodePool<P::Driver>>>>,
    pub(crate) volumes: RefCell<BTreeMap<Name, NodeVolume<P>>>,
    /// Volumes of the configuration that are not served yet.
    waiting: RefCell<BTreeMap<Name, WaitingVolume>>,
    /// Devices and arrays of the node.
    pub devices: Rc<OpenDevices<P>>,
    grace: Cell<Nanos>,
    stop: Cell<Nanos>,
    jobs: RefCell<Jobs>,
    /// Volumes that are draining their logs to give them up.
    detaching: RefCell<BTreeMap<Name, Rc<Detaching>>>,
    queue: ChangeQueue,
    /// Distinguishes names of this node's changes from those of an earlier node.
    incarnation: u64,
    /// True while devices are asked for their wear.
    asks_wear: Cell<bool>,
    /// Pool devices that were ejected for being late.
    returns: Returns,
    /// State of the origins, failing or not.
    failing: Failing,
    /// Current troubles.
    troubles: Troubles,
    losses: RefCell<Losses>,
    /// Notified when a volume begins to wait, or the node is stopped.
    waits: Signal,
    /// Reservations of origins.
    reservations: Reservations,
    /// Logs that are being opened again.
    reopening: Rc<InFlight>,
    stopped: Cell<bool>,
    ending: NodeEnd,
}

impl<P: Platform> Node<P> {
    /// Opens all devices, arrays, pools and volumes of `config`. Volumes that cannot be served yet
    /// are retried while the others are served.
    pub async fn start(
        config: &Config,
        platform: P,
        frontends: Frontends<P::Driver>,
    ) -> Result<Rc<Node<P>>, Refusal> {
        refuse_claimed(config, &platform).await?;
        let logs = platform.logs().await.map_err(refusal)?;
        left_out(config, &logs).map_or(Ok(()), Err)?;
        let mut pools = BTreeMap::new();
        let devices = OpenDevices::new(config, platform.clone());
        for pool in &config.pools {
            let of = |name| devices.find(name).expect("checked with the configuration");
            let sources: Vec<DeviceSource> = pool.devices.value.iter().map(of).collect();
            let opened = NodePool::open(pool, &sources, &devices, AbsentDevice::Reported).await;
            let opened =
                opened.map_err(|why| format!("{}: {why}", config.files.place(pool.line)))?;
            pools.insert(pool.name.value.clone(), Rc::new(opened));
        }
        let began_at = platform.clock().0;
        let node = Rc::new(Node {
            began: platform.local().env().timer.now(),
            platform,
            frontends,
            pools: RefCell::new(pools),
            volumes: RefCell::default(),
            waiting: RefCell::default(),
            devices,
            grace: Cell::new(nanos(config.daemon.grace.value)),
            stop: Cell::new(nanos(config.daemon.stop.value)),
            jobs: RefCell::default(),
            detaching: RefCell::default(),
            queue: ChangeQueue::default(),
            incarnation: began_at,
            asks_wear: Cell::new(false),
            returns: Returns::default(),
            failing: Failing::default(),
            troubles: Troubles::default(),
            losses: RefCell::default(),
            waits: Signal::default(),
            reservations: Reservations::default(),
            reopening: Rc::default(),
            stopped: Cell::new(false),
            ending: NodeEnd::default(),
        });
        let pools = node.pools.borrow().clone();
        let volumes = config.volumes.iter();
        let volumes = volumes.map(|v| (v.pool.as_str(), v.name.as_str()));
        let volumes: HashSet<(&str, &str)> = volumes.collect();
        for (name, pool) in &pools {
            for (volume, _) in pool.cache.remembered() {
                if !volumes.contains(&(name.as_str(), &volume)) {
                    pool.cache.forget(&volume);
                }
            }
            // A volume that moved to another pool is written there from now on, and may come back.
            pool.cache.remember().await;
        }
        node.begin_volumes(&config.volumes).await;
        Ok(node)
    }

    /// Number of volumes that clients can reach.
    pub fn volumes_served(&self) -> usize {
        self.volumes.borrow().len()
    }

    fn env(&self) -> Env {
        self.platform.local().env()
    }

    fn known(&self, name: &Name) -> Result<DeviceSource, Refusal> {
        self.devices.find(name).ok_or_else(|| {
            let config = self.devices.config();
            let devices = config.devices.iter().map(|device| &device.name.value);
            let arrays = config.arrays.iter().map(|array| &array.name.value);
            let meant = meant(name.as_str(), devices.chain(arrays).map(Name::as_str));
            format!(
                "the configuration has no device {name}{meant}; give the path of a file or device"
            )
        })
    }

    fn pool(&self, name: &str) -> Result<Rc<NodePool<P::Driver>>, Refusal> {
        let pools = self.pools.borrow();
        let found = pools.values().find(|pool| pool.name.as_str() == name);
        found.cloned().ok_or_else(|| {
            let meant = meant(name, pools.keys().map(Name::as_str));
            format!("no pool is named {name}{meant}; see `hotset pool list`")
        })
    }

    async fn add_device(&self, pool: &Name, device: &DeviceSource) -> Result<(), Refusal> {
        let pool = self.pool(pool.as_str())?;
        let lease = self
            .devices
            .open(device, RawRole::Pool)
            .await
            .map_err(refusal)?;
        let member = NewPoolDevice::whole(lease.leaf.clone(), lease.controller.clone());
        if let Err(why) = self.has_memory(&pool, member.extent.len.bytes()) {
            lease.release().await;
            return Err(why);
        }
        let joined = pool.cache.join(member, self.platform.uuid()).await;
        let id = lease.settle(joined).await.map_err(refusal)?;
        pool.devices.borrow_mut().insert(device.name().clone(), id);
        Ok(())
    }

    /// Checks that there is memory for `bytes` more of `pool`. Its tables are copied as they grow.
    fn has_memory(&self, pool: &NodePool<P::Driver>, bytes: u64) -> Result<(), Refusal> {
        let config = self.devices.config();
        let mut known = config.pools.iter();
        let Some(known) = known.find(|known| known.name.value == pool.name) else {
            return Ok(());
        };
        let devices = pool.cache.devices();
        let before: u64 = devices.iter().map(|device| device.place.len.bytes()).sum();
        self.devices.have_memory(known, before + bytes)
    }

    async fn remove_device(&self, pool: &Name, name: &Name) -> Result<(), Refusal> {
        let known = self.devices.config();
        let mut known = known.pools.iter().filter(|known| known.name.value == *pool);
        let is_known = known.any(|known| known.devices.value.contains(name));
        let pool = self.pool(pool.as_str())?;
        self.look_for_losses();
        let removed = pool.devices.borrow_mut().remove(name);
        let id = match removed {
            Some(id) => id,
            // The pool has run without the device since it was opened.
            None if is_known => return Ok(()),
            None => {
                let devices = pool.devices.borrow();
                let meant = meant(name.as_str(), devices.keys().map(Name::as_str));
                return Err(format!(
                    "the pool has no device {name}{meant}; see `hotset pool list`"
                ));
            }
        };
        let devices = pool.cache.devices().into_iter();
        let lines: Vec<Extent> = devices.filter(|d| d.id == id).map(|d| d.place).collect();
        pool.cache.remove_device(id).await.map_err(refusal)?;
        for lines in lines {
            self.trim(name, lines).await;
        }
        self.devices.close(name).await.map_err(refusal)
    }

    /// Discards the lines of a device that has left its pool, within a time limit. Its superblocks
    /// stay: a loss of power may undo a discard in part, and without them the rest is foreign data.
    async fn trim(&self, name: &Name, lines: Extent) {
        let Ok((leaf, _)) = self.devices.leaf_of(name) else {
            return;
        };
        let trimming = async {
            let mut rest = lines;
            while rest.len > Sectors::ZERO {
                let len = TRIM_STEP.min(rest.len);
                // Some devices cannot discard; the discard is a hint only.
                if leaf.discard(Extent::new(rest.start, len)).await.is_err() {
                    break;
                }
                rest = Extent::new(rest.start + len, rest.len - len);
            }
        };
        let timer = self.env().timer;
        Deadline::new(&timer, TRIM_MAX).bound(trimming).await;
    }

    fn volume(&self, name: &str) -> Result<ServedVolume<P::Driver>, Refusal> {
        let volumes = self.volumes.borrow();
        let found = volumes.iter().find(|(known, _)| known.as_str() == name);
        let found = found.map(|(_, served)| served.volume.clone());
        let waiting = self.waiting.borrow();
        let waiting = waiting.iter().find(|(known, _)| known.as_str() == name);
        found.ok_or_else(|| match waiting {
            Some((_, waiting)) => format!("volume {name} is not served yet: {}", waiting.why),
            None => self.no_volume(name),
        })
    }

    /// The refusal of a change or question about a volume that there is not.
    pub(crate) fn no_volume(&self, name: &str) -> Refusal {
        let (volumes, waiting) = (self.volumes.borrow(), self.waiting.borrow());
        let names = volumes.keys().chain(waiting.keys());
        let meant = meant(name, names.map(Name::as_str));
        format!("no volume is named {name}{meant}; see `hotset volume list`")
    }

    /// Starts the background tasks of a node, which run until the node is stopped.
    pub fn supervise(node: &Rc<Self>) {
        let spawn = node.env().spawn;
        spawn.spawn(Node::report_losses(node.clone()));
        spawn.spawn(Node::watch_configuration(node.clone()));
        spawn.spawn(Node::open_lost_again(node.clone()));
        spawn.spawn(Node::look_at_reservations(node.clone()));
        spawn.spawn(node.devices.clone().supervise());
        spawn.spawn(Node::serve_waiting(node.clone()));
        spawn.spawn(Node::tick_policies(node.clone()));
    }

    /// Passes the time to the profiles of all volumes, and looks at jobs and wear.
    async fn tick_policies(node: Rc<Self>) {
        let timer = node.env().timer;
        while !node.stopped.get() {
            timer.idle_sleep(PROFILE_TICK, IDLE_PERIOD).await;
            node.look_at_jobs();
            Node::look_at_wear(&node);
            let now = timer.now();
            for served in node.volumes.borrow().values() {
                served.volume.profiling().tick(now);
            }
        }
    }
}

/// Refuses a volume that is also remembered by a pool outside the configuration: the lines of that
/// pool would be stale after its return.
async fn refuse_claimed<P: Platform>(config: &Config, platform: &P) -> Result<(), Refusal> {
    let ours: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    for other in platform.other_pools(&ours).await.map_err(refusal)? {
        let claimed: HashSet<&str> = other.volumes.iter().map(String::as_str).collect();
        let mut volumes = config.volumes.iter();
        if let Some(volume) = volumes.find(|v| claimed.contains(v.name.as_str())) {
            let place = config.files.place(volume.line);
            return Err(format!(
                "{place}: volume {} is claimed by two pools, {} and {}, which is not in the configuration; put it back there, or give it up by removing {}",
                volume.name.value,
                volume.pool.value,
                other.pool,
                other.file.display()
            ));
        }
    }
    Ok(())
}

/// Reason against a configuration that leaves out the log of a volume with possibly dirty data.
pub fn left_out(config: &Config, logs: &[LogWitness]) -> Option<String> {
    let is_left_out = |log: &&LogWitness| {
        let mut volumes = config.volumes.iter();
        let volume = volumes.find(|v| v.name.as_str() == log.superblock.volume);
        let is_served = volume.is_some_and(|v| v.in_force() == VolumeMode::WriteBack);
        log.superblock.may_be_dirty && !is_served
    };
    let log = logs.iter().find(is_left_out)?;
    let (volume, [first, second]) = (&log.superblock.volume, &log.superblock.devices);
    Some(format!(
        "volume {volume} may have dirty data for its origin, on {first} and {second}, and the \
         configuration does not serve it as write-back. Put it back until it has ended in order, \
         or discard the data with `hotset pool recover {volume} --discard`, or, if it is not to be \
         in the configuration, by removing {}",
        log.file.display()
    ))
}
