//! Clients by their rights, as arguments of handlers.

use crate::app::App;
use crate::problem::ProblemAnswer;
use crate::tokens::TokenRole;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

/// An address without parameters.
pub struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ProblemAnswer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<NoQuery, ProblemAnswer> {
        match parts.uri.query() {
            None | Some("") => Ok(NoQuery),
            Some(query) => Err(unknown(query)),
        }
    }
}

fn unknown(query: &str) -> ProblemAnswer {
    let what = format!("this address does not take `?{query}`");
    let remedy = "leave it out; see docs/openapi.json for what this address takes";
    ProblemAnswer::new(StatusCode::BAD_REQUEST, what, remedy)
}

/// A client that may look, at an address without parameters.
pub struct ReaderCaller;

impl FromRequestParts<App> for ReaderCaller {
    type Rejection = ProblemAnswer;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &App,
    ) -> Result<ReaderCaller, ProblemAnswer> {
        Asker::from_request_parts(parts, app).await?;
        NoQuery::from_request_parts(parts, app).await?;
        Ok(ReaderCaller)
    }
}

/// A client that may look, at an address with parameters, which the handler reads.
pub struct Asker;

impl FromRequestParts<App> for Asker {
    type Rejection = ProblemAnswer;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Asker, ProblemAnswer> {
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
    type Rejection = ProblemAnswer;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Operator, ProblemAnswer> {
        if app.gate.role(&parts.method, &parts.headers).await? == TokenRole::ReadOnly {
            return Err(ProblemAnswer::new(
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
