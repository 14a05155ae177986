//! Jobs: long work of the daemon.

use super::body::{Body, Path};
use super::change::change;
use crate::app::App;
use crate::gate::{Operator, ReaderCaller};
use crate::problem::ProblemAnswer;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use control::job::Job;
use control::protocol::ControlRequest;
use serde::Deserialize;
use utoipa::ToSchema;

/// Jobs at work, then those that ended last
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", responses((status = 200, body = Vec<Job>)))]
pub async fn jobs(
    _: ReaderCaller,
    State(app): State<App>,
) -> Result<Json<Vec<Job>>, ProblemAnswer> {
    let report = app.daemon.report().await?;
    Ok(Json(report.status.jobs.clone()))
}

/// The state of a job: paused or at work.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PausedBody {
    /// Pause the job at its present progress; or resume it.
    paused: bool,
}

/// Pause a detachment, or resume it
#[utoipa::path(put, path = "/api/v1/jobs/{job}/paused", tag = "jobs",
    params(("job" = String, Path, description = "Its name, such as detach:db")), request_body = PausedBody)]
pub async fn set_paused(
    operator: Operator,
    State(app): State<App>,
    Path(job): Path<String>,
    Body(PausedBody { paused }): Body<PausedBody>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, ControlRequest::PauseJob { job, paused }).await
}

/// Cancel a job
#[utoipa::path(delete, path = "/api/v1/jobs/{job}", tag = "jobs",
    params(("job" = String, Path, description = "Its name, such as scrub:mirror")))]
pub async fn cancel(
    operator: Operator,
    State(app): State<App>,
    Path(job): Path<String>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, ControlRequest::CancelJob { job }).await
}
