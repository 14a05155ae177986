//! Supervises running arrays: reports their events, and brings back lost members that answer again.
//!
//! A member that an operator took out stays out. A member that is lost again and again is tried at
//! growing intervals.

use super::create::refuse_used;
use super::running::Exchange;
use super::{OpenDevices, RunningArray};
use crate::event::NodeEvent;
use crate::node::IDLE_PERIOD;
use crate::place::{OpenedPlace, RawRole};
use crate::platform::Platform;
use block::{BoxDevice, IoErrorKind, IoResult, Nanos};
use control::config::{self, Name};
use control::plan::Change;
use control::protocol::ControlRequest;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// Interval of supervision.
const PERIOD: Nanos = Nanos::from_millis(500);
/// Interval of looks for the end of an exchange.
const LOOK: Nanos = Nanos::from_millis(20);
/// Longest pause before a member that is lost again and again is tried.
const PAUSE_MAX: Nanos = Nanos::from_secs(300);
/// Longest pause before a member that is present but unusable is tried again: each look at an
/// unresponsive one keeps a block of memory.
const UNUSABLE_PAUSE_MAX: Nanos = Nanos::from_secs(60);

/// Next attempt at each lost member, and the pause before that.
type Pauses = HashMap<Name, (Nanos, Nanos)>;

/// The next attempt and its pause, after a pause of `pause`.
fn later(now: Nanos, pause: Nanos, most: Nanos) -> (Nanos, Nanos) {
    let pause = Nanos((pause.0 * 2).clamp(PERIOD.0, most.0));
    (now + pause, pause)
}

/// True if the array has lost members.
fn has_lost_members(report: &raid::ArrayCondition) -> bool {
    report.members.iter().any(|member| member.state.is_failed())
}

impl RunningArray {
    /// True if the supervision of the array waits for nothing.
    fn lacks_nothing(&self) -> bool {
        let is_whole = !has_lost_members(&self.array().report());
        is_whole && !self.is_troubled() && self.exchange.borrow().is_none()
    }
}

impl<P: Platform> OpenDevices<P> {
    /// Supervises all arrays, until they are stopped.
    pub(crate) async fn supervise(self: Rc<OpenDevices<P>>) {
        let env = self.env();
        let mut supervised: Vec<Weak<RunningArray>> = Vec::new();
        while !self.stopped.get() {
            supervised.retain(|running| running.strong_count() > 0);
            for running in self.running.borrow().iter() {
                let known = |weak: &Weak<RunningArray>| weak.as_ptr() == Rc::as_ptr(running);
                if !supervised.iter().any(known) {
                    supervised.push(Rc::downgrade(running));
                    let (devices, running) = (self.clone(), running.clone());
                    env.spawn.spawn(devices.supervise_one(running));
                }
            }
            env.timer.idle_sleep(PERIOD, IDLE_PERIOD).await;
        }
    }

    async fn supervise_one(self: Rc<OpenDevices<P>>, running: Rc<RunningArray>) {
        let timer = self.env().timer;
        let mut pauses = Pauses::new();
        while !running.ended.get() {
            running.report_events(&self.platform);
            self.rediscover(&running, &mut pauses).await;
            self.restore(&running, &mut pauses).await;
            self.follow_exchange(&running).await;
            self.scrub_if_due(&running).await;
            // A lost member comes back from outside, which is no work of the shard.
            let longest = match running.lacks_nothing() {
                true => IDLE_PERIOD,
                false => PERIOD,
            };
            timer.idle_sleep(PERIOD, longest).await;
        }
    }

    /// Brings lost members that answer again back into the array.
    async fn rediscover(&self, running: &Rc<RunningArray>, pauses: &mut Pauses) {
        let now = self.env().timer.now();
        let report = running.array().report();
        if report.down.is_some() || !has_lost_members(&report) {
            return;
        }
        for name in self.members_of(running) {
            let (next, pause) = pauses.get(&name).copied().unwrap_or_default();
            let out = running.by_hand.borrow().contains(&name);
            if out || now < next || running.ended.get() {
                continue;
            }
            // The reason of the silence was reported with the loss.
            let most = match self.bring_back(running, &name).await {
                Ok(true) => PAUSE_MAX,
                Err(error) if error.kind() == IoErrorKind::Timeout => UNUSABLE_PAUSE_MAX,
                _ => continue,
            };
            let now = self.env().timer.now();
            pauses.insert(name, later(now, pause, most));
        }
    }

