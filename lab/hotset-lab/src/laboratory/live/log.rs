//! `hotset-lab live log`: an access log sent again to a web server, as fast as answers come.
//!
//! A connection for each request, as the evaluation's load tool had. Figures are of the crate
//! `experiment`, as its replay in virtual time has them.
//!
//! Not here: the server's own log, which is off.

use super::access_log::LogRequests;
use super::options::{LiveArguments, nanos};
use super::report::{FigureAbout, LiveReport};
use super::rounds::{self, LivePlace, LoadOutcome};
use super::stage::LiveStage;
use crate::CommandFailure;
use crate::web::fetch::{client, fetch};
use crate::web::server::{ServerProgram, WebServer};
use crate::web::threads::share;
use clap::Args;
use experiment::redskin::{self, SHORT, SiteDrive};
use experiment::replay::ReplaySums;
use fastrand::Rng;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

const NAME: &str = "log";
/// Files of a directory, as in the evaluation in virtual time.
const FILES_PER_DIRECTORY: u32 = 200;
/// Draws the bytes of files.
const CONTENT: u64 = 8;
/// Names and units of the figures.
const FIGURES: [(&str, &str); 5] = [
    ("mtt", "ms"),
    ("ttsd", "ms"),
    ("tps", "1/s"),
    ("rbps", "B/s"),
    ("mttfb", "ms"),
];

#[derive(Args)]
pub struct LiveLog {
    #[command(flatten)]
    at: LiveArguments,
    /// The web server
    #[arg(long, value_name = "SERVER", default_value = "nginx")]
    server: ServerProgram,
    /// Access logs in the common or the combined form, in their order; gzip and zstd are read as
    /// they are
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    log: Vec<PathBuf>,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Requests of the log to take, from the first on; all unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
}

pub fn run(command: &LiveLog) -> Result<(), CommandFailure> {
    let most = command.requests.map_or(usize::MAX, |most| most as usize);
    let list = LogRequests::read(&command.log, most).map_err(CommandFailure::Usage)?;
    command.server.require()?;
    let mut stage = LiveStage::raise(&command.at, list.files.iter().copied())?;
    let site = stage.directory().join("site");
    write_site(&site, &list, &stage).map_err(|cause| stage.failed(&site, cause))?;
    let largest = (0..list.files.len() as u32).max_by_key(|file| list.files[*file as usize]);
    stage.prove_volume(&site.join(path_of(largest.unwrap_or(0))))?;
    let server = WebServer::start(command.server, &site, stage.directory(), |server| server)?;
    let figures = redskin::figures();
    let about = |(figure, unit): (&str, &'static str)| {
        let mut about = FigureAbout::new(figure, unit);
        for drive in SiteDrive::ALL.map(SiteDrive::name) {
            let name = format!("{}.{drive}.elevator.{figure}", SHORT.name);
            about = about.beside(&figures, drive, &name);
        }
        about
    };
    let about = FIGURES.map(about);
    let report = report(command, &list, &stage, &figures.source);
    let base = server.base();
    let threads = command.threads as usize;
    rounds::run(&command.at, &mut stage, report, &about, |stage, _| {
        replay(&base, &list, threads, stage).map_err(CommandFailure::runtime)
    })?;
    server.stop()?;
    stage.strike()
}

fn report(command: &LiveLog, list: &LogRequests, stage: &LiveStage, source: &str) -> LiveReport {
    let logs = command.log.iter().map(|log| log.display().to_string());
    let mut report = LiveReport::new(NAME, source, stage.page_cache())
        .of(&command.at)
        .asked("server", command.server.name())
        .asked("logs", logs.collect::<Vec<_>>().join(" "))
        .asked("requests", list.requests.len())
        .asked("files", list.files.len())
        .asked("bytes", list.files.iter().sum::<u64>())
        .asked("threads", command.threads)
        .note(format!(
            "{} requests for {} files; {} lines are other requests and are left out",
            list.requests.len(),
            list.files.len(),
            list.left_out
        ));
    report.notes.extend(list.remark());
    report
}

/// The path of a file below the site.
fn path_of(file: u32) -> String {
    format!("{}/{file}", file / FILES_PER_DIRECTORY)
}

/// Writes the files of the list below `site`; an error if the user ends the run.
fn write_site(site: &Path, list: &LogRequests, stage: &LiveStage) -> io::Result<()> {
    let mut rng = Rng::with_seed(CONTENT);
    for (file, bytes) in (0u32..).zip(&list.files) {
        let path = site.join(path_of(file));
        if file % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(path.parent().unwrap_or(site))?;
        }
        stage.write_file(&path, *bytes, &mut rng)?;
    }
    Ok(())
}

/// Sends every request, `threads` at a time; returns the figures.
fn replay(
    base: &str,
    list: &LogRequests,
    threads: usize,
    stage: &LiveStage,
) -> io::Result<LoadOutcome> {
    let begin = Instant::now();
    let start = || (client(0), ReplaySums::default());
    let threads = share(
        threads,
        list.requests.len(),
        start,
        |(client, sums), number| {
            stage.interruption().require_none()?;
            let file = list.requests[number];
            let answer = fetch(client, base, &path_of(file))?;
            let expected = list.files[file as usize];
            if answer.bytes != expected {
                return Err(io::Error::other(format!(
                    "{base}/{}: {} bytes (the file has {expected})",
                    path_of(file),
                    answer.bytes
                )));
            }
            sums.add(nanos(answer.first_byte), nanos(answer.whole), answer.bytes);
            Ok(())
        },
    )?;
    let span = nanos(begin.elapsed());
    let mut all = ReplaySums::default();
    threads.iter().for_each(|(_, sums)| all.join(sums));
    let named = all.over(span).named();
    Ok(LoadOutcome {
        values: named.map(|(name, value)| (name.to_owned(), value)).into(),
        curves: Vec::new(),
    })
}
