//! `hotset-lab sim`.

mod asked;
mod engine;
mod served;
mod shown;
mod size;

pub use asked::SimCommand;

use shown::{percent, progress, significant, threads};

use crate::CommandFailure;
use command::print;
use command::table::{TextTable, bytes};
use command::traces::InputOptions;
use std::path::Path;
use tracesim::{
    BELADY, MissCurve, Rank, ResultRow, SimulationPlan, TraceSource, chart, curves, ranks,
};

/// Line length of miss ratios elsewhere.
const PLAIN_LINE_BYTES: u64 = 4096;

pub fn run(command: &SimCommand) -> Result<(), CommandFailure> {
    if command.engine.engine {
        if command.policies().iter().any(|name| name == BELADY) {
            let what = "hotset: belady needs to know the future, the engine does not; leave it out";
            return Err(CommandFailure::Usage(what.into()));
        }
        return print(served::run(command)?);
    }
    let plan = SimulationPlan {
        policies: command.policies(),
        sizes: command.sizes(),
        threads: threads(command.threads),
    };
    let lines = command
        .line
        .clone()
        .unwrap_or_else(|| vec![PLAIN_LINE_BYTES]);
    let inputs: Vec<(&Path, u64)> = command
        .traces
        .iter()
        .flat_map(|trace| lines.iter().map(|line| (trace.as_path(), *line)))
        .collect();
    let rows = simulate(&plan, &inputs, &command.input)?;
    print(text(command, &rows)?)?;
    match &command.chart {
        None => Ok(()),
        Some(path) => chart::draw(path, &rows)
            .map_err(|cause| CommandFailure::Runtime(format!("{}: {cause}", path.display()))),
    }
}

/// The rows in the form asked for.
fn text(command: &SimCommand, rows: &[ResultRow]) -> Result<String, CommandFailure> {
    let (curves, ranks) = (curves(rows), ranks(rows));
    if command.json {
        let text = match (command.mrc, command.rank) {
            (true, _) => serde_json::to_string_pretty(&curves),
            (_, true) => serde_json::to_string_pretty(&ranks),
            _ => serde_json::to_string_pretty(rows),
        };
        return Ok(text.map_err(CommandFailure::runtime)? + "\n");
    }
    Ok(match (command.mrc, command.rank) {
        (true, _) => curve_tables(&curves),
        (_, true) => rank_table(&ranks).to_string(),
        _ if command.csv => csv(rows),
        _ => table(rows).to_string(),
    })
}

/// A table for each trace and length of a line: miss ratios in per cent.
fn curve_tables(curves: &[MissCurve]) -> String {
    let same = |a: &MissCurve, b: &MissCurve| (&a.trace, a.line_bytes) == (&b.trace, b.line_bytes);
    let tables = curves.chunk_by(same).map(|group| {
        let policies = group.iter().map(|curve| curve.policy.as_str());
        let head: Vec<&str> = ["TRACE", "LINE", "SIZE", "POOL"]
            .into_iter()
            .chain(policies)
            .collect();
        let mut table = TextTable::new(&head);
        for (at, point) in group[0].points.iter().enumerate() {
            let size = [
                group[0].trace.clone(),
                group[0].line_bytes.to_string(),
                format!("{}%", significant(100.0 * point.size_fraction)),
                bytes(point.cache_bytes),
            ];
            let ratios = group
                .iter()
                .map(|curve| percent(curve.points[at].miss_ratio));
            table.row(size.into_iter().chain(ratios));
        }
        table.to_string()
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn rank_table(ranks: &[Rank]) -> TextTable {
    let mut table = TextTable::new(&[
        "TRACE",
        "LINE",
        "RANK",
        "POLICY",
        "MISS %",
        "TO LRU",
        "TO BELADY",
    ])
    .text(&[3]);
    let points = |difference: Option<f64>| match difference {
        Some(difference) => format!("{:+.2}", 100.0 * difference),
        None => "-".into(),
    };
    for rank in ranks {
        table.row([
            rank.trace.clone(),
            rank.line_bytes.to_string(),
            rank.rank.to_string(),
            rank.policy.clone(),
            percent(rank.miss_ratio),
            points(rank.over_lru),
            points(rank.over_belady),
        ]);
    }
    table
}

/// The rows of every input in order. The next is read while one is simulated.
fn simulate(
    plan: &SimulationPlan,
    inputs: &[(&Path, u64)],
    input: &InputOptions,
) -> Result<Vec<ResultRow>, CommandFailure> {
    let cells = inputs.len() * plan.sizes.len() * plan.policies.len();
    let bar = progress(cells as u64);
    let open = |(path, line): (&Path, u64)| {
        bar.set_message(format!("reading {}", path.display()));
        let source = TraceSource::open(path, input.format, input.strictness(), line);
        bar.set_message("");
        source.map_err(CommandFailure::runtime)
    };
    let mut rows = Vec::with_capacity(cells);
    let mut inputs = inputs.iter();
    let mut next = inputs.next().map(|first| open(*first));
    while let Some(source) = next {
        let source = source?;
        input.report(source.path(), &source.skipped());
        next = std::thread::scope(|scope| {
            let reading = inputs.next().map(|ahead| scope.spawn(|| open(*ahead)));
            let done = plan.run(&source, &|| bar.inc(1));
            rows.extend(done.map_err(CommandFailure::runtime)?);
            let read = reading.map(|thread| thread.join().expect("reading does not panic"));
            Ok::<_, CommandFailure>(read)
        })?;
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn table(rows: &[ResultRow]) -> TextTable {
    let head = [
        "TRACE",
        "LINE",
        "SIZE",
        "POOL",
        "POLICY",
        "MISS %",
        "READ HIT %",
        "REQ HIT %",
        "BYTE HIT %",
        "FILLED",
    ];
    let mut table = TextTable::new(&head);
    for row in rows {
        table.row([
            row.trace.clone(),
            row.line_bytes.to_string(),
            format!("{}%", significant(100.0 * row.size_fraction)),
            bytes(row.cache_blocks * size::BLOCK_BYTES),
            row.policy.clone(),
            percent(row.miss_ratio),
            percent(row.read_hit_ratio),
            percent(row.request_hit_ratio),
            percent(row.byte_hit_ratio),
            bytes(row.admitted_bytes),
        ]);
    }
    table
}

fn csv(rows: &[ResultRow]) -> String {
    let mut text = "trace,policy,size_fraction,cache_blocks,accesses,misses,miss_ratio,\
                    admitted_bytes,seconds,line_bytes,request_hit_ratio,read_hit_ratio,\
                    byte_hit_ratio\n"
        .to_owned();
    for row in rows {
        // A file's name may hold anything.
        let trace = match row.trace.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", row.trace.replace('"', "\"\"")),
            false => row.trace.clone(),
        };
        text += &format!(
            "{trace},{},{},{},{},{},{},{},{},{},{},{},{}\n",
            row.policy,
            row.size_fraction,
            row.cache_blocks,
            row.accesses,
            row.misses,
            row.miss_ratio,
            row.admitted_bytes,
            row.seconds,
            row.line_bytes,
            row.request_hit_ratio,
            row.read_hit_ratio,
            row.byte_hit_ratio,
        );
    }
    text
}
