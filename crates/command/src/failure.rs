//! The ends of a command without success.

use control::plain;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// The cause for which a command ends without success.
#[derive(Debug)]
pub enum CommandFailure {
    /// The command line or the configuration is wrong; one line for each error.
    Usage(String),
    /// An error while the command ran.
    Runtime(String),
    /// The command has printed its answer; the exit status repeats it.
    Answered(u8),
}

impl CommandFailure {
    /// An error while the command ran, from its cause.
    pub fn runtime(cause: impl fmt::Display) -> CommandFailure {
        CommandFailure::Runtime(cause.to_string())
    }

    /// An error of what was tried: a clause, before its cause.
    pub fn of(what: &str, cause: impl fmt::Display) -> CommandFailure {
        CommandFailure::Runtime(format!("{what}: {cause}"))
    }
}

/// Exit status of a command that failed.
pub const FAILED: u8 = 1;
/// Exit status of a wrong command line or configuration.
pub const MISUSED: u8 = 2;
/// Exit status of a trouble that `status` was to find, and of a difference that `check` found.
pub const FOUND: u8 = 3;
/// Exit status of a difference for which the daemon has to be restarted.
pub const NEEDS_RESTART: u8 = 4;

/// Exit statuses and their meanings; the first three are those of every command.
pub const EXIT_STATUSES: [(u8, &str); 5] = [
    (0, "the command succeeded"),
    (FAILED, "the command failed"),
    (MISUSED, "the command line or the configuration is wrong"),
    (
        FOUND,
        "`status --exit-code` found a trouble; `check --against-running` found a difference that \
         `hotset reload` applies",
    ),
    (
        NEEDS_RESTART,
        "`check --against-running` found a difference that needs a restart",
    ),
];

/// Prints to standard output. A pipe that its reader has closed is no failure.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    written.map_err(|cause| match cause.kind() {
        io::ErrorKind::BrokenPipe => CommandFailure::Answered(0),
        _ => CommandFailure::Runtime(format!("standard output: {cause}")),
    })
}

/// Prints a line, as [`print`] prints text.
pub fn print_line(line: impl fmt::Display) -> Result<(), CommandFailure> {
    print(format!("{line}\n"))
}

/// Prints the cause of a failure, and returns the exit status of `program`.
pub fn exit(program: &str, ended: Result<(), CommandFailure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandFailure::Usage(what)) => {
            let _ = writeln!(std::io::stderr(), "{}", plain(what));
            ExitCode::from(MISUSED)
        }
        Err(CommandFailure::Runtime(what)) => {
            let _ = writeln!(std::io::stderr(), "{program}: {}", plain(what));
            ExitCode::FAILURE
        }
        Err(CommandFailure::Answered(status)) => ExitCode::from(status),
    }
}
