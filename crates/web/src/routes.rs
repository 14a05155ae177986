//! The addresses, and the headers of every answer.

use crate::api;
use crate::app::App;
use crate::gate::ReaderCaller;
use crate::metrics;
use crate::page;
use crate::problem::{ProblemAnswer, no_such_address};
use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::time::Duration;
use tokio::time::timeout;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _};

/// The type of a trace, which is compressed already.
const NOT_BYTES: NotForContentType = NotForContentType::const_new("application/octet-stream");
/// The longest body of a request.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Time limit of a body, from the head of its request to its end.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// The interval of reports without a viewer.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Asks the daemon for a report at intervals, so that events are noticed without a viewer.
pub async fn watch(app: App) {
    loop {
        // Problems are among the events.
        let _ = app.daemon.report().await;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Every address.
pub fn router(app: App) -> Router {
    let (api, _) = api::resources().split_for_parts();
    api.route("/", get(page::index))
        .route("/assets/{name}", get(page::asset))
        .layer(CompressionLayer::new().compress_when(DefaultPredicate::new().and(NOT_BYTES)))
        // Compression would cost more than the rest of a scrape.
        .route("/metrics", get(scrape))
        .route("/healthz", get(health))
        .fallback(nothing)
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(app.clone(), protect))
        .with_state(app)
}

async fn scrape(_: ReaderCaller, State(app): State<App>) -> Response {
    let report = app.daemon.report().await.ok();
    let text = metrics::encode(report);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// The daemon's health, shown without a token: whether the daemon answers.
async fn health(State(app): State<App>) -> Result<&'static str, ProblemAnswer> {
    let away = |_| {
        let what = "the daemon does not answer";
        let remedy = "see `systemctl status hotset`, or start `hotset serve`";
        ProblemAnswer::new(StatusCode::SERVICE_UNAVAILABLE, what, remedy)
    };
    app.daemon.report().await.map(|_| "ok\n").map_err(away)
}

async fn nothing() -> ProblemAnswer {
    no_such_address()
}

async fn other_method() -> ProblemAnswer {
    let remedy = "see docs/commands/web.md for what it takes";
    let what = "this address does not take this method";
    ProblemAnswer::new(StatusCode::METHOD_NOT_ALLOWED, what, remedy)
}

/// Headers of every answer that have a browser refuse attacks.
const PROTECTION: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
];

const BODY_REMEDY: &str = "see docs/openapi.json for what this address takes";

/// The request with its whole body. A body that comes too slowly is refused, so that its client
/// keeps no connection.
async fn whole(request: Request) -> Result<Request, ProblemAnswer> {
    let (head, body) = request.into_parts();
    let body = timeout(BODY_TIME_MAX, to_bytes(body, BODY_BYTES_MAX)).await;
    let body = body.map_err(|_| late_body())?;
    let body = body.map_err(|cause| {
        let what = format!("the body is longer than {BODY_BYTES_MAX} bytes, or broken: {cause}");
        ProblemAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, what, BODY_REMEDY)
    })?;
    Ok(Request::from_parts(head, Body::from(body)))
}

fn late_body() -> ProblemAnswer {
    let what = format!("the body did not come within {BODY_TIME_MAX:?}");
    ProblemAnswer::new(StatusCode::REQUEST_TIMEOUT, what, BODY_REMEDY)
}

/// The answer to `request`. A request without a token or a session, other than a sign-in, is
/// refused before its body has come.
async fn answer(request: Request, next: Next) -> Response {
    let names = [header::AUTHORIZATION, header::COOKIE];
    if names
        .iter()
        .any(|name| request.headers().contains_key(name))
    {
        return match whole(request).await {
            Ok(request) => next.run(request).await,
            Err(problem) => problem.into_response(),
        };
    }
    let answered = timeout(BODY_TIME_MAX, next.run(request)).await;
    answered.unwrap_or_else(|_| late_body().into_response())
}

async fn protect(State(app): State<App>, request: Request, next: Next) -> Response {
    let has_body = !request.body().is_end_stream();
    let mut response = answer(request, next).await;
    // A refusal may have come before the end of the body; then the connection ends.
    let ends = has_body && response.status().is_client_error();
    let headers = response.headers_mut();
    for (name, value) in PROTECTION {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let kept = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(kept);
    if ends {
        let close = HeaderValue::from_static("close");
        headers.insert(header::CONNECTION, close);
    }
    if app.secure {
        let always = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, always);
    }
    response
}
