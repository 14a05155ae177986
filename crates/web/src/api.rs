//! The API: resources under `/api/v1`, each a question or a change of the control socket. The
//! daemon alone checks the meaning of a body.

#[cfg(any(test, feature = "fuzzing"))]
pub use places::listed;
pub use places::{PlaceAnswer as BlockDevice, block_devices};

mod advice;
mod arrays;
mod body;
mod change;
mod history;
mod jobs;
mod live;
mod places;
mod pools;
mod recording;
mod session;
mod set_up;
mod volumes;

use crate::app::App;
use crate::events::WebEvent;
use crate::gate::ReaderCaller;
use crate::problem::ProblemAnswer;
use axum::Json;
use axum::extract::State;
use control::status::Status;
use utoipa::OpenApi;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, Response, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        api.info.license = None;
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "hotset",
        description = "A running daemon: its state, and changes of it. What is changed is written into the \
                       daemon's configuration file too, unless the address ends in `?temporary`.",
        version = "1"
    ),
    security(("token" = [])),
    components(schemas(ProblemAnswer)),
    modifiers(&Bearer),
)]
struct Api;

/// The resources, described.
pub fn resources() -> OpenApiRouter<App> {
    let mut router = OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(session::sign_in, session::shown, session::sign_out))
        .routes(routes!(status))
        .routes(routes!(live::live))
        .routes(routes!(events))
        .routes(routes!(history::history))
        .routes(routes!(places::places))
        .routes(routes!(set_up::set_up))
        .routes(routes!(set_up::preview))
        .routes(routes!(volumes::add))
        .routes(routes!(volumes::remove))
        .routes(routes!(volumes::set_mode))
        .routes(routes!(volumes::set_off))
        .routes(routes!(volumes::replace_log))
        .routes(routes!(volumes::set_quiesced))
        .routes(routes!(volumes::grow))
        .routes(routes!(volumes::invalidate))
        .routes(routes!(volumes::explain))
        .routes(routes!(volumes::observe))
        .routes(routes!(advice::advise))
        .routes(routes!(recording::record))
        .routes(routes!(pools::add_pool))
        .routes(routes!(pools::remove_pool))
        .routes(routes!(pools::add_device))
        .routes(routes!(pools::remove_device))
        .routes(routes!(pools::readmit_device))
        .routes(routes!(arrays::add_member))
        .routes(routes!(arrays::fail_member))
        .routes(routes!(arrays::replace_member))
        .routes(routes!(arrays::scrub))
        .routes(routes!(jobs::jobs))
        .routes(routes!(jobs::set_paused))
        .routes(routes!(jobs::cancel));
    complete_answers(router.get_openapi_mut());
    describe_temporary(router.get_openapi_mut());
    router
}

/// Completes the answers of each operation: one without an answer says that it is done, and each may
/// have a problem. All are described, as the standard requires.
fn complete_answers(api: &mut utoipa::openapi::OpenApi) {
    let schema = Ref::from_schema_name("ProblemAnswer");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let problem = ResponseBuilder::new().content("application/problem+json", content);
    let problem = problem.build();
    for item in api.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            let answers = &mut operation.responses.responses;
            if answers.is_empty() {
                answers.insert("204".into(), RefOr::T(Response::default()));
            }
            let mut described = answers.values().filter_map(|answer| match answer {
                RefOr::T(answer) => Some(&answer.description),
                RefOr::Ref(_) => None,
            });
            // An operation that describes its answers has no others.
            if described.any(String::is_empty) {
                answers.insert("default".into(), RefOr::T(problem.clone()));
            }
            for (status, answer) in answers {
                if let RefOr::T(answer) = answer
                    && answer.description.is_empty()
                {
                    let what = match status.as_str() {
                        "default" => "What is wrong, and what to do about it",
                        "204" => "It is done",
                        _ => "What was asked for",
                    };
                    answer.description = what.to_owned();
                }
            }
        }
    }
}

/// Adds the parameter `temporary` to the description of each change.
fn describe_temporary(api: &mut utoipa::openapi::OpenApi) {
    let temporary = ParameterBuilder::new()
        .name("temporary")
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .schema(Some(Object::with_type(Type::Boolean)))
        .description(Some(
            "Leave the configuration file as it is: the change holds until the daemon ends",
        ))
        .build();
    let paths = api.paths.paths.iter_mut();
    for (_, item) in paths.filter(|(path, _)| !path.ends_with("/session")) {
        let changes = [&mut item.put, &mut item.post, &mut item.delete];
        for operation in changes.into_iter().flatten() {
            let parameters = operation.parameters.get_or_insert_default();
            parameters.push(RefOr::T(temporary.clone()));
        }
    }
}

/// The description of all resources, in JSON.
pub fn description() -> String {
    let api = resources().into_openapi();
    let text = api.to_pretty_json().expect("a description is plain data");
    text + "\n"
}

/// The state and rates of the daemon
#[utoipa::path(get, path = "/api/v1/status", tag = "daemon", responses((status = 200, body = Status)))]
async fn status(_: ReaderCaller, State(app): State<App>) -> Result<Json<Status>, ProblemAnswer> {
    let report = app.daemon.report().await?;
    Ok(Json(report.status.clone()))
}

/// Events of the daemon, the oldest first
#[utoipa::path(get, path = "/api/v1/events", tag = "daemon", responses((status = 200, body = Vec<WebEvent>)))]
async fn events(_: ReaderCaller, State(app): State<App>) -> Json<Vec<WebEvent>> {
    Json(app.daemon.events())
}
