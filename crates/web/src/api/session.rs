//! Signing a browser in and out.

use super::body::Body;
use crate::app::App;
use crate::gate::NoQuery;
use crate::problem::ProblemAnswer;
use crate::tokens::TokenRole;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The token of a browser that signs in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// A token that `hotset web` printed at its first start.
    token: String,
}

/// A browser that has signed in.
#[derive(Serialize, ToSchema)]
pub struct SessionAnswer {
    /// The rights of the browser.
    role: TokenRole,
    /// The token against forgery, which each change carries in the header `X-CSRF-Token`.
    csrf: String,
}

/// Sign a browser in
///
/// Sets a cookie. Programs send `Authorization: Bearer TOKEN` instead.
#[utoipa::path(post, path = "/api/v1/session", tag = "session", security(()),
    request_body = Credentials, responses((status = 200, body = SessionAnswer)))]
pub async fn sign_in(
    _: NoQuery,
    State(app): State<App>,
    Body(credentials): Body<Credentials>,
) -> Result<impl IntoResponse, ProblemAnswer> {
    let role = app.gate.admit(&credentials.token).await?;
    let (session, cookie) = app.gate.begin(role);
    let session = SessionAnswer {
        role: session.role,
        csrf: session.csrf,
    };
    Ok(([(header::SET_COOKIE, cookie)], Json(session)))
}

/// The session of a browser, or no content without one
#[utoipa::path(get, path = "/api/v1/session", tag = "session", security(()), responses(
    (status = 200, description = "The session of the cookie", body = SessionAnswer),
    (status = 204, description = "There is no session")
))]
pub async fn shown(_: NoQuery, State(app): State<App>, headers: HeaderMap) -> Response {
    let Some(session) = app.gate.session(&headers) else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let session = SessionAnswer {
        role: session.role,
        csrf: session.csrf,
    };
    Json(session).into_response()
}

/// Sign a browser out
#[utoipa::path(delete, path = "/api/v1/session", tag = "session", security(()))]
pub async fn sign_out(_: NoQuery, State(app): State<App>, headers: HeaderMap) -> impl IntoResponse {
    let cookie = app.gate.end(&headers);
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)])
}
