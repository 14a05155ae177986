//! Clients by their rights, as arguments of handlers.

use crate::app::App;
use crate::problem::Problem;
use crate::tokens::Role;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

/// An address without parameters.
pub struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<NoQuery, Problem> {
        match parts.uri.query() {
            None | Some("") => Ok(NoQuery),
            Some(query) => Err(unknown(query)),
        }
    }
}

fn unknown(query: &str) -> Problem {
    let what = format!("this address does not take `?{query}`");
    let remedy = "leave it out; see docs/openapi.json for what this address takes";
    Problem::new(StatusCode::BAD_REQUEST, what, remedy)
}

/// A client that may look, at an address without parameters.
pub struct Reader;

impl FromRequestParts<App> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Reader, Problem> {
        Asker::from_request_parts(parts, app).await?;
        NoQuery::from_request_parts(parts, app).await?;
        Ok(Reader)
    }
}

/// A client that may look, at an address with parameters, which the handler reads.
pub struct Asker;

impl FromRequestParts<App> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Asker, Problem> {
        let role = app.gate.role(&parts.method, &parts.headers).await;
        role.map(|_| Asker)
    }
}

/// A client that may change.
pub struct Operator {
    /// The change leaves the daemon's file as it is.
    pub temporary: bool,
}

impl FromRequestParts<App> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Operator, Problem> {
        if app.gate.role(&parts.method, &parts.headers).await? == Role::ReadOnly {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "this token may look, and change nothing",
                "use the operator's token",
            ));
        }
        let temporary = match parts.uri.query() {
            None | Some("" | "temporary=false") => false,
            Some("temporary" | "temporary=" | "temporary=true") => true,
            Some(query) => return Err(unknown(query)),
        };
        Ok(Operator { temporary })
    }
}
