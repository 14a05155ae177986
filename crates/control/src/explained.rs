//! The reasons why parts of a volume are cached or not. Field names are the names in the JSON;
//! times are seconds before the report.

use crate::counters::NamedCounters;
use policy::regions::PolicyRegion as Heat;
use serde::{Deserialize, Serialize};

/// Most lines that are listed one by one.
pub const LINES_MAX: u64 = 256;

/// A volume, or a range of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explained {
    /// Name of the volume.
    pub volume: String,
    /// Size of the volume.
    pub size_bytes: u64,
    /// Name of the volume's pool.
    pub pool: String,
    /// Mode of the volume.
    pub mode: String,
    /// Effect of the mode, in one line.
    pub mode_help: String,
    /// The unit of replacement.
    pub line_bytes: u64,
    /// Lines of the pool that have content, of any volume.
    pub lines_used: u32,
    /// Lines that the pool has room for.
    pub lines: u32,
    /// Pool devices that do not serve, each with the reason.
    pub lost_devices: Vec<String>,
    /// The pool's policy.
    pub policy: PolicyReport,
    /// Decisions for this volume by reason, each with its meaning.
    pub reasons: Vec<ReasonCount>,
    /// All counters of the volume.
    #[cfg_attr(feature = "schema", schema(value_type = std::collections::BTreeMap<String, u64>))]
    pub counters: NamedCounters,
    /// The volume cut into equal parts.
    pub regions: Vec<ExplainedRegion>,
    /// Length of each region but the last.
    pub region_bytes: u64,
    /// True if residence in regions is estimated from some of their lines.
    pub sampled: bool,
    /// The requested range; lines past [`LINES_MAX`] are left out.
    pub range: Option<ExplainedRange>,
}

/// A policy of lines, and the evidence behind its choice of rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PolicyReport {
    /// Name of the policy.
    pub name: String,
    /// The rule in force, of a policy that tunes itself.
    pub active: Option<String>,
    /// Seconds from the rule's start to the report.
    pub active_for_s: Option<f64>,
    /// Number of changes of the rule.
    pub changes: Option<u64>,
    /// Share of recent accesses that each rule would have missed.
    pub would_miss: Vec<(String, f64)>,
}

/// A count of decisions by reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReasonCount {
    /// Name of the reason's counter.
    pub name: String,
    /// Number of decisions.
    pub count: u64,
    /// Meaning of the reason.
    pub help: String,
}

/// A part of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExplainedRegion {
    /// Reads of lines lately, older ones counting less.
    pub reads: u32,
    /// Writes of lines lately, older ones counting less.
    pub writes: u32,
    /// Seconds from the last access to the report, if there was one.
    pub idle_s: Option<u32>,
    /// Share of the region's bytes that is in the pool.
    pub resident: f64,
}

impl ExplainedRegion {
    /// Makes a region from its heat at `now_s`.
    pub fn new(heat: &Heat, now_s: u64, resident: f64) -> ExplainedRegion {
        let last = heat.last.checked_sub(1);
        ExplainedRegion {
            reads: heat.reads,
            writes: heat.writes,
            idle_s: last.map(|at| now_s.saturating_sub(u64::from(at)) as u32),
            resident,
        }
    }

    /// Reads and writes lately.
    pub fn heat(&self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes)
    }
}

/// The lines of a range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExplainedRange {
    /// Start of the range, in bytes.
    pub start: u64,
    /// End of the range, in bytes.
    pub end: u64,
    /// Number of lines in the range.
    pub lines_in_range: u64,
    /// The first lines of the range.
    pub lines: Vec<ExplainedLine>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExplainedLine {
    /// Start of the line, in bytes.
    pub start: u64,
    /// Length of the line.
    pub len: u64,
    /// Runs of valid 4 KiB blocks: the first, and the one past the last, counted from the line's
    /// start.
    pub valid: Vec<(u32, u32)>,
    /// The line's pool device, if the line is in the pool.
    pub device: Option<String>,
    /// Seconds since the line last got a slot, where known.
    pub admitted_s: Option<f64>,
    /// The last decision: `admitted`, `evicted`, `overwritten`, `dropped`,
    /// `lost`, the name of a counter of refusals, or `unknown`.
    pub decision: String,
    /// Seconds since the last decision.
    pub decided_s: Option<f64>,
    /// Reason of the line's state, in one line.
    pub why: String,
    /// Accesses lately to the region around the line.
    pub region_heat: u64,
    /// Seconds since the last access to this region.
    pub region_idle_s: Option<u32>,
}
