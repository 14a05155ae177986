//! The result. Field names are the names in the JSON.

use super::rates::{Intervals, Rate};
use serde::Serialize;

/// Effect of write-back.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WriteBackGain {
    /// The result in a sentence.
    pub verdict: String,
    /// Length of the trace, or of the observation of the volume; zero without times, and then there
    /// are no rates or modes.
    pub seconds: f64,
    /// Reads and writes.
    pub requests: u64,
    /// Writes.
    pub writes: u64,
    /// Writes that are forced (FUA), among them.
    pub forced_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Mean rate of writes.
    pub mean: Rate,
    /// Rate of writes in the busiest second.
    pub busiest_second: Rate,
    /// Rate of writes in the busiest 30 s.
    pub busiest_30_seconds: Rate,
    /// Blocks written between flushes; none without flushes.
    pub intervals: Option<Intervals>,
    /// Share of the 4 KiB blocks written that are overwritten within 30 s; none for a volume.
    pub overwritten_share: Option<f64>,
    /// Write-through, then each order of write-back.
    pub modes: Vec<ModeGain>,
    /// Unknowns and limits of this result.
    pub notes: Vec<String>,
}

/// Load of one mode on the origin.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ModeGain {
    /// `write-through`, `ordered`, `journaled` or `coalesced`.
    pub mode: &'static str,
    /// Writes of the origin.
    pub origin_writes_per_second: f64,
    /// Bytes a second of these writes.
    pub origin_bytes_per_second: f64,
    /// Flushes of the origin, and of write-through its forced writes.
    pub origin_flushes_per_second: f64,
    /// Figures of write-back alone.
    pub log: Option<LogGain>,
}

/// Use of the log devices and of the origin in write-back.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LogGain {
    /// Share of writes that no limit would hold back: these take the log's time.
    pub unpaced_share: f64,
    /// Share of the time in which the oldest dirty data is older than half of `max_lag`.
    pub behind_share: f64,
    /// Share of the time in which the origin works on write-back.
    pub origin_busy: f64,
    /// Highest rate of such writes that the origin takes.
    pub origin_bytes_per_second_max: f64,
    /// Share of the 4 KiB blocks written that the origin never gets because a later version
    /// replaces them; none for a volume.
    pub absorbed_share: Option<f64>,
    /// The most that the log holds, on each device, while no write is stopped.
    pub held_bytes_max: u64,
    /// Size that each log device should have.
    pub device_bytes: u64,
    /// Bytes written to each log device.
    pub device_bytes_per_day: f64,
    /// The journal, in `journaled` alone.
    pub journal: Option<JournalGain>,
}

/// Load of a journal.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct JournalGain {
    /// Enough for the longest window.
    pub device_bytes: u64,
    /// Bytes written to the journal.
    pub bytes_per_second: f64,
    /// Flushes of the journal.
    pub flushes_per_second: f64,
}
