//! What a life of an array is made of, as clients and troublemaker see it, and
//! what of it outlives a loss of power.

use super::model::Model;
use super::refuse::{Refusals, Refusing};
use super::report::{Class, Report};
use super::scenario::Scenario;
use crate::cachesim::stamp::Value;
use block::{BoxDevice, Env, Gate, Nanos, TargetId};
use raid::{Array, Candidate, MemberState, Options, Uuid};
use shard::Local;
use sim::{Control, Rng, SimDriver};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, Range};
use std::rc::Rc;

/// What outlives a loss of power.
pub(crate) struct Outside {
    pub(crate) scenario: Scenario,
    pub(crate) control: Control,
    pub(crate) disks: Vec<TargetId>,
    pub(crate) model: RefCell<Model>,
    pub(crate) report: RefCell<Report>,
    /// The disk that is unplugged.
    pub(crate) dead: Cell<Option<usize>>,
    /// Bad sectors and missing members together may take data.
    pub(crate) tolerant: bool,
    pub(crate) refusals: Rc<Refusals>,
    /// Every member was in sync and every disk there when last seen.
    pub(super) whole: Cell<bool>,
    pub(super) started: Cell<bool>,
    pub(super) writes: Cell<u64>,
    pub(super) partial_writes: Cell<u64>,
    pub(super) doing: Cell<Option<Class>>,
    pub(super) data_at: Cell<u64>,
    /// The sectors that are lost together; 0 if a write that fails costs no other.
    pub(super) stripe: Cell<u64>,
    pub(super) rng: RefCell<Rng>,
}

/// One life, as clients and troublemaker see it.
pub(crate) struct Life {
    pub(crate) number: u64,
    pub(crate) env: Env,
    pub(crate) array: Array,
    pub(crate) gate: Gate<Array>,
    pub(crate) sectors: u64,
    pub(crate) width: u64,
    pub(super) outside: Rc<Outside>,
    pub(super) local: Local<SimDriver>,
    pub(super) over: Cell<bool>,
}

impl Deref for Life {
    type Target = Outside;
    fn deref(&self) -> &Outside {
        &self.outside
    }
}

impl Outside {
    pub(crate) fn meet(&self, class: Class) {
        self.report.borrow_mut().meet(class);
    }

    pub(super) fn fresh(&self) -> Uuid {
        let mut rng = self.rng.borrow_mut();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&rng.bits().to_le_bytes());
        bytes[8..].copy_from_slice(&rng.bits().to_le_bytes());
        Uuid(bytes)
    }

    pub(super) fn candidate(&self, local: &Local<SimDriver>, disk: usize) -> Candidate {
        let device = BoxDevice::new(local.disk(self.disks[disk]).expect("a disk"));
        let device = match self.scenario.refusals {
            false => device,
            true => BoxDevice::new(Refusing {
                disk: device,
                index: disk,
                refusals: self.refusals.clone(),
            }),
        };
        Candidate {
            device,
            domain: format!("controller-{}", disk % 2).into(),
        }
    }

    pub(super) fn options(&self) -> Options {
        Options {
            rebuild_floor: self.scenario.rebuild_floor,
            clear_after: self.scenario.clear_after,
            busy_for: Nanos::from_millis(2),
            ..Options::default()
        }
    }
}

impl Life {
    pub(crate) fn is_over(&self) -> bool {
        self.over.get() || self.report.borrow().violation.is_some()
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

    pub(crate) fn candidate(&self, disk: usize) -> Candidate {
        self.outside.candidate(&self.local, disk)
    }

    pub(crate) fn fresh(&self) -> Uuid {
        self.outside.fresh()
    }

    /// From now on `disk` refuses some writes.
    pub(crate) fn refuse(&self, disk: usize, writes: u64) {
        self.whole.set(false);
        self.refusals.arm(disk, writes);
    }

    pub(crate) fn lose(&self, disk: usize) {
        self.whole.set(false);
        self.dead.set(Some(disk));
        self.control.kill(self.disks[disk]);
    }

    fn is_partial(&self, sectors: &Range<u64>) -> bool {
        let parity = self.scenario.level == raid::Level::Raid5;
        parity
            && !(sectors.start.is_multiple_of(self.width) && sectors.end.is_multiple_of(self.width))
    }

    /// Who is not in sync.
    fn missing(&self) -> Vec<bool> {
        if !self.scenario.refusals {
            return Vec::new();
        }
        let members = self.array.report().members;
        members
            .iter()
            .map(|m| m.state != MemberState::InSync)
            .collect()
    }

    /// What [`Life::was_refused`] is to be asked with at the end of an operation.
    pub(crate) fn before(&self) -> (u64, Vec<bool>) {
        (self.refusals.count.get(), self.missing())
    }

    /// Whether an operation may have failed because a member refused a write: one
    /// that the array could not do without.
    pub(crate) fn was_refused(&self, (count, missing): &(u64, Vec<bool>)) -> bool {
        if self.refusals.count.get() == *count {
            return false;
        }
        if !self.scenario.level.is_redundant() {
            return true;
        }
        let last = format!("disk-{}", self.refusals.last.get());
        let members = self.array.report().members;
        let now = self.missing();
        let mut others = members
            .iter()
            .filter(|m| m.device.as_deref() != Some(last.as_str()));
        others.any(|m| missing[m.role] || now[m.role])
    }

    /// The stripes that `sectors` lie in: what a write that is refused may cost.
    fn stripes(&self, sectors: &Range<u64>) -> Range<u64> {
        match self.stripe.get() {
            0 => sectors.clone(),
            stripe => {
                let start = sectors.start / stripe * stripe;
                start..sectors.end.next_multiple_of(stripe).min(self.sectors)
            }
        }
    }

    /// A write of `sectors` failed, which may have cost more than those.
    pub(crate) fn lose_stripes(&self, sectors: &Range<u64>) {
        if self.stripe.get() > 0 {
            let stripes = self.stripes(sectors);
            self.model.borrow_mut().may_lose(stripes);
        }
    }

    /// Whether a write that was refused may have cost some of `sectors`.
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
        let partial = u64::from(self.is_partial(sectors));
        self.partial_writes.set(self.partial_writes.get() - partial);
        self.look();
    }

    /// Notes what goes on, for whom the power may be cut next.
    pub(super) fn look(&self) {
        let report = self.array.report();
        let all = report
            .members
            .iter()
            .all(|m| m.state == MemberState::InSync);
        let may_refuse = self.refusals.count.get() > 0 || self.refusals.is_armed();
        self.whole
            .set(all && report.committed && self.dead.get().is_none() && !may_refuse);
        self.doing
            .set(report.progress.map(|progress| match progress.role {
                Some(_) => Class::CutInRebuild,
                None => Class::CutInResync,
            }));
    }
}
