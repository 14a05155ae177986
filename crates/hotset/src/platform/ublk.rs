//! Volumes as block devices of this machine: the frontend of ublk.
//!
//! Invariants:
//!     a device outlives its daemon: a stop answers the requests that have begun, and leaves
//!     the rest to the next daemon, which recovers the device
//!     a device that is removed was withdrawn here, or by `hotset detach`
//!     a device is of one origin, whatever its volume is called, and is never given to another
//!     one device that cannot be made keeps no other from being served, and is tried again
//!
//! Not here: the devices that this machine has (`devices`), the layers below a path (`stack`), the
//! processes that start devices (`begin`), the shards that serve their queues
//! (`ServedPorts`).

pub mod begin;
pub mod devices;
mod memory;
pub mod mounts;
pub mod stack;

use block::{
    Device, Geometry, IoError, IoErrorKind, IoResult, Nanos, PAGE_BYTES, SECTOR_BYTES, Sectors,
    plain,
};
use control::config::Config;
use control::frontends::Queues;
use control::status::Status;
use node::{Frontend, Later, NodeEvent, Platform, ServedVolume, VolumeAbout, VolumeGate};
use port::Options;
use shard::{Local, ShardPort};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use ublk::uapi::{REQUEST_MAX, block_device};
use ublk::{
    Attach, AttachEvent, AttachStep, DeviceInfo, Found, Params, UblkCommand, UblkControl,
    WantedDevice, choose, mark,
};
use uring::{Uring, UringDriver};

use super::UringPlatform;
use super::served::ServedPorts;

/// The longest discard or zeroing of one request, which holds its range meanwhile.
const DISCARD_MAX: Sectors = Sectors((32 << 20) / SECTOR_BYTES);
/// Pause before another attempt to make a device.
const AGAIN: Nanos = Nanos::from_secs(5);
/// Time limit of reading the ends of a volume for the start of its device.
const EDGES_MAX: Nanos = Nanos::from_secs(10);
/// Time limit of an attachment's search for partitions.
const PARTITIONS_MAX: Nanos = Nanos::from_secs(5);
/// Interval of looks at a device that is being made.
const TICK: Nanos = Nanos::from_millis(10);

/// Makes a block device of each volume that the configuration attaches.
#[derive(Clone)]
pub struct UblkFrontend(Rc<UblkShared>);

struct UblkShared {
    platform: UringPlatform,
    host: Uring,
    states: RefCell<BTreeMap<String, Entry>>,
}

/// A device with each of its queues served by one shard.
type ServedDevice = ServedPorts<ShardPort<UringDriver>>;

/// The state of a volume's device; the same entry for as long as the volume is to have the device.
type Entry = Rc<RefCell<AttachState>>;

#[derive(Clone)]
enum AttachState {
    Attaching,
    Live(u32, Rc<ServedDevice>),
    Failed(String),
}

/// The path of a live device.
fn path(entry: &Entry) -> Option<String> {
    match &*entry.borrow() {
        AttachState::Live(id, _) => Some(format!("/dev/{}", block_device(*id))),
        AttachState::Failed(_) | AttachState::Attaching => None,
    }
}

/// The device that a volume is to have.
struct DevicePlan {
    name: String,
    mark: u64,
    queues: Queues,
    gate: VolumeGate<UringDriver>,
    options: Options,
    params: Params,
}

/// The progress of making a device.
#[derive(Default)]
struct AttachProgress {
    served: Option<Rc<ServedDevice>>,
    /// The device's number, if made here.
    made: Option<u32>,
}

impl UblkFrontend {
    /// A frontend without a volume; `Err` if `config` attaches some and this machine has no ublk
    /// for them.
    pub fn new(config: &Config, platform: &UringPlatform, host: Uring) -> IoResult<UblkFrontend> {
        if !config.attachments.is_empty() {
            uring::ublk_available()?;
        }
        Ok(UblkFrontend(Rc::new(UblkShared {
            platform: platform.clone(),
            host,
            states: RefCell::default(),
        })))
    }

    /// Waits until the device of every served volume was made or refused. Returns the paths of the
    /// live devices.
    pub async fn settled(&self) -> Vec<String> {
        let timer = self.0.platform.local().env().timer;
        let is_attaching = |entry: &Entry| matches!(*entry.borrow(), AttachState::Attaching);
        while self.0.states.borrow().values().any(is_attaching) {
            timer.sleep(TICK).await;
        }
        let states = self.0.states.borrow();
        states.values().filter_map(path).collect()
    }

