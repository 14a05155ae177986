//! The status once a second, as server-sent events.
//!
//! Invariant: what a viewer has seen last is at most [`INTERVAL`] old, and what it takes to ask:
//! the next is asked for so long after the last one came from the daemon, whoever had asked then.

use crate::app::App;
use crate::gate::Reader;
use crate::problem::Problem;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};
use std::convert::Infallible;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

/// The state and rates of the daemon, once a second
///
/// Each event `status` holds what `/api/v1/status` answers, with the counters
/// of requests and blocks alone and without totals; each event `problem` why
/// there is none.
#[utoipa::path(get, path = "/api/v1/live", tag = "daemon", responses(
    (status = 200, body = String, content_type = "text/event-stream"), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn live(
    _: Reader,
    State(app): State<App>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = unfold((app, Duration::ZERO), |(app, pause)| async move {
        tokio::time::sleep(pause).await;
        let (event, age) = match app.daemon.report().await {
            Ok(report) => {
                let event = Event::default().event("status").data(report.live());
                (event, report.at.elapsed())
            }
            Err(problem) => {
                let text = serde_json::to_string(&problem).expect("plain data");
                (Event::default().event("problem").data(text), Duration::ZERO)
            }
        };
        Some((Ok(event), (app, INTERVAL.saturating_sub(age))))
    });
    Sse::new(events)
}
