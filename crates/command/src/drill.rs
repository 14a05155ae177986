//! Drills: their arguments and their output, for every program that runs them.

use crate::configuration::read_alone;
use crate::table::TextTable;
use crate::{CommandFailure, print, print_line};
use clap::Args;
use clap::builder::PossibleValuesParser;
use drill::{DrillRow, DrillSetup};
use std::path::PathBuf;

/// The set-up to drill, and the form of the output.
#[derive(Args)]
pub struct DrillRequest {
    /// Drill the arrays and the write-back volumes of this configuration, on drives of the drill's
    /// own, instead of a set-up
    #[arg(long, value_name = "FILE", conflicts_with = "set_up")]
    config: Option<PathBuf>,
    /// A built-in set-up: of a published evaluation of arrays, or a write-back volume
    #[arg(long, value_name = "NAME", default_value = "published", value_parser = PossibleValuesParser::new(DrillSetup::names()))]
    set_up: String,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON: an array with an object for each cell
    #[arg(long)]
    json: bool,
}

impl DrillRequest {
    /// Returns the set-up to drill. Prints its parts that are not drilled.
    pub fn setup(&self) -> Result<DrillSetup, CommandFailure> {
        let setup = match &self.config {
            Some(file) => DrillSetup::new(read_alone(file)?),
            None => DrillSetup::named(&self.set_up),
        };
        let setup = setup.map_err(CommandFailure::Usage)?;
        for why in setup.not_run() {
            eprintln!("not run: {why}");
        }
        if !setup.has_cells() {
            let what = "hotset: nothing can be taken from this without stopping an array or a volume; add redundancy";
            return Err(CommandFailure::Usage(what.into()));
        }
        Ok(setup)
    }

    /// Reports a cell that has ended, unless JSON is printed.
    pub fn report(&self, row: &DrillRow) {
        if !self.json {
            let load = if row.io { "with I/O" } else { "idle" };
            eprintln!(
                "{}: {} of side {}, {load}: {}",
                row.place,
                row.scenario,
                row.side,
                if row.is_right() { "survived" } else { "FAILED" }
            );
        }
    }

    /// Shows all cells of `setup`; an error if one was not survived.
    pub fn end(&self, setup: &DrillSetup, rows: &[DrillRow]) -> Result<(), CommandFailure> {
        if let Some(report) = &self.report {
            let page = drill::page(setup, rows).map_err(CommandFailure::runtime)?;
            std::fs::write(report, page).map_err(|cause| {
                CommandFailure::Runtime(format!("{}: {cause}", report.display()))
            })?;
        }
        if self.json {
            let text = serde_json::to_string_pretty(rows).map_err(CommandFailure::runtime)?;
            print_line(text)?;
        } else {
            print(table(rows).to_string())?;
        }
        let wrong: Vec<&DrillRow> = rows.iter().filter(|row| !row.is_right()).collect();
        match wrong.first() {
            None => Ok(()),
            Some(first) => Err(CommandFailure::Runtime(format!(
                "{} of {} drills failed, the first: {}",
                wrong.len(),
                rows.len(),
                failed(first)
            ))),
        }
    }
}

fn failed(row: &DrillRow) -> String {
    let why = row.error.as_ref();
    format!(
        "{} of side {} ({}): {} errors, {} wrong bytes, longest stall {:.0} ms{}",
        row.scenario,
        row.side,
        row.place,
        row.errors,
        row.wrong_bytes,
        row.longest_stall_ms,
        why.map_or(String::new(), |why| format!(" ({why})"))
    )
}

fn table(rows: &[DrillRow]) -> TextTable {
    let mut table = TextTable::new(&[
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
