//! Results of experiments, a file each in a directory.
//!
//! Invariant: a file under its own name is whole; a file that is being written has another name.

use super::live::report::LiveReport;
use crate::CommandFailure;
use advise::page::standalone;
use control::replace::{SHARED, replace as replace_file};
use experiment::finished::Finished;
use measurements::ablation::Ablated;
use measurements::choices::Tried;
use std::fs;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// A note of the names that a run has begun, until its end: the note stays after a kill.
pub struct RunInProgress(PathBuf);

/// Accepted shares of an experiment's flash on which choices are tried, in percent.
pub const FLASH_PERCENT: RangeInclusive<u64> = 1..=400;

const BEGUN: &str = "begun";

/// Says in `directory` that `names` are being run.
pub fn begin(directory: &Path, names: &[&str]) -> Result<RunInProgress, CommandFailure> {
    let path = directory.join(BEGUN);
    replace(&path, names.join(" ").as_bytes())?;
    Ok(RunInProgress(path))
}

impl Drop for RunInProgress {
    fn drop(&mut self) {
        // The file is no more than a note; without the note a report names missing results.
        let _ = fs::remove_file(&self.0);
    }
}

/// An error if a run in `directory` has begun and not ended.
pub fn ended(directory: &Path) -> Result<(), CommandFailure> {
    let path = directory.join(BEGUN);
    match fs::read_to_string(&path) {
        Ok(names) => Err(CommandFailure::Usage(format!(
            "a run of {names} has not ended in {0}; run them again with --out {0}, which does what \
             is missing, or remove {1}",
            directory.display(),
            path.display()
        ))),
        Err(_) => Ok(()),
    }
}

/// Finds the results of `name`, and their place.
pub fn find(directory: &Path, name: &str) -> Result<Option<(PathBuf, Finished)>, CommandFailure> {
    let parse = |text: &str| Finished::parse(text).map(|f| (f.experiment.clone(), f));
    read(directory, name, name, parse)
}

/// Finds the results of choices in `name` on so much of its flash, and their place.
pub fn find_tried(
    directory: &Path,
    name: &str,
    flash_percent: u64,
) -> Result<Option<(PathBuf, Tried)>, CommandFailure> {
    let parse = |text: &str| Tried::parse(text).map(|t| (t.experiment.clone(), t));
    read(directory, &tried(name, flash_percent), name, parse)
}

/// Finds the results of choices in `name` on any part of its flash, the most first.
pub fn all_tried(directory: &Path, name: &str) -> Result<Vec<Tried>, CommandFailure> {
    let percents = FLASH_PERCENT.rev();
    let found = percents.map(|percent| find_tried(directory, name, percent));
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    Ok(found
        .into_iter()
        .flatten()
        .map(|(_, tried)| tried)
        .collect())
}

/// Returns an error if the file at `path` is of another run than asked for.
pub fn is_of(path: &Path, same: bool) -> Result<(), CommandFailure> {
    match same {
        true => Ok(()),
        false => Err(CommandFailure::Usage(format!(
            "{} is of other seeds or another form or place; remove it, or choose another directory",
            path.display()
        ))),
    }
}

/// Finds the effect of the parts of `name`, and its place.
pub fn find_ablated(
    directory: &Path,
    name: &str,
) -> Result<Option<(PathBuf, Ablated)>, CommandFailure> {
    let parse = |text: &str| Ablated::parse(text).map(|a| (a.experiment.clone(), a));
    read(directory, &ablated(name), name, parse)
}

/// Finds the live run of `load`, and its place.
pub fn find_live(
    directory: &Path,
    load: &str,
) -> Result<Option<(PathBuf, LiveReport)>, CommandFailure> {
    let parse = |text: &str| LiveReport::parse(text).map(|report| (report.load.clone(), report));
    read(directory, &live(load), load, parse)
}

fn live(load: &str) -> String {
    format!("live-{load}")
}

fn ablated(name: &str) -> String {
    format!("ablation-{name}")
}

fn tried(name: &str, flash_percent: u64) -> String {
    match flash_percent {
        100 => format!("choices-{name}"),
        percent => format!("choices-{name}-flash-{percent}"),
    }
}

/// Reads the file called `stem`, if there is one. A file for another name than `name` is an error.
fn read<T>(
    directory: &Path,
    stem: &str,
    name: &str,
    parse: impl Fn(&str) -> Result<(String, T), String>,
) -> Result<Option<(PathBuf, T)>, CommandFailure> {
    let path = directory.join(format!("{stem}.json"));
    let refused = |what: String| {
        CommandFailure::Runtime(format!(
            "{}: {what}; remove it to have {name} run again",
            path.display()
        ))
    };
    match fs::read_to_string(&path) {
        Err(cause) if cause.kind() == ErrorKind::NotFound && directory.is_dir() => Ok(None),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Err(CommandFailure::Usage(format!(
            "{} is no directory; fill one with `hotset-lab run all --out`",
            directory.display()
        ))),
        Err(cause) => Err(refused(cause.to_string())),
        Ok(text) => match parse(&text) {
            Ok((of, read)) if of == name => Ok(Some((path, read))),
            Ok((of, _)) => Err(refused(format!("it is of {of}"))),
            Err(what) => Err(refused(format!(
                "it is not what an experiment came to: {what}"
            ))),
        },
    }
}

/// Keeps the results of an experiment.
pub fn keep(directory: &Path, finished: &Finished) -> Result<(), CommandFailure> {
    write(directory, &finished.experiment, finished)
}

/// Keeps the charts of an experiment's own, each as a drawing that needs no page.
pub fn keep_charts(directory: &Path, finished: &Finished) -> Result<(), CommandFailure> {
    for (title, svg) in &finished.charts {
        let title = title.to_lowercase().replace(' ', "-");
        let path = directory.join(format!("{}-{title}.svg", finished.experiment));
        replace(&path, standalone(svg).as_bytes())?;
    }
    Ok(())
}

/// Keeps the results of choices.
pub fn keep_tried(directory: &Path, came: &Tried) -> Result<(), CommandFailure> {
    write(
        directory,
        &tried(&came.experiment, came.flash_percent),
        came,
    )
}

/// Keeps the effect of the parts of an experiment.
pub fn keep_ablated(directory: &Path, came: &Ablated) -> Result<(), CommandFailure> {
    write(directory, &ablated(&came.experiment), came)
}

/// Keeps a live run, finished or not, and its page.
pub fn keep_live(directory: &Path, report: &LiveReport) -> Result<(), CommandFailure> {
    let name = live(&report.load);
    write(directory, &name, report)?;
    let page = report.page().map_err(CommandFailure::runtime)?;
    replace(&directory.join(format!("{name}.html")), page.as_bytes())
}

fn write(directory: &Path, stem: &str, what: &impl serde::Serialize) -> Result<(), CommandFailure> {
    let text = serde_json::to_string_pretty(what).map_err(CommandFailure::runtime)? + "\n";
    replace(&directory.join(format!("{stem}.json")), text.as_bytes())
}

/// Puts a file with these bytes at `path`, or leaves the old one there.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), CommandFailure> {
    replace_file(path, SHARED, bytes).map_err(|cause| {
        CommandFailure::Runtime(format!(
            "{}: {cause}; make room, or choose another directory",
            path.display()
        ))
    })
}
