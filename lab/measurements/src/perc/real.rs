//! The same sweep on this machine, by fio: through a daemon with files as drives, or on a bare
//! device.
//!
//! Files on one disk are no controllers: this measures the software, and the cost of the software,
//! not the gain of a second controller.

use super::scale::{PercScale, to_message};
use super::scale::{ThreadWorkload, WORKLOADS};
use super::sweep::SweepPoint;
use crate::bench::fio::{self, FioLoad, FioMeasured};
use crate::bench::server;
use serde::Serialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testbed::server::ServerProcess;

/// The controllers; the name of a drive is its controller's and its number.
const SIDES: [&str; 2] = ["a", "b"];
/// The drives of each.
const DRIVES: u32 = 7;
/// The size of a file that stands for a drive.
const DRIVE_MIB: u64 = 128;
/// Space that an array keeps of a drive for itself, and more.
const ASIDE_MIB: u64 = 4;

/// Place of the sweep.
#[derive(Clone, Debug)]
pub enum SweepPlace {
    /// A daemon with drives that are files in this directory.
    Files(PathBuf),
    /// A device or file, which is read and never written.
    Device(PathBuf),
}

/// Measurements of fio.
#[derive(Clone, Debug, Serialize)]
pub struct RealReport {
    /// The directory or the device.
    pub place: String,
    /// Seconds of each point.
    pub span_s: f64,
    /// Every point; a device counts as one controller.
    pub points: Vec<SweepPoint>,
}

/// Runs the sweep; `program` is hotset. Calls `done` after each part.
pub fn real(
    program: &Path,
    place: &SweepPlace,
    quick: bool,
    done: &dyn Fn(&str),
) -> Result<RealReport, String> {
    let (span, scale) = match quick {
        true => (Duration::from_millis(250), PercScale::QUICK),
        false => (Duration::from_secs(2), PercScale::FULL),
    };
    let mut points = Vec::new();
    match place {
        SweepPlace::Files(directory) => {
            fs::create_dir_all(directory).map_err(to_message)?;
            let directory = directory.canonicalize().map_err(to_message)?;
            for sides in 1..=SIDES.len() {
                let stage = SweepStage::new(program, &directory, sides)?;
                for workload in WORKLOADS {
                    for threads in scale.threads() {
                        points.push(stage.point(workload, threads, span)?);
                    }
                    done(&format!("{}s on {sides} of {}", workload.name, SIDES.len()));
                }
            }
        }
        SweepPlace::Device(path) => {
            for workload in WORKLOADS.into_iter().filter(|workload| !workload.write) {
                for threads in scale.threads() {
                    points.push(direct_point(path, workload, threads, span)?);
                }
                done(&format!("{}s", workload.name));
            }
        }
    }
    let (SweepPlace::Files(path) | SweepPlace::Device(path)) = place;
    Ok(RealReport {
        place: path.display().to_string(),
        span_s: span.as_secs_f64(),
        points,
    })
}

/// Measures one point of the sweep on a device or file, by direct requests; writes overwrite it.
pub fn direct_point(
    path: &Path,
    workload: ThreadWorkload,
    threads: u64,
    span: Duration,
) -> Result<SweepPoint, String> {
    let load = FioLoad::direct_requests((verb(workload), workload.bytes), threads, span);
    let clock = CpuClock::start(None)?;
    let measured = fio::run(path, &load).map_err(to_message)?;
    clock.point(workload, 1, threads, measured)
}

/// fio's word for a workload.
pub fn verb(workload: ThreadWorkload) -> &'static str {
    match (workload.random, workload.write) {
        (true, false) => "randread",
        (true, true) => "randwrite",
        (false, false) => "read",
        (false, true) => "write",
    }
}

/// A daemon, and its number of controllers.
struct SweepStage {
    server: ServerProcess,
    sides: usize,
}

fn configuration(directory: &Path, sides: usize) -> String {
    let dir = directory.display();
    let mut text = format!(
        "[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{dir}/state\"\n\
         [[listen]]\nunix = \"{dir}/hotset\"\n[[pool]]\nname = \"none\"\ndevices = []\n"
    );
    let mut stripes = Vec::new();
    for side in &SIDES[..sides] {
        let drives: Vec<_> = (0..DRIVES).map(|drive| format!("{side}{drive}")).collect();
        for drive in &drives {
            text += &format!(
                "[[device]]\nname = \"{drive}\"\npath = \"{dir}/{drive}.img\"\n\
                 controller = \"{side}\"\n"
            );
        }
        let stripe = format!("stripe-{side}");
        text += &array(&stripe, "raid0", &drives);
        stripes.push(stripe);
    }
    if sides > 1 {
        text += &array("mirror", "raid1", &stripes);
    }
    text + &format!(
        "[[volume]]\nname = \"volume\"\norigin = \"{}\"\npool = \"none\"\n\
         mode = \"pass-through\"\n",
        origin(sides)
    )
}

