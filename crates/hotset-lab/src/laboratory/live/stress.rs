//! `hotset-lab live stress`: the sweep of the published stress evaluation by fio, on a file.
//!
//! Requests are direct, as those of `hotset-lab run perc --device`, and measured by the same code.

use super::LiveArguments;
use super::report::{FigureAbout, LiveReport};
use super::rounds::{self, LoadOutcome};
use super::stage::LiveStage;
use crate::CommandFailure;
use crate::laboratory::perc::SOURCE;
use clap::Args;
use fastrand::Rng;
use lab::perc::{SweepPoint, ThreadWorkload, WORKLOADS, direct_point, verb};
use std::fs;
use std::path::Path;
use std::time::Duration;
use testbed::tools::missing;

const NAME: &str = "stress";
/// Draws the bytes of the file.
const CONTENT: u64 = 9;
/// A new file system has this directory.
const LOST_AND_FOUND: &str = "lost+found";

#[derive(Args)]
pub struct LiveStress {
    #[command(flatten)]
    at: LiveArguments,
    /// Write too: PATH must hold nothing else
    #[arg(long)]
    yes: bool,
    /// Size of the file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    size: u64,
    /// Requests at a time; several numbers are a sweep
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,4,16,64,256",
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: Vec<u64>,
    /// Time of each point, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

pub fn run(command: &LiveStress) -> Result<(), CommandFailure> {
    if missing(&["fio"]).is_some() {
        let what = "fio: missing (no such program here). Install the Debian package fio.";
        return Err(CommandFailure::runtime(what));
    }
    if command.yes {
        require_empty(&command.at.path)?;
    }
    let bytes = command.size << 20;
    let mut stage = LiveStage::raise(&command.at, [bytes].into_iter())?;
    let file = stage.directory().join("file");
    let written = stage.write_file(&file, bytes, &mut Rng::with_seed(CONTENT));
    written.map_err(|cause| stage.failed(&file, cause))?;
    stage.prove_volume(&file)?;
    let workloads = WORKLOADS.into_iter();
    let workloads: Vec<_> = workloads.filter(|w| command.yes || !w.write).collect();
    let sweep: Vec<(ThreadWorkload, u64)> = workloads
        .iter()
        .flat_map(|workload| command.threads.iter().map(|threads| (*workload, *threads)))
        .collect();
    let units = [
        ("iops", "1/s"),
        ("mb_s", "MB/s"),
        ("latency", "ms"),
        ("p99", "ms"),
    ];
    let about: Vec<FigureAbout> = sweep
        .iter()
        .flat_map(|(workload, threads)| {
            let named = |(figure, unit)| FigureAbout::new(name(*workload, *threads, figure), unit);
            units.map(named)
        })
        .collect();
    let report = LiveReport::new(NAME, SOURCE, stage.page_cache())
        .of(&command.at)
        .asked("size_mib", command.size)
        .asked("writes", command.yes)
        .asked("threads", format!("{:?}", command.threads))
        .asked("seconds", command.seconds)
        .note("the evaluation printed gains of a second controller: no figure stands beside");
    let span = Duration::from_secs(command.seconds);
    rounds::run(&command.at, &mut stage, report, &about, |stage| {
        let mut outcome = LoadOutcome::default();
        for (workload, threads) in &sweep {
            stage.require_going().map_err(CommandFailure::runtime)?;
            let point = direct_point(&file, *workload, *threads, span);
            let point = point.map_err(CommandFailure::Runtime)?;
            outcome.values.extend(values(*workload, &point));
        }
        Ok(outcome)
    })?;
    stage.strike()
}

/// The name of a figure: `randread.4.iops`.
fn name(workload: ThreadWorkload, threads: u64, figure: &str) -> String {
    format!("{}.{threads}.{figure}", verb(workload))
}

/// The figures of a point.
fn values(workload: ThreadWorkload, point: &SweepPoint) -> [(String, f64); 4] {
    let values = [
        ("iops", point.iops),
        ("mb_s", point.mb_s),
        ("latency", point.latency_ms_mean),
        ("p99", point.latency_ms_p99),
    ];
    values.map(|(figure, value)| (name(workload, point.threads, figure), value))
}

/// An error if the directory holds anything.
fn require_empty(path: &Path) -> Result<(), CommandFailure> {
    // A path that cannot be read is no place for a stage either.
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name != LOST_AND_FOUND {
            return Err(CommandFailure::Usage(format!(
                "{}: not empty ({}). Give --yes with a directory that holds nothing else.",
                path.display(),
                name.display()
            )));
        }
    }
    Ok(())
}
