//! Measurements beside peers: paired, interleaved, repeated; medians with their
//! spread.
//!
//! A row is made of runs of ours and of the peer in turn, so that both see the
//! same machine; its ratio is taken pair by pair. Nothing here judges by a
//! single absolute time.

pub mod arrays;
pub mod engine;
pub mod fio;
pub mod guest;
pub mod hits;
pub mod loss;
pub mod memory;
pub mod mesh;
pub mod nbd_hits;
pub mod nop;
pub mod policy;
pub mod reads;
pub mod remember;
pub mod report;
pub mod restart;
pub mod served;
pub mod server;
pub mod shards;
pub mod simulator;
pub mod throughput;

use serde::{Deserialize, Serialize};

/// One line of the benchmark report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchRow {
    /// Name of the measurement.
    pub name: String,
    /// The unit of `ours` and `peer`.
    pub unit: String,
    /// The median of ours.
    pub ours: f64,
    /// The median of the peer's, where there is one.
    pub peer: Option<f64>,
    /// The peer.
    pub peer_name: Option<String>,
    /// The median over pairs of ours divided by the peer's.
    pub ratio_median: Option<f64>,
    /// The least of them.
    pub ratio_min: Option<f64>,
    /// The greatest of them.
    pub ratio_max: Option<f64>,
    /// Pairs, or runs where there is no peer.
    pub runs: usize,
    /// The goal, in words.
    pub goal: Option<String>,
    /// True if the medians reach the goal.
    pub met: Option<bool>,
}

/// Goal of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// The ratio to the peer is at least this.
    RatioAtLeast(f64),
    /// The ratio to the peer is at most this.
    RatioAtMost(f64),
    /// The ratio to the peer is below this.
    RatioBelow(f64),
    /// Our own figure is at least this.
    AtLeast(f64),
    /// Our own figure is at most this.
    AtMost(f64),
}

impl Goal {
    fn met(self, ours: f64, ratio: Option<f64>) -> bool {
        match self {
            Goal::RatioAtLeast(x) => ratio.is_some_and(|r| r >= x),
            Goal::RatioAtMost(x) => ratio.is_some_and(|r| r <= x),
            Goal::RatioBelow(x) => ratio.is_some_and(|r| r < x),
            Goal::AtLeast(x) => ours >= x,
            Goal::AtMost(x) => ours <= x,
        }
    }

    fn words(self, unit: &str) -> String {
        match self {
            Goal::RatioAtLeast(x) => format!("ratio at least {x}"),
            Goal::RatioAtMost(x) => format!("ratio at most {x}"),
            Goal::RatioBelow(x) => format!("ratio below {x}"),
            Goal::AtLeast(x) => format!("at least {x} {unit}"),
            Goal::AtMost(x) => format!("at most {x} {unit}"),
        }
    }
}

/// A row from pairs of (ours, peer's), taken in turn.
pub fn paired(
    name: impl Into<String>,
    unit: &str,
    peer: &str,
    goal: Option<Goal>,
    pairs: &[(f64, f64)],
) -> BenchRow {
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    let ours = median(pairs.iter().map(|p| p.0));
    let ratio = median(ratios.iter().copied());
    BenchRow {
        name: name.into(),
        unit: unit.into(),
        ours,
        peer: Some(median(pairs.iter().map(|p| p.1))),
        peer_name: Some(peer.to_string()),
        ratio_median: Some(ratio),
        ratio_min: ratios.iter().copied().reduce(f64::min),
        ratio_max: ratios.iter().copied().reduce(f64::max),
        runs: pairs.len(),
        goal: goal.map(|g| g.words(unit)),
        met: goal.map(|g| g.met(ours, Some(ratio))),
    }
}

/// A row without a peer.
pub fn alone(
    name: impl Into<String>,
    unit: &'static str,
    goal: Option<Goal>,
    runs: &[f64],
) -> BenchRow {
    let ours = median(runs.iter().copied());
    BenchRow {
        name: name.into(),
        unit: unit.into(),
        ours,
        peer: None,
        peer_name: None,
        ratio_median: None,
        ratio_min: None,
        ratio_max: None,
        runs: runs.len(),
        goal: goal.map(|g| g.words(unit)),
        met: goal.map(|g| g.met(ours, None)),
    }
}

/// The middle value; of an even number the mean of the two in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_pair_by_pair() {
        let pairs = [(1.0, 2.0), (4.0, 4.0), (10.0, 5.0)];
        let row = paired("x", "ns", "peer", Some(Goal::RatioAtMost(0.9)), &pairs);
        assert_eq!((row.ours, row.peer), (4.0, Some(4.0)));
        assert_eq!(row.ratio_median, Some(1.0));
        assert_eq!((row.ratio_min, row.ratio_max), (Some(0.5), Some(2.0)));
        assert_eq!(row.met, Some(false));
        assert_eq!(median([3.0, 1.0, 2.0, 10.0].into_iter()), 2.5);
    }
}
