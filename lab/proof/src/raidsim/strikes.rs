//! The troublemaker's work in scenarios of one kind: members that hang, are replaced, are lost
//! together, or return while a spare takes their place.

use super::between::blank;
use super::chaos::{ArrayChaos, LOOK};
use super::client;
use super::report::Class;
use super::trouble::ArrayTrouble;
use block::{IoErrorKind, Nanos};
use raid::MemberState;

impl ArrayChaos {
    /// Does the work of this scenario's trouble. Returns true if there was any.
    pub(super) async fn strike(&mut self) -> bool {
        let trouble = self.life.scenario.trouble;
        if trouble == ArrayTrouble::None || !self.striking.chance(0.6) {
            return false;
        }
        match trouble {
            ArrayTrouble::Hangs => self.hang().await,
            ArrayTrouble::Replaces => self.replace().await,
            ArrayTrouble::Several => self.lose_several().await,
            ArrayTrouble::Nested => self.lose_within().await,
            ArrayTrouble::Races => self.race().await,
            ArrayTrouble::Forgets => self.forget().await,
            ArrayTrouble::Images => self.return_changed().await,
            ArrayTrouble::Pauses => self.pause().await,
            _ => false,
        }
    }

    fn any_unit(&mut self) -> usize {
        self.striking.below(self.life.units.len() as u64) as usize
    }

    fn is_calm(&self) -> bool {
        self.life.dead.borrow().is_empty() && self.life.array.is_settled()
    }

    /// Has a member not answer for a while, or gives evicted members back.
    async fn hang(&mut self) -> bool {
        let lost = |m: &raid::MemberReport| m.state.is_failed();
        if self.life.array.report().members.iter().any(lost) {
            return self.give_late().await;
        }
        if !self.is_calm() {
            // While one member is filled, another that the array needs may not answer.
            self.life.release_present();
            return false;
        }
        let unit = self.any_unit();
        let Some(member) = self.life.member(unit) else {
            return false;
        };
        let timeout = self.life.scenario.timeout.expect("set with hangs");
        let span = Nanos(self.striking.between(timeout.0 / 10, timeout.0 * 3));
        let redundant = self.life.scenario.level.is_redundant();
        let for_good = redundant && self.striking.chance(0.5);
        let target = self.life.units[unit].targets[0];
        self.life.control.hang(target);
        if for_good {
            self.life.meet(Class::HungForGood);
            self.life.whole.set(false);
            self.life.sound.set(false);
            self.life.dead.borrow_mut().insert(unit);
            self.noticed(unit, member.role).await;
        } else {
            self.life.meet(Class::Hung);
            self.life.env.timer.sleep(span).await;
            self.life.control.release(target);
        }
        true
    }

    /// Gives evicted members back, while their unfinished writes may still land.
    async fn give_late(&mut self) -> bool {
        let calm = self.life.dead.borrow().is_empty();
        let life = self.life.clone();
        let span = Nanos(self.striking.between(1_000, 400_000_000));
        let released = life.env.timer.now() + span;
        self.life.env.spawn.spawn(async move {
            life.env.timer.sleep(span).await;
            for target in life.disks() {
                life.control.release(target);
            }
        });
        if calm {
            self.take_back().await;
            if self.life.env.timer.now() < released {
                self.life.meet(Class::LateWrite);
            }
        } else {
            self.life.env.timer.sleep(span + LOOK).await;
            self.give_back().await;
        }
        true
    }

    /// Replaces a member, sound or lost, with a unit that has no role.
    async fn replace(&mut self) -> bool {
        let report = self.life.array.report();
        let unused = (0..self.life.units.len())
            .find(|unit| self.life.member(*unit).is_none() && !self.life.is_dead(*unit));
        let role = self.striking.below(report.members.len() as u64) as usize;
        let busy = report.progress.is_some() || !report.spares.is_empty();
        let (Some(unit), false) = (unused, busy) else {
            return false;
        };
        let member = &report.members[role];
        let lost = member.state.is_failed();
        let (candidate, fresh) = (self.life.candidate(unit), self.life.fresh());
        let candidate = candidate.expect("a disk");
        self.life.whole.set(false);
        match self.life.array.replace(role, candidate, fresh, true).await {
            Ok(()) if lost => self.life.meet(Class::ReplaceLost),
            Ok(()) => self.life.meet(Class::ReplaceSound),
            // Another unit has the role by then, or the unit is needed elsewhere.
            Err(error) if matches!(error.kind(), IoErrorKind::Busy | IoErrorKind::Invalid) => {}
            Err(error) => {
                let what = format!("disk {unit} cannot take role {role}: {error}");
                self.life.violate(what);
            }
        }
        true
    }

