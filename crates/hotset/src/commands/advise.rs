//! `hotset advise`: the best size of the pool.

mod write_back;

use super::table::{TextTable, bytes};
use crate::CommandFailure;
use crate::commands::daemon::ControlOption;
use advise::sizing::replay::{ModelledDevices, hits, replay};
use advise::sizing::{Advice, AdviceSubject, EXAMPLE_PRICES, PriceBook};
use advise::sizing::{advise, page, profile, sizes, volume};
use advise::writeback::{Collector, OriginTakes};
use clap::Args;
use command::traces::format;
use command::{print, print_line};
use control::client::ControlClient;
use control::config::ByteCount;
use drives::catalogue::Drive;
use policy::registry::POLICIES;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use trace::{Format, Strictness, TraceReader, TraceRecord};

/// Bounds of a line, as for a pool.
const LINE_BYTES_MIN: u64 = 4096;
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Drives of an origin, at the most.
const DRIVES_MAX: i64 = 64;
/// The least rate of an origin, in bytes a second.
const RATE_MIN: u64 = 4096;
/// Rows of the curve in the table, about.
const ROWS: usize = 16;
/// Columns of the bar of a row.
const BAR: f64 = 40.0;

#[derive(Args)]
pub struct Advise {
    /// The trace
    #[arg(required_unless_present_any = ["volume", "example_prices"], conflicts_with = "volume")]
    trace: Option<PathBuf>,
    /// A volume of a running daemon, instead of a trace
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    #[command(flatten)]
    control: ControlOption,
    /// The present size of the pool, such as 64GiB; known for a volume
    #[arg(long, value_name = "SIZE", value_parser = ByteCount::parse, conflicts_with = "volume")]
    pool: Option<ByteCount>,
    /// The unit of replacement
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = line)]
    line: u64,
    /// The replacement policy of the pool
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = policy_name)]
    policy: String,
    /// The drive model of the origin
    #[arg(long, value_name = "MODEL", default_value = "ST3500320AS", value_parser = drive)]
    origin: Drive,
    /// The number of such drives in the origin, striped
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=DRIVES_MAX))]
    origin_drives: u32,
    /// The bytes a second that the origin takes in writes to random places, such as 2MiB, instead
    /// of the rate of its model
    #[arg(long, value_name = "SIZE", value_parser = rate, conflicts_with = "volume")]
    origin_rate: Option<u64>,
    /// The drive model of the pool
    #[arg(long, value_name = "MODEL", default_value = "Nytro 400", value_parser = drive)]
    ssd: Drive,
    /// The price book; an example of its own unless given
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Print the example of a price book, to be edited
    #[arg(long, conflicts_with_all = ["trace", "volume"])]
    example_prices: bool,
    /// The trace's format; recognised by its first line unless given
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<Format>,
    /// Leave out and count malformed input, instead of ending with an error
    #[arg(long)]
    lenient: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a page with charts, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn line(text: &str) -> Result<u64, String> {
    let ByteCount(line) = ByteCount::parse(text)?;
    if line.is_power_of_two() && (LINE_BYTES_MIN..=LINE_BYTES_MAX).contains(&line) {
        Ok(line)
    } else {
        Err("choose a power of two from 4KiB to 1MiB".into())
    }
}

fn rate(text: &str) -> Result<u64, String> {
    let ByteCount(rate) = ByteCount::parse(text)?;
    match rate >= RATE_MIN {
        true => Ok(rate),
        false => Err("choose 4KiB or more".into()),
    }
}

fn policy_name(text: &str) -> Result<String, String> {
    if POLICIES.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("choose from {}", POLICIES.join(", ")))
}

fn drive(text: &str) -> Result<Drive, String> {
    Drive::named(text).map_err(|error| error.to_string())
}

/// The reason why there is no advice on a trace: its own error, or one of the device models.
enum Cause {
    Trace(trace::Error),
    Model(block::IoError),
}

impl From<block::IoError> for Cause {
    fn from(error: block::IoError) -> Cause {
        Cause::Model(error)
    }
}

impl From<Cause> for CommandFailure {
    fn from(cause: Cause) -> CommandFailure {
        match cause {
            Cause::Trace(error) => CommandFailure::runtime(error),
            Cause::Model(error) => CommandFailure::runtime(error),
        }
    }
}

