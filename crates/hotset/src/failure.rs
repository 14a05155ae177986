//! How a command ends without success.

use std::fmt;

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the configuration is wrong; one line for each error.
    Usage(String),
    /// It could not be done.
    Runtime(String),
    /// What was asked has been answered; the exit status says it too.
    Answered(u8),
}

impl Failure {
    pub(crate) fn runtime(cause: impl fmt::Display) -> Failure {
        Failure::Runtime(cause.to_string())
    }
}
