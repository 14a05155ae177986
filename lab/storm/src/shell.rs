//! The command line: a request as a process of `hotset`, which may be interrupted.
//!
//! Invariant: a command with an outcome that its operator relies on is interrupted only once the
//! command has named its change; then `hotset job outcome` has the outcome.

use crate::form::RequestParts;
use crate::machine::LOOK;
use crate::weather::TURN;
use crate::world::StormWorld;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Classes of events of commands.
pub const CLASSES: [&str; 1] = ["the outcome of a command is asked for"];

/// Requests, and the words of each command.
const COMMANDS: [(&str, &str); 23] = [
    ("ping", "status --json"),
    ("explain", "explain {volume} 0+1MiB --json"),
    ("reload", "reload"),
    ("set-mode", "volume set-mode {volume} {mode} --log={log}"),
    ("set-off", "volume {off?off:on} {volume}"),
    ("invalidate", "volume invalidate {volume}"),
    ("quiesce", "volume quiesce {volume}"),
    ("resume", "volume resume {volume}"),
    (
        "hold",
        "volume snapshot {forget?--restore:} {volume} -- sleep 0.2",
    ),
    ("replace-log", "volume replace-log {volume} {device} {by}"),
    (
        "add-volume",
        "volume add {name} --origin={origin} --pool={pool} --mode={mode} --size={size}",
    ),
    ("remove-volume", "volume remove {volume}"),
    ("add-pool", "pool add {name} {devices}"),
    ("remove-pool", "pool remove {pool}"),
    ("add-device", "pool add-device {pool} {device}"),
    ("remove-device", "pool remove-device {pool} {device}"),
    ("readmit-device", "pool readmit {pool} {device}"),
    ("fail-member", "array fail {array} {member}"),
    (
        "add-member",
        "array add {array} {device} {overwrite?--yes:}",
    ),
    (
        "replace-member",
        "array replace {array} {member} {device} {overwrite?--yes:}",
    ),
    ("scrub", "array scrub {array} {repair?--repair:}"),
    ("cancel-job", "job cancel {job}"),
    ("pause-job", "job {paused?pause:resume} {job}"),
];

/// Requests with an outcome that their operator relies on.
const AWAITED: [&str; 6] = [
    "quiesce",
    "resume",
    "pause-job",
    "replace-log",
    "add-volume",
    "remove-volume",
];

/// Messages of a command that had no answer from the daemon.
const SILENT: [&str; 3] = [
    "does not answer",
    "has ended the connection",
    "no daemon answers",
];

/// Returns the words of the command for a request, if there is one.
pub fn words(request: &Value) -> Option<Vec<String>> {
    let mut commands = COMMANDS.iter();
    let (_, form) = commands.find(|(what, _)| request["request"] == *what)?;
    Some(RequestParts::of(request).words(form))
}

/// Runs the command for a request. After `patience` the command is interrupted. Returns the outcome
/// in the form of the control socket.
pub fn give(world: &StormWorld, request: &Value, patience: Option<Duration>) -> io::Result<Value> {
    let words = words(request).expect("there is such a command");
    let is_awaited = AWAITED.iter().any(|what| request["request"] == *what);
    let leave = move |said: &str| !is_awaited || change_of(said).is_some();
    let outcome = run(world, &words, patience, &leave)?;
    let Some(change) = outcome["left"].as_str().and_then(change_of) else {
        return Ok(outcome);
    };
    world.found.met(CLASSES[0]);
    let words = ["job", "outcome", change].map(str::to_owned);
    run(world, &words, None, &|_| false)
}

/// The change that a command has named.
fn change_of(said: &str) -> Option<&str> {
    let (_, change) = said.split_once("`hotset job outcome ")?;
    change.split_once('`').map(|(change, _)| change)
}

/// Runs `hotset`, and interrupts it after `patience` if `leave` permits that by its messages.
fn run(
    world: &StormWorld,
    words: &[String],
    patience: Option<Duration>,
    leave: &dyn Fn(&str) -> bool,
) -> io::Result<Value> {
    let said = tempfile::tempfile_in(&world.machine.folder)?;
    let mut command = world.machine.hotset();
    command.args(words).stdout(Stdio::null());
    let mut process = command.stderr(said.try_clone()?).spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait()? {
            break status;
        }
        if world.weather.overdue(begun, TURN).is_some() {
            process.kill()?;
            process.wait()?;
            return Err(ErrorKind::TimedOut.into());
        }
        let is_enough = patience.is_some_and(|patience| begun.elapsed() > patience);
        if world.weather.is_ending() || is_enough && leave(&text(&said)?) {
            interrupt(&process);
        }
        sleep(LOOK);
    };
    let said = text(&said)?;
    match status.code() {
        Some(0) => Ok(json!("done")),
        None => Ok(json!({ "left": said })),
        Some(_) if SILENT.iter().any(|silent| said.contains(silent)) => {
            world.weather.silence(begun, &said)
        }
        Some(_) => Ok(json!({ "error": said })),
    }
}

fn interrupt(process: &Child) {
    // SAFETY: no pointers are involved; the child has not been waited for.
    unsafe { libc::kill(process.id() as i32, libc::SIGINT) };
}

/// The contents of a file.
fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_by_the_message_of_its_command() {
        let said = "hotset: another change comes first; it goes on though you leave, and `hotset \
                    job outcome 186e-7` says what came of it\n";
        assert_eq!(change_of(said), Some("186e-7"));
        assert_eq!(change_of("hotset: no volume is named"), None);
    }
}
