//! Changes of the daemon.

use crate::problem::Problem;
use crate::routes::App;
use control::protocol::{Reply, Request};

/// Has a change carried out.
pub(super) async fn change(app: &App, request: Request) -> Result<axum::http::StatusCode, Problem> {
    match app.daemon.ask(request).await? {
        Reply::Done => Ok(axum::http::StatusCode::NO_CONTENT),
        other => Err(Problem::unexpected(&other)),
    }
}
