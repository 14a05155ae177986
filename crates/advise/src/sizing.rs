//! The size of the pool: the meaning of a [`Profile`] of a trace or of a running volume for hits,
//! latency, the origin's load, wear and cost.
//!
//! One estimator gives the hits of a size, in the curve, in the table and for the recommendation.
//! For a trace the estimator is a [`replay`] with the policy; for a volume, the figures shown by
//! its cache and its devices ([`volume`]). An [`Estimate`] adds models of the devices, or the
//! figures that these have shown.
//!
//! Invariant: the recommended size has [`PLATEAU_SHARE`] of the hits of the largest.
//!
//! Not here: the source of the profile, and the printing of the advice.

mod page;
mod price;
pub mod replay;
pub mod volume;

pub use page::page;
pub use price::{EXAMPLE as EXAMPLE_PRICES, PoolCost, PriceBook};

use crate::page::span;
use crate::writeback::WriteBackGain;
use block::Nanos;
use policy::profile::{Profile, Profiler, blocks, part_bytes};
use serde::Serialize;
use trace::TraceRecord;

/// Least share of the largest size's hits that the recommended size has. The largest size holds all
/// that was touched.
const PLATEAU_SHARE: f64 = 0.95;
/// A shorter observation may be a warm-up, or one job of many: no advice on wear and cost.
const SPAN_SECONDS_MIN: f64 = 3600.0;
/// Share of accesses to lines never touched before, above which little is known of reuse.
const COLD_SHARE_MAX: f64 = 0.5;
/// Share of lines touched for the first time in the last quarter of the time, above which the
/// working set has not been seen whole.
const GROWTH_SHARE_MAX: f64 = 0.2;
/// Half of the width of a band that says little.
const ERROR_MAX: f64 = 0.05;

/// Expected hits of one pool size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Hits {
    /// The size.
    pub pool_bytes: u64,
    /// Share of 4 KiB blocks read that the pool serves.
    pub hit_ratio: f64,
    /// Half the width of a band that holds the true value in 19 cases of 20, as far as the error
    /// comes from sampling.
    pub error: f64,
}

/// Expected behaviour of one pool size. Without known times, rates are zero and latencies those of
/// a single request.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Estimate {
    /// Share of 4 KiB blocks read that the pool serves.
    pub hit_ratio: f64,
    /// Mean latency of a request.
    pub latency_us_mean: f64,
    /// The latency that 99% of requests stay within.
    pub latency_us_p99: f64,
    /// Bytes a second that the origin has to serve, writes included.
    pub origin_bytes_per_second: f64,
    /// The part of the time in which the origin is busy, if that is known.
    pub origin_busy: Option<f64>,
    /// The origin could not keep up with the times of the trace.
    pub saturated: bool,
    /// Bytes a second written to the pool.
    pub pool_written_bytes_per_second: f64,
}

/// One size of pool.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SizeOutcome {
    /// Label of the size: `without`, `half`, `now`, `double`, `recommended`.
    pub label: &'static str,
    /// The size.
    pub pool_bytes: u64,
    /// Expected behaviour, if known.
    pub estimate: Option<Estimate>,
    /// Cost; none after an observation of less than an hour.
    pub cost: Option<PoolCost>,
}

/// The advice.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The trace or the volume.
    pub source: String,
    /// Basis of the estimates.
    pub basis: String,
    /// The policy that the estimates are for.
    pub policy: String,
    /// Bytes of the distinct lines.
    pub footprint_bytes: u64,
    /// Share of accesses that an endless pool would hit.
    pub cacheable_share: f64,
    /// Hits by size, the smallest first; the last size holds all that was touched.
    pub curve: Vec<Hits>,
    /// Sizes side by side.
    pub sizes: Vec<SizeOutcome>,
    /// Reasons against relying on this advice, and what is not known.
    pub warnings: Vec<String>,
    /// Requests, and the working set.
    pub profile: Profile,
    /// Prices of the costs.
    pub prices: PriceBook,
    /// Effect of write-back; none if the daemon does not count writes.
    pub write_back: Option<WriteBackGain>,
}

/// Subject of the advice.
#[derive(Clone, Debug)]
pub struct AdviceSubject {
    /// See [`Advice::source`].
    pub source: String,
    /// See [`Advice::basis`].
    pub basis: String,
    /// See [`Advice::policy`].
    pub policy: String,
    /// The existing pool, if there is one.
    pub pool_bytes: Option<u64>,
}

