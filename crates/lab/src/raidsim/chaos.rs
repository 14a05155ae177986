//! The troublemaker: unplugs members, one at a time, and gives them back; cuts
//! the power at the moments that matter.

use super::report::Class;
use super::run::Life;
use block::Nanos;
use raid::MemberState;
use sim::Rng;
use std::rc::Rc;

const LOOK: Nanos = Nanos::from_micros(50);

pub(crate) struct Chaos {
    life: Rc<Life>,
    rng: Rng,
}

impl Chaos {
    pub(crate) fn new(life: Rc<Life>) -> Chaos {
        let rng = Rng::fork(life.scenario.seed, 500 + life.number);
        Chaos { life, rng }
    }

    /// Makes trouble until the clients are done.
    pub(crate) async fn rage(&mut self) {
        while !self.life.is_over() {
            let pause = self.rng.between(50_000, 8_000_000);
            self.life.env.timer.sleep(Nanos(pause)).await;
            if self.life.is_over() {
                return;
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
