//! A cell of a drill, and what became of it.

use serde::Serialize;

/// What became of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was pulled.
    pub scenario: String,
    /// Of which controller.
    pub side: String,
    /// Whether clients read and wrote meanwhile.
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
    /// What was wrong first, if anything but a stall was.
    pub error: Option<String>,
    /// What the page shows beside.
    #[serde(skip)]
    pub detail: Detail,
}

/// More about a cell.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// Clients' reads and writes by points of time.
    pub line: Vec<(u32, u32)>,
    /// When parts were pulled, came back, and all was whole, since the load began.
    pub marks_s: [f64; 3],
    /// Reads and writes a second of each member, before the loss and during it.
    pub members: Vec<(String, [f64; 2], [f64; 2])>,
    /// The detection time, which no stall may exceed.
    pub limit_ms: f64,
}

impl Row {
    /// Whether the cell was as it must be.
    pub fn is_right(&self) -> bool {
        self.errors == 0 && self.wrong_bytes == 0 && self.longest_stall_ms <= self.detail.limit_ms
    }
}

pub(super) fn to_message(error: impl ToString) -> String {
    error.to_string()
}
