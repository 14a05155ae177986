//! The troublemaker: unplugs members, one at a time, and gives them back; has
//! them refuse writes; cuts the power at the moments that matter.
//!
//! Not here: trouble of a few scenarios only (`strikes`).

use super::life::ArrayLife;
use super::refuse::ANYWHERE;
use super::report::Class;
use super::trouble::ArrayTrouble;
use block::{Extent, IoErrorKind, Lba, Nanos, Sectors};
use raid::{MemberState, Scrubbed};
use sim::SimRng;
use std::rc::Rc;

/// The ends of a member's superblocks, and of its write-intent bitmap.
const SUPERBLOCKS_END: u64 = 16;
const MAP_END: u64 = 24;
pub(super) const LOOK: Nanos = Nanos::from_micros(50);
/// Time by which the array has acted on a refused write.
const ACTED: Nanos = Nanos::from_millis(20);
/// Attempts to give back a member that cannot be taken for now.
const TRIES: u32 = 200;
/// Attempts during which members that do not answer are left alone.
const PATIENT_TRIES: u32 = 20;
/// Time by which a member's return succeeds or fails, whatever does not answer.
const ADD_MAX: Nanos = Nanos::from_secs(20);

pub(crate) struct ArrayChaos {
    pub(super) life: Rc<ArrayLife>,
    rng: SimRng,
    /// A random source of its own, so that seeds without refusals stay as they are.
    refusing: SimRng,
    cutting: SimRng,
    pub(super) striking: SimRng,
    /// Number of times that too many members were lost in this life.
    pub(super) falls: u64,
}

impl ArrayChaos {
    pub(crate) fn new(life: Rc<ArrayLife>) -> ArrayChaos {
        let fork = |n| SimRng::fork(life.scenario.seed, n + life.number);
        ArrayChaos {
            rng: fork(500),
            refusing: fork(700),
            cutting: fork(1000),
            striking: fork(8000),
            falls: 0,
            life,
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
            if self.strike().await {
                continue;
            }
            let last = self.life.is_last();
            let progress = self.life.array.report().progress;
            if progress.is_some() && !last && self.rng.chance(0.2) {
                self.life.control.cut_power(None);
            } else if !self.life.dead.borrow().is_empty() {
                self.give_back().await;
            } else if self.life.scenario.losses && self.life.array.is_settled() {
                self.unplug().await;
            } else if progress.is_some() && self.rng.chance(0.3) && self.may_lose() {
                self.lose_in_rebuild().await;
            }
        }
    }

    /// Has a disk refuse some writes, or gives evicted members back.
    async fn refuse(&mut self) {
        let disk = self.refusing.below(self.life.units.len() as u64) as usize;
        if self.refusing.chance(0.3) {
            return self.take_back().await;
        }
        if self.life.is_dead(disk) {
            return;
        }
        let before = self.life.refusals.count.get();
        let state = self.life.member(disk).map(|member| member.state);
        let report = self.life.array.report();
        let missing = |m: &raid::MemberReport| m.state.is_failed();
        let missing = report.members.iter().any(missing);
        let writes = self.refusing.between(1, 3);
        let span = match self.life.scenario.trouble {
            ArrayTrouble::Records => self.refuse_metadata(disk, writes).await,
            _ => {
                self.life.refuse(disk, writes, ANYWHERE, 0);
                Nanos(self.refusing.between(50_000, 5_000_000))
            }
        };
        self.cut_soon();
        self.life.env.timer.sleep(span).await;
        self.life.refusals.disarm();
        while self.life.refusals.is_armed() {
            self.life.env.timer.sleep(LOOK).await;
        }
        // Only then may a disk be unplugged, so that no two members are lost at once.
        self.life.env.timer.sleep(ACTED).await;
        if self.life.refusals.count.get() > before {
            self.meet_places(before);
            self.life.meet(match state {
                Some(MemberState::Rebuilding { .. }) => Class::RefusedInFill,
                Some(_) if missing => Class::RefusedDegraded,
                _ => Class::Refused,
            });
        }
    }

    /// Has `disk` refuse some `writes` of metadata of one kind. Returns the time to wait for that.
    async fn refuse_metadata(&mut self, disk: usize, writes: u64) -> Nanos {
        let data_at = self.life.data_at.get();
        let (from, to) = match self.refusing.below(3) {
            0 => (0, SUPERBLOCKS_END),
            1 => (SUPERBLOCKS_END, MAP_END),
            _ => (MAP_END, data_at),
        };
        let within = Extent::new(Lba(from), Sectors(to - from));
        let skipped = self.refusing.below(5);
        self.life.refuse(disk, writes, within, skipped);
        let events = if from == 0 { skipped + 1 } else { 0 };
        for since in 0..events {
            // Each is an event, and all members get its superblocks.
            let scrubbed = Scrubbed {
                since: since + 1,
                ended: false,
            };
            if let Err(error) = self.life.array.set_scrubbed(scrubbed).await {
                self.life.hear(&error);
            }
        }
        Nanos(self.refusing.between(50_000, 20_000_000))
    }

    /// Notes which metadata was refused since `before`.
    fn meet_places(&self, before: u64) {
        for at in self.life.refusals.places_since(before) {
            self.life.meet(match at.0 {
                0..SUPERBLOCKS_END => Class::RefusedSuperblock,
                SUPERBLOCKS_END..MAP_END => Class::RefusedMap,
                at if at < self.life.data_at.get() => Class::RefusedRecord,
                _ => continue,
            });
        }
    }

