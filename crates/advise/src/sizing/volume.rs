//! The effect of another pool size on a running volume, from the figures that its devices have
//! shown so far.
//!
//! Of the blocks read, the hits show the effect of the present pool. No pool hits first reads or
//! sequential streams. Between these, hits follow the share of reuse that LRU's curve has at a
//! size. The speed of a device is assumed constant: a smaller pool that loads the origin more will
//! be slower than estimated here.

use super::{Advice, AdviceSubject, Estimate, Hits, PriceBook, advise, sizes};
use crate::writeback::of_volume;
use control::observed::{Observed, ObservedKind};

/// Returns the advice on the pool of a volume; an error if the volume has had no requests yet.
pub fn advice(observed: &Observed, prices: PriceBook) -> Result<Advice, String> {
    let profile = observed.profile.clone();
    if profile.accesses() == 0 {
        return Err(format!(
            "volume {} was not asked for anything yet; come back once it was in use for a while",
            observed.volume
        ));
    }
    let pool_bytes = Some(observed.pool_bytes).filter(|bytes| *bytes > 0);
    let curve = profile.curve.iter().map(|point| {
        let pool_bytes = point.lines * profile.line_bytes;
        Hits {
            pool_bytes,
            hit_ratio: hits(observed, pool_bytes),
            error: point.error,
        }
    });
    let curve: Vec<Hits> = curve.collect();
    let estimates: Vec<Option<Estimate>> = sizes(&curve, profile.line_bytes, pool_bytes)
        .iter()
        .map(|(_, bytes)| estimate(observed, *bytes))
        .collect();
    let shared = match observed.volumes_in_pool {
        1 => String::new(),
        n => format!(
            " Pool {} is shared by {n} volumes; this is about one.",
            observed.pool
        ),
    };
    let subject = AdviceSubject {
        source: format!("volume {}", observed.volume),
        basis: format!(
            "Estimates scale what the volume, in {}, and its devices have shown so far.{shared}",
            observed.mode
        ),
        policy: observed.policy.clone(),
        pool_bytes,
    };
    let mut advice = advise(profile, curve, subject, &estimates, prices);
    advice.write_back = of_volume(observed);
    Ok(advice)
}

/// The share of 4 KiB blocks read that a pool of `pool_bytes` would have hit; of a volume that
/// has read nothing, the share of accesses.
fn hits(observed: &Observed, pool_bytes: u64) -> f64 {
    let profile = &observed.profile;
    let lru = |bytes: u64| 1.0 - profile.at(bytes / profile.line_bytes).miss_ratio;
    let blocks = (observed.blocks_hit + observed.blocks_missed) as f64;
    if pool_bytes == 0 {
        return 0.0;
    }
    if blocks == 0.0 {
        return lru(pool_bytes);
    }
    let endless = 1.0 - profile.plateau;
    let reused = |bytes| match endless > 0.0 {
        true => (lru(bytes) / endless).clamp(0.0, 1.0),
        false => 1.0,
    };
    let (then, now) = (reused(pool_bytes), reused(observed.pool_bytes));
    let hit = observed.blocks_hit as f64 / blocks;
    // The profile is of reads outside of streams.
    let streamed = observed.blocks_streamed as f64 / blocks;
    let most = ((1.0 - streamed) * (1.0 - profile.first_reads)).max(hit);
    if pool_bytes < observed.pool_bytes {
        let part = match now > 0.0 {
            true => then / now,
            // A policy other than LRU hits some blocks that LRU does not.
            false => pool_bytes as f64 / observed.pool_bytes as f64,
        };
        return hit * part;
    }
    match now < 1.0 {
        true => hit + (most - hit) * (then - now) / (1.0 - now),
        false => hit,
    }
}

/// The estimate for `pool_bytes`; `None` if the volume has read nothing.
pub fn estimate(observed: &Observed, pool_bytes: u64) -> Option<Estimate> {
    let profile = &observed.profile;
    let reads = observed.blocks_hit + observed.blocks_missed;
    if reads == 0 || profile.seconds <= 0.0 {
        return None;
    }
    let missed = observed.blocks_missed as f64 / reads as f64;
    let miss_ratio = 1.0 - hits(observed, pool_bytes);
    let factor = if missed > 0.0 {
        miss_ratio / missed
    } else {
        1.0
    };
    let rate = |bytes: f64| bytes / profile.seconds;
    let has_pool = if pool_bytes == 0 { 0.0 } else { 1.0 };
    let origin = &observed.origin;
    let share = profile.writes as f64 / profile.accesses() as f64;
    let parts = [
        (&observed.cache.reads, (1.0 - share) * (1.0 - miss_ratio)),
        (&origin.reads, (1.0 - share) * miss_ratio),
        (&origin.writes, share),
    ];
    let (mean, p99) = mixture(&parts);
    Some(Estimate {
        hit_ratio: 1.0 - miss_ratio,
        latency_us_mean: mean,
        latency_us_p99: p99,
        origin_bytes_per_second: rate(
            origin.reads.bytes as f64 * factor + origin.writes.bytes as f64,
        ),
        origin_busy: None,
        saturated: false,
        pool_written_bytes_per_second: has_pool
            * rate(observed.promoted_bytes as f64 * factor + observed.updated_bytes as f64),
    })
}

