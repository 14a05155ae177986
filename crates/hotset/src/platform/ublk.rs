//! Volumes as block devices of this machine: the frontend of ublk.
//!
//! Invariants:
//!     a device outlives its daemon: a stop answers what has begun and leaves the rest to
//!     the next daemon, which takes the device over
//!     a device that is removed was withdrawn here, or by `hotset detach`
//!
//! Not here: the devices that this machine has (`devices`).

pub mod devices;

use block::{
    Device, Gate, Geometry, IoError, IoResult, Kind, Nanos, PAGE_BYTES, SECTOR_BYTES, Sectors,
};
use control::config::Config;
use control::doors::Queues;
use control::status::Status;
use node::{About, Door, Event as NodeEvent, Frontend, Later, Platform};
use port::{Options, Server};
use shard::Queue;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use ublk::uapi::{REQUEST_MAX, block_device};
use ublk::{Attach, Command, Control, DeviceInfo, Event, Params, Step, Wanted, mark};
use uring::{Uring, UringDriver};

use super::UringPlatform;

/// The longest discard or zeroing of one request, which holds its range meanwhile.
const DISCARD_MAX: Sectors = Sectors((32 << 20) / SECTOR_BYTES);
/// Of Linux's `include/uapi/linux/prctl.h`.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
/// How often it is looked whether a device that is being made is there.
const TICK: Nanos = Nanos::from_millis(10);

type Served = Server<Queue<UringDriver>, Door<UringDriver>>;

/// Makes a block device of each volume that the configuration attaches.
#[derive(Clone)]
pub struct UblkFrontend(Rc<Inner>);

struct Inner {
    platform: UringPlatform,
    host: Uring,
    states: RefCell<BTreeMap<String, State>>,
}

#[derive(Clone)]
enum State {
    Attaching,
    Live(u32, Rc<Served>),
    Failed(String),
}

/// A device as far as it has come.
#[derive(Default)]
struct Progress {
    served: Option<Rc<Served>>,
    /// Its number, if it was made here.
    made: Option<u32>,
}

impl UblkFrontend {
    /// With no volume yet; `Err` if `config` attaches some and this machine has no ublk for them.
    pub fn new(config: &Config, platform: &UringPlatform, host: Uring) -> IoResult<UblkFrontend> {
        if !config.attachments.is_empty() {
            uring::ublk_available()?;
        }
        Ok(UblkFrontend(Rc::new(Inner {
            platform: platform.clone(),
            host,
            states: RefCell::default(),
        })))
    }

    /// Waits until every volume that is served has its device: their paths, or why not.
    pub async fn settled(&self) -> Result<Vec<String>, String> {
        let timer = self.0.platform.local().env().timer;
        let is_attaching = |state: &State| matches!(state, State::Attaching);
        while self.0.states.borrow().values().any(is_attaching) {
            timer.sleep(TICK).await;
        }
        let states = self.0.states.borrow();
        let paths = states.values().map(|state| match state {
            State::Live(id, _) => Ok(format!("/dev/{}", block_device(*id))),
            State::Failed(why) => Err(why.clone()),
            State::Attaching => unreachable!("none is left"),
        });
        paths.collect()
    }
}

impl Inner {
    async fn attach(
        self: Rc<Self>,
        name: String,
        queues: Queues,
        gate: Gate<Door<UringDriver>>,
        options: Options,
        params: Params,
    ) {
        let mut progress = Progress::default();
        let made = self.make(&name, queues, gate, options, params, &mut progress);
        let state = match (made.await, progress.served.take()) {
            (Ok(id), Some(served)) => State::Live(id, served),
            (Ok(_), None) => unreachable!("a device is live once it is served"),
            (Err(why), served) => {
                if let Some(served) = served {
                    served.close();
                }
                if let Some(id) = progress.made {
                    let _ = self.ask(Control::of(Command::Delete, id)).await;
                    devices::forget(id);
                }
                State::Failed(format!("volume {name} cannot be attached: {why}"))
            }
        };
        self.states.borrow_mut().insert(name.clone(), state.clone());
        match state {
            State::Live(id, served) => self.watch(name, id, served).await,
            State::Failed(what) => self.platform.event(NodeEvent::Frontend { what }),
            State::Attaching => {}
        }
    }

    /// Follows the machine of a device to its end: its number.
    async fn make(
        &self,
        name: &str,
        queues: Queues,
        gate: Gate<Door<UringDriver>>,
        options: Options,
        params: Params,
        progress: &mut Progress,
    ) -> Result<u32, String> {
        let known = devices::all().map_err(to_message)?;
        let known = known.iter().find(|info| info.mark == mark(name));
        let known = known.map(|info| info.id);
        let mut machine = Attach::new(Wanted {
            mark: mark(name),
            pid: std::process::id(),
            queues: queues.count as u16,
            depth: queues.depth as u16,
            params,
            known,
        });
        let mut event = Event::Begin;
        loop {
            event = match machine.step(event) {
                Step::Control(control) => {
                    Event::Answer(self.ask(control).await.map_err(to_message)?)
                }
                Step::Look(pid) => Event::Runs(devices::runs(pid)),
                Step::Pause(span) => {
                    self.platform.local().env().timer.sleep(span).await;
                    Event::Paused
                }
                Step::Serve(info) => {
                    if known != Some(info.id) {
                        progress.made = Some(info.id);
                    }
                    // Before the block device is there, for udev reads it then.
                    devices::record(info.id, name).map_err(to_message)?;
                    let served = self.serve(&info, gate.clone(), options);
                    progress.served = Some(served.map_err(to_message)?);
                    Event::Serving
                }
                Step::Live(id) => return Ok(id),
                Step::Refused(why, made) => {
                    progress.made = made;
                    return Err(why.to_string());
                }
            }
        }
    }

