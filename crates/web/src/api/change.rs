//! Changes of the daemon.

use crate::app::App;
use crate::gate::Operator;
use crate::problem::ProblemAnswer;
use axum::http::StatusCode;
use control::protocol::ControlRequest;

/// Carries out a change, which is temporary if `operator` asks for that.
pub(super) async fn change(
    app: &App,
    operator: &Operator,
    request: ControlRequest,
) -> Result<StatusCode, ProblemAnswer> {
    app.daemon.change(request, operator.temporary).await?;
    Ok(StatusCode::NO_CONTENT)
}
