//! `hotset-lab run perc`.

use super::origin::{again, commit};
use crate::CommandFailure;
use command::print_line;
use command::table::TextTable;
use experiment::figures::{FigureStatus, Fitted};
use experiment::finished::{FORMAT, Finished};
use experiment::verdict::FigureRow;
use measurements::perc::{self, POINT_HEAD, PercReport, SweepPlace, SweepPoint};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The experiment's name.
pub const NAME: &str = "perc";
/// Publication of the figures.
pub const SOURCE: &str =
    "Demartek, Dell PERC H710P controllers mirrored, March 2014: text and captions";
/// The commit with the arrays of the runs, for blind rows.
const ENGINE: &str = "98ed6d5";
const TITLE: &str = "two mirrored controllers of seven drives against one, and the loss of a drive";
/// Memory, and about the time of a run.
pub const NEEDS: &str = "600 MB; 2 minutes";

/// The sweep on this machine.
pub struct Perc {
    pub json: bool,
    pub quick: bool,
    pub real: Option<PathBuf>,
    pub device: Option<PathBuf>,
}

/// Runs the sweep by fio.
pub fn real(command: &Perc) -> Result<(), CommandFailure> {
    let done = |part: &str| {
        if !command.json {
            eprintln!("done: {part}");
        }
    };
    let place = command.real.clone().map(SweepPlace::Files);
    let place = place.or(command.device.clone().map(SweepPlace::Device));
    let place = place.expect("one of them was given");
    let program = crate::program::hotset()?;
    let report = perc::real(&program, &place, command.quick, &done);
    let report = report.map_err(CommandFailure::Runtime)?;
    match command.json {
        true => json(serde_json::to_string_pretty(&report)),
        false => command::print(table(&report.points).to_string()),
    }
}

/// Runs the experiment in virtual time; returns the form in which every experiment is kept, and all
/// measurements.
pub fn run(
    seed: u64,
    quick: bool,
    done: &dyn Fn(&str),
) -> Result<(Finished, PercReport), CommandFailure> {
    let begun = Instant::now();
    let named = |part: &str| done(&format!("{NAME}: {part}"));
    let report = perc::run(seed, quick, &named).map_err(CommandFailure::Runtime)?;
    let measured = report.points.iter();
    let measured = measured.map(|point| point.operations as f64 / point.iops);
    let virtual_seconds = measured.sum::<f64>() + report.loss.seconds.len() as f64;
    let wall_seconds = begun.elapsed().as_secs_f64();
    let row = |row: &perc::ComparisonRow| {
        let (published, ours) = row.value;
        let error_percent = match published {
            0.0 => 100.0 * ours,
            published => (ours / published - 1.0) * 100.0,
        };
        FigureRow {
            experiment: NAME.into(),
            figure: row.what.clone(),
            unit: String::new(),
            published,
            ours,
            ours_min: ours,
            ours_max: ours,
            seeds: 1,
            error_percent,
            status: match row.label {
                "blind" => FigureStatus::Blind,
                "shape" => FigureStatus::Shape,
                _ => FigureStatus::Calibrated,
            },
            tolerance: None,
            bound: None,
            met: row.within,
            interval: None,
            inconclusive: false,
            note: format!("{}; within {}; {}", row.ours, row.tolerance, row.note),
            engine: (row.label == "blind").then(|| ENGINE.into()),
            virtual_seconds,
            wall_seconds,
        }
    };
    let fitted = report.fitted.iter().map(|fitted| Fitted {
        parameter: fitted.what.into(),
        value: fitted.value,
        figure: fitted.on.into(),
    });
    let finished = Finished {
        format: FORMAT,
        experiment: NAME.into(),
        title: TITLE.into(),
        source: SOURCE.into(),
        quick,
        seed,
        seeds: 1,
        command: again(NAME, quick, seed, None),
        commit: commit(),
        virtual_seconds,
        wall_seconds,
        rows: report.rows.iter().map(row).collect(),
        fitted: fitted.collect(),
        assumed: Vec::new(),
        contradictions: Vec::new(),
        curves: Vec::new(),
        charts: perc::charts(&report).map_err(CommandFailure::runtime)?,
    };
    Ok((finished, report))
}

/// Writes its page and charts.
pub fn keep(report: &PercReport, directory: &Path) -> Result<(), CommandFailure> {
    perc::write(report, directory)
        .map_err(|cause| CommandFailure::Runtime(format!("{}: {cause}", directory.display())))
}

/// Prints all that was measured.
pub fn show(report: &PercReport, as_json: bool) -> Result<(), CommandFailure> {
    match as_json {
        true => json(serde_json::to_string_pretty(report)),
        false => print(report),
    }
}

fn json(text: serde_json::Result<String>) -> Result<(), CommandFailure> {
    print_line(text.map_err(CommandFailure::runtime)?)
}

fn table(points: &[SweepPoint]) -> TextTable {
    let mut table = TextTable::new(&POINT_HEAD);
    for point in points {
        table.row(perc::figures(point));
    }
    table
}

fn print(report: &PercReport) -> Result<(), CommandFailure> {
    print_line(table(&report.points))?;
    for fitted in &report.fitted {
        print_line(format!(
            "fitted: {} = {}, on {}",
            fitted.what, fitted.value, fitted.on
        ))?;
    }
    if report.quick {
        print_line("the quick form: too few requests to judge by")?;
    }
    for row in &report.rows {
        let [what, label, published, ours, tolerance, within, note] = perc::cells(row);
        print_line(format!("\n{what} [{label}]"))?;
        print_line(format!("  published  {published}"))?;
        print_line(format!("  ours       {ours}"))?;
        print_line(format!("  within {tolerance}: {within}"))?;
        if !note.is_empty() {
            print_line(format!("  note: {note}"))?;
        }
    }
    Ok(())
}
