//! The cells to run, over all cores, and their rows.

use super::cell::{CellTally, RunCell};
use super::cores::spread;
pub(crate) use super::source::BLOCK_BYTES;
use super::source::{PoolSize, SourceError, TraceSource};
use baselines::registry;
use serde::Serialize;

/// The offline optimum. No entry of the registry, because it has to be given the future.
pub const BELADY: &str = "belady";

/// One result.
#[derive(Clone, Debug, Serialize)]
pub struct ResultRow {
    /// The trace's name.
    pub trace: String,
    /// The policy's name.
    pub policy: String,
    /// The size as a share of the trace's unique 4 KiB blocks: as asked for, or
    /// that of the size asked for.
    pub size_fraction: f64,
    /// The size in 4 KiB blocks.
    pub cache_blocks: u64,
    /// Accesses to lines.
    pub accesses: u64,
    /// Accesses that found no resident line.
    pub misses: u64,
    /// `misses / accesses`.
    pub miss_ratio: f64,
    /// Bytes filled: admitted lines times their length.
    pub admitted_bytes: u64,
    /// Time the policy took.
    pub seconds: f64,
    /// The length of a line.
    pub line_bytes: u64,
    /// Share of requests with all lines resident.
    pub request_hit_ratio: f64,
    /// Share of read accesses that found a resident line.
    pub read_hit_ratio: f64,
    /// Share of the bytes asked for that lie in resident lines.
    pub byte_hit_ratio: f64,
}

/// The simulations to run on one trace.
#[derive(Clone, Debug)]
pub struct SimulationPlan {
    /// Names from [`registry::POLICIES`], or [`BELADY`].
    pub policies: Vec<String>,
    /// Sizes of the pool.
    pub sizes: Vec<PoolSize>,
    /// Number of cells at one time.
    pub threads: usize,
}

impl SimulationPlan {
    /// Runs every cell; rows come by size and then by policy, as listed. `done`
    /// is called after each cell, from any thread.
    pub fn run(
        &self,
        source: &TraceSource,
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<ResultRow>, SourceError> {
        let cells: Vec<(PoolSize, &str)> = self
            .sizes
            .iter()
            .flat_map(|size| self.policies.iter().map(|p| (*size, p.as_str())))
            .collect();
        spread(cells.len(), self.threads, done, |at| {
            let (size, name) = cells[at];
            run_cell(source, name, size)
        })
    }
}

fn run_cell(source: &TraceSource, name: &str, size: PoolSize) -> Result<ResultRow, SourceError> {
    let lines = source.pool_lines(size);
    let run = RunCell { source };
    let unique = source.unique_lines();
    // More slots than lines cost memory and change nothing.
    let slots = lines.min(unique);
    let tally = if name == BELADY {
        registry::visit_belady(slots, unique, source.next_use()?, run)?
    } else {
        registry::visit_dense(name, slots, unique, run).expect("the caller checked the name")?
    };
    Ok(row(source, name, size, lines, &tally))
}

fn row(
    source: &TraceSource,
    name: &str,
    size: PoolSize,
    lines: u32,
    tally: &CellTally,
) -> ResultRow {
    let (accesses, misses) = (tally.accesses, tally.accesses - tally.hits);
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let cache_blocks = u64::from(lines) * source.line_bytes() / BLOCK_BYTES;
    ResultRow {
        trace: source.name(),
        policy: name.to_string(),
        size_fraction: size.share(cache_blocks, source.info()),
        cache_blocks,
        accesses,
        misses,
        miss_ratio: share(misses, accesses),
        admitted_bytes: tally.fills * source.line_bytes(),
        seconds: tally.seconds,
        line_bytes: source.line_bytes(),
        request_hit_ratio: share(tally.request_hits, tally.requests),
        read_hit_ratio: share(tally.read_hits, tally.reads),
        byte_hit_ratio: share(tally.hit_bytes, source.info().bytes),
    }
}
