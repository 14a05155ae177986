//! One policy of one size over one trace.

use super::source::{SourceError, TraceSource};
use baselines::registry::PolicyVisitor;
use block::Nanos;
use policy::{Instruction, LineKey, Policy, PolicyOp, Unpinned};
use std::time::Instant;

/// Interval at which the policy gets the time, in the time of the trace.
const TICK: Nanos = Nanos(1_000_000_000);

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct CellTally {
    /// Accesses to lines.
    pub accesses: u64,
    /// Accesses that found a resident line.
    pub hits: u64,
    /// Accesses for which the policy had the line filled.
    pub fills: u64,
    /// Requests with all lines resident.
    pub request_hits: u64,
    /// Requests.
    pub requests: u64,
    /// Read accesses to lines that were resident.
    pub read_hits: u64,
    /// Read accesses to lines.
    pub reads: u64,
    /// Bytes asked for that lie in lines that were resident.
    pub hit_bytes: u64,
    /// Time the run took, without reading the trace.
    pub seconds: f64,
}

/// Runs any policy over `source`.
pub(crate) struct RunCell<'a> {
    pub(crate) source: &'a TraceSource,
}

impl PolicyVisitor for RunCell<'_> {
    type Output = Result<CellTally, SourceError>;

    fn visit<P: Policy + 'static>(self, mut policy: P) -> Result<CellTally, SourceError> {
        let mut tally = CellTally::default();
        let mut next_tick = Nanos::ZERO;
        let line_bytes = self.source.line_bytes();
        self.source.for_each_chunk(|chunk| {
            let started = Instant::now();
            let mut lines = chunk.lines.iter();
            for r in &chunk.requests {
                if r.time >= next_tick {
                    policy.tick(r.time);
                    next_tick = r.time + TICK;
                }
                let mut hits = 0;
                let mut left = u64::from(r.request.len_bytes);
                let mut here = (line_bytes - u64::from(r.head_bytes)).min(left);
                for line in lines.by_ref().take(r.lines as usize) {
                    let answer = policy.access(LineKey(u64::from(*line)), &r.request, &Unpinned);
                    match answer {
                        Instruction::Hit(_) => {
                            hits += 1;
                            tally.hit_bytes += here;
                        }
                        Instruction::Admit(_) | Instruction::Replace { .. } => tally.fills += 1,
                        Instruction::Bypass(_) => {}
                    }
                    left -= here;
                    here = line_bytes.min(left);
                }
                tally.accesses += u64::from(r.lines);
                tally.hits += u64::from(hits);
                tally.requests += 1;
                tally.request_hits += u64::from(hits == r.lines);
                if r.request.op == PolicyOp::Read {
                    tally.reads += u64::from(r.lines);
                    tally.read_hits += u64::from(hits);
                }
            }
            tally.seconds += started.elapsed().as_secs_f64();
        })?;
        Ok(tally)
    }
}
