//! `hotset-lab live mail`: five databases of a mail store, their logs, and scans of all pages.
//!
//! The load is that of the evaluation in virtual time, on files. A test passes if the mean read of
//! each database takes 20 ms at most, and the mean write of the logs 10 ms.
//!
//! Not here: the search for the most threads that pass. Name each number by `--threads`.

use super::mail_store::{FileStore, LOG_BYTES, StoreLoad};
use super::options::LiveArguments;
use super::report::{FigureAbout, LiveReport};
use super::rounds::{self, LivePlace, LoadOutcome};
use super::stage::LiveStage;
use crate::CommandFailure;
use clap::Args;
use experiment::mail::{MailServed, of_all};
use experiment::perc_mail::{self, COMMIT_MS_MAX, READ_MS_MAX, SHAPE, THREADS};
use std::time::Duration;

const NAME: &str = "mail";

#[derive(Args)]
pub struct LiveMail {
    #[command(flatten)]
    at: LiveArguments,
    /// Size of each of the five databases, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    size: u64,
    /// Threads of each database
    #[arg(long, value_name = "N", default_value_t = u64::from(THREADS),
          value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Mean pause of a thread between two pages, in milliseconds; drawn exponentially
    #[arg(long, value_name = "MS", default_value_t = 27,
          value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pause: u64,
    /// Time of each phase, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

pub fn run(command: &LiveMail) -> Result<(), CommandFailure> {
    let bytes = command.size << 20;
    let files = [bytes, LOG_BYTES].repeat(SHAPE.databases as usize);
    let mut stage = LiveStage::raise(&command.at, files.into_iter())?;
    let made = FileStore::make(stage.directory(), bytes, stage.interruption());
    let store = made.map_err(|(file, cause)| stage.failed(&file, cause))?;
    stage.prove_volume(store.first())?;
    let figures = perc_mail::figures();
    let report = LiveReport::new(NAME, &figures.source, stage.page_cache())
        .of(&command.at)
        .asked("size_mib", command.size)
        .asked("threads", command.threads)
        .asked("pause_ms", command.pause)
        .asked("seconds", command.seconds);
    let load = StoreLoad {
        threads: command.threads,
        pause: Duration::from_millis(command.pause),
        span: Duration::from_secs(command.seconds),
    };
    rounds::run(&command.at, &mut stage, report, &about(), |stage, _| {
        let served = store.run(load, stage.interruption());
        let served = served.map_err(CommandFailure::runtime)?;
        Ok(outcome(&served, load.span.as_secs_f64()))
    })?;
    stage.strike()
}

/// The figures: of all databases, of each, of the logs, and of the scan.
fn about() -> Vec<FigureAbout> {
    let figures = perc_mail::figures();
    let beside = |figure: &str, unit| {
        let printed = format!("{figure}.average");
        FigureAbout::new(figure, unit).beside(&figures, "7 threads", &printed)
    };
    let of_each = (1..=SHAPE.databases).flat_map(|number| {
        let read = FigureAbout::new(format!("db{number}.read"), "ms").at_most(READ_MS_MAX);
        [read, FigureAbout::new(format!("db{number}.reads"), "1/s")]
    });
    let all = [beside("iops", "1/s"), beside("read", "ms")];
    let others = [
        FigureAbout::new("write", "ms"),
        beside("log", "ms").at_most(COMMIT_MS_MAX),
        FigureAbout::new("logs", "1/s"),
        FigureAbout::new("scan", "ms"),
        FigureAbout::new("scan.mb_s", "MB/s"),
    ];
    all.into_iter().chain(of_each).chain(others).collect()
}

/// Takes the figures of a load. Requests that were not sent have no time.
fn outcome(served: &MailServed, span_s: f64) -> LoadOutcome {
    let mut outcome = LoadOutcome::default();
    let all = [
        ("read", served.reads),
        ("write", served.writes),
        ("log", served.commits),
        ("scan", served.scans),
    ];
    let all = all.map(|(name, requests)| (name.to_owned(), of_all(&requests)));
    let of_each = (1..).zip(served.reads);
    let of_each = of_each.map(|(number, reads)| (format!("db{number}.read"), reads));
    for (name, requests) in all.into_iter().chain(of_each) {
        if requests.reads > 0 {
            outcome.set(&name, requests.mean_ms());
        }
    }
    for (number, reads) in (1..).zip(served.reads) {
        outcome.set(&format!("db{number}.reads"), reads.reads as f64 / span_s);
    }
    outcome.set("iops", served.pages().reads as f64 / span_s);
    outcome.set("logs", of_all(&served.commits).reads as f64 / span_s);
    outcome.set(
        "scan.mb_s",
        of_all(&served.scans).bytes as f64 / 1e6 / span_s,
    );
    outcome
}