    /// Reassembles an array that is an origin, once its lost members are back. An array of a pool
    /// stays lost: its lines may be older than the pool's metadata.
    async fn restore(&self, running: &Rc<RunningArray>, pauses: &mut Pauses) {
        let name = &running.config.name.value;
        let role = self.open.borrow().get(name).map(|opened| opened.role);
        let now = self.env().timer.now();
        let (next, pause) = pauses.get(name).copied().unwrap_or_default();
        if role != Some(RawRole::Origin) || now < next || !running.is_troubled() {
            return;
        }
        let restored = self.reopen(name).await;
        if let Err(error) = &restored {
            self.platform.event(NodeEvent::ArrayNotReassembled {
                array: name.clone(),
                why: error.to_string(),
            });
        }
        if !matches!(restored, Ok(false)) {
            pauses.insert(name.clone(), later(now, pause, PAUSE_MAX));
        }
    }

    /// Brings `name` back if it was lost and answers. Returns true if it is back.
    async fn bring_back(&self, running: &Rc<RunningArray>, name: &Name) -> IoResult<bool> {
        let Some(source) = self.find(name) else {
            return Ok(false);
        };
        let leaf = self
            .open
            .borrow()
            .get(name)
            .map(|o| (o.leaf.clone(), o.must_reopen()));
        match leaf {
            Some((leaf, _)) if running.uses(&leaf) => return Ok(false),
            // An unplugged device must be reopened.
            Some((_, true)) => drop(self.open.borrow_mut().remove(name)),
            Some(_) if !self.reopen(name).await? => return Ok(false),
            _ => (),
        }
        if !self.open.borrow().contains_key(name) {
            self.open_member(running, &source).await?;
        }
        let candidate = match self.open.borrow().get(name) {
            Some(opened) => self.candidate(name, opened),
            None => return Ok(false),
        };
        let found = self.examine(&running.config, &candidate.device).await?;
        let ours = running.array().report().uuid;
        if found.is_none_or(|found| Some(found.array) != ours) {
            return Ok(false);
        }
        running.array().add(candidate, self.fresh(), false).await?;
        Ok(true)
    }

    /// Takes out a member for an operator.
    pub(crate) async fn fail_member(&self, array: &str, member: &str) -> Result<(), String> {
        let running = self.running(array)?;
        let role = running.role(member, &self.called.borrow())?;
        let name = self.member_name(&running, role);
        // The search for the member stops before its loss.
        let is_new = name
            .iter()
            .any(|name| running.by_hand.borrow_mut().insert(name.clone()));
        let failed = running.array().fail(role).await;
        if failed.is_err() && is_new {
            let mut by_hand = running.by_hand.borrow_mut();
            by_hand.retain(|other| Some(other) != name.as_ref());
        }
        failed.map_err(|error| error.to_string())
    }

    /// The name in the configuration of the device called `device` in reports.
    fn name_of(&self, device: &str) -> Option<Name> {
        self.names().get(device).cloned()
    }

    /// Cancels the copy of a member in sync to another device.
    pub(crate) async fn cancel_replacement(&self, array: &str) -> Result<(), String> {
        let running = self.running(array)?;
        let none = || {
            format!(
                "no member of array {array} is being replaced; see `hotset array status {array}`"
            )
        };
        running.array().cancel_replacement().ok_or_else(none)?;
        let timer = self.env().timer;
        while running.array().report().replaced.is_some() && !running.ended.get() {
            timer.sleep(LOOK).await;
        }
        self.follow_exchange(&running).await;
        Ok(())
    }

