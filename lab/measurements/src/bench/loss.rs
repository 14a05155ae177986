//! The pool's only device dies under reads: its NBD server is killed.

use super::fio::{self, FioLoad};
use super::reads::make_file;
use super::server::{DaemonSetup, Hotset, direct, nbd};
use super::{BenchRow, Goal, alone};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use testbed::server::ServerProcess;

const HOT_BYTES: u64 = 64 << 20;
const DEPTH: u64 = 16;

/// Errors at the client and its longest wait, over `runs` kills; `dir` is on a
/// file system with direct I/O.
pub fn rows(hotset: &Path, dir: &Path, runs: usize, span: Duration) -> io::Result<Vec<BenchRow>> {
    fs::create_dir_all(dir)?;
    let origin = dir.join("loss-origin");
    make_file(&origin, HOT_BYTES)?;
    let (mut errors, mut stalls) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let (error, stall) = lose(hotset, dir, &origin, span)?;
        errors.push(error);
        stalls.push(stall);
    }
    fs::remove_file(&origin)?;
    let name = "pool device's NBD server killed under reads at depth 16";
    Ok(vec![
        alone(
            format!("{name}: requests that failed"),
            "errors",
            Some(Goal::AtMost(0.0)),
            &errors,
        ),
        alone(format!("{name}: longest wait"), "ms", None, &stalls),
    ])
}

fn lose(hotset: &Path, dir: &Path, origin: &Path, span: Duration) -> io::Result<(f64, f64)> {
    let size = (2 * HOT_BYTES).to_string();
    let pool = ServerProcess::nbdkit("nbdkit memory", dir, &["memory", &size])?;
    let setup = DaemonSetup {
        dir,
        origin: direct(origin),
        pool: nbd(&pool),
    };
    let daemon = Hotset::start(hotset, &setup)?;
    fio::run_load(&FioLoad::nbd_sweep(&daemon.server.uri, HOT_BYTES, "read"))?;
    let load = FioLoad::nbd_random_reads(&daemon.server.uri, HOT_BYTES, DEPTH, span);
    let client = std::thread::spawn(move || fio::run_load(&load));
    std::thread::sleep(span / 2);
    let hits = daemon.counter("blocks_hit")?;
    pool.kill()?;
    let measured = client.join().expect("it does not panic");
    let status = daemon.status()?;
    let state = status["pools"][0]["devices"][0]["state"].as_str();
    if hits == 0 || !state.is_some_and(|state| state.starts_with("ejected")) {
        let what = format!("nothing was lost: {hits} hits before, the device is {state:?}");
        return Err(io::Error::other(what));
    }
    let errors = status["nbd"]["errors"].as_u64();
    let errors = errors.ok_or_else(|| io::Error::other("hotset reports no errors"))? as f64;
    // fio ends at its first error, and prints no figures then.
    Ok(match measured {
        Ok(measured) => (errors, measured.latency_ms_max),
        Err(_) => (errors.max(1.0), f64::NAN),
    })
}
