//! What a node does for its arrays while they run: says what happens to
//! them, and gives them lost members again once those answer.
//!
//! A member that was taken out by hand stays out. One that is lost again and
//! again is sought less and less often.

use super::create::refuse_used;
use super::{Devices, Running};
use crate::event::Event;
use crate::place::Role;
use crate::platform::Platform;
use block::{BoxDevice, Device as _, IoResult, Kind, Nanos};
use control::config::Name;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// How often arrays are looked after.
const PERIOD: Nanos = Nanos::from_millis(500);
/// How often it is looked whether an exchange has ended.
const LOOK: Nanos = Nanos::from_millis(20);
/// The longest pause before a member that is lost again and again is sought.
const PAUSE_MAX: Nanos = Nanos::from_secs(300);
/// The longest pause before one that is there and cannot be used is looked at again: of
/// one that does not answer, each look keeps a block of memory.
const UNUSABLE_PAUSE_MAX: Nanos = Nanos::from_secs(60);

/// When each lost member is sought next, and the pause after that.
type Pauses = HashMap<Name, (Nanos, Nanos)>;

/// When to try again after a pause that was `pause` the last time.
fn later(now: Nanos, pause: Nanos, most: Nanos) -> (Nanos, Nanos) {
    let pause = Nanos((pause.0 * 2).clamp(PERIOD.0, most.0));
    (now + pause, pause)
}

impl<P: Platform> Devices<P> {
    /// Looks after every array, until all are stopped.
    pub(crate) async fn supervise(self: Rc<Devices<P>>) {
        let env = self.env();
        let mut supervised: Vec<Weak<Running>> = Vec::new();
        while !self.stopped.get() {
            supervised.retain(|running| running.strong_count() > 0);
            for running in self.running.borrow().iter() {
                let known = |weak: &Weak<Running>| weak.as_ptr() == Rc::as_ptr(running);
                if !supervised.iter().any(known) {
                    supervised.push(Rc::downgrade(running));
                    let (devices, running) = (self.clone(), running.clone());
                    env.spawn.spawn(devices.supervise_one(running));
                }
            }
            env.timer.sleep(PERIOD).await;
        }
    }

    async fn supervise_one(self: Rc<Devices<P>>, running: Rc<Running>) {
        let timer = self.env().timer;
        let mut pauses = Pauses::new();
        while !running.ended.get() {
            running.report_events(&self.platform);
            self.rediscover(&running, &mut pauses).await;
            self.restore(&running, &mut pauses).await;
            self.scrub_if_due(&running).await;
            timer.sleep(PERIOD).await;
        }
    }

    /// Gives the array each lost member that answers again.
    async fn rediscover(&self, running: &Rc<Running>, pauses: &mut Pauses) {
        let now = self.env().timer.now();
        let report = running.array().report();
        let lost = |m: &raid::MemberReport| m.state.is_failed();
        if report.down.is_some() || !report.members.iter().any(lost) {
            return;
        }
        for name in running.members() {
            let (next, pause) = pauses.get(&name).copied().unwrap_or_default();
            let out = running.by_hand.borrow().contains(&name);
            if out || now < next || running.ended.get() {
                continue;
            }
            // Why it does not answer is known since it was lost.
            let most = match self.bring_back(running, &name).await {
                Ok(true) => PAUSE_MAX,
                Err(error) if error.kind() == Kind::Timeout => UNUSABLE_PAUSE_MAX,
                _ => continue,
            };
            let now = self.env().timer.now();
            pauses.insert(name, later(now, pause, most));
        }
    }

    /// Reassembles an array of a volume once what it has lost is back. That of
    /// a pool stays lost: its lines may be older than the pool knows.
    async fn restore(&self, running: &Rc<Running>, pauses: &mut Pauses) {
        let name = &running.config.name.value;
        let role = self.open.borrow().get(name).map(|opened| opened.role);
        let now = self.env().timer.now();
        let (next, pause) = pauses.get(name).copied().unwrap_or_default();
        if role != Some(Role::Origin) || now < next || !running.is_troubled() {
            return;
        }
        let restored = self.reopen(name).await;
        if let Err(error) = &restored {
            self.platform.event(Event::ArrayNotReassembled {
                array: name.clone(),
                why: error.to_string(),
            });
        }
        if !matches!(restored, Ok(false)) {
            pauses.insert(name.clone(), later(now, pause, PAUSE_MAX));
        }
    }

