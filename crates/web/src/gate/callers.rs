//! Who asks, as handlers require it.

use crate::app::App;
use crate::problem::Problem;
use crate::tokens::Role;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

/// One who may look.
pub struct Reader;

impl FromRequestParts<App> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Reader, Problem> {
        app.gate
            .role(&parts.method, &parts.headers)
            .await
            .map(|_| Reader)
    }
}

/// One who may change.
pub struct Operator {
    /// The daemon's file is to stay as it is.
    pub temporary: bool,
}

impl FromRequestParts<App> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Operator, Problem> {
        match app.gate.role(&parts.method, &parts.headers).await? {
            Role::Operator => Ok(Operator {
                temporary: parts.uri.query() == Some("temporary"),
            }),
            Role::ReadOnly => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "this token may look, and change nothing",
                "use the operator's token",
            )),
        }
    }
}
