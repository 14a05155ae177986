//! `hotset-lab timeline`.

use crate::CommandFailure;
use clap::Args;
use command::table::TextTable;
use command::{print, print_line};
use measurements::timeline::{self, MeasuredTimeline as Measured};
use std::path::PathBuf;

#[derive(Args)]
pub struct TimelineCommand {
    /// Seed of the simulator's choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write a chart, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON: every sample
    #[arg(long)]
    json: bool,
}

pub fn run(command: &TimelineCommand) -> Result<(), CommandFailure> {
    let measured = timeline::run(command.seed).map_err(CommandFailure::Runtime)?;
    if let Some(file) = &command.svg {
        let chart = timeline::chart(&measured).map_err(CommandFailure::runtime)?;
        std::fs::write(file, chart).map_err(|cause| {
            let place = file.display();
            CommandFailure::Runtime(format!(
                "{place} cannot be written ({cause}); choose another place"
            ))
        })?;
    }
    if command.json {
        let text = serde_json::to_string_pretty(&measured).map_err(CommandFailure::runtime)?;
        print_line(text)?;
    } else {
        print(table(&measured).to_string())?;
    }
    match measured.violations.as_slice() {
        [] => Ok(()),
        all => Err(CommandFailure::Runtime(format!(
            "{} things are not as they must be: {}",
            all.len(),
            all.join("; ")
        ))),
    }
}

fn table(measured: &Measured) -> TextTable {
    let mut table = TextTable::new(&[
        "PHASE",
        "FROM s",
        "TO s",
        "WRITES/s",
        "ORIGIN 4 KiB/s",
        "LONGEST GAP ms",
        "DIRTY MB",
        "LAG s",
        "COPIES",
    ]);
    for phase in &measured.phases {
        table.row([
            phase.stretch.name().to_owned(),
            format!("{:.1}", phase.from_s),
            format!("{:.1}", phase.to_s),
            format!("{:.0}", phase.writes_per_s),
            format!("{:.0}", phase.origin_blocks_per_s),
            format!("{:.0}", phase.longest_gap_ms),
            format!("{:.1}", phase.dirty_bytes_max as f64 / 1e6),
            format!("{:.1}", phase.lag_s_max),
            phase.copies.to_string(),
        ]);
    }
    table
}
