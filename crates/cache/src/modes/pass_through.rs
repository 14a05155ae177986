//! Pass-through: the pool is not used.
//!
//! Lines stay where they are, and writes go on dropping the blocks they
//! overlap, so that a switch back finds a pool that can be trusted.

use super::rules::Rules;

pub(super) const RULES: Rules = Rules {
    name: "pass-through",
    help: "everything goes to the origin only",
    reads_cached: false,
    writes_update: false,
};
