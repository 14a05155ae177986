//! What a pool of another size would do for a running volume, from what its
//! devices have shown so far.
//!
//! Misses change with the size as LRU's curve does; what else happens to a
//! request, and how quick a device is, is taken to stay as it was. So a smaller
//! pool will be slower than estimated here where it loads the origin more.

use super::{Advice, Estimate, PriceBook, Subject, advise, sizes};
use crate::writeback::of_volume;
use control::observed::{Kind, Observed};

/// What was observed for less than this may be a warm-up, or one job of many.
const SPAN_SECONDS_MIN: f64 = 3600.0;

/// The advice on the pool of a volume; an error if nothing was asked of it yet.
pub fn advice(observed: &Observed, prices: PriceBook) -> Result<Advice, String> {
    let profile = observed.profile.clone();
    if profile.accesses() == 0 {
        return Err(format!(
            "volume {} was not asked for anything yet; come back once it was in use for a while",
            observed.volume
        ));
    }
    let pool_bytes = Some(observed.pool_bytes).filter(|bytes| *bytes > 0);
    let estimates: Vec<Option<Estimate>> = sizes(&profile, pool_bytes)
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
    let subject = Subject {
        source: format!("volume {}", observed.volume),
        basis: format!(
            "Estimates scale what the volume, in {}, and its devices have shown so far.{shared}",
            observed.mode
        ),
        policy: observed.policy.clone(),
        pool_bytes,
    };
    let seconds = profile.seconds;
    let mut advice = advise(profile, subject, &estimates, prices);
    advice.write_back = of_volume(observed);
    if seconds < SPAN_SECONDS_MIN {
        advice.warnings.push(format!(
            "the volume was observed for {} only: this holds for what was asked of it then; come \
             back after a day of its usual use",
            crate::page::span(seconds)
        ));
    }
    Ok(advice)
}

/// The estimate for `pool_bytes`; `None` if the volume has read nothing.
pub fn estimate(observed: &Observed, pool_bytes: u64) -> Option<Estimate> {
    let profile = &observed.profile;
    let reads = observed.blocks_hit + observed.blocks_missed;
    if reads == 0 || profile.seconds <= 0.0 {
        return None;
    }
    let at = |bytes: u64| profile.at(bytes / profile.line_bytes).miss_ratio;
    let (then, now) = (at(pool_bytes), at(observed.pool_bytes));
    let missed = observed.blocks_missed as f64 / reads as f64;
    let miss_ratio = match now > 0.0 {
        _ if pool_bytes == 0 => 1.0,
        true => (missed * then / now).min(1.0),
        false => missed,
    };
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
fn mixture(parts: &[(&Kind, f64)]) -> (f64, f64) {
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
    use control::observed::{QUANTILES, Service};
    use control::status::Total;

    fn kind(us: f64, bytes: u64) -> Kind {
        Kind {
            requests: 100,
            bytes,
            latency_us_mean: us,
            latency_us: vec![us; QUANTILES],
        }
    }

    fn observed() -> Observed {
        let served = |us, bytes| Service {
            reads: kind(us, bytes),
            writes: Kind::default(),
            busy: 0.5,
            ..Service::default()
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
            large.hit_ratio > 0.9 && large.latency_us_mean < 1000.0,
            "{large:?}"
        );
        assert!(large.origin_bytes_per_second < 0.3);
        let none = estimate(&observed, 0).unwrap();
        assert_eq!(
            (none.hit_ratio, none.pool_written_bytes_per_second),
            (0.0, 0.0)
        );
    }

    #[test]
    fn a_short_look_is_called_one() {
        let prices = || PriceBook::parse(crate::sizing::EXAMPLE_PRICES).unwrap();
        let long = advice(&observed(), prices()).unwrap();
        assert_eq!(long.warnings, Vec::<String>::new());
        let mut short = observed();
        short.profile.seconds = 90.0;
        let short = advice(&short, prices()).unwrap();
        assert!(
            short.warnings[0].contains("observed for 90 s only"),
            "{:?}",
            short.warnings
        );
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