    /// An event for each device that waits for a daemon, and that `config` attaches no volume for.
    pub fn left(&self, config: &Config) -> Vec<NodeEvent> {
        let states = self.0.states.borrow();
        let live = states.values().filter_map(|entry| match &*entry.borrow() {
            AttachState::Live(id, _) => Some(*id),
            AttachState::Failed(_) | AttachState::Attaching => None,
        });
        let live: Vec<_> = live.collect();
        let attaches = |name: &str| config.attachments.iter().any(|a| a.ublk.as_str() == name);
        // A process that may not ask the driver has no devices.
        let ours = devices::ours().unwrap_or_default().into_iter();
        let left = ours.filter(|(name, info)| {
            let waits = info.state != ublk::UblkState::Dead && !devices::is_served(info);
            waits && !live.contains(&info.id) && !attaches(name)
        });
        left.map(|(name, info)| {
            let what = format!(
                "/dev/{} is left of volume {name}, which this configuration does not attach, and what \
                 uses it waits; attach that volume again to unmount the device, or give up what \
                 waits in it by `hotset detach {name} --force`",
                block_device(info.id)
            );
            let volume = Some(name);
            NodeEvent::Frontend { volume, what }
        })
        .collect()
    }
}

impl UblkShared {
    /// Makes the device, again and again until there is one or none is wanted.
    async fn attach(self: Rc<Self>, plan: DevicePlan, entry: Entry) {
        let timer = self.platform.local().env().timer;
        let mut said = String::new();
        loop {
            match self.attempt(&plan).await {
                Ok((id, served)) => {
                    *entry.borrow_mut() = AttachState::Live(id, served.clone());
                    return self.watch(&plan.name, id, served, &entry).await;
                }
                Err(why) => {
                    if why != said {
                        self.platform.event(NodeEvent::Frontend {
                            volume: Some(plan.name.clone()),
                            what: why.clone(),
                        });
                        said.clone_from(&why);
                    }
                    *entry.borrow_mut() = AttachState::Failed(why);
                }
            }
            timer.sleep(AGAIN).await;
            if !self.is_current(&plan.name, &entry) {
                return;
            }
            *entry.borrow_mut() = AttachState::Attaching;
        }
    }

    fn is_current(&self, name: &str, entry: &Entry) -> bool {
        let states = self.states.borrow();
        states.get(name).is_some_and(|now| Rc::ptr_eq(now, entry))
    }

    async fn attempt(&self, plan: &DevicePlan) -> Result<(u32, Rc<ServedDevice>), String> {
        let mut progress = AttachProgress::default();
        let made = self.make(plan, &mut progress).await;
        match (made, progress.served.take()) {
            (Ok(id), Some(served)) => {
                if devices::is_unread(id) {
                    let name = plan.name.clone();
                    let looked = self.host.aside(move || {
                        begin::scan_apart(id);
                        // The device may be gone by now.
                        if devices::is_unread(id) {
                            let _ = devices::record(id, &name, false);
                        }
                    });
                    let timer = self.platform.local().env().timer;
                    timer.timeout(PARTITIONS_MAX, looked).await;
                }
                Ok((id, served))
            }
            (Ok(_), None) => unreachable!("a device is live once it is served"),
            (Err(why), served) => {
                if let Some(served) = served {
                    served.close();
                }
                if let Some(id) = progress.made {
                    let _ = self.ask(UblkControl::of(UblkCommand::Delete, id)).await;
                    devices::forget(id);
                }
                Err(format!("volume {} cannot be attached: {why}", plan.name))
            }
        }
    }

