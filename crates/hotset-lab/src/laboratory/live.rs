//! `hotset-lab live`: the loads of published evaluations on real files, through real servers.

mod access_log;
mod log;
mod oltp;
pub mod report;
mod rounds;
mod stage;
mod stress;
mod web;

use crate::CommandFailure;
use block::Nanos;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Subcommand)]
pub enum LiveCommand {
    /// Send the requests of an access log to nginx, each as soon as the one before is answered
    ///
    /// nginx serves a file for each address of the log, as large as the log says, on PATH. The page
    /// cache is dropped before each list. Figures of a published evaluation are printed beside.
    Log(log::LiveLog),
    /// Have users load the pages of a web site from nginx, think, and load more
    ///
    /// nginx serves HTML pages with 11 or 12 images each, on PATH. Several numbers of users are a
    /// sweep. Figures of a published evaluation are printed beside.
    Web(web::LiveWeb),
    /// Sweep a file by fio: random and sequential requests, more and more at a time
    ///
    /// A file of SIZE on PATH is read by direct requests of 4 KiB and 256 KiB. With --yes the file is
    /// written too. Two devices are compared by reads alone. Needs fio.
    Stress(stress::LiveStress),
    /// Commit transactions of pgbench to a PostgreSQL on PATH
    ///
    /// The server stops before each phase, so that its memory is empty. Needs root and PostgreSQL.
    Oltp(oltp::LiveOltp),
}

/// The storage, the rounds and the results of a live run.
#[derive(Args)]
pub struct LiveArguments {
    /// Directory on the storage; files are made in `hotset-live` below, which is removed at the end
    #[arg(long, value_name = "PATH", required = true)]
    path: Option<PathBuf>,
    /// The volume that is mounted there: each round has it off, cold and warm
    #[arg(long, value_name = "VOLUME")]
    volume: Option<String>,
    /// The control socket of the volume's daemon
    #[arg(
        long,
        value_name = "SOCKET",
        env = "HOTSET_CONTROL",
        default_value = "/run/hotset/control.sock"
    )]
    control: PathBuf,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,
    /// Go on with rounds until so many minutes are over
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    minutes: Option<u64>,
    /// Keep the results in this directory, made if missing; rounds that are there are not run again
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl LiveArguments {
    /// The directory on the storage.
    fn path(&self) -> &Path {
        let path = self.path.as_deref();
        path.expect("clap requires a path where this is asked for")
    }
}

pub fn run(command: &LiveCommand) -> Result<(), CommandFailure> {
    match command {
        LiveCommand::Log(command) => log::run(command),
        LiveCommand::Web(command) => web::run(command),
        LiveCommand::Stress(command) => stress::run(command),
        LiveCommand::Oltp(command) => oltp::run(command),
    }
}

/// A span in the unit of the crate `experiment`.
fn nanos(span: Duration) -> Nanos {
    Nanos(span.as_nanos() as u64)
}
