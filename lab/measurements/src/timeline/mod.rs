//! A write-back volume over time, in virtual time: a quiet load, a burst beyond the origin's speed,
//! the loss of a log device, and a detach, each under load.
//!
//! A whole node on the set-up of `hotset drill --set-up write-back`, with a larger origin, so that
//! its heads have ways to go. Clients write 4 KiB at random places and flush each second.
//!
//! Invariant: a run without visible effects, or with an error, says so (`judge`).
//!
//! Not here: other orders than `ordered`, reads, real devices.

mod chart;
mod clients;
mod judge;
mod play;
mod stage;
#[cfg(test)]
mod tests;

pub use chart::chart;
pub use play::run;

use block::Nanos;
use serde::Serialize;

/// The time from one sample to the next.
const POINT: Nanos = Nanos::from_millis(250);
/// Bytes of a client's write.
const BLOCK_BYTES: usize = 4096;

/// Measurements of a run.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredTimeline {
    /// Seed of the simulator's choices.
    pub seed: u64,
    /// The configured limit of the lag, in seconds.
    pub max_lag_s: f64,
    /// Spans, one after the other.
    pub phases: Vec<TimelinePhase>,
    /// Samples, every 250 ms.
    pub samples: Vec<TimelineSample>,
    /// Writes of clients that were answered.
    pub writes: u64,
    /// Requests of clients that failed.
    pub errors: u64,
    /// Writes that were not at the origin when answered, but had to be.
    pub not_at_origin: u64,
    /// Blocks with an acknowledged version that the origin by itself does not hold in the end.
    pub lost_blocks: u64,
    /// Violations of the expected behaviour.
    pub violations: Vec<String>,
}

/// Kind of a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimelineStretch {
    /// Clients write less than the origin takes.
    Quiet,
    /// Clients write more.
    Burst,
    /// Clients write less again, and the dirty data is written back.
    Recovery,
    /// Clients write more again, for a moment.
    Load,
    /// A log device is lost, and the dirty data is written back.
    Loss,
    /// The origin answers writes.
    OneDevice,
    /// No client writes; the daemon ends and starts with both devices.
    Restart,
    /// Clients write more than the origin takes, to the log again.
    Again,
    /// The log is given up, and the dirty data is written back.
    Detach,
    /// The origin answers writes.
    WriteThrough,
}

impl TimelineStretch {
    /// A word or two.
    pub fn name(self) -> &'static str {
        match self {
            TimelineStretch::Quiet => "quiet",
            TimelineStretch::Burst => "burst",
            TimelineStretch::Recovery => "recovery",
            TimelineStretch::Load => "load",
            TimelineStretch::Loss => "loss",
            TimelineStretch::OneDevice => "one device",
            TimelineStretch::Restart => "restart",
            TimelineStretch::Again => "load again",
            TimelineStretch::Detach => "detach",
            TimelineStretch::WriteThrough => "write-through",
        }
    }
}

/// A span of time, and the results of clients in that span.
#[derive(Clone, Debug, Serialize)]
pub struct TimelinePhase {
    /// Kind of the span.
    pub stretch: TimelineStretch,
    /// Start of the span, in seconds from the beginning.
    pub from_s: f64,
    /// End of the span, in seconds.
    pub to_s: f64,
    /// Writes that were answered, a second.
    pub writes_per_s: f64,
    /// 4 KiB blocks that the origin got, a second.
    pub origin_blocks_per_s: f64,
    /// The longest time in which no write was answered.
    pub longest_gap_ms: f64,
    /// Most dirty bytes.
    pub dirty_bytes_max: u64,
    /// Greatest age of the oldest dirty byte, in seconds.
    pub lag_s_max: f64,
    /// Copies of the log that took part at the end; none without a log.
    pub copies: u32,
}

/// Observations at an instant, and since the sample before.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TimelineSample {
    /// Time of the sample, in seconds.
    pub at_s: f64,
    /// Writes that were answered, a second.
    pub writes_per_s: f64,
    /// 4 KiB blocks that the origin got, a second.
    pub origin_blocks_per_s: f64,
    /// Dirty bytes.
    pub dirty_bytes: u64,
    /// Age of the oldest dirty byte, in seconds.
    pub lag_s: f64,
    /// Copies of the log that take part; none without a log.
    pub copies: u32,
}

impl MeasuredTimeline {
    /// The span of that kind; there is one of each.
    fn phase(&self, stretch: TimelineStretch) -> Option<&TimelinePhase> {
        self.phases.iter().find(|phase| phase.stretch == stretch)
    }
}
