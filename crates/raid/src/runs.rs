//! Runs of sectors, in order and apart from each other: pure arithmetic.

use block::{Extent, Lba, Sectors};

/// Returns the first of the two runs with the least distance, and that distance.
pub(crate) fn closest(runs: &[Extent]) -> Option<(usize, Sectors)> {
    let between = |at: usize| runs[at + 1].start - runs[at].end();
    let all = (1..runs.len()).map(|at| (at - 1, between(at - 1)));
    all.min_by_key(|(_, between)| *between)
}

/// Joins the two runs with the least distance, and returns the extent between them. There are two.
pub(crate) fn join_closest(runs: &mut Vec<Extent>) -> Extent {
    let (at, len) = closest(runs).expect("two runs");
    let between = Extent::new(runs[at].end(), len);
    let (start, end) = (runs[at].start, runs[at + 1].end());
    runs[at] = Extent::new(start, end - start);
    runs.remove(at + 1);
    between
}

/// Adds `extent` to `runs`, which are in order and apart from each other.
pub(crate) fn with(runs: &[Extent], extent: Extent) -> Vec<Extent> {
    let (mut start, mut end) = (extent.start, extent.end());
    let mut all: Vec<Extent> = Vec::new();
    for run in runs {
        if run.end() < start || end < run.start {
            all.push(*run);
        } else {
            (start, end) = (start.min(run.start), end.max(run.end()));
        }
    }
    all.push(Extent::new(start, end - start));
    all.sort_by_key(|run| run.start);
    all
}

/// Returns the parts of `runs` outside `extent`.
pub(crate) fn without(runs: &[Extent], extent: Extent) -> Vec<Extent> {
    let parts = runs.iter().flat_map(|run| {
        let before = run.intersect(Extent::new(Lba::ZERO, extent.start - Lba::ZERO));
        let after = Extent::new(
            extent.end(),
            Sectors(run.end().0.saturating_sub(extent.end().0)),
        );
        [before, run.intersect(after)]
    });
    parts.filter(|run| !run.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs<const N: usize>(runs: [(u64, u64); N]) -> Vec<Extent> {
        let run = |(from, to)| Extent::new(Lba(from), Sectors(to - from));
        runs.map(run).to_vec()
    }

    #[test]
    fn runs_that_touch_become_one() {
        let known = runs([(8, 16), (32, 40)]);
        let cases = [
            ((20, 24), runs([(8, 16), (20, 24), (32, 40)])),
            ((0, 7), runs([(0, 7), (8, 16), (32, 40)])),
            ((0, 8), runs([(0, 16), (32, 40)])),
            ((16, 20), runs([(8, 20), (32, 40)])),
            ((10, 12), known.clone()),
            ((12, 36), runs([(8, 40)])),
            ((40, 48), runs([(8, 16), (32, 48)])),
            ((0, 64), runs([(0, 64)])),
        ];
        for (more, all) in cases {
            assert_eq!(with(&known, runs([more])[0]), all, "{more:?}");
        }
    }

    #[test]
    fn the_two_runs_with_the_least_between_them_become_one() {
        let mut all = runs([(8, 16), (32, 40), (44, 45), (48, 50)]);
        assert_eq!(join_closest(&mut all), runs([(45, 48)])[0]);
        assert_eq!(all, runs([(8, 16), (32, 40), (44, 50)]));
        assert_eq!(join_closest(&mut all), runs([(40, 44)])[0]);
        assert_eq!(join_closest(&mut all), runs([(16, 32)])[0]);
        assert_eq!(all, runs([(8, 50)]));
    }

    #[test]
    fn what_is_written_again_is_cut_out() {
        let known = runs([(8, 16), (32, 40)]);
        let cases = [
            ((16, 32), known.clone()),
            ((8, 16), runs([(32, 40)])),
            ((8, 9), runs([(9, 16), (32, 40)])),
            ((10, 12), runs([(8, 10), (12, 16), (32, 40)])),
            ((15, 33), runs([(8, 15), (33, 40)])),
            ((0, 64), runs([])),
        ];
        for (less, left) in cases {
            assert_eq!(without(&known, runs([less])[0]), left, "{less:?}");
        }
    }
}