    /// Writes the end of an exchange to the configuration.
    async fn follow_exchange(&self, running: &Rc<RunningArray>) {
        let Some(exchange) = running.exchange.borrow().clone() else {
            return;
        };
        let (report, now) = (running.array().report(), self.env().timer.now());
        if report.replaced.is_some() || now < exchange.next {
            return;
        }
        let array = running.config.name.value.clone();
        let has = |name: &Name| {
            let of = |m: &raid::MemberReport| m.device.clone();
            let mut devices = report.members.iter().filter_map(of);
            devices.any(|device| self.name_of(&device).as_ref() == Some(name))
        };
        let Exchange { old, new, .. } = exchange.clone();
        let (member, device) = match has(&new) {
            true => (old, new),
            false => (new, old),
        };
        let waits = self
            .open
            .borrow()
            .get(&member)
            .map(|opened| opened.leaf.clone());
        if waits.is_some_and(|leaf| running.uses(&leaf)) {
            // Another device has the place, and this one is a spare.
            running.exchange.take();
            return;
        }
        let request = ControlRequest::Exchanged {
            array: array.to_string(),
            member: member.to_string(),
            device: device.to_string(),
        };
        let amended = match self.is_in_files(&array, [&member, &device]) {
            true => self.platform.amend(request).await,
            // The change was temporary: it lasts until the daemon ends.
            false => None,
        };
        let amended = match amended {
            Some(amended) => amended,
            None => {
                let change = Change::Exchanged {
                    array: array.clone(),
                    member,
                    device,
                };
                self.end_exchange(&change).await
            }
        };
        if let Err(why) = amended {
            self.platform
                .event(NodeEvent::ExchangeNotKept { array, why });
            let (next, pause) = later(now, exchange.pause, PAUSE_MAX);
            let mut kept = running.exchange.borrow_mut();
            kept.iter_mut()
                .for_each(|exchange| (exchange.next, exchange.pause) = (next, pause));
        }
    }

    /// True if the files of the configuration have all of `devices` in the array.
    fn is_in_files(&self, array: &Name, devices: [&Name; 2]) -> bool {
        let config = self.config();
        let files = config.files.iter();
        let mut arrays = files.flat_map(|file| config::parse(&file.text, &mut Vec::new()).arrays);
        let array = arrays.find(|other| other.name.value == *array);
        array.is_some_and(|array| {
            let lists = [&array.members.value, &array.spares.value];
            devices
                .iter()
                .all(|device| lists.iter().any(|list| list.contains(device)))
        })
    }

    /// Ends an exchange as `change` describes; the device that left the array is released.
    pub(crate) async fn end_exchange(&self, change: &Change) -> Result<(), String> {
        let Change::Exchanged { array, member, .. } = change else {
            return Ok(());
        };
        let running = self.running(array.as_str())?;
        let is_its = |exchange: &Exchange| [&exchange.old, &exchange.new].contains(&member);
        let ended = running.array().report().replaced.is_none();
        if !running.exchange.borrow().as_ref().is_some_and(is_its) || !ended {
            return Err(format!(
                "no exchange of {member} of array {array} has ended"
            ));
        }
        running.exchange.take();
        self.record(change);
        running.by_hand.borrow_mut().remove(member);
        self.close(member).await.map_err(|error| error.to_string())
    }

    /// True if the configuration has the device as a member or spare of the array.
    pub(crate) fn is_configured(&self, array: &Name, device: &Name) -> bool {
        let config = self.config();
        let mut arrays = config.arrays.iter();
        let named = arrays.find(|known| known.name.value == *array);
        named.is_some_and(|array| {
            let mut all = array.members.value.iter().chain(&array.spares.value);
            all.any(|known| known == device)
        })
    }

    /// True if a device added to the array becomes a member, not a spare.
    pub(crate) fn is_for_role(&self, array: &str, device: &Name) -> bool {
        let config = self.config();
        let mut arrays = config.arrays.iter();
        let named = arrays.find(|a| a.name.as_str() == array);
        let members = named.map(|a| &a.members.value[..]).unwrap_or_default();
        let roles = |running: Rc<RunningArray>| running.array().report().members.len();
        let roles = self.running(array).map_or(0, roles);
        members.contains(device) || members.len() < roles
    }