    /// Whether `name` was lost, and is back.
    async fn bring_back(&self, running: &Rc<Running>, name: &Name) -> IoResult<bool> {
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
            // What was unplugged has to be reopened.
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

    /// Takes out a member, as asked by hand.
    pub(crate) async fn fail_member(&self, array: &str, member: &str) -> Result<(), String> {
        let running = self.running(array)?;
        let role = running.role(member, &self.open.borrow())?;
        running
            .array()
            .fail(role)
            .await
            .map_err(|e| e.to_string())?;
        let device = running.array().report().members[role].device.clone();
        if let Some(name) = device.and_then(|device| self.name_of(&device)) {
            running.by_hand.borrow_mut().insert(name);
        }
        Ok(())
    }

    /// What the configuration calls the open device that has this name in reports.
    fn name_of(&self, device: &str) -> Option<Name> {
        let open = self.open.borrow();
        let mut open = open.iter();
        let found = open.find(|(_, opened)| *opened.leaf.geometry().name == *device);
        found.map(|(name, _)| name.clone())
    }

    /// The device that was to take the place of a member in sync is free again: which.
    pub(crate) async fn cancel_replacement(&self, array: &str) -> Result<Name, String> {
        let running = self.running(array)?;
        let none = || format!("no member of array {array} is being replaced");
        let device = running.array().cancel_replacement().ok_or_else(none)?;
        let timer = self.env().timer;
        while running.array().report().replaced.is_some() && !running.ended.get() {
            timer.sleep(LOOK).await;
        }
        let name = self.name_of(&device).ok_or_else(none)?;
        running.given.borrow_mut().remove(&name);
        self.close(&name).await.map_err(|error| error.to_string())?;
        Ok(name)
    }

    /// Whether the configuration gives an array this device, as a member or a spare.
    pub(crate) fn is_configured(&self, array: &Name, device: &Name) -> bool {
        let config = self.config();
        let mut arrays = config.arrays.iter();
        let named = arrays.find(|known| known.name.value == *array);
        named.is_some_and(|array| {
            let mut all = array.members.value.iter().chain(&array.spares.value);
            all.any(|known| known == device)
        })
    }

    /// Whether a device that an array is given counts as its member, not as a spare.
    pub(crate) fn is_for_role(&self, array: &str, device: &Name) -> bool {
        let config = self.config();
        let mut arrays = config.arrays.iter();
        let named = arrays.find(|a| a.name.as_str() == array);
        let members = named.map(|a| &a.members.value[..]).unwrap_or_default();
        let roles = |running: Rc<Running>| running.array().report().members.len();
        let roles = self.running(array).map_or(0, roles);
        members.contains(device) || members.len() < roles
    }

    /// The device that a member of an array is, by its name or the number of its role.
    pub(crate) fn member_name(&self, array: &str, member: &str) -> Option<Name> {
        let running = self.running(array).ok()?;
        let role = running.role(member, &self.open.borrow()).ok()?;
        let device = running.array().report().members[role].device.clone()?;
        self.name_of(&device)
    }

    /// Gives an array a device, in the place of `member` if one is named.
    pub(crate) async fn give_member(
        &self,
        array: &str,
        member: Option<&str>,
        source: &super::Source,
        overwrite: bool,
    ) -> Result<(), String> {
        let to_message = |error: block::IoError| error.to_string();
        let running = self.running(array)?;
        let name = source.name().clone();
        let role = match member {
            Some(member) => Some(running.role(member, &self.open.borrow())?),
            None => None,
        };
        let own = running.members().any(|n| n == name);
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
                if !own {
                    running.given.borrow_mut().insert(name);
                }
                Ok(())
            }
            Err(error) => {
                if !reused {
                    // The array refused it, and says why.
                    let _ = self.close(&name).await;
                }
                Err(to_message(error))
            }
        }
    }

    async fn give(
        &self,
        running: &Rc<Running>,
        name: &Name,
        candidate: raid::Candidate,
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

impl Running {
    /// Says what has happened since the last time.
    pub(super) fn report_events<P: Platform>(&self, platform: &P) {
        let (events, count) = self.array().events();
        let new = count.saturating_sub(self.reported.replace(count)) as usize;
        for event in &events[events.len().saturating_sub(new)..] {
            platform.event(Event::Array {
                what: event.what.clone(),
            });
        }
    }
}
