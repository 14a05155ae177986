//! The history of the daemon's figures.

use super::body::Query;
use crate::app::App;
use crate::gate::Asker;
use crate::history::now;
use crate::history::sample::Sample;
use crate::problem::ProblemAnswer;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The length of a span unless its start is given.
const SPAN_S: u64 = 3600;

/// A span of time.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SpanQuery {
    /// The start of the span, in seconds since 1970; an hour before its end unless given.
    from: Option<u64>,
    /// The end of the span, in seconds since 1970; now unless given.
    to: Option<u64>,
    /// The volume of the figures; all volumes together unless given.
    volume: Option<String>,
}

/// The history of the daemon's figures.
#[derive(Serialize, ToSchema)]
pub struct HistoryAnswer {
    /// The time from one sample to the next.
    step_s: u64,
    /// The samples of the span, the oldest first; times without a report have none.
    samples: Vec<Sample>,
    /// The reason why something is not kept at present, if so.
    trouble: Option<String>,
}

/// Figures over time, of the last day each ten seconds and of thirty days each five minutes
///
/// An answer has at most 721 samples: of a longer span several are merged.
#[utoipa::path(get, path = "/api/v1/history", tag = "daemon", params(SpanQuery),
    responses((status = 200, body = HistoryAnswer)))]
pub async fn history(
    _: Asker,
    State(app): State<App>,
    Query(SpanQuery { from, to, volume }): Query<SpanQuery>,
) -> Result<Json<HistoryAnswer>, ProblemAnswer> {
    let now = now();
    let to = to.unwrap_or(now);
    let from = from.unwrap_or(to.saturating_sub(SPAN_S));
    if from > to {
        let what = format!("the span from {from} to {to} ends before it begins");
        let remedy = "give `from` and `to` in seconds since 1970, `from` first";
        return Err(ProblemAnswer::new(StatusCode::BAD_REQUEST, what, remedy));
    }
    let history = app.daemon.history();
    let range = history.range(volume.as_deref(), from, to, now);
    Ok(Json(HistoryAnswer {
        step_s: range.step_s,
        samples: range.samples,
        trouble: history.trouble().map(str::to_owned),
    }))
}