    /// The device of the member in `role`. For an absent member, the only configured member without
    /// a role, if there is exactly one.
    fn member_name(&self, running: &RunningArray, role: usize) -> Option<Name> {
        let members = running.array().report().members;
        let of = |member: &raid::MemberReport| self.name_of(member.device.as_ref()?);
        if let Some(name) = of(&members[role]) {
            return Some(name);
        }
        let have: Vec<_> = members.iter().filter_map(of).collect();
        let listed = self.array_of(running).members.value;
        let mut without = listed.into_iter().filter(|name| !have.contains(name));
        without.next().filter(|_| without.next().is_none())
    }

    /// Replaces `member` by a device; a member in sync leaves once the device is a copy of it.
    pub(crate) async fn exchange_member(
        &self,
        array: &str,
        member: &str,
        source: &super::DeviceSource,
        overwrite: bool,
    ) -> Result<(), String> {
        let running = self.running(array)?;
        let role = running.role(member, &self.called.borrow())?;
        if running.exchange.borrow().is_some() && running.array().report().replaced.is_none() {
            return Err(format!(
                "array {array}: the configuration file does not say yet how the last exchange of \
                 members ended. Try again."
            ));
        }
        let (old, new) = (self.member_name(&running, role), source.name().clone());
        self.give_member(array, Some(member), source, overwrite)
            .await?;
        let exchange = old.filter(|old| *old != new).map(|old| Exchange {
            old,
            new,
            next: Nanos::ZERO,
            pause: Nanos::ZERO,
        });
        running.exchange.replace(exchange);
        Ok(())
    }

    /// Adds a device to an array, in the place of `member` if given.
    pub(crate) async fn give_member(
        &self,
        array: &str,
        member: Option<&str>,
        source: &super::DeviceSource,
        overwrite: bool,
    ) -> Result<(), String> {
        let to_message = |error: block::IoError| error.to_string();
        let running = self.running(array)?;
        let name = source.name().clone();
        let role = match member {
            Some(member) => Some(running.role(member, &self.called.borrow())?),
            None => None,
        };
        let own = self.members_of(&running).contains(&name);
        let used = |opened: &OpenedPlace<P>| running.uses(&opened.leaf);
        let opened = self.open.borrow().get(&name).map(used);
        let is_device = matches!(source, super::DeviceSource::Device(_));
        if own && is_device && opened == Some(false) {
            // An open export keeps its old size, so the device is closed first.
            drop(self.open.borrow_mut().remove(&name));
        }
        let reused = own && self.open.borrow().contains_key(&name);
        if !reused {
            self.open_member(&running, source)
                .await
                .map_err(to_message)?;
        }
        let candidate = self.candidate(&name, &self.open.borrow()[&name]);
        let given = self.give(&running, &name, candidate, role, overwrite).await;
        match given {
            Ok(()) => {
                running.by_hand.borrow_mut().remove(&name);
                Ok(())
            }
            Err(error) => {
                if !reused {
                    // The array has refused the device, and the error says why.
                    let _ = self.close(&name).await;
                }
                Err(to_message(error))
            }
        }
    }

    async fn give(
        &self,
        running: &Rc<RunningArray>,
        name: &Name,
        candidate: raid::MemberCandidate,
        role: Option<usize>,
        overwrite: bool,
    ) -> IoResult {
        let env = self.env();
        let device: &BoxDevice = &candidate.device;
        let found = self.examine(&running.config, device).await?;
        let ours = running.array().report().uuid;
        let returns = found.is_some_and(|found| Some(found.array) == ours);
        if !returns && !overwrite {
            refuse_used(&env, name, device).await?;
        }
        match role {
            None => {
                running
                    .array()
                    .add(candidate, self.fresh(), overwrite)
                    .await
            }
            Some(role) => {
                let array = running.array();
                array
                    .replace(role, candidate, self.fresh(), overwrite)
                    .await
            }
        }
    }
}

impl RunningArray {
    /// Reports the events since the last call.
    pub(super) fn report_events<P: Platform>(&self, platform: &P) {
        let (events, count) = self.array().events();
        let new = count.saturating_sub(self.reported.replace(count)) as usize;
        for event in &events[events.len().saturating_sub(new)..] {
            platform.event(NodeEvent::Array {
                array: self.config.name.value.clone(),
                what: event.what.clone(),
            });
        }
    }
}
