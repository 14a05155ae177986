//! The command line of hotset.
//!
//! Exit status: 0 if it was done, 1 if it could not be, 2 if the command line
//! or the configuration is wrong; some commands answer by others (`hotset check`).

mod cli;
mod commands;
mod configuration;
mod demo;
mod failure;
mod platform;
mod serve;

use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Clap ends the process with status 2 for a wrong command line.
    let cli = cli::Cli::parse();
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(what)) => {
            eprintln!("{what}");
            ExitCode::from(2)
        }
        Err(Failure::Runtime(what)) => {
            eprintln!("hotset: {what}");
            ExitCode::FAILURE
        }
        Err(Failure::Answered(status)) => ExitCode::from(status),
    }
}
