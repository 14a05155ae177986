//! Changes of the daemon.

use crate::app::App;
use crate::gate::Operator;
use crate::problem::Problem;
use axum::http::StatusCode;
use control::protocol::Request;

/// Has a change carried out, as `operator` wants it.
pub(super) async fn change(
    app: &App,
    operator: &Operator,
    request: Request,
) -> Result<StatusCode, Problem> {
    app.daemon.change(request, operator.temporary).await?;
    Ok(StatusCode::NO_CONTENT)
}
