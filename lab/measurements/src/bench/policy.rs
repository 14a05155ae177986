//! Cost of policies, called as the live engine calls them: a hit, a replacement with all its
//! consequences, memory.
//!
//! Lines are drawn at random, a few of them far more often than most. Each batch of draws is parted
//! into lines that are resident and lines that are not, and each part is timed as a whole. Drawing
//! and parting are not timed, and are alike for every policy.

use super::nop::collected;
use super::reads::cpu_time;
use super::{BenchRow, Goal, alone, median, paired};
use baselines::registry;
use policy::{Instruction, LineKey, Policy, PolicyRequest, Unpinned};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::Command;

/// Slots of the pool: 26 GiB in lines of 64 KiB.
const SLOTS: u32 = 415_396;
/// Lines that may be asked for, for each slot.
const LINES_PER_SLOT: u64 = 4;
const BATCH: usize = 4096;
/// Policies to compare with: the simplest, and one made to be fast.
const PEERS: [&str; 2] = ["lru", "s3-fifo"];
const POLICY: &str = "auto";

/// A full pool under its policy.
pub struct PolicySubject {
    policy: Box<dyn Policy>,
    rng: fastrand::Rng,
}

/// Cost of some accesses.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct AccessCost {
    /// Accesses to resident lines.
    pub hits: u64,
    /// Accesses to lines that were not resident.
    pub misses: u64,
    /// Misses that replaced another line.
    pub replaced: u64,
    /// CPU time of the hits.
    pub hits_ns: f64,
    /// CPU time of the misses.
    pub misses_ns: f64,
}

impl PolicySubject {
    /// The policy called `name` after its pool has been filled, and then used by
    /// `warming` accesses.
    pub fn new(name: &str, warming: u64) -> PolicySubject {
        let mut subject = PolicySubject {
            policy: registry::build(name, SLOTS, 1).expect("a policy's name"),
            rng: fastrand::Rng::with_seed(1),
        };
        let lines = (0..u64::from(SLOTS)).map(|line| LineKey((line * LINES_PER_SLOT) << 3));
        access(&mut *subject.policy, &lines.collect::<Vec<_>>());
        for _ in 0..warming / BATCH as u64 {
            let keys: Vec<LineKey> = subject.draw().collect();
            access(&mut *subject.policy, &keys);
        }
        subject
    }

    fn draw(&mut self) -> impl Iterator<Item = LineKey> {
        let lines = (u64::from(SLOTS) * LINES_PER_SLOT) as f64;
        (0..BATCH).map(move |_| {
            let u = self.rng.f64();
            LineKey(((u * u * u * lines) as u64) << 3)
        })
    }

    /// Makes at least so many accesses.
    pub fn access(&mut self, accesses: u64) -> AccessCost {
        let mut cost = AccessCost::default();
        while cost.hits + cost.misses < accesses {
            let drawn: Vec<LineKey> = self.draw().collect();
            let is_resident = |key: &LineKey| self.policy.peek(*key).is_some();
            let (resident, absent): (Vec<LineKey>, Vec<LineKey>) =
                drawn.into_iter().partition(is_resident);
            let start = cpu_time();
            batch_of_hits(&mut *self.policy, &resident);
            let between = cpu_time();
            cost.replaced += batch_of_misses(&mut *self.policy, &absent);
            cost.misses_ns += (cpu_time() - between).as_nanos() as f64;
            cost.hits_ns += (between - start).as_nanos() as f64;
            cost.hits += resident.len() as u64;
            cost.misses += absent.len() as u64;
        }
        cost
    }
}

/// Apart by name, for the counter of instructions.
#[inline(never)]
fn batch_of_hits(policy: &mut dyn Policy, keys: &[LineKey]) {
    access(policy, keys);
}

/// The same.
#[inline(never)]
fn batch_of_misses(policy: &mut dyn Policy, keys: &[LineKey]) -> u64 {
    access(policy, keys)
}

#[inline(always)]
fn access(policy: &mut dyn Policy, keys: &[LineKey]) -> u64 {
    let request = PolicyRequest {
        len_bytes: 4096,
        ..PolicyRequest::default()
    };
    let mut replaced = 0;
    for key in keys {
        if let Instruction::Replace { slot, .. } = policy.access(*key, &request, &Unpinned) {
            std::hint::black_box(slot);
            replaced += 1;
        }
    }
    replaced
}

/// Bytes that `allocated` shows of a policy for each slot, once built.
pub fn bytes_per_line(name: &str, allocated: fn() -> i64) -> f64 {
    let before = allocated();
    let policy = registry::build(name, SLOTS, 1).expect("a policy's name");
    let bytes = allocated() - before;
    drop(policy);
    bytes as f64 / f64::from(SLOTS)
}

/// Time, instructions and memory, `auto` beside others; `example` is the program
/// `policy_cost`.
pub fn rows(runs: usize, accesses: u64, example: &Path) -> io::Result<Vec<BenchRow>> {
    let mut rows = Vec::new();
    let pool = format!("pool of {SLOTS} lines");
    for peer in PEERS {
        let (mut hits, mut misses, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
        let mut subjects =
            [POLICY, peer].map(|name| PolicySubject::new(name, 4 * u64::from(SLOTS)));
        for _ in 0..runs {
            let [ours, theirs] = subjects.each_mut().map(|subject| subject.access(accesses));
            let each = |ns: f64, n: u64| ns / n.max(1) as f64;
            hits.push((
                each(ours.hits_ns, ours.hits),
                each(theirs.hits_ns, theirs.hits),
            ));
            misses.push((
                each(ours.misses_ns, ours.misses),
                each(theirs.misses_ns, theirs.misses),
            ));
            replaced.push(ours.replaced as f64 / ours.misses.max(1) as f64);
        }
        let share = 100.0 * median(replaced.into_iter());
        let what = format!("policy {POLICY}, {pool}: CPU time of a hit");
        rows.push(paired(what, "ns", peer, None, &hits));
        let what = format!(
            "policy {POLICY}, {pool}: CPU time of a miss, {share:.0}% of which replace a line"
        );
        let goal = Some(Goal::AtMost(2000.0));
        rows.push(paired(what, "ns", peer, goal, &misses));
    }
    for name in [POLICY].into_iter().chain(PEERS) {
        let cost: AccessCost = serde_json::from_str(&run(example, &["accesses", name])?)?;
        let instructions = |function: &str, accesses: u64| {
            let toggle = format!("--toggle-collect=*{function}*");
            let collected = collected(&[&toggle], example, &["accesses", name])?;
            Ok::<_, io::Error>(collected / accesses as f64)
        };
        let hit = instructions("batch_of_hits", cost.hits)?;
        let miss = instructions("batch_of_misses", cost.misses)?;
        let ours = name == POLICY;
        rows.push(alone(
            format!("policy {name}, {pool}: instructions of a hit"),
            "instructions",
            ours.then_some(Goal::AtMost(100.0)),
            &[hit],
        ));
        rows.push(alone(
            format!("policy {name}, {pool}: instructions of a miss"),
            "instructions",
            None,
            &[miss],
        ));
        let output = run(example, &["memory", name])?;
        let bytes = output.trim().parse().map_err(io::Error::other)?;
        rows.push(alone(
            format!("policy {name}, {pool}: memory of a line"),
            "bytes",
            ours.then_some(Goal::AtMost(64.0)),
            &[bytes],
        ));
    }
    Ok(rows)
}

fn run(example: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(example).args(arguments).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("policy_cost failed: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
