//! Devices by name: those of the configuration, and the arrays made of them.
//!
//! Invariants:
//!     a device is open ⟺ one volume, pool or array uses it; there is no second user
//!     an array runs ⟺ its device is open or leased; its members are open while it runs
//!     a member that cannot be used, for any reason, counts as absent
//!
//! Not here: the loss of a member (`raid`); making an array (`create`); leases of devices being
//! opened (`lease`); the search for lost members (`supervise`); scrubs (`scrub`); the reassembly of
//! an array that has lost too many members (`reopen`).

mod create;
mod devices;
mod lease;
mod probe;
mod reopen;
mod running;
mod scrub;
mod supervise;

pub use create::Before;
pub(crate) use devices::DeviceNames;
pub use devices::{DeviceSource, OpenDevices};
pub use lease::Lease;
pub(crate) use running::RunningArray;

use crate::event::NodeEvent;
use crate::place::{self, OpenedPlace, RawRole};
use crate::platform::Platform;
use crate::{Later, nanos};
use block::{BoxDevice, Deadline, Device as _, IoError, IoErrorKind, IoResult, Nanos, Sectors};
use control::check::domain;
use control::config::{self, Name};
use control::meant;
use filter::Swappable;
use futures_util::future::join_all;
use layout::{DeviceIdentity, Fact};
use raid::{Array, ArrayStart, ArraySuperblock, MemberCandidate, Options};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Number of retries of a write that the medium of a member refuses.
const REWRITES: u32 = 2;

impl<P: Platform> OpenDevices<P> {
    /// The device or array of the configuration called `name`.
    pub fn find(&self, name: &Name) -> Option<DeviceSource> {
        let config = self.config();
        let devices = config.devices.iter().find(|d| d.name.value == *name);
        let arrays = config.arrays.iter().find(|a| a.name.value == *name);
        let array = arrays.map(|array| DeviceSource::Array(Box::new(array.clone())));
        devices
            .map(|device| DeviceSource::Device(Box::new(device.clone())))
            .or(array)
    }

    /// True if the device or array called `name` is in use.
    pub fn is_open(&self, name: &Name) -> bool {
        self.open.borrow().contains_key(name)
    }

    /// The running array called `name`.
    pub(crate) fn running(&self, name: &str) -> Result<Rc<RunningArray>, String> {
        let running = self.running.borrow();
        let found = running.iter().find(|r| r.config.name.as_str() == name);
        found.cloned().ok_or_else(|| {
            let meant = meant(name, running.iter().map(|r| r.config.name.as_str()));
            format!(
                "no array {name} runs{meant}; see `hotset array status`, and use it in a volume or \
                 a pool"
            )
        })
    }

