//! The status once a second, as server-sent events.

use crate::gate::Reader;
use crate::problem::Problem;
use crate::routes::App;
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
    let events = unfold((app, false), |(app, begun)| async move {
        if begun {
            tokio::time::sleep(INTERVAL).await;
        }
        let event = match app.daemon.report().await {
            Ok(report) => Event::default().event("status").data(&report.live),
            Err(problem) => {
                let text = serde_json::to_string(&problem).expect("plain data");
                Event::default().event("problem").data(text)
            }
        };
        Some((Ok(event), (app, true)))
    });
    Sse::new(events)
}
