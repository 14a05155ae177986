//! Write-back on trial: what may be lost with the SSDs, and what may not.
//!
//! [`History`] is the checker. It is given when writes and flushes began and were
//! answered, and shares no code with the engine.

mod history;

pub use history::{Earlier, Flush, History, Op};
