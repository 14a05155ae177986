//! The parts of a life of an array, as clients and troublemaker see them, and the parts that
//! outlive a loss of power.

use super::model::ArrayModel;
use super::refuse::{Refusals, Refusing};
use super::report::{Class, Report};
use super::scenario::ArrayScenario;
use super::unit::ArrayUnit;
use crate::stamp::Value;
use block::{BoxDevice, Device, Env, Extent, Gate, IoError, IoErrorKind, Nanos, Sectors};
use raid::{Array, MemberCandidate, MemberReport, MemberState, Options, Uuid};
use shard::Local;
use sim::{Medium, MediumImage, SimDriver, SimRng, WorldControl};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::{Deref, Range};
use std::rc::Rc;

/// The state that outlives a loss of power.
pub(crate) struct ArrayOutside {
    pub(crate) scenario: ArrayScenario,
    pub(crate) control: WorldControl,
    /// The disks, or arrays of disks, that are or may be members.
    pub(crate) units: Vec<ArrayUnit>,
    /// The units that are arrays, while they run.
    pub(super) inner: RefCell<Vec<Option<Array>>>,
    pub(crate) model: RefCell<ArrayModel>,
    pub(crate) report: RefCell<Report>,
    /// The arrays of which disks were unplugged since the arrays started.
    pub(super) blinked: RefCell<BTreeSet<usize>>,
    /// The units that are unplugged or unresponsive.
    pub(crate) dead: RefCell<BTreeSet<usize>>,
    /// The unit with a changed shape.
    pub(crate) reshaped: Cell<Option<usize>>,
    /// Bad sectors and missing members together may cost data.
    pub(crate) tolerant: bool,
    pub(crate) refusals: Rc<Refusals>,
    /// Restarts of each unit's server.
    pub(crate) forgotten: Vec<Rc<Cell<u64>>>,
    /// The bytes of each unit that is a disk.
    pub(super) media: Vec<Medium>,
    /// The unit and the image that the unit gets again before the next life.
    pub(super) image: RefCell<Option<(usize, MediumImage)>>,
    /// The unit that holds a copy of another, and the image of its own.
    pub(super) copied: RefCell<Option<(usize, MediumImage)>>,
    /// Every member was in sync and every disk there when last seen.
    pub(super) whole: Cell<bool>,
    /// Every member was in sync and known to be when last seen, whatever was refused
    /// before.
    pub(super) sound: Cell<bool>,
    /// The last life ended in order, with every member in sync.
    pub(super) rested: Cell<bool>,
    /// The last life ended after hours in which nothing was written.
    pub(super) idled: Cell<bool>,
    /// The unit that lacks writes, and is back when the array starts.
    pub(super) stale: Cell<Option<usize>>,
    /// A member may be of no use at the next start: its metadata was damaged at rest, or the member
    /// refused a write.
    pub(super) rotten: Cell<bool>,
    /// Writes that were acknowledged.
    pub(super) acked: Cell<u64>,
    pub(super) started: Cell<bool>,
    pub(super) writes: Cell<u64>,
    pub(super) partial_writes: Cell<u64>,
    pub(super) doing: Cell<Option<Class>>,
    pub(super) data_at: Cell<u64>,
    /// Number of sectors that are lost together; 0 if a failed write costs no other sectors.
    pub(super) stripe: Cell<u64>,
    pub(super) rng: RefCell<SimRng>,
}

/// One life, as clients and troublemaker see that life.
pub(crate) struct ArrayLife {
    pub(crate) number: u64,
    pub(crate) env: Env,
    pub(crate) array: Array,
    pub(crate) gate: Gate<Array>,
    pub(crate) sectors: u64,
    pub(crate) width: u64,
    pub(super) outside: Rc<ArrayOutside>,
    pub(super) local: Local<SimDriver>,
    pub(super) over: Cell<bool>,
    /// Bytes that clients hold.
    pub(super) charged: Cell<usize>,
    /// More members are lost than the array can do without.
    pub(super) fallen: Cell<bool>,
}

impl Deref for ArrayLife {
    type Target = ArrayOutside;
    fn deref(&self) -> &ArrayOutside {
        &self.outside
    }
}

impl ArrayOutside {
    pub(crate) fn meet(&self, class: Class) {
        self.report.borrow_mut().meet(class);
    }

