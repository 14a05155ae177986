//! `hotset trace`.

mod info;
mod record;
mod replay;

use super::elsewhere::Elsewhere;
use super::traces::{OWN, OnDevice};
use crate::CommandFailure;
use clap::Subcommand;
use command::convert::{self, Convert};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum TraceCommand {
    /// Import a trace of another tool
    ///
    /// Reads blktrace, as text of blkparse or binary, fio's iolog, CloudPhysics
    /// vscsi, FIU, MSR Cambridge, SPC, Systor '17, Alibaba and Tencent,
    /// oracleGeneral, and hotset's own forms, compressed by zstd or gzip or
    /// not, or in a tar archive.
    Import(Convert),
    /// Convert a trace to another form
    Convert(Convert),
    /// Record the requests of the clients of a running daemon's volume
    ///
    /// Goes on until SIGINT, SIGTERM or one of its limits; the file is written
    /// in any case.
    Record(record::RecordCommand),
    /// Send a trace to a file, a block device or a served volume
    ///
    /// Sends the reads only, unless --writes says otherwise. The load is open:
    /// requests are sent when they are due, and latencies count from then.
    Replay(replay::ReplayCommand),
    /// A command of hotset-lab
    #[command(hide = true, disable_help_flag = true)]
    Workload(Elsewhere),
    /// Describe a trace: requests, footprint, mix, order, reuse
    Info {
        /// The traces; - for standard input
        #[arg(required = true, value_name = "TRACE")]
        traces: Vec<PathBuf>,
        #[command(flatten)]
        input: OnDevice,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: TraceCommand) -> Result<(), CommandFailure> {
    match command {
        TraceCommand::Import(convert) | TraceCommand::Convert(convert) => {
            convert::run(&convert, &OWN)
        }
        TraceCommand::Record(record) => record::run(&record),
        TraceCommand::Replay(replay) => replay::run(&replay),
        TraceCommand::Workload(words) => {
            Err(words.refused("hotset trace workload", "hotset-lab trace workload"))
        }
        TraceCommand::Info {
            traces,
            input,
            json,
        } => info::run(&traces, &input, json),
    }
}
