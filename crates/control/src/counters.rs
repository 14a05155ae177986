//! Counters by name, as reports have them.

use std::collections::BTreeMap;

/// Counters under their names; see `docs/commands/status.md`.
pub type Counters = BTreeMap<String, u64>;
