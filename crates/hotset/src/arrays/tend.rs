//! What the daemon does for its arrays while they run: says what happens to
//! them, and gives them lost members again once those answer.
//!
//! A member that was taken out by hand stays out. One that is lost again and
//! again is sought less and less often.

use super::{Devices, Running, fresh, refuse_used};
use crate::devices::Role;
use block::{BoxDevice, Device as _, IoResult, Nanos};
use control::config::Name;
use control::status::Scrub;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// How often arrays are looked after.
const PERIOD: Nanos = Nanos::from_millis(500);
/// The longest pause before a member that is lost again and again is sought.
const PAUSE_MAX: Nanos = Nanos::from_secs(300);

/// When each lost member is sought next, and the pause after that.
type Pauses = HashMap<Name, (Nanos, Nanos)>;

impl Devices {
    /// Looks after every array, until dropped.
    pub async fn tend(self: Rc<Devices>) {
        let env = self.opener.local.env();
        let mut tended: Vec<Weak<Running>> = Vec::new();
        loop {
            tended.retain(|running| running.strong_count() > 0);
            for running in self.running.borrow().iter() {
                let known = |weak: &Weak<Running>| weak.as_ptr() == Rc::as_ptr(running);
                if !tended.iter().any(known) {
                    tended.push(Rc::downgrade(running));
                    let (devices, running) = (self.clone(), running.clone());
                    env.spawn.spawn(devices.tend_one(running));
                }
            }
            env.timer.sleep(PERIOD).await;
        }
    }

    async fn tend_one(self: Rc<Devices>, running: Rc<Running>) {
        let timer = self.opener.local.env().timer;
        let mut pauses = Pauses::new();
        while !running.ended.get() {
            running.tell();
            self.seek(&running, &mut pauses).await;
            timer.sleep(PERIOD).await;
        }
    }

    /// Gives the array each lost member that answers again.
    async fn seek(&self, running: &Rc<Running>, pauses: &mut Pauses) {
        let now = self.opener.local.env().timer.now();
        let report = running.array.report();
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
            if let Ok(true) = self.bring_back(running, &name).await {
                let pause = Nanos((pause.0 * 2).clamp(PERIOD.0, PAUSE_MAX.0));
                pauses.insert(name, (now + pause, pause));
            }
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
            .map(|o| (o.leaf.clone(), o.is_file()));
        match leaf {
            Some((leaf, _)) if running.uses(&leaf) => return Ok(false),
            // What was unplugged has to be opened anew.
            Some((_, true)) => drop(self.open.borrow_mut().remove(name)),
            // An array that lost too much has to be put together again.
            Some(_) if self.is_down(name) => {
                if !self.answers(name).await {
                    return Ok(false);
                }
                if let Ok(role) = running.role(name.as_str(), &self.open.borrow()) {
                    // Its members are opened anew, and some servers have one client.
                    running.array.let_go(role);
                }
                // That it did not end in order is known.
                let _ = self.close(name).await;
            }
            _ => (),
        }
        if !self.open.borrow().contains_key(name) {
            let role = Role::Member(running.config.detection.value);
            let opened = self.open(&source, role).await?;
            self.open.borrow_mut().insert(name.clone(), opened);
        }
        let candidate = match self.open.borrow().get(name) {
            Some(opened) => self.candidate(name, opened),
            None => return Ok(false),
        };
        let env = self.opener.local.env();
        let found = raid::examine(&env, &candidate.device).await?;
        let ours = running.array.report().uuid;
        if found.is_none_or(|found| Some(found.array) != ours) {
            return Ok(false);
        }
        // A server that was started anew says once that it may have forgotten
        // writes; what it missed is filled from the map in any case.
        let _ = candidate.device.flush().await;
        candidate.device.flush().await?;
        running.array.add(candidate, fresh(), false).await?;
        Ok(true)
    }

