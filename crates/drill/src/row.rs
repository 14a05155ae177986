//! A cell of a drill, and its result.

use block::plain;
use serde::Serialize;
use std::fmt;

/// Result of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct DrillRow {
    /// The pulled parts.
    pub scenario: String,
    /// The controller of the parts.
    pub side: String,
    /// True if clients read and wrote meanwhile.
    pub io: bool,
    /// `sim` or `real`.
    #[serde(rename = "where")]
    pub place: &'static str,
    /// The longest that a client's request took.
    pub longest_stall_ms: f64,
    /// Requests that failed.
    pub errors: u64,
    /// Bytes that were not as clients had left them, or differed between copies.
    pub wrong_bytes: u64,
    /// Reads a second of clients while the parts were away.
    pub reads_per_s: f64,
    /// Writes a second of clients while the parts were away.
    pub writes_per_s: f64,
    /// First error, unless only a stall went wrong.
    pub error: Option<String>,
    /// Details that the page shows beside.
    #[serde(skip)]
    pub detail: Detail,
}

/// More about a cell.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// Clients' reads and writes by points of time.
    pub line: Vec<(u32, u32)>,
    /// Times at which parts were pulled, came back, and all was whole, since the load began.
    pub marks_s: [f64; 3],
    /// Reads and writes a second of each member, before the loss and during the loss.
    pub members: Vec<(String, [f64; 2], [f64; 2])>,
    /// The detection time, which no stall may exceed.
    pub limit_ms: f64,
}

impl DrillRow {
    /// Tests for the expected result: no errors, no wrong bytes, no stall beyond the limit.
    pub fn is_right(&self) -> bool {
        self.errors == 0 && self.wrong_bytes == 0 && self.longest_stall_ms <= self.detail.limit_ms
    }
}

pub(super) fn to_message(error: impl fmt::Display) -> String {
    plain(error)
}