    /// Unplugs several members at once: the array goes on if possible, and else stops.
    async fn lose_several(&mut self) -> bool {
        if !self.is_calm() || self.falls > 0 {
            return false;
        }
        let members: Vec<_> = (0..self.life.units.len())
            .filter_map(|unit| Some((unit, self.life.member(unit)?.role)))
            .collect();
        let mut lost = members.clone();
        self.striking.shuffle(&mut lost);
        let count = self.striking.between(2, lost.len() as u64) as usize;
        lost.truncate(count);
        let left = |role: usize| lost.iter().all(|(_, lost)| *lost != role);
        let goes_on = self.life.array.shape().can_run(left);
        if !goes_on {
            self.life.fallen.set(true);
        }
        lost.iter().for_each(|(unit, _)| self.life.kill(*unit));
        if goes_on {
            self.life.meet(Class::SeveralLost);
            for (unit, role) in lost {
                self.noticed(unit, role).await;
            }
        } else {
            self.life.meet(Class::SeveralStopped);
            let span = Nanos(self.striking.between(1, 200_000_000));
            self.life.env.timer.sleep(span).await;
        }
        true
    }

    /// Unplugs one disk of a member that is an array and can do without the disk.
    async fn lose_within(&mut self) -> bool {
        let unit = self.any_unit();
        let Some(array) = self.life.outside.inner(unit) else {
            return false;
        };
        let redundant = array.report().level.is_redundant();
        if !redundant || !self.is_calm() || !array.is_settled() {
            return false;
        }
        let targets = &self.life.units[unit].targets;
        let target = targets[self.striking.below(targets.len() as u64) as usize];
        self.life.meet(Class::NestedLoss);
        self.life.control.kill(target);
        let span = Nanos(self.striking.between(1_000, 20_000_000));
        self.life.env.timer.sleep(span).await;
        let lost = |a: &raid::Array| a.report().members.iter().any(|m| m.state.is_failed());
        if !lost(&array)
            && let Some(role) = (0..targets.len()).find(|at| targets[*at] == target)
            && let Err(error) = array.fail(role).await
        {
            self.life
                .violate(format!("{unit} cannot lose {role}: {error}"));
        }
        self.life.control.revive(target);
        self.life.env.timer.sleep(LOOK).await;
        if let Err(error) = self.life.outside.mend_inner(&self.life.local, unit).await {
            let what = format!("what is within disk {unit} cannot return: {error}");
            self.life.violate(what);
        }
        true
    }

    /// Perhaps ends a life without a member that is back at the next start, stale.
    pub(super) async fn leave_stale(&mut self) {
        let unit = self.striking.below(self.life.scenario.members as u64) as usize;
        let Some(member) = self.life.member(unit).filter(|_| self.striking.chance(0.4)) else {
            return;
        };
        self.life.kill(unit);
        self.noticed(unit, member.role).await;
        let at = self.striking.below(self.life.sectors / 8 - 1) * 8;
        if client::write_durably(&self.life, at..at + 8).await {
            self.life.stale.set(Some(unit));
        }
    }

    /// Unplugs a member, and gives the member back at about the time at which a spare is activated
    /// in its place.
    async fn race(&mut self) -> bool {
        let waiting = !self.life.array.report().spares.is_empty();
        if !waiting || !self.is_calm() {
            return false;
        }
        let unit = self.any_unit();
        let Some(member) = self.life.member(unit) else {
            return false;
        };
        self.life.meet(Class::Loss);
        self.life.kill(unit);
        self.noticed(unit, member.role).await;
        self.life.revive(unit);
        let span = Nanos(self.striking.between(1_000, 200_000_000));
        self.life.env.timer.sleep(span).await;
        let spares = self.life.array.report().spares.len();
        let gone = self.life.member(unit).is_none_or(|m| m.state.is_failed());
        if gone {
            self.give(unit).await;
        }
        let report = self.life.array.report();
        let taken = report.members[member.role].device.as_deref();
        if spares > 0 && taken.is_some_and(|name| *name != *format!("disk-{unit}")) {
            self.life.meet(Class::ReturnInSpare);
        }
        true
    }

