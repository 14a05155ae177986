//! `hotset sim --engine`: the engine itself on drive models.

use super::{Sim, percent, policies, progress, significant, threads};
use crate::Failure;
use crate::commands::table::{Table, bytes};
use advise::replay::Pace;
use advise::tracesim::{EnginePlan, EngineRow, Input, trace_name};
use cache::{Config, Mode};
use clap::Args;
use control::config::Bytes;
use sim::model::catalogue::Drive;
use trace::Info;

/// The engine's own default.
const LINE_BYTES: u64 = 64 << 10;

#[derive(Args)]
pub struct Engine {
    /// Run the engine itself on drive models: lines valid block by block, write modes, sequential
    /// bypass, warm-up, latencies
    #[arg(long)]
    pub engine: bool,
    /// The drives of the volumes, as `model` of the configuration names them
    #[arg(long, value_name = "MODEL", default_value = "ST3500320AS", value_parser = drive,
          requires = "engine")]
    origin: Drive,
    /// The drives of the pool
    #[arg(long, value_name = "MODEL", default_value = "Nytro 400", value_parser = drive,
          requires = "engine")]
    ssd: Drive,
    /// How volumes use the pool: write-through, write-around, pass-through
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_value = "write-through",
          value_parser = mode, requires = "engine")]
    mode: Vec<Mode>,
    /// Bytes after which a sequential stream is not promoted, or off
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = cutoff,
          requires = "engine")]
    sequential: Cutoff,
    /// Bytes a second that may be promoted; no limit unless given
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse, requires = "engine")]
    fill_rate: Option<Bytes>,
    /// Send the requests so many times as fast as they were recorded
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed,
          requires = "engine", conflicts_with = "depth")]
    speed: f64,
    /// Send each request when another has ended, so many at a time; 1 if the trace has no times
    #[arg(long, value_name = "N", requires = "engine",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Option<u32>,
    /// The share of the requests that only warms the pool and is not counted
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share,
          requires = "engine")]
    skip: f64,
}

/// The engine's cutoff of sequential streams.
#[derive(Clone, Copy)]
struct Cutoff(Option<u64>);

fn drive(text: &str) -> Result<Drive, String> {
    Drive::named(text).map_err(|error| error.to_string())
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::from_name(text)
        .ok_or_else(|| format!("choose from {}", Mode::ALL.map(Mode::name).join(", ")))
}

fn cutoff(text: &str) -> Result<Cutoff, String> {
    match text {
        "off" => Ok(Cutoff(None)),
        _ => Ok(Cutoff(Some(Bytes::parse(text)?.0))),
    }
}

pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (1e-3..=1e6).contains(&speed) => Ok(speed),
        _ => Err("choose from 0.001 to 1000000".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("give a share from 0 to below 1".into()),
    }
}

/// Runs every cell and prints the rows.
pub fn run(command: &Sim) -> Result<String, Failure> {
    let options = &command.engine;
    let lines = command.line.clone().unwrap_or_else(|| vec![LINE_BYTES]);
    let mut rows = Vec::new();
    let policies = policies(&command.policy);
    let cells = command.size.len() * options.mode.len() * policies.len();
    let bar = progress((cells * command.traces.len() * lines.len()) as u64);
    for path in &command.traces {
        let input = &command.input;
        let mut reader = input.open(path)?;
        let mut info = Info::default();
        for record in reader.by_ref() {
            info.add(&record.map_err(Failure::runtime)?);
        }
        input.report(path, &reader.skipped());
        if info.requests == 0 {
            return Err(Failure::Runtime(format!("{}: no requests", path.display())));
        }
        let pace = match options.depth {
            Some(depth) => Pace::Depth(depth),
            None if info.first == info.last => Pace::Depth(1),
            None => Pace::Recorded(options.speed),
        };
        let trace = Input {
            path: path.clone(),
            format: input.format,
            strictness: input.strictness(),
            name: trace_name(path),
            info: info.into(),
        };
        for line in &lines {
            let plan = EnginePlan {
                policies: policies.clone(),
                sizes: command.size.iter().map(|size| size.blocks()).collect(),
                modes: options.mode.clone(),
                config: Config {
                    line_bytes: *line as u32,
                    sequential_bytes: options.sequential.0,
                    fill_bytes_per_s: options.fill_rate.map(|rate| rate.0),
                    ..Config::default()
                },
                origin: options.origin.clone(),
                pool: options.ssd.clone(),
                pace,
                skip: options.skip,
                threads: threads(command.threads),
            };
            rows.extend(plan.run(&trace, &|| bar.inc(1)).map_err(Failure::Runtime)?);
        }
    }
    bar.finish_and_clear();
    if command.json {
        return Ok(serde_json::to_string_pretty(&rows).map_err(Failure::runtime)? + "\n");
    }
    Ok(table(&rows).to_string())
}

fn table(rows: &[EngineRow]) -> Table {
    let head = [
        "TRACE",
        "LINE",
        "SIZE",
        "MODE",
        "POLICY",
        "MISS %",
        "REQ HIT %",
        "FILLED",
        "READ us",
        "p99",
        "WRITE us",
        "p99",
        "EJECTED",
    ];
    let mut table = Table::new(&head);
    for row in rows {
        let us = |us: f64| format!("{us:.0}");
        table.row([
            row.trace.clone(),
            row.line_bytes.to_string(),
            format!("{}%", significant(100.0 * row.size_fraction)),
            row.mode.to_owned(),
            row.policy.clone(),
            match row.accesses {
                0 => "-".into(),
                _ => percent(row.miss_ratio),
            },
            percent(row.request_hit_ratio),
            bytes(row.admitted_bytes),
            us(row.read_us.mean),
            us(row.read_us.p99),
            us(row.write_us.mean),
            us(row.write_us.p99),
            row.devices_ejected.to_string(),
        ]);
    }
    table
}
