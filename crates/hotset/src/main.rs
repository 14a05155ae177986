//! The command line of hotset.
//!
//! Exit status: 0 for success, 1 for a failure, 2 if the command line or the configuration is
//! wrong; some commands have others (`hotset check`).

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod cli;
#[allow(
    clippy::print_stderr,
    reason = "a command's own lines, and no daemon's"
)]
mod commands;
mod definition;
mod log;
mod platform;
mod serve;
mod signals;

use clap::{CommandFactory, FromArgMatches};
use clap_complete::CompleteEnv;
use command::{CommandFailure, configuration};
use node::Priority;
use std::process::ExitCode;

fn main() -> ExitCode {
    CompleteEnv::with_factory(|| definition::definition(cli::Cli::command()))
        .var(definition::COMPLETE)
        .bin("hotset")
        .complete();
    // Clap ends the process with status 2 for a wrong command line.
    let matches = definition::definition(cli::Cli::command()).get_matches();
    let cli = cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let ended = match cli.command.run() {
        // The last line of a daemon goes the way of its others.
        Err(CommandFailure::Runtime(what)) => {
            log::line(Priority::Error, &what);
            ExitCode::FAILURE
        }
        ended => command::exit("hotset", ended),
    };
    log::flush();
    ended
}
