//! Arrays: their members, and scrubs. The status shows the progress of a rebuild or a scrub.

use super::body::{Body, DeviceBody, Path};
use super::change::change;
use crate::app::App;
use crate::gate::Operator;
use crate::problem::ProblemAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use control::protocol::ControlRequest;
use serde::Deserialize;
use utoipa::ToSchema;

/// A device for an array.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMember {
    /// The device.
    device: DeviceBody,
    /// Overwrite the device although data on it is lost.
    #[serde(default)]
    overwrite: bool,
}

/// Add a device to an array: a member that was lost, or a spare
#[utoipa::path(post, path = "/api/v1/arrays/{array}/members", tag = "arrays",
    params(("array" = String, Path)), request_body = NewMember)]
pub async fn add_member(
    operator: Operator,
    State(app): State<App>,
    Path(array): Path<String>,
    Body(new): Body<NewMember>,
) -> Result<StatusCode, ProblemAnswer> {
    let request = ControlRequest::AddMember {
        array,
        device: new.device.named_or_new(),
        overwrite: new.overwrite,
    };
    change(&app, &operator, request).await
}

/// Take a member out of an array
#[utoipa::path(delete, path = "/api/v1/arrays/{array}/members/{member}", tag = "arrays",
    params(("array" = String, Path), ("member" = String, Path, description = "Its device, or the number of its role")))]
pub async fn fail_member(
    operator: Operator,
    State(app): State<App>,
    Path((array, member)): Path<(String, String)>,
) -> Result<StatusCode, ProblemAnswer> {
    change(
        &app,
        &operator,
        ControlRequest::FailMember { array, member },
    )
    .await
}

/// Put a device in a member's place
#[utoipa::path(put, path = "/api/v1/arrays/{array}/members/{member}/device", tag = "arrays",
    params(("array" = String, Path), ("member" = String, Path, description = "Its device, or the number of its role")),
    request_body = NewMember)]
pub async fn replace_member(
    operator: Operator,
    State(app): State<App>,
    Path((array, member)): Path<(String, String)>,
    Body(new): Body<NewMember>,
) -> Result<StatusCode, ProblemAnswer> {
    let request = ControlRequest::ReplaceMember {
        array,
        member,
        device: new.device.named_or_new(),
        overwrite: new.overwrite,
    };
    change(&app, &operator, request).await
}

/// The options of a scrub.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubBody {
    /// Repair differences.
    #[serde(default)]
    repair: bool,
}

/// Begin to compare the copies and the parity of an array
#[utoipa::path(post, path = "/api/v1/arrays/{array}/scrub", tag = "arrays",
    params(("array" = String, Path)), request_body = inline(ScrubBody))]
pub async fn scrub(
    operator: Operator,
    State(app): State<App>,
    Path(array): Path<String>,
    Body(ScrubBody { repair }): Body<ScrubBody>,
) -> Result<StatusCode, ProblemAnswer> {
    change(&app, &operator, ControlRequest::Scrub { array, repair }).await
}
