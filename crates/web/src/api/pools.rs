//! Pools: making and removing them, and their devices.

use super::body::{Body, DeviceBody, Path};
use super::change::change;
use crate::app::App;
use crate::gate::Operator;
use crate::problem::ProblemAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use control::protocol::ControlRequest;
use control::section::SectionText;
use serde::Deserialize;
use utoipa::ToSchema;

/// The new pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPool {
    /// The pool's name, for volumes and in reports.
    name: String,
    /// Its devices; may be none.
    devices: Vec<DeviceBody>,
    /// The replacement policy; `auto` unless given.
    policy: Option<String>,
    /// The unit of replacement, such as `64KiB`.
    line_size: Option<String>,
}

impl NewPool {
    /// The request that makes the pool.
    pub fn request(&self) -> ControlRequest {
        let names: Vec<String> = self.devices.iter().map(|d| d.name.clone()).collect();
        let pool = SectionText::default()
            .text("name", &self.name)
            .list("devices", &names)
            .optional("policy", self.policy.as_deref())
            .optional("line_size", self.line_size.as_deref())
            .finish();
        let unknown = self.devices.iter().filter(|device| device.is_new());
        let devices = unknown.map(|device| device.section().finish()).collect();
        ControlRequest::AddPool { pool, devices }
    }
}

/// Make a pool and overwrite its devices
#[utoipa::path(post, path = "/api/v1/pools", tag = "pools", request_body = NewPool)]
pub async fn add_pool(
    operator: Operator,
    State(app): State<App>,
    Body(new): Body<NewPool>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, new.request()).await
}

/// Remove a pool that no volume uses, and forget its lines
#[utoipa::path(delete, path = "/api/v1/pools/{pool}", tag = "pools",
    params(("pool" = String, Path)))]
pub async fn remove_pool(
    operator: Operator,
    State(app): State<App>,
    Path(pool): Path<String>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, ControlRequest::RemovePool { pool }).await
}

/// Add a device to a pool and overwrite the device
#[utoipa::path(post, path = "/api/v1/pools/{pool}/devices", tag = "pools",
    params(("pool" = String, Path)), request_body = DeviceBody)]
pub async fn add_device(
    operator: Operator,
    State(app): State<App>,
    Path(pool): Path<String>,
    Body(device): Body<DeviceBody>,
) -> Result<StatusCode, ProblemAnswer> {
    let device = device.named_or_new();
    change(&app, &operator, ControlRequest::AddDevice { pool, device }).await
}

/// Take a device back into its pool: one that was ejected, or absent at the start
#[utoipa::path(post, path = "/api/v1/pools/{pool}/devices/{device}/readmit", tag = "pools",
    params(("pool" = String, Path), ("device" = String, Path)))]
pub async fn readmit_device(
    operator: Operator,
    State(app): State<App>,
    Path((pool, device)): Path<(String, String)>,
) -> Result<StatusCode, ProblemAnswer> {
    let request = ControlRequest::ReadmitDevice { pool, device };
    change(&app, &operator, request).await
}

/// Take a device out of a pool
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/devices/{device}", tag = "pools",
    params(("pool" = String, Path), ("device" = String, Path)))]
pub async fn remove_device(
    operator: Operator,
    State(app): State<App>,
    Path((pool, device)): Path<(String, String)>,
) -> Result<StatusCode, ProblemAnswer> {
    change(
        &app,
        &operator,
        ControlRequest::RemoveDevice { pool, device },
    )
    .await
}