    pub(super) fn fresh(&self) -> Uuid {
        let mut rng = self.rng.borrow_mut();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&rng.bits().to_le_bytes());
        bytes[8..].copy_from_slice(&rng.bits().to_le_bytes());
        Uuid::from_bytes(bytes)
    }

    /// The device of `unit`, to be given to the array; `None` for an array that does not run.
    pub(super) fn candidate(
        &self,
        local: &Local<SimDriver>,
        unit: usize,
    ) -> Option<MemberCandidate> {
        let ArrayUnit { targets, level } = &self.units[unit];
        let device = match level {
            Some(_) => BoxDevice::new(self.inner(unit)?),
            None => BoxDevice::new(local.disk(targets[0]).expect("a disk")),
        };
        let device = match self.scenario.refusals {
            false => device,
            true => BoxDevice::new(Refusing {
                disk: device,
                index: unit,
                refusals: self.refusals.clone(),
            }),
        };
        let forgotten = self.forgotten[unit].clone();
        Some(MemberCandidate {
            losses: Rc::new(move || forgotten.get()),
            ..MemberCandidate::new(device, format!("controller-{}", unit % 2))
        })
    }

    pub(crate) fn is_dead(&self, unit: usize) -> bool {
        self.dead.borrow().contains(&unit)
    }

    /// Unplugs a unit.
    pub(crate) fn kill(&self, unit: usize) {
        self.whole.set(false);
        self.sound.set(false);
        self.dead.borrow_mut().insert(unit);
        self.blinked.borrow_mut().insert(unit);
        let targets = &self.units[unit].targets;
        targets.iter().for_each(|target| self.control.kill(*target));
    }

    /// Plugs a unit in again, and lets the unit answer all that was unanswered.
    pub(crate) fn revive(&self, unit: usize) {
        self.dead.borrow_mut().remove(&unit);
        for target in &self.units[unit].targets {
            self.control.release(*target);
            self.control.revive(*target);
        }
    }

    pub(crate) fn revive_all(&self) {
        (0..self.units.len()).for_each(|unit| self.revive(unit));
    }

    /// Lets all units answer again that do not answer, but for lost ones.
    pub(super) fn release_present(&self) {
        let present = (0..self.units.len()).filter(|unit| !self.is_dead(*unit));
        let targets = present.flat_map(|unit| &self.units[unit].targets);
        targets.for_each(|target| self.control.release(*target));
    }

    /// Notes an error that was reported to an administrator.
    pub(super) fn hear(&self, error: &IoError) {
        let needed = error.to_string().contains("cannot do without it");
        if error.kind() == IoErrorKind::Timeout && needed {
            self.meet(Class::UnresponsiveNeeded);
        }
    }

    /// The size of a unit that is a disk.
    pub(super) fn sectors_of(&self, unit: usize) -> Sectors {
        self.scenario.unit_sectors(unit)
    }

    pub(crate) fn violate(&self, what: String) {
        self.report.borrow_mut().violate(what);
    }

    /// True if an absent unit could have carried the array on without the others.
    pub(crate) fn is_mirror(&self) -> bool {
        let pair = self.scenario.level == raid::Level::Raid10 && self.scenario.members == 2;
        self.scenario.level == raid::Level::Raid1 || pair
    }

    pub(super) fn options(&self) -> Options {
        Options {
            rebuild_floor: self.scenario.rebuild_floor,
            clear_after: self.scenario.clear_after,
            mark_ahead: self.scenario.mark_ahead,
            busy_for: Nanos::from_millis(2),
            timeout: self.scenario.timeout,
            rewrites: self.scenario.rewrites,
            spare_delay: self.scenario.spare_delay,
        }
    }
}

