//! The options of every live run.

use block::Nanos;
use clap::Args;
use clap::builder::ArgPredicate;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The storage, the rounds and the results of a live run.
#[derive(Args)]
pub struct LiveArguments {
    /// Directory on the storage; files are made in `hotset-live` below, which is removed at the end
    #[arg(long, value_name = "PATH", required = true)]
    pub path: Option<PathBuf>,
    /// The volume that is mounted there: each round has it off, cold and warm
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Storage without a cache in front: one round unless --rounds is given. A later run with the
    /// same --out has its figures beside
    #[arg(long, conflicts_with = "volume")]
    pub without: bool,
    /// The control socket of the volume's daemon
    #[arg(
        long,
        value_name = "SOCKET",
        env = "HOTSET_CONTROL",
        default_value = "/run/hotset/control.sock"
    )]
    pub control: PathBuf,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 5,
          default_value_if("without", ArgPredicate::IsPresent, "1"),
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rounds: u64,
    /// Go on with rounds until so many minutes are over
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub minutes: Option<u64>,
    /// Keep the results in this directory, made if missing; rounds that are there are not run again
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl LiveArguments {
    /// The directory on the storage.
    pub fn path(&self) -> &Path {
        let path = self.path.as_deref();
        path.expect("clap requires a path where this is asked for")
    }
}

/// A span in the unit of the crate `experiment`.
pub fn nanos(span: Duration) -> Nanos {
    Nanos(span.as_nanos() as u64)
}
