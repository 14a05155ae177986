//! Short cases that are cut at every boundary.

use super::case::{CaseCut, CrashCase, PowerLoss, PresentDisks};
use super::draw::Length;
use super::run::run;
use crate::campaign::over;

/// The outcome of a sweep over every boundary of a short case.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// Boundaries, each with each sort of loss.
    pub cuts: u64,
    /// The case that fails at the first boundary, and its failure.
    pub failed: Option<(CrashCase, String)>,
}

impl Swept {
    fn add(&mut self, _: u64, other: Swept) {
        self.cuts += other.cuts;
        let failed = self.failed.take().into_iter().chain(other.failed);
        self.failed = failed.min_by_key(|(case, _)| case.cuts[0].after);
    }
}

/// Boundaries of the next life at which the power goes again, in turn.
const RECOVERY: u64 = 40;

/// Cuts the short case of `seed` at each `step`-th boundary of its disk operations, with
/// each sort of loss, and again while the daemon comes up; on `threads` threads.
pub fn sweep(seed: u64, step: u64, threads: u64) -> Swept {
    let whole = CrashCase::new(seed, Length::Short);
    let boundaries = run(&whole).figure("steps");
    let cut = |number| {
        let after = 1 + number * step;
        let mut at_this = Swept::default();
        for (i, loss) in (0..).zip(PowerLoss::ALL) {
            let again = CaseCut {
                after: 1 + (after + i) % RECOVERY,
                loss: PowerLoss::ALL[((after + i) / 2 % 4) as usize],
                disks: PresentDisks::All,
                witness_back: false,
                disks_back: 0,
            };
            let first = CaseCut {
                after,
                loss,
                disks: match after % 2 {
                    0 => PresentDisks::All,
                    _ => PresentDisks::Same,
                },
                witness_back: false,
                disks_back: 0,
            };
            let mut case = whole.clone();
            case.cuts = vec![first, again];
            at_this.cuts += 1;
            if let Some(what) = run(&case).violation {
                at_this.failed.get_or_insert((case, what));
            }
        }
        at_this
    };
    over(0..boundaries.div_ceil(step), threads, cut, Swept::add)
}