    /// Restarts the server of a member, which is back at once and has forgotten writes.
    async fn forget(&mut self) -> bool {
        if !self.is_calm() {
            self.take_back().await;
            return false;
        }
        let unit = self.any_unit();
        if self.life.member(unit).is_none() {
            return false;
        }
        self.life.meet(Class::Forgot);
        self.life.whole.set(false);
        self.life.sound.set(false);
        let forgotten = &self.life.forgotten[unit];
        forgotten.set(forgotten.get() + 1);
        self.life.control.forget(self.life.units[unit].targets[0]);
        let span = Nanos(self.striking.between(1_000, 5_000_000));
        self.life.env.timer.sleep(span).await;
        let left = |m: raid::MemberReport| m.state.is_failed();
        if self.life.member(unit).is_some_and(left) {
            self.life.meet(Class::ForgotRead);
        }
        // No other member is lost before a flush has seen the loss.
        client::flush(&self.life).await;
        true
    }

    /// Unplugs a member that returns with its bytes of some time ago, with nothing, or with the
    /// bytes of another member.
    async fn return_changed(&mut self) -> bool {
        if !self.is_calm() {
            return false;
        }
        let unit = self.any_unit();
        let Some(member) = self.life.member(unit) else {
            return false;
        };
        let image = self.life.media[unit].save();
        let span = Nanos(self.striking.below(300_000_000));
        self.life.env.timer.sleep(span).await;
        if self.life.is_over() || !self.is_calm() {
            return true;
        }
        self.life.kill(unit);
        self.noticed(unit, member.role).await;
        // Until the loss is durable, a start takes any image since the last event for the member.
        while !self.life.array.report().committed {
            self.life.env.timer.sleep(LOOK).await;
            if self.life.is_over() {
                return true;
            }
        }
        let kind = self.striking.below(4);
        match kind {
            0 => blank(&self.life, unit),
            1 => self.refuse_copy(unit).await,
            _ => self.life.media[unit].restore(&image),
        }
        self.life.meet(match kind {
            0 => Class::ReturnBlank,
            1 => Class::ReturnCopy,
            _ => Class::ReturnImage,
        });
        self.give_back().await;
        true
    }

    /// Gives `unit` back with the bytes of another member, which has to be refused.
    async fn refuse_copy(&mut self, unit: usize) {
        let members = 0..self.life.units.len();
        let serves = |other: &usize| {
            let member = self.life.member(*other).filter(|_| *other != unit);
            member.is_some_and(|m| m.state == MemberState::InSync)
        };
        if let Some(other) = members.into_iter().find(serves) {
            let (own, copy) = (self.life.media[unit].save(), self.life.media[other].save());
            *self.life.copied.borrow_mut() = Some((unit, own));
            self.life.media[unit].restore(&copy);
            self.life.revive(unit);
            self.life.env.timer.sleep(LOOK).await;
            let candidate = self.life.candidate(unit).expect("a disk");
            let added = self
                .life
                .array
                .add(candidate, self.life.fresh(), false)
                .await;
            if added.is_ok() && !self.life.is_over() {
                let what = format!("disk {unit} is a copy of disk {other}, and was taken");
                self.life.violate(what);
            }
            self.life.kill(unit);
            self.life.copied.take();
        }
        blank(&self.life, unit);
    }

    /// Perhaps ends a life so that a member is an older image of itself at the next start.
    pub(super) async fn leave_image(&mut self) {
        let unit = self.any_unit();
        if self.life.member(unit).is_none() || self.striking.chance(0.4) {
            return;
        }
        let image = self.life.media[unit].save();
        for _ in 0..self.striking.between(1, 6) {
            let at = self.striking.below(self.life.sectors / 8 - 1) * 8;
            if !client::write_durably(&self.life, at..at + 8).await {
                return;
            }
        }
        let span = Nanos(self.striking.below(300_000_000));
        self.life.env.timer.sleep(span).await;
        *self.life.image.borrow_mut() = Some((unit, image));
    }

    /// Pauses the process: no member is lost for that.
    async fn pause(&mut self) -> bool {
        if !self.is_calm() {
            return false;
        }
        let timeout = self.life.scenario.timeout.expect("set with pauses");
        self.life.meet(Class::Paused);
        let span = self.striking.between(timeout.0, timeout.0 * 20);
        self.life.control.pause(Nanos(span));
        self.life.env.timer.sleep(Nanos(timeout.0 * 3)).await;
        let report = self.life.array.report();
        if report.members.iter().any(|m| m.state.is_failed()) {
            let events = self.life.array.events().0;
            let last = events.last().map(|event| event.what.clone());
            let what = format!("a pause of the process cost a member: {last:?}");
            self.life.violate(what);
        }
        true
    }
}
