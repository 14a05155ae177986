//! Bodies and parameters, with errors in the form of problems.

use crate::problem::ProblemAnswer;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts};
use axum::http::StatusCode;
use control::protocol::NamedOrNew;
use control::section::SectionText;
use serde::Deserialize;
use utoipa::ToSchema;

/// A body of JSON.
#[derive(FromRequest)]
#[from_request(via(axum::Json), rejection(ProblemAnswer))]
pub struct Body<T>(pub T);

/// The parameters in an address.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(ProblemAnswer))]
pub struct Path<T>(pub T);

/// The parameters after the question mark.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ProblemAnswer))]
pub struct Query<T>(pub T);

const REMEDY: &str = "see docs/openapi.json for what this address takes";

impl From<JsonRejection> for ProblemAnswer {
    fn from(cause: JsonRejection) -> ProblemAnswer {
        ProblemAnswer::new(cause.status(), cause.body_text(), REMEDY)
    }
}

impl From<PathRejection> for ProblemAnswer {
    fn from(cause: PathRejection) -> ProblemAnswer {
        ProblemAnswer::new(StatusCode::BAD_REQUEST, cause.body_text(), REMEDY)
    }
}

impl From<QueryRejection> for ProblemAnswer {
    fn from(cause: QueryRejection) -> ProblemAnswer {
        ProblemAnswer::new(StatusCode::BAD_REQUEST, cause.body_text(), REMEDY)
    }
}

/// A device of the configuration by its name, or with `path` or `nbd` a new one of that name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NamedOrNewDevice)]
pub struct DeviceBody {
    /// Its name in reports.
    pub name: String,
    /// A file or a block device.
    pub path: Option<String>,
    /// An NBD URI.
    pub nbd: Option<String>,
    /// Its failure domain.
    pub controller: Option<String>,
}

impl DeviceBody {
    /// True if the device is not yet in the configuration.
    pub fn is_new(&self) -> bool {
        self.path.is_some() || self.nbd.is_some()
    }

    /// Its section.
    pub fn section(&self) -> SectionText {
        SectionText::default()
            .text("name", &self.name)
            .optional("path", self.path.as_deref())
            .optional("nbd", self.nbd.as_deref())
            .optional("controller", self.controller.as_deref())
    }

    /// The device in the form of a request.
    pub fn named_or_new(&self) -> NamedOrNew {
        if self.is_new() {
            NamedOrNew::New(self.section().finish())
        } else {
            NamedOrNew::Named(self.name.clone())
        }
    }
}
