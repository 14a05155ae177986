//! `hotset lab run redskin`.

use crate::Failure;
use crate::commands::table::Table;
use block::Nanos;
use clap::Args;
use experiment::redskin::{NAME, Scale, figures, run as run_seed};
use experiment::verdict::{Row, rows};

#[derive(Args)]
pub struct Redskin {
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Run a hundredth of the requests on a hundredth of the site: too little to judge by
    #[arg(long)]
    quick: bool,
    /// The first seed, which draws files, requests and the spindles' phases
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Instead of the estimate of 200, microseconds of the server's processor a request
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    processor: Option<u64>,
    /// Instead of 7 GiB, the MiB of the server's memory that are page cache
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: Option<u32>,
}

pub fn run(command: &Redskin) -> Result<(), Failure> {
    let mut scale = if command.quick {
        Scale::QUICK
    } else {
        Scale::FULL
    };
    if let Some(us) = command.processor {
        scale.processor = Nanos::from_micros(us);
    }
    if let Some(mib) = command.memory {
        scale.memory_pages = mib << 8;
    }
    let done = |part: &str| {
        if !command.json {
            eprintln!("done: {part}");
        }
    };
    let seeds = command.seed..command.seed.saturating_add(command.seeds);
    let runs: Result<Vec<_>, _> = seeds.map(|seed| run_seed(seed, scale, &done)).collect();
    let figures = figures();
    let rows = rows(NAME, &figures, &runs.map_err(Failure::Runtime)?);
    let rows = rows.map_err(Failure::Runtime)?;
    if command.json {
        let text = serde_json::to_string_pretty(&rows).map_err(Failure::runtime)?;
        println!("{text}");
        return Ok(());
    }
    println!("{}", table(&rows));
    for fitted in &figures.fitted {
        println!(
            "fitted: {} = {}, to {}",
            fitted.parameter, fitted.value, fitted.figure
        );
    }
    for assumed in &figures.assumed {
        println!("assumed: {assumed}");
    }
    if command.quick {
        println!("the quick form: too few requests to judge by");
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "figure",
        "unit",
        "published",
        "ours",
        "from",
        "to",
        "error %",
        "status",
        "within",
    ]);
    for row in rows {
        let within = match (row.met, row.tolerance) {
            (Some(true), Some(most)) => format!("{most:.0} %"),
            (Some(false), Some(most)) => format!("NOT {most:.0} %"),
            _ => "-".into(),
        };
        table.row([
            row.figure.clone(),
            row.unit.clone(),
            short(row.published),
            short(row.ours),
            short(row.ours_min),
            short(row.ours_max),
            format!("{:+.1}", row.error_percent),
            row.status.name().into(),
            within,
        ]);
    }
    table
}

/// Four digits or all before the point.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
