//! Cells in order: the miss ratios of a policy over sizes, and policies by their miss ratios.

use super::plan::{BELADY, BLOCK_BYTES, ResultRow};
use serde::Serialize;

/// The policy with which others are compared.
const LRU: &str = "lru";

/// The miss ratios of one policy on one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissCurve {
    /// The trace's name.
    pub trace: String,
    /// The length of a line.
    pub line_bytes: u64,
    /// The policy's name.
    pub policy: String,
    /// The points by size, the smallest first.
    pub points: Vec<MissRatio>,
}

/// The miss ratio of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MissRatio {
    /// The pool as a share of the trace's unique 4 KiB blocks.
    pub size_fraction: f64,
    /// The pool in bytes.
    pub cache_bytes: u64,
    /// Accesses that found no resident line, as a share.
    pub miss_ratio: f64,
}

/// The place of one policy on one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rank {
    /// The trace's name.
    pub trace: String,
    /// The length of a line.
    pub line_bytes: u64,
    /// 1 for the lowest miss ratio.
    pub rank: usize,
    /// The policy's name.
    pub policy: String,
    /// The mean over all sizes.
    pub miss_ratio: f64,
    /// `miss_ratio` less that of LRU, if LRU ran; below zero is better.
    pub over_lru: Option<f64>,
    /// `miss_ratio` less that of the offline optimum, if the optimum ran.
    pub over_belady: Option<f64>,
}

/// The curves of `rows`, in order of appearance.
pub fn curves(rows: &[ResultRow]) -> Vec<MissCurve> {
    let mut curves: Vec<MissCurve> = Vec::new();
    for row in rows {
        let point = MissRatio {
            size_fraction: row.size_fraction,
            cache_bytes: row.cache_blocks * BLOCK_BYTES,
            miss_ratio: row.miss_ratio,
        };
        let of = |curve: &&mut MissCurve| {
            (&curve.trace, curve.line_bytes, &curve.policy)
                == (&row.trace, row.line_bytes, &row.policy)
        };
        match curves.iter_mut().find(of) {
            Some(curve) => curve.points.push(point),
            None => curves.push(MissCurve {
                trace: row.trace.clone(),
                line_bytes: row.line_bytes,
                policy: row.policy.clone(),
                points: vec![point],
            }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by_key(|point| point.cache_bytes);
        curve.points.dedup_by_key(|point| point.cache_bytes);
    }
    curves
}

/// The policies of each trace and length of a line, the best first.
pub fn ranks(rows: &[ResultRow]) -> Vec<Rank> {
    let curves = curves(rows);
    let same = |a: &MissCurve, b: &MissCurve| (&a.trace, a.line_bytes) == (&b.trace, b.line_bytes);
    let mut ranks = Vec::new();
    for group in curves.chunk_by(same) {
        let mean = |curve: &MissCurve| {
            let ratios = curve.points.iter().map(|point| point.miss_ratio);
            ratios.sum::<f64>() / curve.points.len() as f64
        };
        let of = |name: &str| group.iter().find(|curve| curve.policy == name).map(mean);
        let (lru, belady) = (of(LRU), of(BELADY));
        let mut order: Vec<(&MissCurve, f64)> = group.iter().map(|c| (c, mean(c))).collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranks.extend(
            order
                .into_iter()
                .zip(1..)
                .map(|((curve, miss_ratio), rank)| Rank {
                    trace: curve.trace.clone(),
                    line_bytes: curve.line_bytes,
                    rank,
                    policy: curve.policy.clone(),
                    miss_ratio,
                    over_lru: lru.map(|lru| miss_ratio - lru),
                    over_belady: belady.map(|belady| miss_ratio - belady),
                }),
        );
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(trace: &str, policy: &str, cache_blocks: u64, misses: u64) -> ResultRow {
        ResultRow {
            trace: trace.into(),
            policy: policy.into(),
            size_fraction: cache_blocks as f64 / 100.0,
            cache_blocks,
            accesses: 100,
            misses,
            miss_ratio: misses as f64 / 100.0,
            admitted_bytes: 0,
            seconds: 0.0,
            line_bytes: 4096,
            request_hit_ratio: 0.0,
            read_hit_ratio: 0.0,
            byte_hit_ratio: 0.0,
        }
    }

    #[test]
    fn cells_become_curves_and_ranks() {
        let rows = [
            row("a", "lru", 20, 50),
            row("a", "arc", 20, 30),
            row("a", "belady", 20, 20),
            row("a", "lru", 10, 100),
            row("a", "arc", 10, 80),
            row("a", "belady", 10, 70),
            row("a", "lru", 10, 100),
            row("b", "lru", 10, 5),
        ];
        let curves = curves(&rows);
        assert_eq!(curves.len(), 4);
        let sizes: Vec<_> = curves[0].points.iter().map(|p| p.cache_bytes).collect();
        assert_eq!(sizes, [40_960, 81_920]);
        let ranks = ranks(&rows);
        let order: Vec<_> = ranks.iter().map(|r| (r.rank, &r.policy[..])).collect();
        assert_eq!(order, [(1, "belady"), (2, "arc"), (3, "lru"), (1, "lru")]);
        let near = |value: Option<f64>, wanted: f64| (value.unwrap() - wanted).abs() < 1e-9;
        assert!(near(ranks[1].over_lru, -0.2) && near(ranks[1].over_belady, 0.1));
        assert!(near(ranks[2].over_lru, 0.0) && ranks[3].over_belady.is_none());
    }
}
