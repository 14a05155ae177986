//! `hotset trace`.

mod convert;
mod info;
mod record;
mod replay;

use super::traces::{OnDevice, format};
use crate::Failure;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use trace::Format;

#[derive(Subcommand)]
pub enum Trace {
    /// Import a trace of another tool
    ///
    /// Reads blkparse text, MSR Cambridge, SPC, Systor '17, Alibaba and
    /// Tencent CSV, oracleGeneral, and hotset's own forms, compressed by zstd
    /// or gzip or not.
    Import(Convert),
    /// Convert a trace to another form
    Convert(Convert),
    /// Record what clients ask of a volume of a running daemon
    ///
    /// Goes on until SIGINT, SIGTERM or one of its limits; the file is written
    /// in any case.
    Record(record::Record),
    /// Send a trace to a file, a block device or a served volume
    ///
    /// Sends the reads only, unless --writes says otherwise. The load is open:
    /// requests are sent when they are due, and latencies count from then.
    Replay(replay::ReplayCommand),
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

#[derive(Args)]
pub struct Convert {
    /// The trace; - for standard input
    from: PathBuf,
    /// The file to write; its ending tells the form: .hottrace, .parquet, .csv, .csv.zst or
    /// .oracleGeneral
    to: PathBuf,
    #[command(flatten)]
    input: OnDevice,
    /// The form to write: binary, parquet, csv or oracle-general
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    to_format: Option<Format>,
    /// Replace the file if there is one
    #[arg(long)]
    force: bool,
}

pub fn run(command: Trace) -> Result<(), Failure> {
    match command {
        Trace::Import(convert) | Trace::Convert(convert) => convert::run(&convert),
        Trace::Record(record) => record::run(&record),
        Trace::Replay(replay) => replay::run(&replay),
        Trace::Info {
            traces,
            input,
            json,
        } => info::run(&traces, &input, json),
    }
}
