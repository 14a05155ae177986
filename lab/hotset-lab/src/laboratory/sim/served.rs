//! `hotset-lab sim --engine`: the engine itself, on simulated devices.

use super::asked::SimCommand;
use super::shown::{percent, progress, significant, threads};
use super::size::BLOCK_BYTES;
use crate::CommandFailure;
use crate::laboratory::formats::ALL_FORMATS;
use advise::replay::ReplayPace;
use cache::Config;
use command::table::{TextTable, bytes};
use trace::Info;
use tracesim::{EnginePlan, EngineRow, TraceInput, trace_name};

/// The engine's own default.
const LINE_BYTES: u64 = 64 << 10;

/// Runs every cell and prints the rows.
pub fn run(command: &SimCommand) -> Result<String, CommandFailure> {
    let options = &command.engine;
    let lines = command.line.clone().unwrap_or_else(|| vec![LINE_BYTES]);
    let mut rows = Vec::new();
    let (policies, sizes) = (command.policies(), command.sizes());
    let cells = sizes.len() * options.mode.len() * policies.len();
    let bar = progress((cells * command.traces.len() * lines.len()) as u64);
    for path in &command.traces {
        let input = &command.input;
        let mut reader = input.open(&ALL_FORMATS, path)?;
        let mut info = Info::default();
        for record in reader.by_ref() {
            info.add(&record.map_err(CommandFailure::runtime)?);
        }
        input.report(path, &reader.skipped());
        if info.requests == 0 {
            return Err(CommandFailure::Runtime(format!(
                "{}: no requests",
                path.display()
            )));
        }
        let pace = match options.depth {
            Some(depth) => ReplayPace::Depth(depth),
            None if info.first == info.last => ReplayPace::Depth(1),
            None => ReplayPace::Recorded(options.speed),
        };
        let trace = TraceInput {
            path: path.clone(),
            format: input.format,
            strictness: input.strictness(),
            name: trace_name(path),
            info: info.into(),
        };
        for line in &lines {
            let plan = EnginePlan {
                policies: policies.clone(),
                sizes: sizes.clone(),
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
            rows.extend(
                plan.run(&trace, &|| bar.inc(1))
                    .map_err(CommandFailure::Runtime)?,
            );
        }
    }
    bar.finish_and_clear();
    if command.json {
        return Ok(serde_json::to_string_pretty(&rows).map_err(CommandFailure::runtime)? + "\n");
    }
    Ok(table(&rows).to_string())
}

fn table(rows: &[EngineRow]) -> TextTable {
    let head = [
        "TRACE",
        "LINE",
        "SIZE",
        "POOL",
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
    let mut table = TextTable::new(&head);
    for row in rows {
        let us = |us: f64| format!("{us:.0}");
        table.row([
            row.trace.clone(),
            row.line_bytes.to_string(),
            format!("{}%", significant(100.0 * row.size_fraction)),
            bytes(row.cache_blocks * BLOCK_BYTES),
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
