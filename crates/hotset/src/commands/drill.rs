//! `hotset drill`.

use super::table::Table;
use crate::Failure;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use lab::drill::{self, DriveKind, Row, Setup};
use std::path::PathBuf;

#[derive(Args)]
pub struct Drill {
    /// Drill the arrays and the write-back volumes of this configuration, on drives of the drill's own, instead of a set-up
    #[arg(long, value_name = "FILE", conflicts_with = "set_up")]
    config: Option<PathBuf>,
    /// A set-up that is there: of a published evaluation of arrays, or a write-back volume
    #[arg(long, value_name = "NAME", default_value = "published", value_parser = PossibleValuesParser::new(Setup::names()))]
    set_up: String,
    /// Where the drills run
    #[arg(long = "where", value_enum, default_value_t = Place::Both)]
    place: Place,
    /// What the real daemon's drives are
    #[arg(long, value_enum, default_value_t = Drives::Nbd)]
    drives: Drives,
    /// Draws what the simulator leaves open
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Where the real daemon's files go, 6 MB a drive; made if missing, and overwritten
    #[arg(long, value_name = "DIRECTORY", default_value = "var/drill")]
    directory: PathBuf,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON: an array with an object for each cell
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// In the simulated world, in virtual time
    Sim,
    /// On a daemon whose drives are pulled by killing the processes behind them
    Real,
    /// Both
    Both,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Drives {
    /// NBD servers, which are killed and started again
    Nbd,
    /// Loop devices, which lose the file system under them and come back as others; needs root
    Loop,
}

pub fn run(command: &Drill) -> Result<(), Failure> {
    let setup = match &command.config {
        Some(file) => Setup::new(crate::configuration::read_alone(file)?),
        None => Setup::named(&command.set_up),
    };
    let setup = setup.map_err(Failure::Usage)?;
    for why in setup.not_run() {
        eprintln!("not run: {why}");
    }
    if !setup.has_cells() {
        let what = "hotset: nothing can be taken from this without stopping an array or a volume; add redundancy";
        return Err(Failure::Usage(what.into()));
    }
    let done = |row: &Row| {
        if !command.json {
            let load = if row.io { "with I/O" } else { "idle" };
            eprintln!(
                "{}: {} of side {}, {load}: {}",
                row.place,
                row.scenario,
                row.side,
                if row.is_right() { "survived" } else { "FAILED" }
            );
        }
    };
    let mut rows = Vec::new();
    if command.place != Place::Real {
        rows.extend(drill::simulated(&setup, command.seed, &done).map_err(Failure::Runtime)?);
    }
    if command.place != Place::Sim {
        let kind = match command.drives {
            Drives::Nbd => DriveKind::Nbd,
            Drives::Loop => DriveKind::Loop,
        };
        let program = std::env::current_exe().map_err(Failure::runtime)?;
        let real = drill::real(&setup, kind, &program, &command.directory, &done);
        rows.extend(real.map_err(Failure::Runtime)?);
    }
    if command.json {
        let text = serde_json::to_string_pretty(&rows).map_err(Failure::runtime)?;
        println!("{text}");
    } else {
        print!("{}", table(&rows));
    }
    if let Some(report) = &command.report {
        let page = drill::page(&setup, &rows).map_err(Failure::runtime)?;
        std::fs::write(report, page)
            .map_err(|cause| Failure::Runtime(format!("{}: {cause}", report.display())))?;
    }
    let wrong: Vec<&Row> = rows.iter().filter(|row| !row.is_right()).collect();
    match wrong.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Runtime(format!(
            "{} of {} drills failed, the first: {} of side {} ({}): {} errors, {} wrong bytes, longest stall {:.0} ms{}",
            wrong.len(),
            rows.len(),
            first.scenario,
            first.side,
            first.place,
            first.errors,
            first.wrong_bytes,
            first.longest_stall_ms,
            first
                .error
                .as_ref()
                .map_or(String::new(), |why| format!(" ({why})"))
        ))),
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "SCENARIO",
        "SIDE",
        "LOAD",
        "WHERE",
        "STALL ms",
        "ERRORS",
        "WRONG BYTES",
        "r/s",
        "w/s",
    ]);
    for row in rows {
        table.row([
            row.scenario.clone(),
            row.side.clone(),
            if row.io { "I/O" } else { "idle" }.to_owned(),
            row.place.to_owned(),
            format!("{:.1}", row.longest_stall_ms),
            row.errors.to_string(),
            row.wrong_bytes.to_string(),
            format!("{:.0}", row.reads_per_s),
            format!("{:.0}", row.writes_per_s),
        ]);
    }
    table
}
