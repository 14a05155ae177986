//! The troublemaker: unplugs members, one at a time, and gives them back; has
//! them refuse writes; cuts the power at the moments that matter.

use super::life::Life;
use super::report::Class;
use block::{Kind, Nanos};
use raid::MemberState;
use sim::Rng;
use std::rc::Rc;

const LOOK: Nanos = Nanos::from_micros(50);
/// By then the array has acted on a write that was refused.
const ACTED: Nanos = Nanos::from_millis(20);

pub(crate) struct Chaos {
    life: Rc<Life>,
    rng: Rng,
    /// Of its own, so that seeds without refusals stay as they are.
    refusing: Rng,
    cutting: Rng,
}

impl Chaos {
    pub(crate) fn new(life: Rc<Life>) -> Chaos {
        let rng = Rng::fork(life.scenario.seed, 500 + life.number);
        let refusing = Rng::fork(life.scenario.seed, 700 + life.number);
        let cutting = Rng::fork(life.scenario.seed, 1000 + life.number);
        Chaos {
            life,
            rng,
            refusing,
            cutting,
        }
    }

    /// Makes trouble until the clients are done.
    pub(crate) async fn rage(&mut self) {
        while !self.life.is_over() {
            let pause = self.rng.between(50_000, 8_000_000);
            self.life.env.timer.sleep(Nanos(pause)).await;
            if self.life.is_over() {
                return;
            }
            if self.life.scenario.refusals && self.refusing.chance(0.5) {
                self.refuse().await;
                continue;
            }
            let last = self.life.is_last();
            let progress = self.life.array.report().progress;
            if progress.is_some() && !last && self.rng.chance(0.2) {
                self.life.control.cut_power(None);
            } else if self.life.dead.get().is_some() {
                self.give_back().await;
            } else if self.life.scenario.losses && self.life.array.is_settled() {
                self.unplug().await;
            } else if progress.is_some() && self.rng.chance(0.3) {
                self.lose_in_rebuild().await;
            }
        }
    }

    /// Has a disk refuse some writes, or gives those back that were left behind for
    /// it.
    async fn refuse(&mut self) {
        let disk = self.refusing.below(self.life.disks.len() as u64) as usize;
        if self.refusing.chance(0.3) {
            return self.take_back().await;
        }
        if self.life.dead.get() == Some(disk) {
            return;
        }
        let before = self.life.refusals.count.get();
        let state = self.role_of(disk).map(|role| self.state(role));
        let report = self.life.array.report();
        let missing = |m: &raid::MemberReport| m.state.is_failed();
        let missing = report.members.iter().any(missing);
        self.life.refuse(disk, self.refusing.between(1, 3));
        let span = Nanos(self.refusing.between(50_000, 5_000_000));
        self.cut_soon();
        self.life.env.timer.sleep(span).await;
        self.life.refusals.disarm();
        while self.life.refusals.is_armed() {
            self.life.env.timer.sleep(LOOK).await;
        }
        // Only then may a disk be unplugged: not two members are lost at once.
        self.life.env.timer.sleep(ACTED).await;
        if self.life.refusals.count.get() > before {
            self.life.meet(match state {
                Some(MemberState::Rebuilding { .. }) => Class::RefusedInFill,
                Some(_) if missing => Class::RefusedDegraded,
                _ => Class::Refused,
            });
        }
    }

    /// Gives the array every disk that is there and that it does not use.
    pub(crate) async fn take_back(&mut self) {
        for disk in 0..self.life.disks.len() {
            let name = format!("disk-{disk}");
            let report = self.life.array.report();
            let is = |m: &raid::MemberReport| m.device.as_deref() == Some(name.as_str());
            let serves = |m: &raid::MemberReport| is(m) && !m.state.is_failed();
            let spare = report.spares.iter().any(|spare| **spare == *name);
            let failed = report.members.iter().any(|m| m.state.is_failed());
            let used = spare || report.members.iter().any(serves);
            if used || !failed || self.life.dead.get() == Some(disk) {
                continue;
            }
            let (candidate, fresh) = (self.life.candidate(disk), self.life.fresh());
            // A spare that is just taking a place is busy.
            if let Err(error) = self.life.array.add(candidate, fresh, true).await
                && error.kind() != Kind::Busy
            {
                let what = format!("disk {disk} cannot return: {error}");
                self.life.violate(what);
            }
        }
    }

    fn role_of(&self, disk: usize) -> Option<usize> {
        let name = format!("disk-{disk}");
        let report = self.life.array.report();
        let mut members = report.members.iter();
        let member = members.find(|m| m.device.as_deref() == Some(name.as_str()))?;
        Some(member.role)
    }

    fn state(&self, role: usize) -> MemberState {
        self.life.array.report().members[role].state
    }

    async fn unplug(&mut self) {
        let disk = self.rng.below(self.life.disks.len() as u64) as usize;
        let Some(role) = self.role_of(disk) else {
            return;
        };
        self.life.meet(Class::Loss);
        self.lose(disk, role).await;
    }

    /// Unplugs a disk and waits until the array has noticed: what a disk forgot
    /// while nobody looked, nobody can know.
    async fn lose(&mut self, disk: usize, role: usize) {
        self.life.lose(disk);
        self.cut_soon();
        for _ in 0..200 {
            // It has failed, or a spare has its role already.
            if self.role_of(disk) != Some(role) || self.state(role).is_failed() {
                return;
            }
            if self.life.is_over() {
                break;
            }
            self.life.env.timer.sleep(LOOK).await;
        }
        if let Err(error) = self.life.array.fail(role).await {
            self.life
                .violate(format!("member {role} cannot be failed: {error}"));
        }
    }

    /// Perhaps cuts the power before the array knows durably what is happening.
    fn cut_soon(&mut self) {
        if self.life.scenario.slow && !self.life.is_last() && self.cutting.chance(0.8) {
            let life = self.life.clone();
            let span = Nanos(self.cutting.between(1, 3_000_000));
            self.life.env.spawn.spawn(async move {
                life.env.timer.sleep(span).await;
                life.meet(Class::CutInLoss);
                life.control.cut_power(None);
            });
        }
    }

    async fn lose_in_rebuild(&mut self) {
        let Some(role) = self.life.array.report().progress.and_then(|p| p.role) else {
            return;
        };
        let disk = (0..self.life.disks.len()).find(|disk| self.role_of(*disk) == Some(role));
        if let Some(disk) = disk {
            self.life.meet(Class::LossInRebuild);
            self.lose(disk, role).await;
        }
    }

    pub(crate) async fn give_back(&mut self) {
        let Some(disk) = self.life.dead.get() else {
            return;
        };
        self.life.control.revive(self.life.disks[disk]);
        self.life.dead.set(None);
        self.life.env.timer.sleep(LOOK).await;
        let waiting = self.life.array.report().spares.len();
        let added = self
            .life
            .array
            .add(self.life.candidate(disk), self.life.fresh(), true)
            .await;
        match added {
            Ok(()) => {
                let spare = self.life.array.report().spares.len() > waiting;
                self.life
                    .meet(if spare { Class::Spare } else { Class::Return });
            }
            Err(error) => self
                .life
                .violate(format!("disk {disk} cannot return: {error}")),
        }
    }
}