/// The sizes to compare: with a pool, that one halved, kept and doubled; without,
/// the same around the size recommended.
pub fn sizes(curve: &[Hits], line: u64, pool_bytes: Option<u64>) -> Vec<(&'static str, u64)> {
    let recommended = recommended(curve).map_or(line, |hits| hits.pool_bytes);
    let whole = |bytes: u64| (bytes / line).max(1) * line;
    let mut sizes = vec![("without", 0)];
    let (middle, label) = match pool_bytes {
        Some(bytes) => (whole(bytes), "now"),
        None => (recommended, "recommended"),
    };
    sizes.push(("half", whole(middle / 2)));
    sizes.push((label, middle));
    sizes.push(("double", middle.saturating_mul(2)));
    if pool_bytes.is_some() {
        sizes.push(("recommended", recommended));
    }
    sizes
}

/// The profile of a trace in lines of `line_bytes`.
pub fn profile<E>(
    records: impl Iterator<Item = Result<TraceRecord, E>>,
    line_bytes: u64,
) -> Result<Profile, E> {
    let part_bytes = part_bytes(line_bytes);
    let mut profiler = Profiler::new(line_bytes, 1);
    let mut first = None;
    for record in records {
        let record = record?;
        let began = *first.get_or_insert(record.time);
        profiler.tick(Nanos(record.time.since(began).0));
        let op = match record.op {
            trace::RecordOp::Read => policy::PolicyOp::Read,
            trace::RecordOp::Write => policy::PolicyOp::Write,
        };
        let parts = record.blocks(part_bytes);
        for line in record.blocks(line_bytes) {
            let start = line * (line_bytes / part_bytes);
            let from = parts.start().max(&start) - start;
            let to = (parts.end() - start).min(line_bytes / part_bytes - 1);
            let key = u64::from(record.volume) << 40 ^ line;
            profiler.access(key, blocks(from, to), op);
        }
    }
    Ok(profiler.profile())
}

/// The smallest size of the curve with nearly the hits of the largest.
fn recommended(curve: &[Hits]) -> Option<&Hits> {
    let enough = PLATEAU_SHARE * curve.last()?.hit_ratio;
    curve.iter().find(|size| size.hit_ratio >= enough)
}

