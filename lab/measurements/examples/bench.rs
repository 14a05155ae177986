//! `bench [--quick] [GROUP...]`: measurements beside their peers. All of them go into
//! `target/bench.json` and `docs/performance.md`, as with `make bench`; some groups, or all in
//! their quick form, are only printed. A group that fails leaves the others alone.

use measurements::bench::{
    BenchRow, arrays, engine, guest, hits, loss, memory, mesh, nbd_hits, nop, policy, reads,
    remember, report, restart, served, shards, simulator, throughput,
};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

type Measure<'a> = &'a dyn Fn() -> Result<Vec<BenchRow>, Box<dyn Error>>;
/// Rows, and the groups that failed.
type Measured<'a> = (Vec<BenchRow>, Vec<&'a str>);

fn main() -> Result<(), Box<dyn Error>> {
    let (quick, chosen) = asked()?;
    let (runs, seconds) = if quick { (3, 1) } else { (9, 3) };
    let span = Duration::from_secs(seconds);
    let file = Path::new("target/bench.data");
    println!("writing {} (1 GiB), once", file.display());
    reads::make_file(file, 1 << 30)?;
    let programs = std::env::current_exe()?;
    let program = |name| programs.with_file_name(name);
    let hotset = programs.ancestors().nth(2);
    let hotset = hotset
        .ok_or("no directory above this program's")?
        .join("hotset");
    // Sockets' paths are to be short, and absolute for the daemon.
    let dir = std::path::absolute("target/bench")?;
    let plan = served_plan(quick, &hotset, file, &dir)?;
    let loss_span = Duration::from_secs(if quick { 6 } else { 10 });
    let in_guest = |script: &str| guest::rows(Path::new(script), &hotset);
    let groups: [(&str, Measure); 22] = [
        ("executor", &|| Ok(nop::rows(runs, &program("nop"))?)),
        ("hits", &|| {
            Ok(hits::rows(&program("hits"), &program("nop"))?)
        }),
        ("policy", &|| {
            let accesses = if quick { 50_000 } else { 500_000 };
            Ok(policy::rows(runs, accesses, &program("policy_cost"))?)
        }),
        ("arrays", &|| Ok(arrays::rows(&program("arrays"))?)),
        ("nbd-hits", &|| Ok(nbd_hits::rows(&program("hits"))?)),
        ("messages", &|| Ok(mesh::rows(runs)?)),
        ("shards", &|| {
            Ok(shards::rows(
                &program("shards"),
                span.min(Duration::from_secs(2)),
            )?)
        }),
        ("simulator", &|| {
            Ok(simulator::rows(runs.min(5), 2_000_000)?)
        }),
        ("reads", &|| Ok(reads::rows(file, runs, span)?)),
        ("engine", &|| {
            let pool = Path::new("target/bench.pool");
            Ok(engine::rows(file, pool, runs, span)?)
        }),
        ("served", &|| Ok(served::rows(&plan)?)),
        ("loss", &|| {
            Ok(loss::rows(&hotset, &dir, plan.runs.min(3), loss_span)?)
        }),
        ("array-throughput", &|| {
            Ok(throughput::rows(&dir, plan.runs, plan.span)?)
        }),
        ("memory", &|| Ok(memory::rows(&program("memory"), quick)?)),
        ("remember", &|| Ok(remember::rows()?)),
        ("restart", &|| {
            let sizes: &[u64] = if quick { &[1] } else { &[1, 4, 16, 64] };
            Ok(restart::rows(&hotset, &dir, sizes)?)
        }),
        ("guest", &|| Ok(in_guest("vm/bench/peers")?)),
        ("guest-arrays", &|| Ok(in_guest("vm/bench/arrays")?)),
        ("guest-vhost-user", &|| Ok(in_guest("vm/bench/vhost-user")?)),
        ("guest-loss", &|| Ok(in_guest("vm/bench/lost-pool")?)),
        ("guest-write-back", &|| Ok(in_guest("vm/bench/write-back")?)),
        ("guest-write-back-loss", &|| {
            Ok(in_guest("vm/bench/lost-write-back")?)
        }),
    ];
    let (rows, failed) = measured(&groups, &chosen)?;
    let all = !quick && chosen.is_empty();
    report_all(&rows, &failed, all)
}

/// Prints the rows, and writes all of them into the page.
fn report_all(rows: &[BenchRow], failed: &[&str], all: bool) -> Result<(), Box<dyn Error>> {
    let mut made_by = made_by()?;
    if !failed.is_empty() {
        made_by += &format!(" Failed, and missing here: {}.", failed.join(", "));
    }
    if all {
        let (json, page) = ("target/bench.json", "docs/performance.md");
        report::write(rows, &made_by, Path::new(json), Path::new(page))?;
    }
    println!("{}", report::table(rows, &made_by));
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not measured: {}", failed.join(", ")).into()),
    }
}

/// True for the quick form, and the chosen groups.
fn asked() -> Result<(bool, Vec<String>), &'static str> {
    let (options, chosen): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|argument| argument.starts_with('-'));
    match &options[..] {
        [] => Ok((false, chosen)),
        [option] if option == "--quick" => Ok((true, chosen)),
        _ => Err("usage: bench [--quick] [GROUP...]"),
    }
}

fn served_plan(
    quick: bool,
    hotset: &Path,
    file: &Path,
    dir: &Path,
) -> std::io::Result<served::ServedPlan> {
    Ok(served::ServedPlan {
        hotset: hotset.to_owned(),
        data: file.canonicalize()?,
        disk_dir: dir.to_owned(),
        memory_dir: format!("/dev/shm/hotset-bench-{}", std::process::id()).into(),
        hot_bytes: if quick { 64 << 20 } else { 256 << 20 },
        runs: if quick { 1 } else { 5 },
        span: Duration::from_secs(if quick { 1 } else { 2 }),
    })
}

/// The rows of the chosen groups, or of all, and the groups that failed.
fn measured<'a>(
    groups: &[(&'a str, Measure)],
    chosen: &[String],
) -> Result<Measured<'a>, Box<dyn Error>> {
    let known = |name: &String| groups.iter().any(|(known, _)| known == name);
    if let Some(unknown) = chosen.iter().find(|name| !known(name)) {
        let known: Vec<_> = groups.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        return Err(format!("no group is called {unknown}; choose from {known}").into());
    }
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for (name, measure) in groups {
        if !chosen.is_empty() && !chosen.iter().any(|chosen| chosen == name) {
            continue;
        }
        match measure() {
            Ok(new) => {
                println!("measured: {name}");
                rows.extend(new);
            }
            Err(error) => {
                println!("not measured: {name}: {error}");
                failed.push(*name);
            }
        }
    }
    Ok((rows, failed))
}

fn made_by() -> Result<String, Box<dyn Error>> {
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()?;
    let commit = String::from_utf8(commit.stdout)?;
    let (machine, commit) = (machine()?, commit.trim());
    Ok(format!(
        "Made by `make bench` on {machine} at commit {commit}."
    ))
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
