//! `hotset trace replay`.

use super::OnDevice;
use crate::CommandFailure;
use crate::commands::table::{TextTable, bytes, count};
use crate::commands::text::{Argument, argument};
use crate::platform::UringPlatform;
use advise::replay::{Options, Replay, ReplayFigures, ReplayPace};
use block::{Device, Gate, Nanos};
use clap::Args;
use command::traces::{OWN, speed};
use control::config::Device as DeviceSection;
use hdrhistogram::Histogram;
use node::{Platform as _, RawRole};
use serde_json::json;
use shard::run_alone;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uring::Uring;

/// Buffers: as many requests in flight as are likely.
const BUFFER_BYTES: usize = 256 << 20;
/// Seed of the written bytes.
const SEED: u64 = 1;

#[derive(Args)]
pub struct ReplayCommand {
    /// The trace
    trace: PathBuf,
    /// A file, a block device, or the NBD URI of a volume
    target: String,
    #[command(flatten)]
    input: OnDevice,
    /// The speed of the replay, as a multiple of the recorded speed
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Send so many requests at a time, each as soon as an earlier one is answered
    #[arg(long, value_name = "N", conflicts_with = "speed",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Option<u32>,
    /// Send the writes too, which destroys the content of the target
    #[arg(long)]
    writes: bool,
    /// Really write
    #[arg(long, requires = "writes")]
    yes: bool,
    /// Begin no request after this time
    #[arg(long, value_name = "SECONDS", value_parser = super::record::seconds)]
    seconds: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(command: &ReplayCommand) -> Result<(), CommandFailure> {
    if command.writes && !command.yes {
        return Err(CommandFailure::Usage(format!(
            "hotset: --writes destroys what is on {}; add --yes if that is meant",
            command.target
        )));
    }
    let reader = command.input.open(&OWN, &command.trace)?;
    let section = section(&command.target, !command.writes)?;
    let options = Options {
        pace: match command.depth {
            Some(depth) => ReplayPace::Depth(depth),
            None => ReplayPace::Recorded(command.speed),
        },
        skip: 0,
        writes: command.writes,
        span_max: match command.seconds {
            Some(span) => Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
            None => Nanos::MAX,
        },
    };
    let figures = on_a_shard(section, reader, options).map_err(CommandFailure::Runtime)?;
    print(command, &figures)?;
    match figures.failure {
        None => Ok(()),
        Some(failure) => Err(CommandFailure::Runtime(format!(
            "{} failed, the first because: {failure}",
            count(figures.failed as usize, "request")
        ))),
    }
}

/// The section of the configuration for the target.
fn section(target: &str, read_only: bool) -> Result<DeviceSection, CommandFailure> {
    // A name alone is a file of the current directory.
    let target = match target.contains('/') {
        true => target.to_owned(),
        false => format!("./{target}"),
    };
    let Argument::New(name, section) = argument(&target, None) else {
        unreachable!("text with a slash is no name");
    };
    let text = section.flag("read_only", read_only).text("name", &name);
    DeviceSection::parse(&text.finish())
        .map_err(|what| CommandFailure::Usage(format!("hotset: {what}")))
}

/// Replays on a shard of its own.
fn on_a_shard(
    section: DeviceSection,
    reader: trace::TraceReader,
    options: Options,
) -> Result<ReplayFigures, String> {
    let mut host = Uring::new(uring::Options {
        pool_bytes: BUFFER_BYTES,
        ..uring::Options::default()
    })
    .map_err(|error| error.to_string())?;
    let opened = host.clone();
    let ended = run_alone(&mut host, move |local| async move {
        // No pool is opened here.
        let platform = UringPlatform::new(opened, local, Path::new(""));
        replay(&platform, &section, reader, options).await
    });
    ended.map_err(|error| error.to_string())?
}

async fn replay(
    platform: &UringPlatform,
    section: &DeviceSection,
    reader: trace::TraceReader,
    options: Options,
) -> Result<ReplayFigures, String> {
    let opened = node::open(platform, section, RawRole::Origin).await;
    let opened = opened.map_err(|error| error.to_string())?;
    let env = platform.local().env();
    let leaf = opened.leaf.clone();
    let reader = reader.with_end(leaf.geometry().sectors.bytes());
    let gate = Gate::new(leaf, env.clone());
    let noise = |data: &mut [u8]| fastrand::Rng::with_seed(SEED).fill(data);
    let target = move |_volume: u32| gate.clone();
    let replay = Replay::new(env, reader, options, target, noise, || ()).await;
    replay.run().await
}

fn print(command: &ReplayCommand, figures: &ReplayFigures) -> Result<(), CommandFailure> {
    let requests = figures.read_ns.len() + figures.write_ns.len();
    let seconds = figures.span.as_secs_f64();
    let rate = |n: u64| n as f64 / seconds.max(1e-9);
    if command.json {
        let object = json!({
            "requests": requests,
            "seconds": seconds,
            "iops": rate(requests),
            "mb_s": rate(figures.bytes) / 1e6,
            "read_us": latency(&figures.read_ns),
            "write_us": latency(&figures.write_ns),
            "failed": figures.failed,
            "late": figures.late,
            "writes_left_out": figures.writes_left_out,
        });
        return command::print_line(object);
    }
    let mut text = format!(
        "{requests} requests, {} in {seconds:.1} s: {:.0} a second, {:.1} MB/s\n",
        bytes(figures.bytes),
        rate(requests),
        rate(figures.bytes) / 1e6
    );
    text += &format!(
        "{} failed, {} sent late, {} writes left out\n\n",
        figures.failed, figures.late, figures.writes_left_out
    );
    let mut table = TextTable::new(&[
        "us", "REQUESTS", "MEAN", "p50", "p90", "p99", "p99.9", "MAX",
    ]);
    for (name, ns) in [("reads", &figures.read_ns), ("writes", &figures.write_ns)] {
        let mut cells = vec![name.to_owned(), ns.len().to_string()];
        let quantiles = [0.5, 0.9, 0.99, 0.999].map(|q| ns.value_at_quantile(q) as f64);
        let all = [ns.mean()]
            .into_iter()
            .chain(quantiles)
            .chain([ns.max() as f64]);
        cells.extend(all.map(|ns| format!("{:.0}", ns / 1e3)));
        table.row(cells);
    }
    command::print(text + &table.to_string())
}

/// Microseconds, and the histogram: upper bounds, each twice the one before, and the number within
/// each.
fn latency(ns: &Histogram<u64>) -> serde_json::Value {
    let us = |q: f64| ns.value_at_quantile(q) as f64 / 1e3;
    let steps = ns.iter_log(1000, 2.0);
    let histogram: Vec<_> = steps
        .filter(|step| step.count_since_last_iteration() > 0)
        .map(|step| {
            let below_us = step.value_iterated_to() as f64 / 1e3;
            json!([below_us, step.count_since_last_iteration()])
        })
        .collect();
    json!({
        "count": ns.len(),
        "mean": ns.mean() / 1e3,
        "p50": us(0.5),
        "p90": us(0.9),
        "p99": us(0.99),
        "p999": us(0.999),
        "max": ns.max() as f64 / 1e3,
        "histogram": histogram,
    })
}