/// Mean and 99th percentile of a mixture of latencies by weight.
fn mixture(parts: &[(&ObservedKind, f64)]) -> (f64, f64) {
    let known = parts
        .iter()
        .filter(|(kind, weight)| kind.requests > 0 && *weight > 0.0);
    let whole: f64 = known.clone().map(|(_, weight)| weight).sum();
    if whole == 0.0 {
        return (0.0, 0.0);
    }
    let mean = known
        .clone()
        .map(|(kind, weight)| kind.latency_us_mean * weight / whole)
        .sum();
    let mut all: Vec<(f64, f64)> = known
        .flat_map(|(kind, weight)| {
            let each = weight / whole / kind.latency_us.len().max(1) as f64;
            kind.latency_us.iter().map(move |us| (*us, each))
        })
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = 0.0;
    let p99 = all.iter().find(|(_, weight)| {
        below += weight;
        below >= 0.99
    });
    (mean, p99.or(all.last()).map_or(0.0, |(us, _)| *us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::observed::{QUANTILES, ServiceReport};
    use control::status::Total;

    fn kind(us: f64, bytes: u64) -> ObservedKind {
        ObservedKind {
            requests: 100,
            bytes,
            latency_us_mean: us,
            latency_us: vec![us; QUANTILES],
        }
    }

    fn observed() -> Observed {
        let served = |us, bytes| ServiceReport {
            reads: kind(us, bytes),
            writes: ObservedKind::default(),
            busy: 0.5,
            ..ServiceReport::default()
        };
        let mut profile = crate::sizing::tests::loop_of(1024, 10_001, true);
        (profile.reads, profile.writes) = (10_001, 0);
        Observed {
            volume: "v".into(),
            pool: "p".into(),
            policy: "lru".into(),
            mode: "write-through".into(),
            volumes_in_pool: 1,
            pool_bytes: 512 * 4096,
            profile,
            written: None,
            blocks_hit: 50,
            blocks_missed: 50,
            blocks_streamed: 0,
            promoted_bytes: 5000,
            updated_bytes: 1000,
            read_total: Total::default(),
            write_total: Total::default(),
            origin: served(10_000.0, 20_000),
            cache: served(100.0, 20_000),
        }
    }

    #[test]
    fn a_pool_that_holds_the_loop_misses_less_and_is_quicker() {
        let observed = observed();
        let now = estimate(&observed, observed.pool_bytes).unwrap();
        assert_eq!(now.hit_ratio, 0.5);
        assert!((now.latency_us_mean - 5050.0).abs() < 1e-6 && now.latency_us_p99 == 10_000.0);
        assert!((now.origin_bytes_per_second - 2.0).abs() < 1e-6);
        assert!((now.pool_written_bytes_per_second - 0.6).abs() < 1e-6);
        let large = estimate(&observed, 1024 * 4096).unwrap();
        assert!(
            large.hit_ratio > 0.89 && large.latency_us_mean < 1200.0,
            "{large:?}"
        );
        assert!(large.origin_bytes_per_second < 0.5);
        let none = estimate(&observed, 0).unwrap();
        assert_eq!(
            (none.hit_ratio, none.pool_written_bytes_per_second),
            (0.0, 0.0)
        );
    }

    #[test]
    fn a_short_look_is_called_one_and_has_no_costs() {
        let prices = || PriceBook::parse(crate::sizing::EXAMPLE_PRICES).unwrap();
        let mut observed = observed();
        observed.profile.seconds = 3600.0;
        let long = advice(&observed, prices()).unwrap();
        assert_eq!(long.warnings, Vec::<String>::new());
        assert!(long.sizes.iter().all(|size| size.cost.is_some()));
        observed.profile.seconds = 90.0;
        let short = advice(&observed, prices()).unwrap();
        let warned = short
            .warnings
            .iter()
            .any(|w| w.contains("observed for 90 s only"));
        assert!(warned, "{:?}", short.warnings);
        assert!(short.sizes.iter().all(|size| size.cost.is_none()));
    }

    /// A backup read past the cache does not change the hits of a size.
    #[test]
    fn what_is_recommended_hits_nearly_what_the_largest_does() {
        let prices = || PriceBook::parse(crate::sizing::EXAMPLE_PRICES).unwrap();
        for streamed in [0, 40, 4000] {
            for hit in [5, 50, 4000] {
                let mut observed = observed();
                (observed.blocks_hit, observed.blocks_streamed) = (hit, streamed);
                observed.blocks_missed = 50 + streamed;
                let advice = advice(&observed, prices()).unwrap();
                let at = |label: &str| {
                    let mut sizes = advice.sizes.iter();
                    let size = sizes.find(|size| size.label == label).unwrap();
                    size.estimate.unwrap().hit_ratio
                };
                let largest = advice.curve.last().unwrap().hit_ratio;
                assert!(at("recommended") >= 0.95 * largest, "{advice:?}");
                assert!(
                    at("double") <= largest + 1e-9 && at("half") <= at("now"),
                    "{advice:?}"
                );
                assert!(
                    (at("now") - observed.blocks_hit as f64 / (hit + 50 + streamed) as f64).abs()
                        < 1e-9
                );
            }
        }
    }

    #[test]
    fn nothing_observed_is_nothing_known() {
        let idle = Observed {
            blocks_hit: 0,
            blocks_missed: 0,
            ..observed()
        };
        assert_eq!(estimate(&idle, 1 << 20), None);
    }
}
