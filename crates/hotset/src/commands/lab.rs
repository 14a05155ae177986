//! `hotset lab`.

use crate::Failure;
use crate::cli::Lab;
use lab::crash::{self, Request};

pub fn run(command: Lab) -> Result<(), Failure> {
    let Lab::Crash {
        cases,
        seed,
        threads,
        boundaries,
        mutations,
        json,
    } = command;
    let request = Request {
        cases,
        seed,
        threads,
        boundaries,
        mutations,
        json,
    };
    crash::command(&request).map_err(Failure::Runtime)
}
