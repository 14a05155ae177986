//! What comes out. Field names are the names in the JSON.

use super::rates::{Intervals, Rate};
use serde::Serialize;

/// What write-back would bring.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WriteBack {
    /// All of it in a sentence.
    pub verdict: String,
    /// How long the trace is, or the volume was observed; zero if there are no times, and no rates or modes then.
    pub seconds: f64,
    /// Reads and writes.
    pub requests: u64,
    /// Writes.
    pub writes: u64,
    /// Writes that are forced (FUA), among them.
    pub forced_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes, on average.
    pub mean: Rate,
    /// In the busiest second.
    pub busiest_second: Rate,
    /// In the busiest 30 s.
    pub busiest_30_seconds: Rate,
    /// What lies between flushes; nothing without any.
    pub intervals: Option<Intervals>,
    /// Share of the 4 KiB blocks written that are overwritten within 30 s; nothing of a volume.
    pub overwritten_share: Option<f64>,
    /// Write-through, then each order of write-back.
    pub modes: Vec<Mode>,
    /// What is not known, or limits this.
    pub notes: Vec<String>,
}

/// What one mode gives the origin.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Mode {
    /// `write-through`, `ordered`, `journaled` or `coalesced`.
    pub mode: &'static str,
    /// Writes of the origin.
    pub origin_writes_per_second: f64,
    /// What they write.
    pub origin_bytes_per_second: f64,
    /// Flushes of the origin, and of write-through its forced writes.
    pub origin_flushes_per_second: f64,
    /// What there is of write-back alone.
    pub log: Option<Log>,
}

/// What write-back does with its devices.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Log {
    /// Share of writes that no limit would hold back: they take the log's time.
    pub unpaced_share: f64,
    /// Share of the time in which what is owed is older than half of `max_lag`.
    pub behind_share: f64,
    /// Share of the time in which the origin works on what is owed.
    pub origin_busy: f64,
    /// What the origin takes of such writes at the most.
    pub origin_bytes_per_second_max: f64,
    /// Share of the 4 KiB blocks written that the origin never gets, for a later one is there;
    /// nothing of a volume.
    pub absorbed_share: Option<f64>,
    /// The most that the log holds, on each device, while no write is stopped.
    pub held_bytes_max: u64,
    /// What each device of the log should have.
    pub device_bytes: u64,
    /// What is written to each.
    pub device_bytes_per_day: f64,
    /// Of `journaled`.
    pub journal: Option<Journal>,
}

/// What a journal gets.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Journal {
    /// Enough for the longest window.
    pub device_bytes: u64,
    /// What is written to it.
    pub bytes_per_second: f64,
    /// Flushes of it.
    pub flushes_per_second: f64,
}
