//! Members of an array: disks, or arrays of disks of their own. Such arrays are assembled before
//! the outer one, and again after losing too many disks.

use super::life::ArrayOutside;
use super::report::Class;
use super::scenario::ArrayScenario;
use super::trouble::ArrayTrouble;
use super::unit::ArrayUnit;
use block::{BoxDevice, Env, IoResult, Nanos, Sectors, TargetId};
use raid::{Array, ArrayPlan, ArrayStart, Level, MemberCandidate, assemble, create};
use shard::Local;
use sim::{SimDriver, SimRng};

/// The latest begin of a member's data.
const META: Sectors = Sectors(4096);

/// The members of `scenario`: the level of each, and its number of disks.
pub(super) fn plan(scenario: &ArrayScenario) -> Vec<(Option<Level>, usize)> {
    let rng = &mut SimRng::fork(scenario.seed, 63);
    let all = scenario.members + scenario.spares + scenario.extra;
    let nested = scenario.trouble == ArrayTrouble::Nested;
    let unit = |_| match rng.below(if nested { 5 } else { 1 }) {
        0 => (None, 1),
        1 => (Some(Level::Raid0), 2),
        2 => (Some(Level::Raid1), 2),
        _ => (Some(Level::Raid5), 3),
    };
    (0..all).map(unit).collect()
}

/// The size of a disk of a unit that is to hold `sectors`.
pub(super) fn disk_sectors(level: Option<Level>, sectors: Sectors, chunk: Sectors) -> Sectors {
    let share = match level {
        None => return sectors,
        Some(Level::Raid1) => sectors.0,
        Some(_) => sectors.0.div_ceil(2),
    };
    META + Sectors(share.next_multiple_of(chunk.0) + chunk.0)
}

impl ArrayOutside {
    pub(crate) fn is_nested(&self) -> bool {
        self.units.iter().any(|unit| unit.level.is_some())
    }

    /// Every disk.
    pub(crate) fn disks(&self) -> Vec<TargetId> {
        self.units
            .iter()
            .flat_map(|unit| unit.targets.clone())
            .collect()
    }

    fn leaf(&self, local: &Local<SimDriver>, unit: usize, at: usize) -> MemberCandidate {
        let disk = local.disk(self.units[unit].targets[at]).expect("a disk");
        let domain = format!("controller-{}-{at}", unit % 2);
        MemberCandidate::new(BoxDevice::new(disk), domain)
    }

    fn leaves(&self, local: &Local<SimDriver>, unit: usize) -> Vec<MemberCandidate> {
        let all = 0..self.units[unit].targets.len();
        all.map(|at| self.leaf(local, unit, at)).collect()
    }

    /// The array that a unit is, while the array runs.
    pub(crate) fn inner(&self, unit: usize) -> Option<Array> {
        self.inner.borrow().get(unit).cloned().flatten()
    }

    /// Makes the arrays that are members.
    pub(super) async fn create_inner(&self, local: &Local<SimDriver>) -> IoResult {
        for (unit, ArrayUnit { level, .. }) in self.units.iter().enumerate() {
            let Some(level) = *level else { continue };
            let plan = ArrayPlan {
                name: format!("disk-{unit}"),
                level,
                chunk: self.scenario.chunk,
                overwrite: false,
                zeroed: false,
            };
            let leaves = self.leaves(local, unit);
            let mut fresh = || self.fresh();
            let env = local.env();
            let made = create(&env, &plan, leaves, Vec::new(), &mut fresh, self.options());
            let made = made.await?;
            self.inner.borrow_mut().resize(self.units.len(), None);
            self.inner.borrow_mut()[unit] = Some(made);
        }
        Ok(())
    }

    /// Assembles the arrays that are members, if their disks are there.
    pub(super) async fn start_inner(&self, local: &Local<SimDriver>) -> IoResult {
        self.blinked.borrow_mut().clear();
        self.inner.borrow_mut().clear();
        self.inner.borrow_mut().resize(self.units.len(), None);
        for (unit, ArrayUnit { level, .. }) in self.units.iter().enumerate() {
            if level.is_some() && !self.is_dead(unit) {
                let array = self.assemble_inner(local, unit).await?;
                self.inner.borrow_mut()[unit] = Some(array);
            }
        }
        Ok(())
    }

    async fn assemble_inner(&self, local: &Local<SimDriver>, unit: usize) -> IoResult<Array> {
        let (name, leaves) = (format!("disk-{unit}"), self.leaves(local, unit));
        let env: Env = local.env();
        let (fresh, start) = (self.fresh(), ArrayStart::default());
        assemble(&env, Some(&name), fresh, leaves, start, self.options()).await
    }

    /// Mends the array that a unit is, once all its disks are there again: gives the array the
    /// disks that it lost, or reassembles it, as the daemon does.
    pub(crate) async fn mend_inner(&self, local: &Local<SimDriver>, unit: usize) -> IoResult {
        let Some(array) = self.inner(unit) else {
            if self.units[unit].level.is_some() {
                let array = self.assemble_inner(local, unit).await?;
                self.inner.borrow_mut()[unit] = Some(array);
            }
            return Ok(());
        };
        // Only a start of the array finds the writes that its disks forgot unnoticed.
        if self.blinked.borrow_mut().remove(&unit) || array.report().down.is_some() {
            self.meet(Class::NestedDown);
            array.release().await;
            let array = self.assemble_inner(local, unit).await?;
            self.inner.borrow_mut()[unit] = Some(array);
        } else if array.report().level.is_redundant() {
            for (at, leaf) in self.leaves(local, unit).into_iter().enumerate() {
                let lost = array.report().members[at].state.is_failed();
                if lost {
                    array.add(leaf, self.fresh(), false).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits until the arrays that are members are whole, compares their copies twice, and ends the
    /// arrays in order. The error describes a violation.
    pub(super) async fn end_inner(&self, env: &Env) -> Result<(), String> {
        let arrays: Vec<Array> = self.inner.borrow().iter().flatten().cloned().collect();
        for array in arrays {
            let name = array.report().name;
            for _ in 0..2000 {
                if array.is_settled() {
                    break;
                }
                env.timer.sleep(Nanos::from_millis(5)).await;
            }
            if !array.is_settled() {
                return Err(format!("{name} never settles: {:?}", array.report()));
            }
            if array.report().level.is_redundant() {
                let found = array.scrub(false).await;
                let found = found.map_err(|error| format!("a scrub of {name} fails: {error}"))?;
                if found.mismatches > 0 {
                    return Err(format!("a scrub of {name} finds {found:?}"));
                }
            }
            let closed = array.close().await;
            closed.map_err(|error| format!("{name} cannot be closed: {error}"))?;
        }
        Ok(())
    }
}
