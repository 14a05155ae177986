//! A volume with its pool, its log and its frontend, made at once or not at all.

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
    /// Of write-back: the two devices of its log.
    #[serde(default)]
    log: Vec<DeviceBody>,
    /// Its journal: the volume becomes journaled.
    journal: Option<DeviceBody>,
    /// Make the volume a block device of the daemon's machine.
    #[serde(default)]
    block_device: bool,
    /// Make the volume the disk of a virtual machine, by vhost-user at a socket of this path.
    socket: Option<String>,
}

impl SetUp {
    fn request(mut self) -> ControlRequest {
        let name = self.volume.name().to_owned();
        let attach = self.block_device.then(|| ControlRequest::Attach {
            attach: SectionText::default().text("ublk", &name).finish(),
        });
        let listen = self.socket.as_ref().map(|socket| {
            let listen = SectionText::default().text("vhost_user", socket);
            ControlRequest::Listen {
                listen: listen.text("volume", &name).finish(),
            }
        });
        let has_log = !self.log.is_empty() || self.journal.is_some();
        let log = self.log.iter().map(DeviceBody::named_or_new).collect();
        let journal = self.journal.as_ref().map(DeviceBody::named_or_new);
        // A log takes over a served volume, in the moment at which the configuration names the log.
        let mode = self.volume.take_mode(has_log);
        let mode = mode.map(|mode| ControlRequest::SetMode {
            volume: name,
            mode,
            log,
            journal,
        });
        let pool = self.pool.iter().map(NewPool::request);
        let given = self.devices.iter().map(|device| ControlRequest::AddDevice {
            pool: self.volume.pool().to_owned(),
            device: device.named_or_new(),
        });
        let additions = pool
            .chain(given)
            .chain([self.volume.request()])
            .chain(attach)
            .chain(listen)
            .chain(mode);
        ControlRequest::SetUp {
            additions: additions.collect(),
        }
    }
}

/// Make a pool, serve a volume, give it a log and a frontend, all or nothing
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
