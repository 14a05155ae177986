//! `hotset-lab live stress`: the sweep of the published stress evaluation by fio, on a file.
//!
//! Requests are direct, as those of `hotset-lab run perc --device`, and measured by the same code.

use super::options::LiveArguments;
use super::report::{FigureAbout, LiveReport};
use super::rounds::{self, Interruption, LivePlace, LoadOutcome, Phase};
use super::stage::LiveStage;
use crate::CommandFailure;
use clap::Args;
use fastrand::Rng;
use measurements::perc::{self, SweepPoint, ThreadWorkload, WORKLOADS, direct_point, verb};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::tools::missing;

const NAME: &str = "stress";
/// Draws the bytes of the file.
const CONTENT: u64 = 9;
/// A new file system has this directory.
const LOST_AND_FOUND: &str = "lost+found";

/// The phases of two devices.
const A: Phase = "a";
const B: Phase = "b";

#[derive(Args)]
#[command(mut_arg("path", |path| path.required(false).required_unless_present("device")))]
pub struct LiveStress {
    #[command(flatten)]
    at: LiveArguments,
    /// Instead of PATH: a device or file to be read and never written; two of them take turns
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["path", "volume", "without", "yes", "size"])]
    device: Vec<PathBuf>,
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
    match command.device.is_empty() {
        true => on_path(command),
        false => on_devices(command),
    }
}

/// Sweeps a file that is made on the path.
fn on_path(command: &LiveStress) -> Result<(), CommandFailure> {
    if command.yes {
        require_empty(command.at.path())?;
    }
    let bytes = command.size << 20;
    let mut stage = LiveStage::raise(&command.at, [bytes].into_iter())?;
    let file = stage.directory().join("file");
    let written = stage.write_file(&file, bytes, &mut Rng::with_seed(CONTENT));
    written.map_err(|cause| stage.failed(&file, cause))?;
    stage.prove_volume(&file)?;
    let report = LiveReport::new(NAME, &perc::figures().source, stage.page_cache())
        .of(&command.at)
        .asked("size_mib", command.size)
        .asked("writes", command.yes)
        .note("the evaluation printed gains of a second controller: no figure stands beside");
    sweep(command, &mut stage, report, |_| &file)?;
    stage.strike()
}

/// Sweeps two devices in turn.
fn on_devices(command: &LiveStress) -> Result<(), CommandFailure> {
    let [a, b] = &command.device[..] else {
        let what = "--device: one device or more than two. Name two, which take turns.";
        return Err(CommandFailure::Usage(what.into()));
    };
    for device in [a, b] {
        File::open(device).map_err(|cause| {
            CommandFailure::Usage(format!(
                "{}: cannot be read ({cause}). Name two devices or files.",
                device.display()
            ))
        })?;
    }
    let mut pair = DevicePair {
        names: [a, b].map(|device| device.display().to_string()),
        interruption: Interruption::listen()?,
    };
    let report = LiveReport::new(NAME, &perc::figures().source, "not used (direct requests)")
        .asked(A, a.display())
        .asked(B, b.display());
    sweep(command, &mut pair, report, |phase| match phase == A {
        true => a,
        false => b,
    })
}

/// Two devices that take turns.
struct DevicePair {
    names: [String; 2],
    interruption: Interruption,
}

impl LivePlace for DevicePair {
    fn name(&self) -> String {
        self.names.join(", ")
    }

    fn phases(&self) -> &'static [&'static [Phase]] {
        &[&[A], &[B]]
    }

    fn prepare(&mut self, _: Phase) -> Result<(), CommandFailure> {
        Ok(())
    }

    fn hit_percent(&mut self) -> Result<Option<f64>, CommandFailure> {
        Ok(None)
    }

    fn interruption(&self) -> &Interruption {
        &self.interruption
    }
}

/// Runs the rounds; `target` is the file or device of a phase.
fn sweep<'a, P: LivePlace>(
    command: &LiveStress,
    place: &mut P,
    report: LiveReport,
    target: impl Fn(Phase) -> &'a PathBuf,
) -> Result<(), CommandFailure> {
    let workloads = WORKLOADS.iter().filter(|w| command.yes || !w.write);
    let threads = |workload| {
        command
            .threads
            .iter()
            .map(move |threads| (workload, *threads))
    };
    let sweep: Vec<(&ThreadWorkload, u64)> = workloads.flat_map(threads).collect();
    let units = [
        ("iops", "1/s"),
        ("mb_s", "MB/s"),
        ("latency", "ms"),
        ("p99", "ms"),
    ];
    let about = sweep.iter().flat_map(|(workload, threads)| {
        units.map(|(figure, unit)| FigureAbout::new(name(workload, *threads, figure), unit))
    });
    let about: Vec<FigureAbout> = about.collect();
    let report = report
        .asked("threads", format!("{:?}", command.threads))
        .asked("seconds", command.seconds);
    let span = Duration::from_secs(command.seconds);
    rounds::run(&command.at, place, report, &about, |place, phase| {
        let mut outcome = LoadOutcome::default();
        for (workload, threads) in &sweep {
            let going = place.interruption().require_none();
            going.map_err(CommandFailure::runtime)?;
            let point = direct_point(target(phase), **workload, *threads, span);
            let point = point.map_err(CommandFailure::Runtime)?;
            outcome.values.extend(values(workload, &point));
        }
        Ok(outcome)
    })
}

/// The name of a figure: `randread.4.iops`.
fn name(workload: &ThreadWorkload, threads: u64, figure: &str) -> String {
    format!("{}.{threads}.{figure}", verb(*workload))
}

/// The figures of a point.
fn values(workload: &ThreadWorkload, point: &SweepPoint) -> [(String, f64); 4] {
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
