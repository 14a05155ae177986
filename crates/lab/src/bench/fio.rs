//! fio as a peer.

use serde_json::Value;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What fio is asked to do.
#[derive(Clone, Debug)]
pub struct Load {
    /// Operations in flight.
    pub depth: u64,
    /// How long.
    pub span: Duration,
    /// Options beside the common ones.
    pub options: Vec<String>,
}

/// What fio measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Operations a second.
    pub iops: f64,
    /// CPU time of the process, user and system, for each operation.
    pub cpu_us_per_op: f64,
}

impl Load {
    /// 4 KiB direct random reads by io_uring with everything registered. The
    /// offsets differ from run to run, so that no cache has seen them.
    pub fn random_reads(depth: u64, span: Duration) -> Load {
        let options = [
            "--ioengine=io_uring",
            "--direct=1",
            "--fixedbufs",
            "--registerfiles",
        ];
        Load {
            depth,
            span,
            options: options.map(String::from).to_vec(),
        }
    }
}

/// Runs fio on `path`.
pub fn run(path: &Path, load: &Load) -> io::Result<Measured> {
    let output = Command::new("fio")
        .args([
            "--name=peer",
            "--rw=randread",
            "--bs=4k",
            "--time_based",
            "--thread",
        ])
        .args(["--randrepeat=0", "--norandommap", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--iodepth={}", load.depth))
        .arg(format!("--runtime={}ms", load.span.as_millis()))
        .args(&load.options)
        .output()
        .map_err(|e| io::Error::other(format!("fio (Debian package fio) did not start: {e}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("fio failed: {text}")));
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let job = &report["jobs"][0];
    let number = |value: &Value| {
        let missing = || io::Error::other("fio's report lacks a figure");
        value.as_f64().ok_or_else(missing)
    };
    let read = &job["read"];
    let cpu_share = (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0;
    let seconds = number(&read["runtime"])? / 1e3;
    Ok(Measured {
        iops: number(&read["iops"])?,
        cpu_us_per_op: cpu_share * seconds * 1e6 / number(&read["total_ios"])?,
    })
}
