//! `hotset lab run perc`.

use crate::Failure;
use crate::commands::table::Table;
use clap::Args;
use lab::perc::{self, POINT_HEAD, Place, Point, Report};
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
    /// Instead, the sweep alone by fio through a daemon on files here, 2 GB, overwritten
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["out", "seed", "device"])]
    real: Option<PathBuf>,
    /// Instead, the sweep's reads by fio on this device or file, which is never written
    #[arg(long, value_name = "PATH", conflicts_with_all = ["out", "seed"])]
    device: Option<PathBuf>,
}

pub fn run(command: &Perc) -> Result<(), Failure> {
    let done = |part: &str| {
        if !command.json {
            eprintln!("done: {part}");
        }
    };
    let real = command.real.clone().map(Place::Files);
    if let Some(place) = real.or(command.device.clone().map(Place::Device)) {
        let program = std::env::current_exe().map_err(Failure::runtime)?;
        let report = perc::real(&program, &place, command.quick, &done);
        let report = report.map_err(Failure::Runtime)?;
        return match command.json {
            true => json(serde_json::to_string_pretty(&report)),
            false => {
                print!("{}", table(&report.points));
                Ok(())
            }
        };
    }
    let report = perc::run(command.seed, command.quick, &done).map_err(Failure::Runtime)?;
    match command.json {
        true => json(serde_json::to_string_pretty(&report))?,
        false => print(&report),
    }
    if let Some(directory) = &command.out {
        perc::write(&report, directory)
            .map_err(|cause| Failure::Runtime(format!("{}: {cause}", directory.display())))?;
    }
    Ok(())
}

fn json(text: serde_json::Result<String>) -> Result<(), Failure> {
    println!("{}", text.map_err(Failure::runtime)?);
    Ok(())
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&POINT_HEAD);
    for point in points {
        table.row(perc::figures(point));
    }
    table
}

fn print(report: &Report) {
    println!("{}", table(&report.points));
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
