//! `hotset lab run perc`.

use crate::Failure;
use crate::commands::table::Table;
use clap::Args;
use lab::perc::{self, POINT_HEAD, Report};
use std::path::PathBuf;

#[derive(Args)]
pub struct Perc {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write perc.json, perc.html and charts here; made if missing
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Measure a hundredth, with smaller caches: too little to judge by
    #[arg(long)]
    quick: bool,
    /// Draws places, arrivals and the spindles' phases
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

pub fn run(command: &Perc) -> Result<(), Failure> {
    let done = |part: &str| {
        if !command.json {
            eprintln!("done: {part}");
        }
    };
    let report = perc::run(command.seed, command.quick, &done).map_err(Failure::Runtime)?;
    if command.json {
        let text = serde_json::to_string_pretty(&report).map_err(Failure::runtime)?;
        println!("{text}");
    } else {
        print(&report);
    }
    if let Some(directory) = &command.out {
        perc::write(&report, directory)
            .map_err(|cause| Failure::Runtime(format!("{}: {cause}", directory.display())))?;
    }
    Ok(())
}

fn print(report: &Report) {
    let mut points = Table::new(&POINT_HEAD);
    for point in &report.points {
        points.row(perc::figures(point));
    }
    println!("{points}");
    for fitted in &report.fitted {
        println!(
            "fitted: {} = {}, on {}",
            fitted.what, fitted.value, fitted.on
        );
    }
    if report.quick {
        println!("the quick form: too few requests to judge by");
    }
    for row in &report.rows {
        let [what, label, published, ours, tolerance, within, note] = perc::cells(row);
        println!("\n{what} [{label}]");
        println!("  published  {published}");
        println!("  ours       {ours}");
        println!("  within {tolerance}: {within}");
        if !note.is_empty() {
            println!("  note: {note}");
        }
    }
}