    /// Gives the array every present disk that the array does not use.
    pub(crate) async fn take_back(&mut self) {
        for unit in 0..self.life.units.len() {
            let report = self.life.array.report();
            let serves = self.life.member(unit).is_some_and(|m| !m.state.is_failed());
            let name = format!("disk-{unit}");
            let spare = report.spares.iter().any(|spare| **spare == *name);
            let failed = report.members.iter().any(|m| m.state.is_failed());
            if !serves && !spare && failed && !self.life.is_dead(unit) {
                self.give(unit).await;
            }
        }
    }

    /// Gives the array a unit that is there. Returns true if the array took the unit.
    pub(super) async fn give(&mut self, unit: usize) -> bool {
        let mut last = None;
        for tries in 0..TRIES {
            if tries == PATIENT_TRIES && self.life.scenario.trouble == ArrayTrouble::Hangs {
                // An administrator mends the members that keep the unit from returning.
                self.life.release_present();
            }
            if let Err(error) = self.life.outside.mend_inner(&self.life.local, unit).await {
                last = Some(error);
                self.life.env.timer.sleep(Nanos::from_millis(5)).await;
                continue;
            }
            let candidate = self.life.candidate(unit).expect("it has been mended");
            let added = self.life.array.add(candidate, self.life.fresh(), true);
            let timer = &self.life.env.timer;
            let Some(added) = timer.timeout(ADD_MAX, Box::pin(added)).await else {
                let what = format!("it is not known in time whether disk {unit} returns");
                self.life.violate(what);
                return false;
            };
            let error = match added {
                Ok(()) => return true,
                // A spare that is just taking a place is busy.
                Err(error) if error.kind() == IoErrorKind::Busy => return false,
                Err(error) => error,
            };
            self.life.hear(&error);
            // The unit's metadata cannot be read now and then, or the unit answers slowly.
            let passing = matches!(
                self.life.scenario.trouble,
                ArrayTrouble::Metadata | ArrayTrouble::Hangs | ArrayTrouble::Spoils
            );
            last = Some(error);
            if !passing || self.life.fallen.get() {
                break;
            }
            self.life.env.timer.sleep(Nanos::from_millis(5)).await;
        }
        if let Some(error) = last.filter(|_| !self.life.fallen.get()) {
            let what = format!("disk {unit} cannot return: {error}");
            self.life.violate(what);
        }
        false
    }

    fn state(&self, role: usize) -> MemberState {
        self.life.array.report().members[role].state
    }

    /// True if a member that is being filled may be lost. The loss of a serving member's copy would
    /// cost nothing, but the loss of the serving member would.
    fn may_lose(&self) -> bool {
        self.life.scenario.losses || self.life.scenario.trouble != ArrayTrouble::Replaces
    }

    async fn unplug(&mut self) {
        let unit = self.rng.below(self.life.units.len() as u64) as usize;
        let Some(member) = self.life.member(unit) else {
            return;
        };
        self.life.meet(Class::Loss);
        self.life.kill(unit);
        self.noticed(unit, member.role).await;
    }

    /// Waits until the array has noticed the loss of a unit. The writes that a disk forgot while no
    /// one looked cannot be known.
    pub(super) async fn noticed(&mut self, unit: usize, role: usize) {
        self.cut_soon();
        let timeout = self.life.scenario.timeout.unwrap_or_default();
        for _ in 0..200 {
            // The member has failed, or a spare has its role already.
            let now = self.life.member(unit).map(|member| member.role);
            if now != Some(role) || self.state(role).is_failed() {
                return;
            }
            if self.life.is_over() {
                break;
            }
            let span = LOOK + Nanos(timeout.0 / 50);
            self.life.env.timer.sleep(span).await;
        }
        if let Err(error) = self.life.array.fail(role).await {
            self.life.hear(&error);
            // Another member was evicted since: this one has to answer.
            if self.life.scenario.trouble == ArrayTrouble::Hangs {
                return self.life.revive(unit);
            }
            self.life
                .violate(format!("member {role} cannot be failed: {error}"));
        }
    }

    /// May cut the power before the array knows durably of the loss.
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
        let filled = matches!(self.state(role), MemberState::Rebuilding { .. });
        if let Some(unit) = self.life.unit_of(role).filter(|_| filled) {
            self.life.meet(Class::LossInRebuild);
            self.life.kill(unit);
            self.noticed(unit, role).await;
        }
    }

    /// Gives unplugged units back, but for a unit that was reshaped.
    pub(crate) async fn give_back(&mut self) {
        let reshaped = self.life.reshaped.get();
        let dead: Vec<usize> = self.life.dead.borrow().iter().copied().collect();
        for unit in dead.into_iter().filter(|unit| Some(*unit) != reshaped) {
            self.life.revive(unit);
            self.life.env.timer.sleep(LOOK).await;
            let waiting = self.life.array.report().spares.len();
            if self.give(unit).await {
                let spare = self.life.array.report().spares.len() > waiting;
                self.life
                    .meet(if spare { Class::Spare } else { Class::Return });
            }
        }
    }
}
