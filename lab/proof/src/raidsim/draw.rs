//! A scenario drawn from its seed, and the faults drawn for each life of the scenario.

use super::kind::ArrayTrouble;
use super::scenario::ArrayScenario;
use super::trouble;
use block::{Extent, Lba, Nanos, Sectors, TargetId};
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, PowerCut, RunMoment, SimRng, When};

/// The extent of a disk's superblocks.
const SUPERBLOCKS: Extent = Extent {
    start: Lba::ZERO,
    len: Sectors(16),
};

impl ArrayScenario {
    /// The scenario of `seed`.
    pub fn new(seed: u64) -> ArrayScenario {
        let mut scenario = ArrayScenario::plain(seed);
        trouble::add_to(&mut scenario);
        scenario
    }

    /// True if the life ends in order, rather than with a loss of power.
    fn ends_in_order(&self, life: u64) -> bool {
        let may = matches!(self.trouble, ArrayTrouble::Rots | ArrayTrouble::Reshapes);
        self.trouble == ArrayTrouble::Idles || may && SimRng::fork(self.seed, 50 + life).chance(0.5)
    }

    /// The faults that are drawn for a life that begins after `steps`: a loss of power, bad
    /// sectors, passing errors. The life before may have been short.
    pub fn plan(&self, life: u64, steps: u64, disks: &[TargetId], data_at: u64) -> FaultPlan {
        let rng = &mut SimRng::fork(self.seed, 20 + life);
        let mut plan = FaultPlan::default();
        if life + 1 < self.lives && !self.ends_in_order(life) {
            let after = match rng.below(4) {
                0 => rng.between(1, 150),
                1 => rng.between(1, 600),
                _ => rng.between(100, 6000),
            };
            plan.cuts.push(PowerCut {
                domain: None,
                at: RunMoment::Step(steps + after),
            });
        }
        if self.slow {
            let rng = &mut SimRng::fork(self.seed, 40 + life);
            plan.rules.extend(disks.iter().map(|disk| FaultRule {
                disk: *disk,
                ops: OpFilter::Writes,
                within: Some(SUPERBLOCKS),
                when: When::Chance(0.9),
                effect: FaultEffect::Delay(Nanos(rng.between(500_000, 10_000_000))),
            }));
        }
        if self.latent {
            let disk = disks[self.seed as usize % self.members];
            for _ in 0..rng.between(1, 4) {
                let blocks = self.data.0 / self.block.0;
                let at = data_at + rng.below(blocks) * self.block.0;
                plan.latent.push((disk, Extent::new(Lba(at), self.block)));
            }
            let data = Extent::new(Lba(data_at), self.data);
            plan.rules.push(FaultRule {
                disk,
                ops: OpFilter::Reads,
                within: Some(data),
                when: When::Chance(0.01),
                effect: FaultEffect::Fail(block::IoErrorKind::Media),
            });
        }
        trouble::plan(self, life, disks, data_at, &mut plan);
        plan
    }
}
