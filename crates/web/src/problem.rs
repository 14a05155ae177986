//! An error with its remedy, in the form of RFC 9457.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::client::Error;
use control::plain;
use control::protocol::Reply;
use serde::Serialize;

/// An answer that is an error.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ProblemAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The kind of error.
    pub title: String,
    /// The cause.
    pub detail: String,
    /// The remedy.
    pub remedy: String,
}

impl ProblemAnswer {
    /// A problem of a request.
    pub fn new(
        status: StatusCode,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ProblemAnswer {
        ProblemAnswer {
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            detail: plain(detail.into()),
            remedy: remedy.into(),
        }
    }

    /// An answer to another question.
    pub fn unexpected(reply: &Reply) -> ProblemAnswer {
        let what = format!("the daemon answered `{}` to another question", reply.name());
        let remedy = "use hotset and a daemon of the same version";
        ProblemAnswer::new(StatusCode::BAD_GATEWAY, what, remedy)
    }

    /// An error of the daemon; its messages end with the remedy.
    pub fn of_daemon(error: &Error) -> ProblemAnswer {
        match error {
            Error::Refused(text) => ProblemAnswer::conflict(text),
            Error::Unreachable(..) => {
                ProblemAnswer::of_message(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
            }
        }
    }

    /// A conflict with the present state, with the remedy after the last semicolon.
    pub fn conflict(text: &str) -> ProblemAnswer {
        ProblemAnswer::of_message(StatusCode::CONFLICT, text)
    }

    fn of_message(status: StatusCode, text: &str) -> ProblemAnswer {
        let (detail, remedy) = text
            .rsplit_once("; ")
            .unwrap_or((text, "correct the request"));
        ProblemAnswer::new(status, detail, remedy)
    }
}

impl IntoResponse for ProblemAnswer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).expect("made from one");
        let body = serde_json::to_vec(&self).expect("plain data");
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        if status == StatusCode::TOO_MANY_REQUESTS {
            let retry = HeaderValue::from_static("10");
            response.headers_mut().insert(header::RETRY_AFTER, retry);
        }
        response
    }
}

/// The answer at an address without a resource.
pub fn no_such_address() -> ProblemAnswer {
    let remedy = "see docs/commands/web.md for what is where";
    ProblemAnswer::new(
        StatusCode::NOT_FOUND,
        "there is nothing at this address",
        remedy,
    )
}