    fn serve(
        &self,
        info: &DeviceInfo,
        gate: Gate<Door<UringDriver>>,
        options: Options,
    ) -> IoResult<Rc<Served>> {
        let target = self.host.open_port(info)?;
        let port = self.platform.local().port(target)?;
        let env = self.platform.local().env();
        Ok(Server::begin(port, gate, options, env))
    }

    async fn ask(&self, control: Control) -> IoResult<Result<Vec<u8>, i32>> {
        self.host.ublk_control_aside(control).await
    }

    /// Releases a device that was removed, which its removal waits for.
    async fn watch(&self, name: String, id: u32, served: Rc<Served>) {
        served.ended().await;
        served.close();
        devices::forget(id);
        let mut states = self.states.borrow_mut();
        if let Some(State::Live(_, live)) = states.get(&name)
            && Rc::ptr_eq(live, &served)
        {
            states.remove(&name);
            drop(states);
            let what = format!("/dev/{} of volume {name} was removed", block_device(id));
            self.platform.event(NodeEvent::Frontend { what });
        }
    }

    /// What a volume's device has come to, once it is not being made any more.
    async fn state(&self, name: &str) -> Option<State> {
        let timer = self.platform.local().env().timer;
        loop {
            let state = self.states.borrow().get(name).cloned();
            match state {
                Some(State::Attaching) => timer.sleep(TICK).await,
                state => return state,
            }
        }
    }

    async fn withdraw(&self, name: &str) -> IoResult {
        let state = self.state(name).await;
        self.states.borrow_mut().remove(name);
        let Some(State::Live(id, served)) = state else {
            return Ok(());
        };
        let stopped = self.ask(Control::of(Command::Stop, id)).await?;
        refused(id, stopped)?;
        served.ended().await;
        served.close();
        let removed = self.ask(Control::of(Command::Delete, id)).await?;
        refused(id, removed)
    }
}

impl Frontend<Door<UringDriver>> for UblkFrontend {
    fn add(&self, name: &str, gate: Gate<Door<UringDriver>>, about: &About) -> IoResult {
        let Some(queues) = about.doors.ublk else {
            return Ok(());
        };
        uring::ublk_available()?;
        // Memory that it needs to write must not be made free by writing to it. It is
        // refused to a process without CAP_SYS_RESOURCE, which can do without.
        // SAFETY: no pointers are involved.
        unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
        let options = Options {
            read_only: about.read_only,
            memory_bytes_max: about.memory_bytes_max,
        };
        let params = shape(gate.device().geometry(), about);
        let mut states = self.0.states.borrow_mut();
        states.insert(name.into(), State::Attaching);
        drop(states);
        let attaching = self
            .0
            .clone()
            .attach(name.to_owned(), queues, gate, options, params);
        self.0.platform.local().env().spawn.spawn(attaching);
        Ok(())
    }

    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a Gate<Door<UringDriver>>,
        about: &'a About,
        _grace: Nanos,
    ) -> Later<'a, IoResult> {
        Box::pin(async move {
            match (self.0.state(name).await, about.doors.ublk) {
                (Some(State::Live(id, _)), None) => {
                    let in_use = self.0.host.aside(move || devices::in_use(id)).await?;
                    let unknown = |cause| {
                        let what = "it cannot be found out whether it is in use";
                        IoError::new(Kind::Other, what).because(cause)
                    };
                    if in_use.map_err(unknown)? {
                        let what = "is mounted or in use; unmount it first";
                        let device = format!("/dev/{}", block_device(id));
                        return Err(IoError::new(Kind::Busy, what).on(device));
                    }
                    self.0.withdraw(name).await
                }
                (None | Some(State::Failed(_)), Some(_)) => {
                    self.add(name, gate.clone(), about)?;
                    match self.0.state(name).await {
                        Some(State::Failed(why)) => {
                            self.0.states.borrow_mut().remove(name);
                            Err(IoError::new(Kind::Other, why))
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
            let states = self.0.states.borrow().clone();
            for state in states.into_values() {
                if let State::Live(_, served) = state {
                    served.stop(grace).await;
                }
            }
        })
    }

    fn stats(&self, _status: &mut Status) {}
}

/// What the kernel gets of a device with this geometry.
fn shape(geometry: &Geometry, about: &About) -> Params {
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
        volatile: geometry.volatile,
        read_only: about.read_only,
        rotational: geometry.rotational,
    }
}

/// What a refused command comes to.
fn refused(id: u32, answer: Result<Vec<u8>, i32>) -> IoResult {
    answer.map(drop).map_err(|number| {
        let cause = std::io::Error::from_raw_os_error(number);
        let what = "ublk refused to remove it; see the kernel's log (dmesg)";
        let error = IoError::new(Kind::Other, what).on(format!("/dev/{}", block_device(id)));
        error.because(cause)
    })
}

fn to_message(error: impl ToString) -> String {
    error.to_string()
}
