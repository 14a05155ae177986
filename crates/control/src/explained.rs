//! Why parts of a volume are cached or not. Field names are the names in the
//! JSON; times are seconds before the report.

use crate::counters::Counters;
use policy::regions::Region as Heat;
use serde::{Deserialize, Serialize};

/// Lines that are listed one by one, at the most.
pub const LINES_MAX: u64 = 256;

/// A volume, or a range of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explained {
    /// The volume.
    pub volume: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its pool.
    pub pool: String,
    /// How it uses the pool, and what that means.
    pub mode: String,
    /// What the mode does, in one line.
    pub mode_help: String,
    /// The unit of replacement.
    pub line_bytes: u64,
    /// Lines of the pool that hold something, of any volume.
    pub lines_used: u32,
    /// Lines that there is room for.
    pub lines: u32,
    /// Pool devices that do not serve, and why.
    pub lost_devices: Vec<String>,
    /// What decides about lines.
    pub policy: Policy,
    /// What was decided for this volume, by reason, and what that means.
    pub reasons: Vec<Reason>,
    /// All counters of the volume.
    #[cfg_attr(feature = "schema", schema(value_type = std::collections::BTreeMap<String, u64>))]
    pub counters: Counters,
    /// The volume cut into equal parts.
    pub regions: Vec<Region>,
    /// Length of each but the last.
    pub region_bytes: u64,
    /// Whether residence in regions is estimated from some of their lines.
    pub sampled: bool,
    /// The range asked about; lines past [`LINES_MAX`] are left out.
    pub range: Option<Range>,
}

/// What decides about lines, and why it does so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The rule in force, of a policy that tunes itself.
    pub active: Option<String>,
    /// Since when, in seconds before the report.
    pub active_for_s: Option<f64>,
    /// How often the rule has changed.
    pub changes: Option<u64>,
    /// What each rule would have missed of recent accesses, as a share.
    pub would_miss: Vec<(String, f64)>,
}

/// How often something was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Reason {
    /// Its name among the counters.
    pub name: String,
    /// How often.
    pub count: u64,
    /// What it means.
    pub help: String,
}

/// A part of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Region {
    /// Reads of lines lately, older ones counting less.
    pub reads: u32,
    /// Writes of lines, alike.
    pub writes: u32,
    /// Since the last access, if there was one.
    pub idle_s: Option<u32>,
    /// The share of its bytes that is in the pool.
    pub resident: f64,
}

impl Region {
    /// A region from its heat at `now_s`.
    pub fn new(heat: &Heat, now_s: u64, resident: f64) -> Region {
        let last = heat.last.checked_sub(1);
        Region {
            reads: heat.reads,
            writes: heat.writes,
            idle_s: last.map(|at| now_s.saturating_sub(u64::from(at)) as u32),
            resident,
        }
    }

    /// Accesses lately.
    pub fn heat(&self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes)
    }
}

/// The lines of a range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Range {
    /// Where it begins, in bytes.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Lines in it.
    pub lines_in_range: u64,
    /// The first of them.
    pub lines: Vec<Line>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Line {
    /// Where it begins, in bytes.
    pub start: u64,
    /// Its length.
    pub len: u64,
    /// Valid 4 KiB blocks: first and past the last, counted from its start.
    pub valid: Vec<(u32, u32)>,
    /// The pool device that it is on, if it is in the pool.
    pub device: Option<String>,
    /// Since it was last given a slot, where that is remembered.
    pub admitted_s: Option<f64>,
    /// The last decision: `admitted`, `evicted`, `overwritten`, `dropped`,
    /// `lost`, the name of a counter of refusals, or `unknown`.
    pub decision: String,
    /// Since then.
    pub decided_s: Option<f64>,
    /// Why it is as it is, in one line.
    pub why: String,
    /// Accesses lately to the region around it.
    pub region_heat: u64,
    /// Since the last of those.
    pub region_idle_s: Option<u32>,
}
