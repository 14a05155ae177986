//! pgbench on a volume with an origin as slow as a disk: the gain of each order of write-back over
//! write-through, in the same run.
//!
//! The daemon is the real one. Its origin, and a journal, are files that answer as slowly as a
//! model of a disk, in real time. Every round has each volume once, with new files, so that the
//! machine's other load meets all alike.
//!
//! Not here: reads that the server's memory does not have, since all files are read before.

use super::database::DatabaseServer;
use super::host::obstacle;
use super::place::{StackDirectory, StackWriteBack};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::mounted::MountedFileSystem;
use testbed::namespace;
use writelog::Cleaning;

/// Accounts, in hundred thousands: 60 MB with their index.
const SCALE: u32 = 4;
const CLIENTS: u32 = 8;
/// pgbench's default.
pub const TPCB: (&str, u64) = ("tpcb-like", 1);
/// The default of the configuration.
const MAX_LAG: Duration = Duration::from_secs(30);
/// Half of the log takes the writes of `MAX_LAG`.
const LOG_BYTES: u64 = 1 << 30;

/// A request for measurements.
#[derive(Clone, Debug)]
pub struct BenchRequest {
    /// Measurements of each volume.
    pub rounds: u64,
    /// The time of each measurement, in seconds.
    pub seconds: u64,
    /// The model of the origin's disk.
    pub model: String,
    /// The directory of the files, three gigabytes at most.
    pub directory: PathBuf,
    /// The executable of hotset.
    pub program: PathBuf,
}

/// The measurements.
#[derive(Clone, Debug, Serialize)]
pub struct StackBench {
    /// The model of the origin's disk.
    pub model: String,
    /// The time of each measurement, in seconds.
    pub seconds: u64,
    /// The volumes, write-through first.
    pub volumes: Vec<WriteWay>,
}

/// The measurements of one way to write.
#[derive(Clone, Debug, Serialize)]
pub struct WriteWay {
    /// `write-through`, or the order of a log.
    pub mode: &'static str,
    /// Transactions a second, each round.
    pub transactions_per_s: Vec<f64>,
    /// Their mean latency in milliseconds, each round.
    pub latency_ms: Vec<f64>,
    /// Transactions a second over write-through's of the same round: least, median, most.
    pub ratio: [f64; 3],
}

/// Measures. The error names the obstacle to measuring.
pub fn pgbench(request: &BenchRequest, done: &dyn Fn(&str)) -> Result<StackBench, String> {
    if let Some(obstacle) = obstacle() {
        return Err(obstacle);
    }
    namespace::enter()?;
    let orders = [None].into_iter().chain(Cleaning::ALL.map(Some));
    let orders: Vec<Option<Cleaning>> = orders.collect();
    let mut found: Vec<Vec<(f64, f64)>> = vec![Vec::new(); orders.len()];
    for round in 0..request.rounds {
        for (order, found) in orders.iter().zip(&mut found) {
            let (rate, latency) = measure(request, *order)?;
            let mode = mode(*order);
            done(&format!(
                "round {round}, {mode}: {rate:.0} transactions a second"
            ));
            found.push((rate, latency));
        }
    }
    let through = found[0].clone();
    let volumes = orders.iter().zip(found).map(|(order, found)| {
        let pairs = found.iter().zip(&through);
        let mut ratios: Vec<f64> = pairs.map(|((rate, _), (base, _))| rate / base).collect();
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len() - 1;
        WriteWay {
            mode: mode(*order),
            transactions_per_s: found.iter().map(|(rate, _)| *rate).collect(),
            latency_ms: found.iter().map(|(_, latency)| *latency).collect(),
            ratio: [ratios[0], ratios[last / 2], ratios[last]],
        }
    });
    Ok(StackBench {
        model: request.model.clone(),
        seconds: request.seconds,
        volumes: volumes.collect(),
    })
}

/// Reads all files below `at` into the server's memory.
fn read_all(at: &Path) -> io::Result<()> {
    for entry in fs::read_dir(at)? {
        let path = entry?.path();
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            read_all(&path)?;
        } else if kind.is_file() {
            fs::read(&path)?;
        }
    }
    Ok(())
}

fn mode(order: Option<Cleaning>) -> &'static str {
    order.map_or("write-through", Cleaning::name)
}

/// Measures transactions a second, and their latency in milliseconds.
fn measure(request: &BenchRequest, order: Option<Cleaning>) -> Result<(f64, f64), String> {
    let model = &request.model;
    let log = order.map(|order| StackWriteBack {
        order,
        max_lag: MAX_LAG,
        bytes: LOG_BYTES,
        journal: format!("model = \"{model}\"\n"),
    });
    let place = StackDirectory::new(&request.directory, log, |dir| {
        format!("path = \"{dir}/origin\"\nmodel = \"{model}\"")
    })?;
    place.make()?;
    let (mount, sockets) = (place.path("mount"), place.path("sockets"));
    let start =
        |mounted: &MountedFileSystem| DatabaseServer::start(&mounted.at().join("data"), &sockets);
    // Fills the origin's file itself, since that takes no modelled time.
    let mounted = MountedFileSystem::new(&place.path("origin"), &mount)?;
    let server = start(&mounted)?;
    server.fill(SCALE)?;
    server.stop("fast")?;
    mounted.unmount()?;
    let daemon = place.serve(&request.program)?;
    let attached = place.attach()?;
    let mounted = MountedFileSystem::new(attached.device(), &mount)?;
    read_all(mounted.at()).map_err(|error| format!("the tables: {error}"))?;
    let server = start(&mounted)?;
    let figures = server.bench(&[TPCB], CLIENTS, request.seconds)?;
    server.stop("immediate")?;
    mounted.unmount()?;
    drop(attached);
    daemon.kill().map_err(|error| error.to_string())?;
    Ok((figures.transactions_per_s, figures.latency_ms))
}