    /// Follows the machine of a device to its end. Returns the device's number.
    async fn make(&self, plan: &DevicePlan, progress: &mut AttachProgress) -> Result<u32, String> {
        let name = &plan.name;
        let found = self.host.aside(devices::found).await.map_err(plain)?;
        let found = found.map_err(plain)?;
        let known = choose(&found, plan.mark, name).map_err(plain)?;
        let mut machine = Attach::new(WantedDevice {
            mark: plan.mark,
            pid: std::process::id(),
            queues: plan.queues.count as u16,
            depth: plan.queues.depth as u16,
            params: plan.params,
            known,
        });
        let mut event = AttachEvent::Begin;
        loop {
            event = match machine.step(event) {
                AttachStep::Control(control) => {
                    AttachEvent::Answer(self.ask(control).await.map_err(plain)?)
                }
                AttachStep::Look(pid) => AttachEvent::Runs(devices::runs(pid)),
                AttachStep::Pause(span) => {
                    self.platform.local().env().timer.sleep(span).await;
                    AttachEvent::Paused
                }
                AttachStep::Begin(info) => {
                    progress.made = Some(info.id);
                    // Before the start: udev reads the name once the block device is there.
                    devices::record(info.id, name, true).map_err(plain)?;
                    let edges = self.edges(plan).await;
                    let begun = self.host.aside(move || begin::begun(info.id, &edges));
                    let begun = begun.await.map_err(plain)?.map_err(plain)?;
                    if begun == Ok(false) {
                        devices::record(info.id, name, false).map_err(plain)?;
                    }
                    AttachEvent::Answer(begun.map(|_| Vec::new()))
                }
                AttachStep::Ready(info) => {
                    let readied = self.host.aside(move || begin::readied(info.id)).await;
                    AttachEvent::Answer(readied.map_err(plain)?.map_err(plain)?)
                }
                AttachStep::Serve(info) => {
                    self.take_name(info.id, name, &found)?;
                    progress.served = Some(Rc::new(self.serve(plan, &info).await.map_err(plain)?));
                    AttachEvent::Serving
                }
                AttachStep::Live(id) => return Ok(id),
                AttachStep::Refused(why, made) => {
                    progress.made = made;
                    return Err(why.to_string());
                }
            }
        }
    }

    /// Begins to serve the queues of the device that `info` describes.
    async fn serve(&self, plan: &DevicePlan, info: &DeviceInfo) -> IoResult<ServedDevice> {
        let local = self.platform.local();
        let shards = local.mesh().shards() as u16;
        let targets = self.host.open_ports(info, shards)?;
        let port = |target| move |shard: &Local<UringDriver>| shard.port(target);
        let ports = targets.into_iter().map(port).collect();
        let (device, all) = ServedDevice::begin(local, plan.gate.clone(), plan.options, ports)?;
        all.await.inspect_err(|_| device.close())?;
        Ok(device)
    }

    /// Reads the bytes for the start of a device; none if the volume does not answer.
    async fn edges(&self, plan: &DevicePlan) -> begin::Edges {
        let timer = self.platform.local().env().timer;
        let reading = begin::Edges::read(&plan.gate);
        timer.timeout(EDGES_MAX, reading).await.unwrap_or_default()
    }

    /// Gives a recovered device the present name of its volume.
    fn take_name(&self, id: u32, name: &str, found: &[Found]) -> Result<(), String> {
        devices::record(id, name, devices::is_unread(id)).map_err(plain)?;
        let former = found.iter().find(|(info, _)| info.id == id);
        let former = former.and_then(|(_, former)| former.as_deref());
        if let Some(former) = former.filter(|former| *former != name) {
            let device = block_device(id);
            devices::announce(id);
            let what = format!(
                "/dev/{device} was of volume {former} and is of volume {name}, which has its origin now"
            );
            let volume = Some(name.to_owned());
            self.platform.event(NodeEvent::Frontend { volume, what });
        }
        Ok(())
    }

    async fn ask(&self, control: UblkControl) -> IoResult<Result<Vec<u8>, i32>> {
        self.host.ublk_control_aside(control).await
    }

    /// Releases a device that was removed; the removal waits for that.
    async fn watch(&self, name: &str, id: u32, served: Rc<ServedDevice>, entry: &Entry) {
        served.ended().await;
        served.close();
        devices::forget(id);
        if self.is_current(name, entry) {
            self.states.borrow_mut().remove(name);
            let what = format!("/dev/{} of volume {name} was removed", block_device(id));
            let volume = Some(name.to_owned());
            self.platform.event(NodeEvent::Frontend { volume, what });
        }
    }

    /// The state of a volume's device, once the device is no longer being made.
    async fn state(&self, name: &str) -> Option<AttachState> {
        let timer = self.platform.local().env().timer;
        loop {
            let entry = self.states.borrow().get(name).cloned();
            let state = entry.map(|entry| entry.borrow().clone());
            match state {
                Some(AttachState::Attaching) => timer.sleep(TICK).await,
                state => return state,
            }
        }
    }

