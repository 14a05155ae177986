//! The status once a second, as server-sent events.
//!
//! Invariant: the last report that a viewer has seen is at most [`INTERVAL`] old, plus the time of
//! one request: the next report is asked for one interval after the last one came from the daemon,
//! whichever viewer had asked for that.

use crate::app::App;
use crate::gate::ReaderCaller;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};
use std::convert::Infallible;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

/// The state and rates of the daemon, once a second
///
/// Each event `status` holds the answer of `/api/v1/status`, with the counters of requests and
/// blocks alone and without totals; each event `problem` the reason of a missing status.
#[utoipa::path(get, path = "/api/v1/live", tag = "daemon",
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn live(
    _: ReaderCaller,
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
