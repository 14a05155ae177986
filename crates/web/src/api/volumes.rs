//! Volumes: adding, changing, removing and explaining them.

use super::body::{Body, Device, Path, Query};
use super::change::change;
use crate::app::App;
use crate::gate::{Asker, Operator, Reader};
use crate::problem::Problem;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use control::explained::Explained;
use control::observed::Observed;
use control::protocol::{Reply, Request};
use control::section::Section;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// The new volume.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Its name, also as an NBD export.
    name: String,
    /// The device of its data.
    origin: Device,
    /// Its pool.
    pool: String,
    /// `write-through`, `write-around` or `pass-through`.
    mode: Option<String>,
    /// Its size, such as `10GiB`; all of the origin unless given.
    size: Option<String>,
    /// Refuse every write of clients.
    #[serde(default)]
    read_only: bool,
}

/// Serve a volume
#[utoipa::path(post, path = "/api/v1/volumes", tag = "volumes", request_body = NewVolume, responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn add(
    operator: Operator,
    State(app): State<App>,
    Body(new): Body<NewVolume>,
) -> Result<StatusCode, Problem> {
    let device = new.origin.section().flag("read_only", new.read_only);
    let device = new.origin.is_new().then(|| device.finish());
    let volume = Section::default()
        .text("name", &new.name)
        .text("origin", &new.origin.name)
        .text("pool", &new.pool)
        .optional("mode", new.mode.as_deref())
        .optional("size", new.size.as_deref())
        .flag("read_only", new.read_only)
        .finish();
    change(&app, &operator, Request::AddVolume { volume, device }).await
}

/// Serve a volume no more, once its requests in flight have ended
#[utoipa::path(delete, path = "/api/v1/volumes/{volume}", tag = "volumes",
    params(("volume" = String, Path)), responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn remove(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<StatusCode, Problem> {
    change(&app, &operator, Request::RemoveVolume { volume }).await
}

/// The mode of a volume: its use of the pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mode {
    /// `write-through`, `write-around`, `pass-through` or `write-back`.
    mode: String,
    /// Of write-back: the two devices of its log; those of the configuration unless given.
    #[serde(default)]
    log: Vec<Device>,
    /// Its journal: the volume becomes journaled.
    journal: Option<Device>,
}

/// Change how a volume uses its pool
#[utoipa::path(put, path = "/api/v1/volumes/{volume}/mode", tag = "volumes",
    params(("volume" = String, Path)), request_body = Mode, responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn set_mode(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
    Body(Mode { mode, log, journal }): Body<Mode>,
) -> Result<StatusCode, Problem> {
    let request = Request::SetMode {
        volume,
        mode,
        log: log.iter().map(Device::named_or_new).collect(),
        journal: journal.as_ref().map(Device::named_or_new),
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
    params(("volume" = String, Path)), request_body = Off, responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn set_off(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
    Body(Off { off }): Body<Off>,
) -> Result<StatusCode, Problem> {
    change(&app, &operator, Request::SetOff { volume, off }).await
}

/// A device in the place of another.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The new device, which must be blank.
    device: Device,
}

/// Replace a device of the log of a write-back volume, or its journal
#[utoipa::path(put, path = "/api/v1/volumes/{volume}/log/{device}", tag = "volumes",
    params(("volume" = String, Path), ("device" = String, Path)), request_body = Replacement,
    responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn replace_log(
    operator: Operator,
    State(app): State<App>,
    Path((volume, device)): Path<(String, String)>,
    Body(Replacement { device: by }): Body<Replacement>,
) -> Result<StatusCode, Problem> {
    let by = by.named_or_new();
    change(&app, &operator, Request::ReplaceLog { volume, device, by }).await
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
    params(("volume" = String, Path)), request_body = Quiesced, responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn set_quiesced(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
    Body(Quiesced { quiesced }): Body<Quiesced>,
) -> Result<StatusCode, Problem> {
    let request = match quiesced {
        true => Request::Quiesce { volume },
        false => Request::Resume { volume },
    };
    change(&app, &operator, request).await
}

/// Serve a volume at the present size of its origin; clients connect again
#[utoipa::path(post, path = "/api/v1/volumes/{volume}/grow", tag = "volumes",
    params(("volume" = String, Path)), responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn grow(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<StatusCode, Problem> {
    change(&app, &operator, Request::GrowVolume { volume }).await
}

/// Invalidate the cached lines of a volume after its origin was changed by others
#[utoipa::path(post, path = "/api/v1/volumes/{volume}/invalidate", tag = "volumes",
    params(("volume" = String, Path)), responses(
    (status = 204), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn invalidate(
    operator: Operator,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<StatusCode, Problem> {
    change(&app, &operator, Request::Invalidate { volume }).await
}

/// A range of a volume, in bytes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Range {
    /// Start of the lines to explain.
    start: Option<u64>,
    /// End of these lines.
    end: Option<u64>,
}

/// Explain why a volume is cached or not, its heat, and each line of a range
#[utoipa::path(get, path = "/api/v1/volumes/{volume}/explanation", tag = "volumes",
    params(("volume" = String, Path), Range), responses(
    (status = 200, body = Explained), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn explain(
    _: Asker,
    State(app): State<App>,
    Path(volume): Path<String>,
    Query(range): Query<Range>,
) -> Result<Json<Explained>, Problem> {
    let range = range.start.zip(range.end);
    match app.daemon.ask(Request::Explain { volume, range }).await? {
        Reply::Explained(explained) => Ok(Json(*explained)),
        other => Err(Problem::unexpected(&other)),
    }
}

/// The requests of a volume, and the service of its devices
#[utoipa::path(get, path = "/api/v1/volumes/{volume}/observation", tag = "volumes",
    params(("volume" = String, Path)), responses(
    (status = 200, body = Observed), (status = "default", body = Problem, content_type = "application/problem+json")
))]
pub async fn observe(
    _: Reader,
    State(app): State<App>,
    Path(volume): Path<String>,
) -> Result<Json<Observed>, Problem> {
    match app.daemon.ask(Request::Observe { volume }).await? {
        Reply::Observed(observed) => Ok(Json(*observed)),
        other => Err(Problem::unexpected(&other)),
    }
}
