//! `bench [--quick]`: every measurement beside its peer, into
//! `target/bench.json` and `docs/performance.md`. Run by `make bench`.

use lab::bench::{Row, hits, mesh, nop, reads, report, simulator};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (runs, span) = if quick { (3, 1) } else { (9, 3) };
    let span = Duration::from_secs(span);
    let file = Path::new("target/bench.data");
    println!("writing {} (1 GiB), once", file.display());
    reads::make_file(file, 1 << 30)?;
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |what: &str, new: Vec<Row>| {
        println!("measured {what}");
        rows.extend(new);
    };
    let nop_program = std::env::current_exe()?.with_file_name("nop");
    add("the executor", nop::rows(runs, &nop_program)?);
    let hits_program = nop_program.with_file_name("hits");
    add(
        "hits of the engine",
        hits::rows(&hits_program, &nop_program)?,
    );
    add("messages between shards", mesh::rows(runs)?);
    add("the simulator", simulator::rows(runs.min(5), 2_000_000)?);
    add("random reads", reads::rows(file, runs, span)?);
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()?;
    let commit = String::from_utf8(commit.stdout)?;
    let made_by = format!(
        "Made by `make bench` on {} at commit {}.",
        machine()?,
        commit.trim()
    );
    let (json, page) = (
        Path::new("target/bench.json"),
        Path::new("docs/performance.md"),
    );
    report::write(&rows, &made_by, json, page)?;
    println!("{}", report::table(&rows, &made_by));
    Ok(())
}

/// The processor and the kernel, as the figures depend on them.
fn machine() -> std::io::Result<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo")?;
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(": ").nth(1))
            .unwrap_or("unknown")
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let cores = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    Ok(format!(
        "{cores} cores of {}, Linux {}",
        field("model name"),
        kernel.trim()
    ))
}