/// The advice from a profile and, for each of its [`sizes`], an estimate.
pub fn advise(
    profile: Profile,
    curve: Vec<Hits>,
    subject: AdviceSubject,
    estimates: &[Option<Estimate>],
    prices: PriceBook,
) -> Advice {
    let sizes = sizes(&curve, profile.line_bytes, subject.pool_bytes);
    assert_eq!(sizes.len(), estimates.len(), "an estimate for each size");
    let outcome = |((label, pool_bytes), estimate): ((&'static str, u64), &Option<Estimate>)| {
        let written = estimate.map(|e| e.pool_written_bytes_per_second);
        let is_known = profile.seconds >= SPAN_SECONDS_MIN;
        SizeOutcome {
            label,
            pool_bytes,
            estimate: *estimate,
            cost: is_known.then(|| prices.cost(pool_bytes as f64, written)),
        }
    };
    let outcomes: Vec<SizeOutcome> = sizes.into_iter().zip(estimates).map(outcome).collect();
    Advice {
        footprint_bytes: profile.footprint_bytes() as u64,
        cacheable_share: 1.0 - profile.plateau,
        warnings: warnings(&profile, &curve, &outcomes),
        source: subject.source,
        basis: subject.basis,
        policy: subject.policy,
        curve,
        sizes: outcomes,
        profile,
        prices,
        write_back: None,
    }
}

impl Advice {
    /// The size recommended.
    pub fn recommended(&self) -> &SizeOutcome {
        let found = self.sizes.iter().find(|size| size.label == "recommended");
        found.expect("it is among the sizes")
    }

    /// Warns if the prices are older than a year at `today`, in days from 1970.
    pub fn warn_of_old_prices(&mut self, today: u64) {
        if let Some(days) = self.prices.age_days(today).filter(|days| *days > 365) {
            self.warnings.push(format!(
                "the prices are {days} days old: edit a copy of the price book and give it with --prices"
            ));
        }
    }
}

fn warnings(profile: &Profile, curve: &[Hits], sizes: &[SizeOutcome]) -> Vec<String> {
    let mut warnings = Vec::new();
    if profile.seconds > 0.0 && profile.seconds < SPAN_SECONDS_MIN {
        warnings.push(format!(
            "what is known was observed for {} only: it holds for what was asked then, and says \
             nothing of wear and cost; come back after a day of the usual use",
            span(profile.seconds)
        ));
    }
    if profile.plateau > COLD_SHARE_MAX {
        warnings.push(format!(
            "{:.0}% of accesses are the first to their data: the trace is too short to know how \
             much is reused; record for longer",
            100.0 * profile.plateau
        ));
    }
    if profile.late_share > GROWTH_SHARE_MAX {
        warnings.push(format!(
            "{:.0}% of the data were touched for the first time in the last quarter of the time: \
             the working set is still growing; record for longer",
            100.0 * profile.late_share
        ));
    }
    let widest = curve.iter().map(|size| size.error).fold(0.0, f64::max);
    if widest > ERROR_MAX {
        warnings.push(format!(
            "the sample is small: hit ratios are known to {:.0} percent points only; record for \
             longer",
            100.0 * widest
        ));
    }
    if profile.seconds == 0.0 {
        warnings.push(
            "no times are known: the working set over time, loads, endurance and cost \
             are left out, and latencies are those of one request at a time"
                .into(),
        );
    }
    let saturated = |size: &&SizeOutcome| size.estimate.is_some_and(|e| e.saturated);
    if let Some(size) = sizes.iter().rfind(saturated) {
        warnings.push(format!(
            "the origin cannot keep up with the times of the trace up to the size `{}`: its \
             latencies are those with 256 requests waiting; give it more disks or another model",
            size.label
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::PolicyOp;

    pub(super) fn loop_of(lines: u64, accesses: u64, timed: bool) -> Profile {
        let mut profiler = Profiler::new(4096, 1);
        for i in 0..accesses {
            profiler.tick(Nanos::from_secs(if timed { i } else { 0 }));
            let op = if i % 4 == 0 {
                PolicyOp::Write
            } else {
                PolicyOp::Read
            };
            profiler.access(i % lines, 1, op);
        }
        profiler.profile()
    }

    fn subject(pool_bytes: Option<u64>) -> AdviceSubject {
        AdviceSubject {
            source: "test".into(),
            basis: "nothing".into(),
            policy: "lru".into(),
            pool_bytes,
        }
    }

    fn prices() -> PriceBook {
        PriceBook::parse(EXAMPLE_PRICES).unwrap()
    }

    /// Hits of LRU, from a profile.
    pub(super) fn lru(profile: &Profile) -> Vec<Hits> {
        let curve = profile.curve.iter().map(|point| Hits {
            pool_bytes: point.lines * profile.line_bytes,
            hit_ratio: 1.0 - point.miss_ratio,
            error: point.error,
        });
        curve.collect()
    }

    fn advice(profile: Profile, pool_bytes: Option<u64>) -> Advice {
        let curve = lru(&profile);
        let count = sizes(&curve, profile.line_bytes, pool_bytes).len();
        advise(
            profile,
            curve,
            subject(pool_bytes),
            &vec![None; count],
            prices(),
        )
    }

    #[test]
    fn a_loop_needs_exactly_its_length() {
        let profile = loop_of(1024, 48_000, true);
        let of_none = advice(profile.clone(), None);
        let advice = advice(profile, Some(3 << 20));
        assert_eq!(of_none.recommended().pool_bytes, 1024 * 4096);
        assert!(of_none.warnings.is_empty());
        let labels: Vec<_> = of_none.sizes.iter().map(|size| size.label).collect();
        assert_eq!(labels, ["without", "half", "recommended", "double"]);
        let sizes: Vec<_> = advice.sizes.iter().map(|s| s.pool_bytes >> 10).collect();
        assert_eq!(sizes, [0, 1536, 3072, 6144, 4096]);
        let cost = |at: usize| advice.sizes[at].cost.as_ref().unwrap().total;
        assert!(cost(3) > cost(2));
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        let untimed = advice(loop_of(1000, 1500, false), None);
        assert_eq!(untimed.warnings.len(), 2, "{:?}", untimed.warnings);
        assert!(untimed.warnings[0].contains("67%") && untimed.warnings[0].contains("too short"));
        assert!(untimed.warnings[1].contains("no times"));
        assert!(untimed.sizes.iter().all(|size| size.cost.is_none()));
        let mut advice = advice(loop_of(40_000, 40_000, true), None);
        assert!(
            advice.warnings[1].contains("still growing"),
            "{:?}",
            advice.warnings
        );
        let before = advice.warnings.len();
        advice.warn_of_old_prices(20_758 + 300);
        assert_eq!(advice.warnings.len(), before);
        advice.warn_of_old_prices(20_758 + 400);
        assert!(advice.warnings[before].contains("400 days old"));
    }
}