    async fn withdraw(&self, name: &str) -> IoResult {
        let state = self.state(name).await;
        self.states.borrow_mut().remove(name);
        let Some(AttachState::Live(id, served)) = state else {
            return Ok(());
        };
        let stopped = self.ask(UblkControl::of(UblkCommand::Stop, id)).await?;
        refused(id, stopped)?;
        served.ended().await;
        served.close();
        let removed = self.ask(UblkControl::of(UblkCommand::Delete, id)).await?;
        refused(id, removed)
    }
}

impl Frontend<ServedVolume<UringDriver>> for UblkFrontend {
    fn add(&self, name: &str, gate: VolumeGate<UringDriver>, about: &VolumeAbout) -> IoResult {
        let Some(queues) = about.frontends.ublk else {
            return Ok(());
        };
        uring::ublk_available()?;
        memory::keep();
        let plan = DevicePlan {
            name: name.to_owned(),
            mark: mark(&about.origin.key()),
            queues,
            params: shape(gate.device().geometry(), about),
            gate,
            options: Options {
                read_only: about.read_only,
                memory_bytes_max: about.memory_bytes_max,
            },
        };
        let entry = Rc::new(RefCell::new(AttachState::Attaching));
        let mut states = self.0.states.borrow_mut();
        states.insert(name.into(), entry.clone());
        drop(states);
        let attaching = self.0.clone().attach(plan, entry);
        self.0.platform.local().env().spawn.spawn(attaching);
        Ok(())
    }

    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a VolumeGate<UringDriver>,
        about: &'a VolumeAbout,
        _grace: Nanos,
    ) -> Later<'a, IoResult> {
        Box::pin(async move {
            match (self.0.state(name).await, about.frontends.ublk) {
                (Some(AttachState::Live(id, _)), None) => {
                    let in_use = self.0.host.aside(move || devices::in_use(id)).await?;
                    let unknown = |cause| {
                        let what = "it cannot be found out whether it is in use";
                        IoError::new(IoErrorKind::Other, what).because(cause)
                    };
                    if in_use.map_err(unknown)? {
                        let what = "is mounted or in use; unmount it first";
                        let device = format!("/dev/{}", block_device(id));
                        return Err(IoError::new(IoErrorKind::Busy, what).on(device));
                    }
                    self.0.withdraw(name).await
                }
                (Some(AttachState::Failed(_)), None) => {
                    self.0.states.borrow_mut().remove(name);
                    Ok(())
                }
                (None | Some(AttachState::Failed(_)), Some(_)) => {
                    self.add(name, gate.clone(), about)?;
                    match self.0.state(name).await {
                        Some(AttachState::Failed(why)) => {
                            self.0.states.borrow_mut().remove(name);
                            Err(IoError::new(IoErrorKind::Other, why))
                        }
                        _ => Ok(()),
                    }
                }
                _ => Ok(()),
            }
        })
    }

    fn withdraw<'a>(&'a self, name: &'a str, _grace: Nanos) -> Later<'a, IoResult> {
        Box::pin(self.0.withdraw(name))
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        Box::pin(async move {
            let states = std::mem::take(&mut *self.0.states.borrow_mut());
            for entry in states.into_values() {
                let state = entry.borrow().clone();
                if let AttachState::Live(_, served) = state {
                    served.stop(grace).await;
                }
            }
        })
    }

    fn addresses(&self, name: &str) -> Vec<String> {
        let states = self.0.states.borrow();
        states.get(name).and_then(path).into_iter().collect()
    }

    fn stats(&self, _status: &mut Status) {}
}

/// The parameters for the kernel of a device with this geometry.
fn shape(geometry: &Geometry, about: &VolumeAbout) -> Params {
    let page = Sectors(PAGE_BYTES as u64 / SECTOR_BYTES);
    let physical = page.max(geometry.block);
    let optimal = geometry.optimal;
    Params {
        sectors: geometry.sectors,
        block: about.block,
        physical,
        optimal: match optimal.0.is_power_of_two() && optimal > physical {
            true => optimal,
            false => physical,
        },
        request_max: REQUEST_MAX,
        discard_max: DISCARD_MAX,
        read_only: about.read_only,
        rotational: geometry.rotational,
    }
}

/// The error of a refused removal.
fn refused(id: u32, answer: Result<Vec<u8>, i32>) -> IoResult {
    answer.map(drop).map_err(|number| {
        let cause = std::io::Error::from_raw_os_error(number);
        let what = "ublk refused to remove it; see the kernel's log (dmesg)";
        let error = IoError::new(IoErrorKind::Other, what).on(format!("/dev/{}", block_device(id)));
        error.because(cause)
    })
}
