//! Volumes: adding, changing, removing and explaining them.

use super::body::{Body, DeviceBody, Path, Query};
use super::change::change;
use crate::app::App;
use crate::gate::{Asker, Operator, ReaderCaller};
use crate::problem::ProblemAnswer;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use control::config::VolumeMode;
use control::explained::Explained;
use control::observed::Observed;
use control::protocol::{ControlRequest, Reply};
use control::section::SectionText;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// The new volume.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Its name, also as an NBD export.
    name: String,
    /// The device of its data.
    origin: DeviceBody,
    /// Its pool.
    pool: String,
    /// `write-through`, `write-around` or `pass-through`; of a set-up also `write-back`.
    mode: Option<String>,
    /// Its size, such as `10GiB`; all of the origin unless given.
    size: Option<String>,
    /// Refuse every write of clients.
    #[serde(default)]
    read_only: bool,
}

impl NewVolume {
    /// The name of the volume.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Takes its mode from it, if that is write-back or `has_log`.
    pub fn take_mode(&mut self, has_log: bool) -> Option<String> {
        let is_logged = has_log || self.mode.as_deref() == Some(VolumeMode::WriteBack.name());
        is_logged.then(|| self.mode.take().unwrap_or_default())
    }

    /// The request that adds the volume.
    pub fn request(&self) -> ControlRequest {
        let device = self.origin.section().flag("read_only", self.read_only);
        let device = self.origin.is_new().then(|| device.finish());
        let volume = SectionText::default()
            .text("name", &self.name)
            .text("origin", &self.origin.name)
            .text("pool", &self.pool)
            .optional("mode", self.mode.as_deref())
            .optional("size", self.size.as_deref())
            .flag("read_only", self.read_only)
            .finish();
        ControlRequest::AddVolume { volume, device }
    }
}

/// Serve a volume
#[utoipa::path(post, path = "/api/v1/volumes", tag = "volumes", request_body = NewVolume)]
pub async fn add(
    operator: Operator,
    State(app): State<App>,
    Body(new): Body<NewVolume>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, new.request()).await
}

/// Serve a volume no more, once its requests in flight have ended
#[utoipa::path(delete, path = "/api/v1/volumes/{volume}", tag = "volumes",
    params(("volume" = String, Path)))]
pub async fn remove(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, ControlRequest::RemoveVolume { volume }).await
}

/// The mode of a volume: its use of the pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeBody {
    /// `write-through`, `write-around`, `pass-through` or `write-back`.
    mode: String,
    /// Of write-back: the two devices of its log; those of the configuration unless given.
    #[serde(default)]
    log: Vec<DeviceBody>,
    /// Its journal: the volume becomes journaled.
    journal: Option<DeviceBody>,
}

/// Change how a volume uses its pool
#[utoipa::path(put, path = "/api/v1/volumes/{volume}/mode", tag = "volumes",
    params(("volume" = String, Path)), request_body = ModeBody)]
pub async fn set_mode(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
    Body(ModeBody { mode, log, journal }): Body<ModeBody>,
) -> Result<StatusCode, ProblemAnswer> {
    let request = ControlRequest::SetMode {
        volume,
        mode,
        log: log.iter().map(DeviceBody::named_or_new).collect(),
        journal: journal.as_ref().map(DeviceBody::named_or_new),
    };
    change(&app, &operator, request).await
}

/// The state of a volume's caching: off or on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Off {
    /// Use the origin alone; or use the pool again, in the volume's former mode.
    off: bool,
}

/// Turn the caching of a volume off, or on again in its former mode
#[utoipa::path(put, path = "/api/v1/volumes/{volume}/off", tag = "volumes",
    params(("volume" = String, Path)), request_body = Off)]
pub async fn set_off(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
    Body(Off { off }): Body<Off>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, ControlRequest::SetOff { volume, off }).await
}

/// A device in the place of another.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacementBody {
    /// The new device, which must be blank.
    device: DeviceBody,
}

/// Replace a device of the log of a write-back volume, or its journal
#[utoipa::path(put, path = "/api/v1/volumes/{volume}/log/{device}", tag = "volumes",
    params(("volume" = String, Path), ("device" = String, Path)), request_body = ReplacementBody)]
pub async fn replace_log(
    operator: Operator,
    State(app): State<App>,
    Path((volume, device)): Path<(String, String)>,
    Body(ReplacementBody { device: by }): Body<ReplacementBody>,
) -> Result<StatusCode, ProblemAnswer> {
    let by = by.named_or_new();
    change(
        &app,
        &operator,
        ControlRequest::ReplaceLog { volume, device, by },
    )
    .await
}

/// The state of a volume: quiesced or not.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Quiesced {
    /// Hold clients' writes and make the origin durable; or let the writes go on.
    quiesced: bool,
}

/// Quiesce a volume for a snapshot of its origin, or resume its writes
#[utoipa::path(put, path = "/api/v1/volumes/{volume}/quiesced", tag = "volumes",
    params(("volume" = String, Path)), request_body = Quiesced)]
pub async fn set_quiesced(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
    Body(Quiesced { quiesced }): Body<Quiesced>,
) -> Result<StatusCode, ProblemAnswer> {
    let request = match quiesced {
        true => ControlRequest::Quiesce { volume },
        false => ControlRequest::Resume { volume },
    };
    change(&app, &operator, request).await
}

/// Serve a volume at the present size of its origin; clients connect again
#[utoipa::path(post, path = "/api/v1/volumes/{volume}/grow", tag = "volumes",
    params(("volume" = String, Path)))]
pub async fn grow(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, ControlRequest::GrowVolume { volume }).await
}

/// Invalidate the cached lines of a volume after its origin was changed by others
#[utoipa::path(post, path = "/api/v1/volumes/{volume}/invalidate", tag = "volumes",
    params(("volume" = String, Path)))]
pub async fn invalidate(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, ControlRequest::Invalidate { volume }).await
}

/// A range of a volume, in bytes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VolumeRange {
    /// Start of the lines to explain.
    start: Option<u64>,
    /// End of these lines.
    end: Option<u64>,
}

/// Explain why a volume is cached or not, its heat, and each line of a range
#[utoipa::path(get, path = "/api/v1/volumes/{volume}/explanation", tag = "volumes",
    params(("volume" = String, Path), VolumeRange), responses((status = 200, body = Explained)))]
pub async fn explain(
    _: Asker,
    State(app): State<App>,
    Path(volume): Path<String>,
    Query(range): Query<VolumeRange>,
) -> Result<Json<Explained>, ProblemAnswer> {
    let range = range.start.zip(range.end);
    match app
        .daemon
        .ask(ControlRequest::Explain { volume, range })
        .await?
    {
        Reply::Explained(explained) => Ok(Json(*explained)),
        other => Err(ProblemAnswer::unexpected(&other)),
    }
}

/// The requests of a volume, and the service of its devices
#[utoipa::path(get, path = "/api/v1/volumes/{volume}/observation", tag = "volumes",
    params(("volume" = String, Path)), responses((status = 200, body = Observed)))]
pub async fn observe(
    _: ReaderCaller,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<Json<Observed>, ProblemAnswer> {
    match app.daemon.ask(ControlRequest::Observe { volume }).await? {
        Reply::Observed(observed) => Ok(Json(*observed)),
        other => Err(ProblemAnswer::unexpected(&other)),
    }
}
