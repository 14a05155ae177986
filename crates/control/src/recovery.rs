//! The report of `hotset pool recover`, for programs.

use serde::Serialize;

/// The state of a log, and the result of the action on it.
#[derive(Serialize, Debug)]
pub struct RecoveryReport {
    /// The volume.
    pub volume: String,
    /// Its origin.
    pub origin: String,
    /// The devices of its log.
    pub log: Vec<RecoveredDevice>,
    /// The device of the journal of a journaled volume.
    pub journal: Option<RecoveredDevice>,
    /// Data that the log has for the origin; `None` if there is no log to read.
    pub dirty_bytes: Option<u64>,
    /// Age of the oldest dirty data.
    pub lag_s: Option<f64>,
    /// Reasons of a daemon to refuse the log.
    pub doubts: Vec<String>,
    /// Reason why there is no log to read.
    pub why: Option<String>,
    /// `inspected`, `discarded`, `replayed` or `written-back`.
    pub outcome: &'static str,
    /// The other place that was written.
    pub to: Option<String>,
    /// The part of the dirty data that no device has.
    pub lost: Option<String>,
    /// The same as lines for people.
    pub lines: Vec<String>,
}

/// A device of a log or a journal.
#[derive(Serialize, Debug)]
pub struct RecoveredDevice {
    /// Its name.
    pub device: String,
    /// Its content in a word.
    pub state: &'static str,
    /// The reason why the device cannot be used.
    pub why: Option<String>,
    /// Age of the newest write of a journal's group.
    pub newest_write_s: Option<f64>,
}