    /// Opens `source` for one use.
    pub fn open<'a>(
        &'a self,
        source: &'a DeviceSource,
        role: RawRole,
    ) -> Later<'a, IoResult<Lease<P>>> {
        Box::pin(async move {
            let lease = match source {
                DeviceSource::Array(array) => {
                    let start = match array.start_degraded.value {
                        true => ArrayStart::WithoutAbsent,
                        false => ArrayStart::Complete,
                    };
                    self.assemble(array, role, start).await?
                }
                DeviceSource::Device(device) => {
                    let reserved = self.reserve(source.name(), role)?;
                    Lease::new(reserved, place::open(&self.platform, device, role).await?)
                }
            };
            match role {
                RawRole::Pool | RawRole::Log => match self.answers_at_all(&lease).await {
                    Ok(()) => Ok(lease),
                    Err(error) => {
                        lease.release().await;
                        Err(error)
                    }
                },
                RawRole::Origin | RawRole::Member(_) => Ok(lease),
            }
        })
    }

    /// Opens `source` as a member of a running array.
    async fn open_member(&self, running: &RunningArray, source: &DeviceSource) -> IoResult {
        let role = RawRole::Member(self.detection(&running.config));
        let lease = self.open(source, role).await?;
        let ended = match running.ended.get() {
            true => Err(running
                .array()
                .geometry()
                .error(IoErrorKind::Gone, "was closed")),
            false => Ok(()),
        };
        lease.settle(ended).await
    }

    /// Releases a device; for an array, first waits until it is idle, then releases the members
    /// too.
    pub fn close<'a>(&'a self, name: &'a Name) -> Later<'a, IoResult> {
        Box::pin(async move {
            let mut result = Ok(());
            let at = |running: &Rc<RunningArray>| running.config.name.value == *name;
            let at = self.running.borrow().iter().position(at);
            if let Some(at) = at {
                let running = self.running.borrow_mut().remove(at);
                running.ended.set(true);
                result = running.array().close().await;
                running.report_events(&self.platform);
                for member in self.members_of(&running) {
                    let closed = self.close(&member).await;
                    result = result.and(closed);
                }
            }
            self.open.borrow_mut().remove(name);
            result
        })
    }

    /// Closes all arrays, the outermost first. No user may be left.
    pub async fn stop(&self) -> IoResult {
        self.stopped.set(true);
        let mut result = Ok(());
        loop {
            let next = self.running.borrow().iter().find_map(|running| {
                let name = running.config.name.value.clone();
                (!self.is_member(&name)).then_some(name)
            });
            let Some(next) = next else { return result };
            let closed = self.close(&next).await;
            result = result.and(closed);
        }
    }

    /// The present configuration of the array `running`.
    pub(super) fn array_of(&self, running: &RunningArray) -> config::Array {
        let config = self.config();
        let mut arrays = config.arrays.iter();
        let array = arrays.find(|array| array.name.value == running.config.name.value);
        array.unwrap_or(&running.config).clone()
    }

    /// The devices of the array, members first, then spares; includes devices added while it runs.
    pub(super) fn members_of(&self, running: &RunningArray) -> Vec<Name> {
        let array = self.array_of(running);
        let lists = [array.members.value, array.spares.value];
        lists.into_iter().flatten().collect()
    }

    /// True if a running array has `name` as a member or spare.
    fn is_member(&self, name: &Name) -> bool {
        let running = self.running.borrow();
        running
            .iter()
            .any(|running| self.members_of(running).contains(name))
    }

    /// Time limit for a reply of a member of `array`. A member that is itself an array with
    /// redundancy may take twice the limit of its own members. So it can go on without one of them
    /// first.
    fn detection(&self, array: &config::Array) -> Nanos {
        let config = self.config();
        let below = |other: &&config::Array| {
            let mut members = array.members.value.iter().chain(&array.spares.value);
            members.any(|member| *member == other.name.value)
        };
        let arrays = config.arrays.iter().filter(below);
        let needs = |below: &config::Array| {
            let times = 1 + u64::from(below.level.value.is_redundant());
            self.detection(below).0.saturating_mul(times)
        };
        let longest = arrays.map(needs).max();
        nanos(array.detection.value).max(Nanos(longest.unwrap_or_default()))
    }

    /// The options of an array of this configuration.
    fn options(&self, array: &config::Array) -> Options {
        let detection = self.detection(array);
        Options {
            // The rest is for the read from another member.
            timeout: Some(Nanos(detection.0 / 10 * 9)),
            spare_delay: nanos(array.spare_delay.value),
            rewrites: REWRITES,
            rebuild_floor: array.rebuild_rate.value.0,
            ..Options::default()
        }
    }

    fn candidate(&self, name: &Name, opened: &OpenedPlace<P>) -> MemberCandidate {
        let configured = self.find(name).is_some();
        MemberCandidate {
            device: BoxDevice::new(opened.leaf.clone()),
            domain: match configured {
                true => domain(&self.config(), name).into(),
                false => opened.controller.clone(),
            },
            losses: opened.losses(),
        }
    }

    /// Opens the usable members of `array`; for each other member, `attempt` gets the reason.
    async fn members(&self, array: &config::Array, attempt: &mut StartAttempt) -> Vec<Lease<P>> {
        let role = RawRole::Member(self.detection(array));
        let names = array.members.value.iter().chain(&array.spares.value);
        let opened = join_all(names.map(async |name| {
            let source = self.find(name).ok_or_else(|| {
                let what = "does not exist; add a [[device]] of that name";
                IoError::new(IoErrorKind::Invalid, what)
            });
            let opened = match source {
                Ok(source) => self.open_or_read(&source, role).await,
                Err(error) => Err(error),
            };
            opened.map_err(|error| format!("{name}: {error}"))
        }));
        let mut here = Vec::new();
        for member in opened.await {
            match member {
                Ok((lease, only_read)) => {
                    here.push(lease);
                    attempt.events.extend(only_read);
                }
                Err(why) => attempt.absent.push(why),
            }
        }
        here
    }

    /// Opens a member, for reading alone if writes are refused. The array loses such a member at
    /// once, but its superblock shows that it has not diverged from the others. Returns the event
    /// that reports this.
    async fn open_or_read(
        &self,
        source: &DeviceSource,
        role: RawRole,
    ) -> IoResult<(Lease<P>, Option<NodeEvent>)> {
        let refused = match self.open(source, role).await {
            Err(error) if matches!(error.kind(), IoErrorKind::ReadOnly | IoErrorKind::Denied) => {
                error
            }
            opened => return Ok((opened?, None)),
        };
        let mut source = source.clone();
        if let DeviceSource::Device(device) = &mut source {
            device.read_only.value = true;
        }
        match self.open(&source, role).await {
            Ok(read) => {
                let event = NodeEvent::MemberReadOnly {
                    member: source.name().clone(),
                    why: refused.to_string(),
                };
                Ok((read, Some(event)))
            }
            Err(_) => Err(refused),
        }
    }

    /// Reads the superblock of a member of `array`, within the time limit.
    async fn examine(
        &self,
        array: &config::Array,
        device: &BoxDevice,
    ) -> IoResult<Option<ArraySuperblock>> {
        let (env, limit) = (self.env(), self.detection(array));
        let deadline = Deadline::new(&env.timer, limit);
        let examined = deadline.bound(raid::examine(&env, device)).await;
        examined.unwrap_or_else(|| {
            let what = format!("has not answered for {limit}; see to it or its controller");
            Err(IoError::new(IoErrorKind::Timeout, what).on(device.geometry().name.to_string()))
        })
    }

    /// Assembles an array from the members that are present. An array that cannot start is listed
    /// as inactive, until its next successful start. Its members are reported again only if the
    /// reason has changed since the last attempt.
    pub async fn assemble(
        &self,
        array: &config::Array,
        role: RawRole,
        start: ArrayStart,
    ) -> IoResult<Lease<P>> {
        let name = &array.name.value;
        let reserved = self.reserve(name, role)?;
        let mut attempt = StartAttempt::default();
        let members = self.members(array, &mut attempt).await;
        match self.start(array, &members, &mut attempt, start).await {
            Ok(running) => {
                self.report(attempt.events);
                let opened = self.run(array, role, members, &attempt.absent, running);
                Ok(Lease::new(reserved, opened))
            }
            Err(error) => {
                release_all(members).await;
                let missing = match attempt.absent.is_empty() {
                    true => String::new(),
                    false => format!(" (missing: {})", attempt.absent.join("; ")),
                };
                let why = format!("{error}{missing}");
                let inactive = (array.clone(), why.clone());
                let before = self.inactive.borrow_mut().insert(name.clone(), inactive);
                if before.is_none_or(|(_, before)| before != why) {
                    self.report(attempt.events);
                }
                Err(IoError::new(error.kind(), format!("array {name}: {why}")))
            }
        }
    }

    fn report(&self, events: Vec<NodeEvent>) {
        for event in events {
            self.platform.event(event);
        }
    }

    /// Starts the array on the usable ones of `members`; `attempt` gets the others.
    async fn start(
        &self,
        array: &config::Array,
        members: &[Lease<P>],
        attempt: &mut StartAttempt,
        start: ArrayStart,
    ) -> IoResult<Array> {
        let (name, env) = (array.name.as_str(), self.env());
        let chunk = Sectors(array.chunk.value.0 / block::SECTOR_BYTES);
        let of = |member: &Lease<P>| self.candidate(member.name(), member);
        if array.raw.value {
            if !attempt.absent.is_empty() {
                let what = format!(
                    "{} cannot do without a member; bring it back",
                    array.level.name()
                );
                return Err(IoError::new(IoErrorKind::Gone, what));
            }
            let all = members.iter().map(of).collect();
            let (level, options) = (array.level.value, self.options(array));
            return raid::raw(&env, name, level, all, chunk, options).await;
        }
        let all: Vec<MemberCandidate> = members.iter().map(of).collect();
        let examined = all.iter().map(|c| self.examine(array, &c.device));
        let examined = join_all(examined).await;
        let mut candidates = Vec::new();
        let mut blank = Vec::new();
        for ((member, candidate), found) in members.iter().zip(all).zip(examined) {
            match found {
                Ok(Some(_)) => candidates.push(candidate),
                Ok(None) => blank.push(member.name()),
                Err(error) => {
                    let why = format!("{}: {error}", member.name());
                    attempt.absent.push(why);
                }
            }
        }
        if candidates.is_empty() {
            let (kind, what) = match blank.is_empty() {
                true => (IoErrorKind::Gone, "no member can be used; bring them back"),
                false => (
                    IoErrorKind::Invalid,
                    "no member that is here belongs to an array; make it with `hotset array create`",
                ),
            };
            return Err(IoError::new(kind, what));
        }
        let blank = blank.into_iter().map(|member| NodeEvent::MemberBlank {
            array: array.name.value.clone(),
            member: member.clone(),
        });
        attempt.events.extend(blank);
        let options = self.options(array);
        let made =
            raid::assemble(&env, Some(name), self.fresh(), candidates, start, options).await?;
        let found = made.report().level;
        if found != array.level.value {
            let what = format!(
                "it is {} on its members and {} in the configuration; correct `level`",
                found.name(),
                array.level.name()
            );
            return Err(IoError::new(IoErrorKind::Invalid, what));
        }
        Ok(made)
    }

    /// Registers `array` as running on `members`.
    fn run(
        &self,
        config: &config::Array,
        role: RawRole,
        members: Vec<Lease<P>>,
        absent: &[String],
        array: Array,
    ) -> OpenedPlace<P> {
        self.inactive.borrow_mut().remove(&config.name.value);
        self.report_absent(config, absent);
        let names: Vec<_> = config.members.value.iter().map(Name::as_str).collect();
        let place = format!("{} of {}", config.level.name(), names.join(", "));
        // Members may change; without superblocks, they are the array's only identity.
        let identity = match array.report().uuid {
            None => DeviceIdentity::new(&place),
            Some(uuid) => DeviceIdentity::of(&BTreeMap::from([
                (Fact::Mapping, format!("array {uuid}")),
                (Fact::Former, place.clone()),
            ])),
        };
        let controller = domain(&self.config(), &config.name.value);
        let swappable = Swappable::new(array);
        let device = BoxDevice::new(swappable.clone());
        let opened = OpenedPlace::array(
            self.platform.local(),
            device,
            role,
            (place, identity),
            controller.into(),
        );
        members.into_iter().for_each(Lease::keep);
        let running = Rc::new(RunningArray {
            place: swappable,
            config: config.clone(),
            by_hand: RefCell::default(),
            exchange: RefCell::default(),
            scrub: RefCell::default(),
            scrub_again: Cell::default(),
            reported: Cell::new(0),
            needed: RefCell::default(),
            errors: Cell::new(0),
            outdated: Cell::new(false),
            ended: Cell::new(false),
        });
        self.running.borrow_mut().push(running);
        opened
    }

    fn report_absent(&self, config: &config::Array, absent: &[String]) {
        for why in absent {
            self.platform.event(NodeEvent::MemberAbsent {
                array: config.name.value.clone(),
                why: why.clone(),
            });
        }
    }
}

/// The members of an array that are not used as usual at an attempt to start it.
#[derive(Default)]
struct StartAttempt {
    /// The reason for each member that is not used.
    absent: Vec<String>,
    /// Reports of members that are used for reading alone, or are blank.
    events: Vec<NodeEvent>,
}

async fn release_all<P: Platform>(members: Vec<Lease<P>>) {
    for member in members {
        member.release().await;
    }
}
