//! Kinds of operators: the ways by which a request reaches the daemon.
//!
//! Invariants:
//!     each kind takes requests of the control socket, and returns outcomes in its form
//!     a request that a kind cannot take goes to another kind; the control socket takes all
//!
//! An outcome with `error` is a refusal. One with `left` is unknown: the request may be carried out
//! yet. A missing answer is an error, unless the daemon was paused.

use crate::desk::{self, Mistake};
use crate::plan::{BACK, one};
use crate::world::StormWorld;
use crate::{shell, site};
use fastrand::Rng;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;

/// Requests that the configuration keeps.
const KEPT: [&str; 11] = [
    "set-mode",
    "set-off",
    "replace-log",
    "add-pool",
    "remove-pool",
    "add-volume",
    "remove-volume",
    "add-device",
    "remove-device",
    "add-member",
    "replace-member",
];

/// A kind of operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperatorKind {
    /// A client of the control socket.
    Socket,
    /// The command line, at times interrupted after a while.
    CommandLine(Option<Duration>),
    /// A client of the web server.
    Web,
    /// A person with an editor, and `hotset reload`; at times a mistake comes before the edit.
    Person(Option<Mistake>),
    /// A script that edits the configuration and sends SIGHUP.
    Script,
}

/// Every kind, with each of its outcomes.
pub fn classes() -> Vec<String> {
    let ends = |by: OperatorKind, ends: &[&str]| -> Vec<String> {
        let named = ends.iter().map(|end| format!("{} is {end}", by.name()));
        named.collect()
    };
    let all = [
        ends(OperatorKind::Socket, &["done", "refused"]),
        ends(
            OperatorKind::CommandLine(None),
            &["done", "refused", "left"],
        ),
        ends(OperatorKind::Web, &["done", "refused", "left"]),
        ends(OperatorKind::Person(None), &["done", "refused"]),
        ends(OperatorKind::Script, &["done", "refused"]),
        shell::CLASSES.map(str::to_owned).to_vec(),
        desk::CLASSES.map(str::to_owned).to_vec(),
    ];
    all.concat()
}

impl OperatorKind {
    /// Draws a kind that takes this request.
    pub fn draw(world: &StormWorld, request: &Value, rng: &mut Rng) -> OperatorKind {
        loop {
            let kind = match rng.u8(..5) {
                0 => OperatorKind::Socket,
                1 => {
                    let patience = rng.u64(..4000);
                    let is_interrupted = rng.u8(..3) == 0;
                    let patience = is_interrupted.then(|| Duration::from_millis(patience));
                    OperatorKind::CommandLine(patience)
                }
                2 => OperatorKind::Web,
                3 => {
                    let mistake = one(rng, &Mistake::ALL);
                    OperatorKind::Person((rng.u8(..4) == 0).then_some(mistake))
                }
                _ => OperatorKind::Script,
            };
            if kind.takes(world, request) {
                return kind;
            }
        }
    }

    /// Draws a kind by which the outcome of a request for a volume that comes or goes is known.
    pub fn draw_sure(rng: &mut Rng) -> OperatorKind {
        let others = [OperatorKind::CommandLine(None), OperatorKind::Person(None)];
        match rng.bool() {
            true => OperatorKind::Socket,
            false => one(rng, &others),
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            OperatorKind::Socket => "the control socket",
            OperatorKind::CommandLine(_) => "the command line",
            OperatorKind::Web => "the web server",
            OperatorKind::Person(_) => "a person at the file",
            OperatorKind::Script => "a script at the file",
        }
    }

    fn takes(self, world: &StormWorld, request: &Value) -> bool {
        match self {
            OperatorKind::Socket => true,
            OperatorKind::CommandLine(_) => shell::words(request).is_some(),
            OperatorKind::Web => site::call(request).is_some(),
            OperatorKind::Person(_) => desk::takes(request),
            // The outcome of a signal is not known in time where data has to be written back.
            OperatorKind::Script => {
                let back = world.plan.volumes[BACK].name;
                desk::takes(request) && request["volume"] != back
            }
        }
    }

    /// Gives a request. Returns the outcome in the form of the control socket.
    pub fn give(self, world: &StormWorld, request: &Value) -> io::Result<Value> {
        match self {
            OperatorKind::Socket => match KEPT.iter().any(|what| request["request"] == *what) {
                true => world.machine.change(request, world.weather),
                false => world.machine.ask(request, world.weather),
            },
            OperatorKind::CommandLine(patience) => shell::give(world, request, patience),
            OperatorKind::Web => world.site.give(world.weather, request),
            OperatorKind::Person(mistake) => {
                let reload = || shell::give(world, &json!({"request": "reload"}), None);
                desk::give(world, request, mistake, &reload)
            }
            OperatorKind::Script => {
                desk::give(world, request, None, &|| desk::reload_by_signal(world))
            }
        }
    }
}
