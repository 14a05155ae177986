//! `hotset sim`.

mod engine;

pub use engine::speed;

use super::size::Size;
use super::table::{Table, bytes};
use super::traces::Input;
use crate::Failure;
use advise::tracesim::{BELADY, Plan, Row, Source, chart};
use clap::{ArgGroup, Args};
use control::config::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use policy::registry::POLICIES;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

/// Lines as the engine may have them, in bytes.
const LINE_BYTES: std::ops::RangeInclusive<u64> =
    cache::LINE_BYTES_MIN as u64..=cache::LINE_BYTES_MAX as u64;

/// How miss ratios are counted elsewhere.
const PLAIN_LINE_BYTES: u64 = 4096;

#[derive(Args)]
#[command(group(ArgGroup::new("output").args(["json", "csv"])))]
pub struct Sim {
    /// Traces of any format; docs/commands/trace.md lists them
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    input: Input,
    /// Policies: names of docs/policies.md, belady (the offline optimum), or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "auto,lru",
          value_parser = policy_name)]
    policy: Vec<String>,
    /// Pool sizes: below 1 a share of the trace's unique 4 KiB blocks, or bytes such as 16GiB
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "0.001,0.01,0.03,0.1,0.3"
    )]
    size: Vec<Size>,
    /// Lengths of a line: 4096 to 1048576 bytes, or such as 64KiB; 4096 unless given, with
    /// --engine 64KiB
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = line_bytes)]
    line: Option<Vec<u64>>,
    #[command(flatten)]
    engine: engine::Engine,
    /// Cells that run at once; one for each processor unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "engine")]
    csv: bool,
    /// Draw the miss ratios
    #[arg(long, value_name = "FILE.svg", conflicts_with = "engine")]
    chart: Option<PathBuf>,
}

fn policy_name(text: &str) -> Result<String, String> {
    let known = POLICIES.iter().any(|(name, _)| *name == text);
    if known || text == BELADY || text == "all" {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
    Err(format!(
        "choose from {}, {BELADY} and all",
        names.join(", ")
    ))
}

fn line_bytes(text: &str) -> Result<u64, String> {
    let bytes = match text.parse() {
        Ok(bytes) => bytes,
        Err(_) => Bytes::parse(text)?.0,
    };
    if LINE_BYTES.contains(&bytes) && bytes.is_power_of_two() {
        Ok(bytes)
    } else {
        Err(format!(
            "choose a power of two from {} to {} bytes",
            LINE_BYTES.start(),
            LINE_BYTES.end()
        ))
    }
}

pub fn run(command: &Sim) -> Result<(), Failure> {
    if command.engine.engine {
        if command.policy.iter().any(|name| name == BELADY) {
            let what = "hotset: belady needs to know the future, the engine does not; leave it out";
            return Err(Failure::Usage(what.into()));
        }
        return print(&engine::run(command)?);
    }
    let plan = Plan {
        policies: policies(&command.policy),
        sizes: command.size.iter().map(|size| size.blocks()).collect(),
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
    let text = if command.json {
        serde_json::to_string_pretty(&rows).map_err(Failure::runtime)? + "\n"
    } else if command.csv {
        csv(&rows)
    } else {
        table(&rows).to_string()
    };
    print(&text)?;
    match &command.chart {
        None => Ok(()),
        Some(path) => chart::draw(path, &rows)
            .map_err(|cause| Failure::Runtime(format!("{}: {cause}", path.display()))),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    stdout()
        .write_all(text.as_bytes())
        .map_err(Failure::runtime)
}

fn policies(names: &[String]) -> Vec<String> {
    let mut chosen = Vec::new();
    for name in names {
        let all = POLICIES.iter().map(|(name, _)| (*name).to_owned());
        let named = match name.as_str() {
            "all" => all.collect(),
            _ => vec![name.clone()],
        };
        for name in named {
            if !chosen.contains(&name) {
                chosen.push(name);
            }
        }
    }
    chosen
}

fn threads(asked: Option<u32>) -> usize {
    match asked {
        Some(n) => n as usize,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The rows of every input in order. The next is read while one is simulated.
fn simulate(plan: &Plan, inputs: &[(&Path, u64)], input: &Input) -> Result<Vec<Row>, Failure> {
    let cells = inputs.len() * plan.sizes.len() * plan.policies.len();
    let bar = progress(cells as u64);
    let open = |(path, line): (&Path, u64)| {
        bar.set_message(format!("reading {}", path.display()));
        let source = Source::open(path, input.format, input.strictness(), line);
        bar.set_message("");
        source.map_err(Failure::runtime)
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
            rows.extend(done.map_err(Failure::runtime)?);
            let read = reading.map(|thread| thread.join().expect("reading does not panic"));
            Ok::<_, Failure>(read)
        })?;
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// On standard error, and only if that is a terminal.
fn progress(cells: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} cells, {eta} left {wide_msg}");
    ProgressBar::new(cells).with_style(style.expect("a sound template"))
}

fn table(rows: &[Row]) -> Table {
    let head = [
        "TRACE",
        "LINE",
        "SIZE",
        "BLOCKS",
        "POLICY",
        "MISS %",
        "READ HIT %",
        "REQ HIT %",
        "BYTE HIT %",
        "FILLED",
    ];
    let mut table = Table::new(&head);
    for row in rows {
        table.row([
            row.trace.clone(),
            row.line_bytes.to_string(),
            format!("{}%", significant(100.0 * row.size_fraction)),
            row.cache_blocks.to_string(),
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

fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

/// Three significant digits, without trailing zeroes.
fn significant(value: f64) -> String {
    let digits = (2.0 - value.abs().max(1e-9).log10().floor()).max(0.0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn csv(rows: &[Row]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_enough() {
        for (value, text) in [
            (0.1, "0.1"),
            (10.0, "10"),
            (30.0, "30"),
            (1.0 / 3.0, "0.333"),
        ] {
            assert_eq!(significant(value), text);
        }
        assert_eq!(significant(1234.5), "1234");
    }

    #[test]
    fn lines_are_powers_of_two_in_the_engines_range() {
        assert_eq!(line_bytes("4096"), Ok(4096));
        assert_eq!(line_bytes("64KiB"), Ok(65536));
        for bad in ["0", "2048", "12288", "2MiB", "x"] {
            assert!(line_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_names_each_policy_once() {
        let all = policies(&["lru".into(), "all".into()]);
        assert_eq!(all.len(), POLICIES.len());
        assert_eq!(all[0], "lru");
    }
}