fn array(name: &str, level: &str, members: &[String]) -> String {
    format!("[[array]]\nname = \"{name}\"\nlevel = \"{level}\"\nmembers = {members:?}\n")
}

fn origin(sides: usize) -> &'static str {
    if sides > 1 { "mirror" } else { "stripe-a" }
}

impl SweepStage {
    fn new(program: &Path, directory: &Path, sides: usize) -> Result<SweepStage, String> {
        // An array of an earlier run is not this one's.
        let _ = fs::remove_dir_all(directory.join("state"));
        let mut arrays = Vec::new();
        for side in &SIDES[..sides] {
            for drive in 0..DRIVES {
                let path = directory.join(format!("{side}{drive}.img"));
                let file = File::create(path).map_err(to_message)?;
                file.set_len(DRIVE_MIB << 20).map_err(to_message)?;
            }
            arrays.push(format!("stripe-{side}"));
        }
        if sides > 1 {
            arrays.push("mirror".into());
        }
        let config = directory.join("hotset.toml");
        fs::write(&config, configuration(directory, sides)).map_err(to_message)?;
        for array in arrays {
            let mut create = Command::new(program);
            create.args(["array", "create", &array, "--yes", "--config"]);
            let made = create.arg(&config).output().map_err(to_message)?;
            if !made.status.success() {
                let message = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                return Err(format!("array {array} cannot be made: {message}"));
            }
        }
        let server = server::hotset(program, &config, directory, "volume").map_err(to_message)?;
        // Reads of files that hold nothing reach no disk.
        fio::run_load(&FioLoad::nbd_sweep(&server.uri, bytes(), "write")).map_err(to_message)?;
        Ok(SweepStage { server, sides })
    }

    fn point(
        &self,
        workload: ThreadWorkload,
        threads: u64,
        span: Duration,
    ) -> Result<SweepPoint, String> {
        let kind = (verb(workload), workload.bytes);
        let load = FioLoad::nbd_requests(&self.server.uri, bytes(), kind, threads, span);
        let clock = CpuClock::start(Some(&self.server))?;
        let measured = fio::run_load(&load).map_err(to_message)?;
        clock.point(workload, self.sides, threads, measured)
    }
}

/// Bytes of a volume that are used.
fn bytes() -> u64 {
    (u64::from(DRIVES) * (DRIVE_MIB - ASIDE_MIB)) << 20
}

/// CPU over a point.
struct CpuClock<'a> {
    began: Instant,
    daemon: Option<(&'a ServerProcess, Duration)>,
    host: (u64, u64),
}

impl<'a> CpuClock<'a> {
    fn start(daemon: Option<&'a ServerProcess>) -> Result<CpuClock<'a>, String> {
        let so_far =
            |server: &'a ServerProcess| server.cpu().map(|cpu| (server, cpu)).map_err(to_message);
        Ok(CpuClock {
            daemon: daemon.map(so_far).transpose()?,
            host: host_ticks()?,
            began: Instant::now(),
        })
    }

    fn point(
        self,
        workload: ThreadWorkload,
        controllers: usize,
        threads: u64,
        measured: FioMeasured,
    ) -> Result<SweepPoint, String> {
        let took = self.began.elapsed().as_secs_f64();
        let daemon = match self.daemon {
            Some((server, before)) => {
                let spent = server.cpu().map_err(to_message)?.saturating_sub(before);
                Some(spent.as_secs_f64() / took * 100.0)
            }
            None => None,
        };
        let (busy, all) = host_ticks()?;
        let (busy, all) = (busy - self.host.0, all - self.host.1);
        Ok(SweepPoint {
            workload: workload.name,
            controllers,
            threads,
            operations: measured.ops,
            iops: measured.iops,
            mb_s: measured.iops * workload.bytes as f64 / 1e6,
            latency_ms_mean: measured.latency_ms_mean,
            latency_ms_p99: measured.latency_ms_p99,
            sides_mb_s: None,
            cpu_daemon_percent: daemon,
            cpu_host_percent: Some(busy as f64 / all.max(1) as f64 * 100.0),
        })
    }
}

/// Ticks that all processors were busy, and all there were.
fn host_ticks() -> Result<(u64, u64), String> {
    let text = fs::read_to_string("/proc/stat").map_err(to_message)?;
    ticks(&text).ok_or_else(|| "/proc/stat has another form".to_owned())
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq and steal; the
/// time of guests is in user already.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Result<Vec<u64>, _> = line.split_whitespace().take(8).map(str::parse).collect();
    let fields = fields.ok().filter(|fields| fields.len() >= 5)?;
    let all: u64 = fields.iter().sum();
    Some((all - fields[3] - fields[4], all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_and_idling_are_not_busy() {
        let stat = "cpu  10 1 5 100 20 0 2 1 7 0\ncpu0 1 1 1 1\n";
        assert_eq!(ticks(stat), Some((19, 139)));
        assert_eq!(ticks("intr 1 2"), None);
        assert_eq!(ticks("cpu  1 2 x"), None);
    }
}