pub fn run(command: &Advise) -> Result<(), CommandFailure> {
    if command.example_prices {
        return print(EXAMPLE_PRICES);
    }
    let prices = prices(command.prices.as_deref())?;
    let mut advice = match (&command.volume, &command.trace) {
        (Some(volume), _) => of_volume(command, volume, prices)?,
        (None, Some(trace)) => of_trace(command, trace, prices)?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    advice.warn_of_old_prices(since.map_or(0, |since| since.as_secs() / 86_400));
    if let Some(file) = &command.html {
        let page = page(&advice).map_err(CommandFailure::runtime)?;
        std::fs::write(file, page).map_err(|cause| {
            let place = file.display();
            CommandFailure::runtime(format!(
                "{place} cannot be written ({cause}); choose another place"
            ))
        })?;
    }
    if command.json {
        let line = serde_json::to_string(&advice).map_err(CommandFailure::runtime)?;
        return print_line(line);
    }
    print(text(&advice))
}

fn prices(file: Option<&Path>) -> Result<PriceBook, CommandFailure> {
    match file {
        None => PriceBook::parse(EXAMPLE_PRICES).map_err(CommandFailure::Runtime),
        Some(file) => price_book(file),
    }
}

/// Reads a price book.
pub fn price_book(file: &Path) -> Result<PriceBook, CommandFailure> {
    let place = file.display();
    let text = std::fs::read_to_string(file).map_err(|cause| {
        CommandFailure::Usage(format!(
            "{place}: cannot be read ({cause}); name a price book, such as \
             `hotset advise --example-prices` prints"
        ))
    })?;
    PriceBook::parse(&text).map_err(|what| CommandFailure::Usage(format!("{place}: {what}")))
}

fn of_volume(command: &Advise, name: &str, prices: PriceBook) -> Result<Advice, CommandFailure> {
    let mut client =
        ControlClient::connect(&command.control.control).map_err(CommandFailure::runtime)?;
    let observed = client.observe(name).map_err(CommandFailure::runtime)?;
    volume::advice(&observed, prices).map_err(CommandFailure::runtime)
}

fn of_trace(command: &Advise, path: &Path, prices: PriceBook) -> Result<Advice, CommandFailure> {
    let strictness = if command.lenient {
        Strictness::Lenient
    } else {
        Strictness::Strict
    };
    let open = || TraceReader::open(path, command.format, strictness).map_err(Cause::Trace);
    let takes = match command.origin_rate {
        Some(rate) => OriginTakes::Rate(rate),
        None => OriginTakes::Drives(Box::new(command.origin.clone()), command.origin_drives),
    };
    let mut written = Collector::new(&takes).map_err(CommandFailure::runtime)?;
    let mut reader = open()?.with_flushes();
    let records = reader.by_ref().inspect(|record| {
        if let Ok(record) = record {
            written.add(record);
        }
    });
    let requests = records.filter(|record| !record.as_ref().is_ok_and(TraceRecord::is_flush));
    let profile = profile(requests, command.line).map_err(CommandFailure::runtime)?;
    let skipped = reader.skipped();
    if profile.accesses() == 0 {
        return Err(CommandFailure::runtime(format!(
            "{}: no requests; record or import a trace that has some",
            path.display()
        )));
    }
    let pool_bytes = command.pool.map(|ByteCount(bytes)| bytes);
    if pool_bytes.is_some_and(|bytes| bytes < command.line) {
        let what = "the pool is smaller than a line; give more with --pool, or shorter lines";
        return Err(CommandFailure::Usage(what.into()));
    }
    let devices = ModelledDevices {
        origin: command.origin.clone(),
        origin_drives: command.origin_drives,
        pool: command.ssd.clone(),
    };
    let records = || Ok::<_, Cause>(open()?.map(|record| record.map_err(Cause::Trace)));
    let footprint = profile.footprint_bytes() as u64;
    let curve = hits(records, &command.policy, footprint, command.line)?;
    let all: Vec<u64> = sizes(&curve, command.line, pool_bytes)
        .iter()
        .map(|size| size.1)
        .collect();
    let timed = profile.seconds > 0.0;
    let estimates = replay(
        records()?,
        &command.policy,
        &all,
        command.line,
        timed,
        &devices,
    )?;
    let estimates: Vec<_> = estimates.into_iter().map(Some).collect();
    let subject = subject(command, path, pool_bytes);
    let mut advice = advise(profile, curve, subject, &estimates, prices);
    advice.write_back = Some(written.finish());
    if skipped.malformed + skipped.out_of_order > 0 || skipped.truncated {
        let end = if skipped.truncated {
            ", and its end is cut off"
        } else {
            ""
        };
        advice.warnings.push(format!(
            "left out of the trace: {} malformed lines and {} requests out of order{end}",
            skipped.malformed, skipped.out_of_order
        ));
    }
    Ok(advice)
}

/// The trace in the file `path`, as the subject of advice.
fn subject(command: &Advise, path: &Path, pool_bytes: Option<u64>) -> AdviceSubject {
    let source = path.file_name().unwrap_or_default();
    AdviceSubject {
        source: source.to_string_lossy().into_owned(),
        basis: format!(
            "Estimates replay the trace through the policy and models of the devices: {} x {} as \
             the origin, {} as the pool, empty at first.",
            command.origin_drives,
            command.origin.name(),
            command.ssd.name()
        ),
        policy: command.policy.clone(),
        pool_bytes,
    }
}

fn text(advice: &Advice) -> String {
    let profile = &advice.profile;
    let accesses = profile.accesses().max(1);
    let mut out = format!(
        "{}: {accesses} accesses to lines of {}, {:.0}% reads",
        advice.source,
        bytes(profile.line_bytes),
        100.0 * profile.reads as f64 / accesses as f64,
    );
    if profile.seconds > 0.0 {
        let _ = write!(out, ", over {}", advise::page::span(profile.seconds));
    }
    let _ = write!(
        out,
        "\n{} touched in all; {:.0}% of accesses can be hits\n{} Policy: {}.\n\n",
        bytes(advice.footprint_bytes),
        100.0 * advice.cacheable_share,
        advice.basis,
        advice.policy,
    );
    let _ = writeln!(out, "{}", sizes_table(advice));
    if advice.sizes.iter().any(|size| size.cost.is_some()) {
        let _ = writeln!(out, "{}", costs_table(advice));
    }
    let _ = writeln!(out, "{}", curve(advice));
    if !profile.working_set.is_empty() {
        let _ = writeln!(out, "{}", working_set(advice));
    }
    let recommended = advice.recommended();
    let _ = writeln!(
        out,
        "recommended: a pool of {}, the smallest found with 95% of the hits of one that holds all \
         that was touched",
        bytes(recommended.pool_bytes)
    );
    let _ = write!(out, "\n{}", write_back::section(advice.write_back.as_ref()));
    for warning in &advice.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    out
}

fn sizes_table(advice: &Advice) -> TextTable {
    let head = [
        "SIZE",
        "POOL",
        "HIT %",
        "MEAN ms",
        "P99 ms",
        "ORIGIN MB/s",
        "BUSY %",
    ];
    let mut table = TextTable::new(&head);
    for size in &advice.sizes {
        let mut cells = vec![size.label.to_owned(), bytes(size.pool_bytes)];
        match &size.estimate {
            None => cells.resize(head.len(), "-".into()),
            Some(e) => {
                let timed = advice.profile.seconds > 0.0;
                let rate = format!("{:.2}", e.origin_bytes_per_second / 1e6);
                let busy = e
                    .origin_busy
                    .map_or("-".into(), |busy| format!("{:.0}", 100.0 * busy));
                cells.extend([
                    format!("{:.1}", 100.0 * e.hit_ratio),
                    format!("{:.2}", e.latency_us_mean / 1e3),
                    format!("{:.2}", e.latency_us_p99 / 1e3),
                    if timed { rate } else { "-".into() },
                    if e.saturated {
                        "saturated".into()
                    } else {
                        busy
                    },
                ]);
            }
        }
        table.row(cells);
    }
    table
}

fn costs_table(advice: &Advice) -> TextTable {
    let currency = &advice.prices.currency;
    let head = [
        "SIZE",
        "SSD GB/day",
        "ENDURES years",
        "BOUGHT",
        "HARDWARE",
        "POWER",
        "TOTAL",
    ];
    let mut table = TextTable::new(&head);
    for size in advice.sizes.iter().filter(|size| size.pool_bytes > 0) {
        let Some(cost) = &size.cost else { continue };
        let written = size.estimate;
        let written = written.map(|e| e.pool_written_bytes_per_second * 86_400.0 / 1e9);
        let money = |amount: f64| format!("{currency} {amount:.2}");
        table.row([
            size.label.to_owned(),
            written.map_or("-".into(), |gb| format!("{gb:.1}")),
            cost.endurance_years
                .map_or("-".into(), |years| format!("{years:.1}")),
            cost.purchases.to_string(),
            money(cost.hardware),
            money(cost.power),
            money(cost.total),
        ]);
    }
    table
}

fn curve(advice: &Advice) -> TextTable {
    let mut table = TextTable::new(&["POOL", "HIT %", "±", ""]);
    let points = &advice.curve;
    let step = points.len().div_ceil(ROWS).max(1);
    let last = points.len().saturating_sub(1);
    for (_, point) in points
        .iter()
        .enumerate()
        .filter(|(i, _)| (last - i).is_multiple_of(step))
    {
        let bar = "#".repeat((BAR * point.hit_ratio).round() as usize);
        table.row([
            bytes(point.pool_bytes),
            format!("{:.1}", 100.0 * point.hit_ratio),
            format!("{:.1}", 100.0 * point.error),
            format!("{bar:<width$}", width = BAR as usize),
        ]);
    }
    table
}

fn working_set(advice: &Advice) -> TextTable {
    let mut table = TextTable::new(&["UP TO", "READ", "WRITTEN"]);
    let sets = &advice.profile.working_set;
    let step = sets.len().div_ceil(ROWS);
    for set in sets.iter().step_by(step) {
        table.row([
            advise::page::span(set.end_seconds),
            bytes(set.read_bytes),
            bytes(set.written_bytes),
        ]);
    }
    table
}
