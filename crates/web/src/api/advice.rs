//! The best size of a volume's pool, from an observation of the volume.
//!
//! The curve is known up to the bytes that were touched: of a larger pool nothing is known but that
//! all of them would fit. Each size says on which side it lies.

use super::body::Path;
use crate::app::App;
use crate::gate::ReaderCaller;
use crate::problem::ProblemAnswer;
use advise::sizing::{EXAMPLE_PRICES, Hits, PriceBook, SizeOutcome, volume};
use axum::Json;
use axum::extract::State;
use control::observed::Observed;
use control::protocol::{ControlRequest, Reply};
use serde::Serialize;
use utoipa::ToSchema;

/// Advice on the size of a pool.
#[derive(Serialize, ToSchema)]
pub struct SizingAdvice {
    /// The basis of the estimates.
    basis: String,
    /// Length of the observation.
    observed_s: f64,
    /// Accesses to lines in that time.
    accesses: u64,
    /// The pool's present size; absent if the pool has no device.
    pool_bytes: Option<u64>,
    /// Bytes of the distinct lines asked for: the curve is measured for pools up to this.
    measured_bytes: u64,
    /// Share of accesses that an endless pool would hit.
    cacheable_share: f64,
    /// Hits by size, by the estimator of the sizes below, the smallest first.
    curve: Vec<AdvicePoint>,
    /// Sizes side by side.
    sizes: Vec<SizeAnswer>,
    /// Reasons not to rely on the advice, and its unknowns.
    warnings: Vec<String>,
    /// The price book of the costs, if `--prices` gave one.
    prices: Option<AdvicePrices>,
}

/// A point of the curve.
#[derive(Serialize, ToSchema)]
pub struct AdvicePoint {
    /// Size of the pool.
    pool_bytes: u64,
    /// Share of 4 KiB blocks read that a pool of this size serves.
    hit_ratio: f64,
    /// Half the width of a band that holds the true value in 19 cases of 20.
    error: f64,
}

/// The expected results of a pool of some size.
#[derive(Serialize, ToSchema)]
pub struct SizeAnswer {
    /// `without`, `half`, `now`, `double` or `recommended`.
    label: String,
    /// The size.
    pool_bytes: u64,
    /// The curve was measured up to this size.
    measured: bool,
    /// Share of 4 KiB blocks read that the pool serves.
    hit_ratio: Option<f64>,
    /// Mean latency of a request.
    latency_us_mean: Option<f64>,
    /// The latency that 99% of requests stay within.
    latency_us_p99: Option<f64>,
    /// Net present value of all costs, replacements for wear and power included.
    cost: Option<f64>,
}

/// The price book of the costs.
#[derive(Serialize, ToSchema)]
pub struct AdvicePrices {
    /// The day of the prices.
    dated: String,
    /// The currency of every amount.
    currency: String,
    /// Years over which costs are counted.
    years: u32,
}

/// Advise on the size of a volume's pool
#[utoipa::path(get, path = "/api/v1/volumes/{volume}/advice", tag = "volumes",
    params(("volume" = String, Path)), responses((status = 200, body = SizingAdvice)))]
pub async fn advise(
    _: ReaderCaller,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<Json<SizingAdvice>, ProblemAnswer> {
    match app.daemon.ask(ControlRequest::Observe { volume }).await? {
        Reply::Observed(observed) => {
            let advice = SizingAdvice::of(&observed, app.prices.as_ref());
            advice
                .map(Json)
                .map_err(|text| ProblemAnswer::conflict(&text))
        }
        other => Err(ProblemAnswer::unexpected(&other)),
    }
}

impl SizingAdvice {
    fn of(observed: &Observed, prices: Option<&PriceBook>) -> Result<SizingAdvice, String> {
        // Costs are left out below if there are no prices; the rest does not rest on them.
        let book = prices
            .cloned()
            .map_or_else(|| PriceBook::parse(EXAMPLE_PRICES), Ok)?;
        let advice = volume::advice(observed, book)?;
        let profile = &advice.profile;
        let measured_bytes = advice.curve.last().map_or(0, |point| point.pool_bytes);
        let size = |size: &SizeOutcome| SizeAnswer {
            label: size.label.to_owned(),
            pool_bytes: size.pool_bytes,
            measured: size.pool_bytes <= measured_bytes,
            hit_ratio: size.estimate.map(|e| e.hit_ratio),
            latency_us_mean: size.estimate.map(|e| e.latency_us_mean),
            latency_us_p99: size.estimate.map(|e| e.latency_us_p99),
            cost: prices.and(size.cost.as_ref()).map(|cost| cost.total),
        };
        let point = |point: &Hits| AdvicePoint {
            pool_bytes: point.pool_bytes,
            hit_ratio: point.hit_ratio,
            error: point.error,
        };
        Ok(SizingAdvice {
            observed_s: profile.seconds,
            accesses: profile.accesses(),
            pool_bytes: Some(observed.pool_bytes).filter(|bytes| *bytes > 0),
            measured_bytes,
            cacheable_share: advice.cacheable_share,
            curve: advice.curve.iter().map(point).collect(),
            sizes: advice.sizes.iter().map(size).collect(),
            prices: prices.map(|book| AdvicePrices {
                dated: book.dated.to_string(),
                currency: book.currency.clone(),
                years: book.years,
            }),
            basis: advice.basis,
            warnings: advice.warnings,
        })
    }
}