impl ArrayLife {
    pub(super) fn new(
        outside: Rc<ArrayOutside>,
        local: Local<SimDriver>,
        array: Array,
        number: u64,
    ) -> Rc<ArrayLife> {
        let env = local.env();
        Rc::new(ArrayLife {
            number,
            gate: Gate::new(array.clone(), env.clone()),
            sectors: array.geometry().sectors.0,
            width: array.shape().width().0.max(8),
            env,
            array,
            outside,
            local,
            over: Cell::new(false),
            charged: Cell::new(0),
            fallen: Cell::new(false),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.get() || self.fallen.get() || self.report.borrow().violation.is_some()
    }

    pub(crate) fn is_last(&self) -> bool {
        self.number + 1 >= self.scenario.lives
    }

    pub(crate) fn violate(&self, what: String) {
        let what = format!(
            "{what}, in life {} at {}",
            self.number,
            self.env.timer.now()
        );
        self.report.borrow_mut().violate(what);
    }

    pub(crate) fn candidate(&self, unit: usize) -> Option<MemberCandidate> {
        self.outside.candidate(&self.local, unit)
    }

    /// The array's report of the member that is `unit`, if any.
    pub(crate) fn member(&self, unit: usize) -> Option<MemberReport> {
        let name = format!("disk-{unit}");
        let mut members = self.array.report().members.into_iter();
        members.find(|m| m.device.as_deref() == Some(name.as_str()))
    }

    /// The unit that is the member of a role.
    pub(crate) fn unit_of(&self, role: usize) -> Option<usize> {
        (0..self.units.len()).find(|unit| self.member(*unit).is_some_and(|m| m.role == role))
    }

    pub(crate) fn fresh(&self) -> Uuid {
        self.outside.fresh()
    }

    /// From now on `disk` refuses some writes: after `skipped` of those to `within`.
    pub(crate) fn refuse(&self, disk: usize, writes: u64, within: Extent, skipped: u64) {
        self.whole.set(false);
        self.sound.set(false);
        self.refusals.arm(disk, writes, within, skipped);
    }

    fn is_partial(&self, sectors: &Range<u64>) -> bool {
        let parity = self.scenario.level == raid::Level::Raid5;
        parity
            && !(sectors.start.is_multiple_of(self.width) && sectors.end.is_multiple_of(self.width))
    }

    /// The roles that are not in sync, or may be missing without all others knowing that.
    fn missing(&self) -> Vec<bool> {
        if !self.scenario.refusals {
            return Vec::new();
        }
        let report = self.array.report();
        let in_sync = |m: &MemberReport| m.state == MemberState::InSync && report.committed;
        report.members.iter().map(|m| !in_sync(m)).collect()
    }

    /// The state before an operation, to be given to [`ArrayLife::was_refused`] after the operation.
    pub(crate) fn before(&self) -> (u64, Vec<bool>) {
        (self.refusals.count.get(), self.missing())
    }

    /// True if an operation may have failed because a member refused a write that the array could
    /// not do without.
    pub(crate) fn was_refused(&self, (count, missing): &(u64, Vec<bool>)) -> bool {
        if self.refusals.count.get() == *count {
            return false;
        }
        if !self.scenario.level.is_redundant() {
            return true;
        }
        let (members, now) = (self.array.report().members, self.missing());
        let needed = |disk: usize| {
            let name = format!("disk-{disk}");
            let is_other = |m: &&MemberReport| m.device.as_deref() != Some(&*name);
            let mut others = members.iter().filter(is_other);
            others.any(|m| missing[m.role] || now[m.role])
        };
        self.refusals.since(*count).into_iter().any(needed)
    }

    /// The stripes that `sectors` lie in: the data that a refused write may cost.
    pub(crate) fn stripes(&self, sectors: &Range<u64>) -> Range<u64> {
        match self.stripe.get() {
            0 => sectors.clone(),
            stripe => {
                let start = sectors.start / stripe * stripe;
                start..sectors.end.next_multiple_of(stripe).min(self.sectors)
            }
        }
    }

    /// A write of `sectors` failed, which may have cost more than `sectors`.
    pub(crate) fn lose_stripes(&self, sectors: &Range<u64>) {
        if self.stripe.get() > 0 {
            let stripes = self.stripes(sectors);
            self.model.borrow_mut().may_lose(stripes);
        }
    }

    /// True if a refused write may have cost some of `sectors`.
    pub(crate) fn may_be_lost(&self, sectors: &Range<u64>) -> bool {
        let model = self.model.borrow();
        let writing = || model.is_written(&self.stripes(sectors));
        self.refusals.count.get() > 0 && (model.may_be_lost(sectors) || writing())
    }

    pub(crate) fn begin(&self, sectors: &Range<u64>, value: Value) {
        self.model.borrow_mut().begin(sectors.clone(), value);
        self.writes.set(self.writes.get() + 1);
        let partial = u64::from(self.is_partial(sectors));
        self.partial_writes.set(self.partial_writes.get() + partial);
        self.look();
    }

    pub(crate) fn end(&self, sectors: &Range<u64>, value: Value, good: bool, durable: bool) {
        self.model
            .borrow_mut()
            .end(sectors.clone(), value, good, durable);
        self.writes.set(self.writes.get() - 1);
        self.acked.set(self.acked.get() + u64::from(good));
        let partial = u64::from(self.is_partial(sectors));
        self.partial_writes.set(self.partial_writes.get() - partial);
        self.look();
    }

    /// Notes the array's state, for a loss of power that may come next.
    pub(super) fn look(&self) {
        let report = self.array.report();
        let all = report
            .members
            .iter()
            .all(|m| m.state == MemberState::InSync);
        let may_refuse = self.refusals.count.get() > 0 || self.refusals.is_armed();
        let calm = self.dead.borrow().is_empty() && !self.refusals.is_armed();
        let sound = all && report.committed && calm;
        self.sound.set(sound);
        self.whole.set(sound && !may_refuse);
        self.doing
            .set(report.progress.map(|progress| match progress.role {
                Some(_) => Class::CutInRebuild,
                None => Class::CutInResync,
            }));
    }
}
