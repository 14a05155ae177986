//! The command line of hotset.
//!
//! Exit status: 0 if it was done, 1 if it could not be, 2 if the command line
//! or the configuration is wrong; some commands answer by others (`hotset check`).

mod cli;
mod commands;
mod platform;
mod serve;

use clap::Parser;
use command::{Failure, configuration};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Clap ends the process with status 2 for a wrong command line.
    let cli = cli::Cli::parse();
    command::exit("hotset", cli.command.run())
}