    /// Whether `name` is an array that refuses writes.
    fn is_down(&self, name: &Name) -> bool {
        let running = self.running(name.as_str());
        running.is_ok_and(|running| running.array.report().down.is_some())
    }

    /// Whether all that the array `name` is made of can be read.
    async fn answers(&self, name: &Name) -> bool {
        let Ok(running) = self.running(name.as_str()) else {
            return false;
        };
        let env = self.opener.local.env();
        for member in running.members() {
            let leaf = self.open.borrow().get(&member).map(|o| o.leaf.clone());
            let Some(leaf) = leaf else { return false };
            if raid::examine(&env, &BoxDevice::new(leaf)).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Takes out a member, as asked by hand.
    pub async fn fail_member(&self, array: &str, member: &str) -> Result<(), String> {
        let running = self.running(array)?;
        let role = running.role(member, &self.open.borrow())?;
        running.array.fail(role).await.map_err(|e| e.to_string())?;
        let device = running.array.report().members[role].device.clone();
        let open = self.open.borrow();
        let of = |(_, o): &(&Name, &crate::devices::Opened)| {
            Some(&o.leaf.geometry().name) == device.as_ref()
        };
        if let Some((name, _)) = open.iter().find(of) {
            running.by_hand.borrow_mut().insert(name.clone());
        }
        Ok(())
    }

    /// Gives an array a device, in the place of `member` if one is named.
    pub async fn give_member(
        &self,
        array: &str,
        member: Option<&str>,
        source: &super::Source,
        overwrite: bool,
    ) -> Result<(), String> {
        let told = |error: block::IoError| error.to_string();
        let running = self.running(array)?;
        let name = source.name().clone();
        let role = match member {
            Some(member) => Some(running.role(member, &self.open.borrow())?),
            None => None,
        };
        let own = running.members().any(|n| n == name);
        let reused = own && self.open.borrow().contains_key(&name);
        if !reused {
            let role = Role::Member(running.config.detection.value);
            let opened = self.open(source, role).await.map_err(told)?;
            self.open.borrow_mut().insert(name.clone(), opened);
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
                Err(told(error))
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
        let env = self.opener.local.env();
        let device: &BoxDevice = &candidate.device;
        let found = raid::examine(&env, device).await?;
        let ours = running.array.report().uuid;
        let returns = found.is_some_and(|found| Some(found.array) == ours);
        if !returns && !overwrite {
            refuse_used(&env, name, device).await?;
        }
        match role {
            None => running.array.add(candidate, fresh(), overwrite).await,
            Some(role) => {
                let array = running.array.clone();
                array.replace(role, candidate, fresh(), overwrite).await
            }
        }
    }

    /// Begins a scrub.
    pub fn scrub(&self, array: &str, repair: bool) -> Result<(), String> {
        let running = self.running(array)?;
        let state = |scrub: &Scrub| scrub.running;
        if running.scrub.borrow().as_ref().is_some_and(state) {
            return Err(format!("array {array} is being scrubbed; wait for its end"));
        }
        *running.scrub.borrow_mut() = Some(Scrub {
            running: true,
            ..Scrub::default()
        });
        self.opener.local.env().spawn.spawn(async move {
            let ended = running.array.scrub(repair).await;
            let scrub = match ended {
                Ok(found) => Scrub {
                    running: false,
                    mismatches: found.mismatches,
                    repaired: found.repaired,
                    unreadable: found.unreadable,
                    error: None,
                },
                Err(error) => Scrub {
                    error: Some(error.to_string()),
                    ..Scrub::default()
                },
            };
            *running.scrub.borrow_mut() = Some(scrub);
        });
        Ok(())
    }
}

impl Running {
    /// Says on standard error what has happened since the last time.
    pub(super) fn tell(&self) {
        let (events, count) = self.array.events();
        let new = count.saturating_sub(self.told.replace(count)) as usize;
        for event in &events[events.len().saturating_sub(new)..] {
            eprintln!("hotset: array {}", event.what);
        }
    }
}
