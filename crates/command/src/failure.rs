//! How a command ends without success.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command ends without success.
#[derive(Debug)]
pub enum Failure {
    /// The command line or the configuration is wrong; one line for each error.
    Usage(String),
    /// It could not be done.
    Runtime(String),
    /// What was asked has been answered; the exit status says it too.
    Answered(u8),
}

impl Failure {
    /// It could not be done, for this cause.
    pub fn runtime(cause: impl fmt::Display) -> Failure {
        Failure::Runtime(cause.to_string())
    }
}

/// Prints to standard output. One that its reader has closed is no failure.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    written.map_err(|cause| match cause.kind() {
        io::ErrorKind::BrokenPipe => Failure::Answered(0),
        _ => Failure::Runtime(format!("standard output: {cause}")),
    })
}

/// The exit status of `program`, whose command has ended so; why it failed is printed.
pub fn exit(program: &str, ended: Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(what)) => {
            let _ = writeln!(std::io::stderr(), "{what}");
            ExitCode::from(2)
        }
        Err(Failure::Runtime(what)) => {
            let _ = writeln!(std::io::stderr(), "{program}: {what}");
            ExitCode::FAILURE
        }
        Err(Failure::Answered(status)) => ExitCode::from(status),
    }
}
