//! A write-back volume over time, in virtual time: a quiet load, a burst beyond what the origin
//! takes, the loss of a device of the log, and a detach, each under load.
//!
//! A whole node on the set-up of `hotset drill --set-up write-back`, with a larger origin, so that
//! its heads have ways to go. Clients write 4 KiB at random places and flush each second.
//!
//! Invariant: a run in which nothing was to be seen, or something was wrong, says so (`judge`).
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
/// What a client writes at a time.
const BLOCK_BYTES: usize = 4096;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// Draws what the simulator leaves open.
    pub seed: u64,
    /// The configured limit of the lag, in seconds.
    pub max_lag_s: f64,
    /// One after the other.
    pub phases: Vec<Phase>,
    /// Every 250 ms.
    pub samples: Vec<Sample>,
    /// Writes of clients that were answered.
    pub writes: u64,
    /// Requests of clients that failed.
    pub errors: u64,
    /// Writes that the origin had to have when they were answered, and had not.
    pub not_at_origin: u64,
    /// Blocks of which the origin by itself does not hold what was answered last, in the end.
    pub lost_blocks: u64,
    /// What is not as it must be.
    pub violations: Vec<String>,
}

/// What happens in a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stretch {
    /// Clients write less than the origin takes.
    Quiet,
    /// They write more.
    Burst,
    /// They write less again, and the origin gets what it lacks.
    Recovery,
    /// They write more again, for a moment.
    Load,
    /// A device of the log is lost, and the origin gets what it lacks.
    Loss,
    /// The origin answers writes.
    OneDevice,
    /// Nobody writes; the daemon ends and starts with both devices.
    Restart,
    /// They write more than the origin takes, to the log again.
    Again,
    /// The log is given up, and the origin gets what it lacks.
    Detach,
    /// The origin answers writes.
    WriteThrough,
}

impl Stretch {
    /// A word or two.
    pub fn name(self) -> &'static str {
        match self {
            Stretch::Quiet => "quiet",
            Stretch::Burst => "burst",
            Stretch::Recovery => "recovery",
            Stretch::Load => "load",
            Stretch::Loss => "loss",
            Stretch::OneDevice => "one device",
            Stretch::Restart => "restart",
            Stretch::Again => "load again",
            Stretch::Detach => "detach",
            Stretch::WriteThrough => "write-through",
        }
    }
}

/// A span of time, and what clients got in it.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// What happened.
    pub stretch: Stretch,
    /// From the beginning, in seconds.
    pub from_s: f64,
    /// To, in seconds.
    pub to_s: f64,
    /// Writes that were answered, a second.
    pub writes_per_s: f64,
    /// 4 KiB blocks that the origin got, a second.
    pub origin_blocks_per_s: f64,
    /// The longest time in which no write was answered.
    pub longest_gap_ms: f64,
    /// What the origin lacked at most, in bytes.
    pub dirty_bytes_max: u64,
    /// The age of the oldest of it at most, in seconds.
    pub lag_s_max: f64,
    /// Copies of the log that took part at the end; none without a log.
    pub copies: u32,
}

/// What was seen at an instant, and since the one before.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    /// When, in seconds.
    pub at_s: f64,
    /// Writes that were answered, a second.
    pub writes_per_s: f64,
    /// 4 KiB blocks that the origin got, a second.
    pub origin_blocks_per_s: f64,
    /// What the origin lacks, in bytes.
    pub dirty_bytes: u64,
    /// The age of the oldest of it, in seconds.
    pub lag_s: f64,
    /// Copies of the log that take part; none without a log.
    pub copies: u32,
}

impl Timeline {
    /// The span of that kind; there is one of each.
    fn phase(&self, stretch: Stretch) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.stretch == stretch)
    }
}
