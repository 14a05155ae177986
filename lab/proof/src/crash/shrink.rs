//! Makes a failing case smaller while the case still fails.

use super::case::CrashCase;
use super::run::run;

/// Runs that may be spent.
const RUNS_MAX: u32 = 2000;

/// Returns the smallest case found that fails too, and its failure.
pub fn shrink(case: &CrashCase) -> (CrashCase, String) {
    let mut search = ShrinkSearch {
        best: case.clone(),
        how: run(case).violation.unwrap_or_default(),
        runs: RUNS_MAX,
    };
    loop {
        let before = search.size();
        search.thin(|case| &mut case.steps);
        search.thin(|case| &mut case.faults);
        search.thin(|case| &mut case.cuts);
        search.try_one(|case| case.settings.truncate(1));
        search.try_one(|case| case.clients = 1);
        search.try_one(|case| case.neighbours = 0);
        for cut in 0..search.best.cuts.len() {
            // A loss comes after one step at least.
            while search.try_one(|case| case.cuts[cut].after = (case.cuts[cut].after / 2).max(1)) {}
        }
        if search.size() == before || search.runs == 0 {
            return (search.best, search.how);
        }
    }
}

struct ShrinkSearch {
    best: CrashCase,
    how: String,
    runs: u32,
}

impl ShrinkSearch {
    fn size(&self) -> (usize, u64) {
        let case = &self.best;
        let after: u64 = case.cuts.iter().map(|c| c.after).sum();
        let lists = case.steps.len() + case.faults.len() + case.cuts.len();
        let pieces = lists + case.settings.len();
        (pieces, after + case.clients + case.neighbours)
    }

    /// Takes the changed case if that fails. Returns true if so.
    fn try_one(&mut self, change: impl FnOnce(&mut CrashCase)) -> bool {
        let mut case = self.best.clone();
        let before = self.size();
        change(&mut case);
        if self.runs == 0 {
            return false;
        }
        self.runs -= 1;
        let Some(how) = run(&case).violation else {
            return false;
        };
        self.best = case;
        self.how = how;
        self.size() < before
    }

    /// Leaves out ever smaller runs of a list.
    fn thin<T>(&mut self, list: impl Fn(&mut CrashCase) -> &mut Vec<T>) {
        let mut len = list(&mut self.best).len();
        while len > 0 {
            let mut at = 0;
            while at < list(&mut self.best).len() {
                let end = (at + len).min(list(&mut self.best).len());
                let left_out = self.try_one(|case| drop(list(case).drain(at..end)));
                at = if left_out { at } else { end };
            }
            len /= 2;
        }
    }
}
