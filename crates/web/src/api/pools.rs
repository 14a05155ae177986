//! Pools: their devices.

use super::body::{Body, Device, Path};
use super::change::change;
use crate::gate::Operator;
use crate::problem::Problem;
use crate::routes::App;
use axum::extract::State;
use axum::http::StatusCode;
use control::protocol::Request;

/// Add a device to a pool; what is on it is overwritten
#[utoipa::path(post, path = "/api/v1/pools/{pool}/devices", tag = "pools",
    params(("pool" = String, Path)), request_body = Device, responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn add_device(
    operator: Operator,
    State(app): State<App>,
    Path(pool): Path<String>,
    Body(device): Body<Device>,
) -> Result<StatusCode, Problem> {
    let device = device.named_or_new();
    change(&app, &operator, Request::AddDevice { pool, device }).await
}

/// Take a device out of a pool
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/devices/{device}", tag = "pools",
    params(("pool" = String, Path), ("device" = String, Path)), responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn remove_device(
    operator: Operator,
    State(app): State<App>,
    Path((pool, device)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    change(&app, &operator, Request::RemoveDevice { pool, device }).await
}
