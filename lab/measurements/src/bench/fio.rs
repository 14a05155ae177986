//! fio as a peer, and as the client of NBD servers.

use serde_json::Value;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Load for fio.
#[derive(Clone, Debug)]
pub struct FioLoad {
    /// Operations in flight.
    pub depth: u64,
    /// Duration; zero means once over everything.
    pub span: Duration,
    /// Options beside the common ones.
    pub options: Vec<String>,
}

/// Results of fio's reads, or of its writes if there were no reads.
#[derive(Clone, Copy, Debug)]
pub struct FioMeasured {
    /// Operations.
    pub ops: u64,
    /// Operations a second.
    pub iops: f64,
    /// CPU time of fio, user and system, for each operation.
    pub cpu_us_per_op: f64,
    /// The mean latency.
    pub latency_ms_mean: f64,
    /// The 99th percentile of the latency.
    pub latency_ms_p99: f64,
    /// The longest latency.
    pub latency_ms_max: f64,
}

impl FioLoad {
    /// 4 KiB direct random reads by io_uring with everything registered. The
    /// offsets differ from run to run, so that no cache has seen them.
    pub fn random_reads(depth: u64, span: Duration) -> FioLoad {
        FioLoad::direct_requests(("randread", 4096), depth, span)
    }

    /// Direct requests of `block` bytes to a file or device, as [`FioLoad::random_reads`]; `rw` is
    /// fio's word for their kind.
    pub fn direct_requests((rw, block): (&str, u64), depth: u64, span: Duration) -> FioLoad {
        let options = [
            "--ioengine=io_uring",
            "--direct=1",
            "--fixedbufs",
            "--registerfiles",
            &format!("--rw={rw}"),
            &format!("--bs={block}"),
            "--norandommap",
        ];
        FioLoad {
            depth,
            span,
            options: options.map(String::from).to_vec(),
        }
    }

    /// 4 KiB random reads of the first `bytes` of an NBD export.
    pub fn nbd_random_reads(uri: &str, bytes: u64, depth: u64, span: Duration) -> FioLoad {
        FioLoad::nbd_requests(uri, bytes, ("randread", 4096), depth, span)
    }

    /// Requests of `block` bytes on the first `bytes` of an NBD export; `rw` is fio's word for
    /// their kind.
    pub fn nbd_requests(
        uri: &str,
        bytes: u64,
        (rw, block): (&str, u64),
        depth: u64,
        span: Duration,
    ) -> FioLoad {
        let mut load = FioLoad::nbd(uri, bytes, depth);
        load.span = span;
        load.options
            .extend([format!("--rw={rw}"), format!("--bs={block}")]);
        load.options.push("--norandommap".into());
        load
    }

    /// The first `bytes` of an NBD export in order, once.
    pub fn nbd_sweep(uri: &str, bytes: u64, rw: &str) -> FioLoad {
        let mut load = FioLoad::nbd(uri, bytes, 8);
        load.options
            .extend([format!("--rw={rw}"), "--bs=64k".into()]);
        load
    }

    fn nbd(uri: &str, bytes: u64, depth: u64) -> FioLoad {
        FioLoad {
            depth,
            span: Duration::ZERO,
            options: vec![
                "--ioengine=nbd".into(),
                format!("--uri={uri}"),
                format!("--size={bytes}"),
            ],
        }
    }
}

/// Runs fio on the file or device at `path`.
pub fn run(path: &Path, load: &FioLoad) -> io::Result<FioMeasured> {
    let mut load = load.clone();
    load.options.push(format!("--filename={}", path.display()));
    run_load(&load)
}

/// Runs fio on the target named in the options of `load`; a failed operation is an error.
pub fn run_load(load: &FioLoad) -> io::Result<FioMeasured> {
    let mut command = Command::new("fio");
    command
        .args(["--name=peer", "--thread", "--randrepeat=0"])
        .arg("--output-format=json")
        .arg(format!("--iodepth={}", load.depth))
        .args(&load.options);
    if load.span > Duration::ZERO {
        let runtime = format!("--runtime={}ms", load.span.as_millis());
        command.args(["--time_based", &runtime]);
    }
    let mut run = || {
        let output = command.output();
        output.map_err(|e| io::Error::other(format!("fio (Debian package fio) did not start: {e}")))
    };
    let mut output = run()?;
    // Debian's fio (3.33) may crash, on busy machines: without a message or a report.
    if output.status.signal().is_some() {
        output = run()?;
    }
    if !output.status.success() {
        let text = [&output.stderr[..], &output.stdout[..]].concat();
        let text = String::from_utf8_lossy(&text);
        let status = output.status;
        return Err(io::Error::other(format!("fio failed ({status}): {text}")));
    }
    // Notes may stand before the report.
    let begin = output.stdout.iter().position(|byte| *byte == b'{');
    measured(&serde_json::from_slice(
        &output.stdout[begin.unwrap_or(0)..],
    )?)
}

fn measured(report: &Value) -> io::Result<FioMeasured> {
    let job = &report["jobs"][0];
    let number = |value: &Value| {
        let missing = || io::Error::other("fio's report lacks a figure");
        value.as_f64().ok_or_else(missing)
    };
    let reads = number(&job["read"]["total_ios"])?;
    let side = &job[if reads > 0.0 { "read" } else { "write" }];
    let cpu_share = (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0;
    let seconds = number(&side["runtime"])? / 1e3;
    let ops = number(&side["total_ios"])?;
    Ok(FioMeasured {
        ops: ops as u64,
        iops: number(&side["iops"])?,
        cpu_us_per_op: cpu_share * seconds * 1e6 / ops,
        latency_ms_mean: number(&side["clat_ns"]["mean"])? / 1e6,
        latency_ms_p99: number(&side["clat_ns"]["percentile"]["99.000000"])? / 1e6,
        latency_ms_max: number(&side["clat_ns"]["max"])? / 1e6,
    })
}
