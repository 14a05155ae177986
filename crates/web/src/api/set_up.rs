//! A volume with its pool and its block device, made at once or not at all.

use super::body::{Body, DeviceBody};
use super::change::change;
use super::pools::NewPool;
use super::volumes::NewVolume;
use crate::app::App;
use crate::gate::Operator;
use crate::problem::ProblemAnswer;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use control::files::FileDifference;
use control::protocol::{ControlRequest, Reply};
use control::section::SectionText;
use serde::Deserialize;
use utoipa::ToSchema;

/// The new volume and its surroundings.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetUp {
    /// The volume.
    volume: NewVolume,
    /// Its pool, if new.
    pool: Option<NewPool>,
    /// Devices that its pool gets, if the pool is not new.
    #[serde(default)]
    devices: Vec<DeviceBody>,
    /// Make the volume a block device of the daemon's machine.
    #[serde(default)]
    block_device: bool,
}

impl SetUp {
    fn request(&self) -> ControlRequest {
        let attach = SectionText::default().text("ublk", self.volume.name());
        let attach = self.block_device.then(|| ControlRequest::Attach {
            attach: attach.finish(),
        });
        let pool = self.pool.iter().map(NewPool::request);
        let given = self.devices.iter().map(|device| ControlRequest::AddDevice {
            pool: self.volume.pool().to_owned(),
            device: device.named_or_new(),
        });
        let additions = pool
            .chain(given)
            .chain([self.volume.request()])
            .chain(attach);
        ControlRequest::SetUp {
            additions: additions.collect(),
        }
    }
}

/// Make a pool, serve a volume and make it a block device, all or nothing
#[utoipa::path(post, path = "/api/v1/set-up", tag = "volumes", request_body = SetUp)]
pub async fn set_up(
    operator: Operator,
    State(app): State<App>,
    Body(new): Body<SetUp>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, new.request()).await
}

/// The lines that a set-up would write to the daemon's configuration; nothing changes
#[utoipa::path(post, path = "/api/v1/set-up/preview", tag = "volumes", request_body = SetUp,
    responses((status = 200, body = FileDifference)))]
pub async fn preview(
    _: Operator,
    State(app): State<App>,
    Body(new): Body<SetUp>,
) -> Result<Json<FileDifference>, ProblemAnswer> {
    let change = Box::new(new.request());
    match app.daemon.ask(ControlRequest::Preview { change }).await? {
        Reply::Preview(difference) => Ok(Json(difference)),
        other => Err(ProblemAnswer::unexpected(&other)),
    }
}
