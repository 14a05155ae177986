//! Write-through: the pool follows every write.
//!
//! A write is acknowledged when the origin has it. The pool's copy is written
//! at the same time from the same memory, and counts from the moment when both
//! have succeeded. The origin alone is complete at every instant.

use super::rules::Rules;

pub(super) const RULES: Rules = Rules {
    name: "write-through",
    help: "reads are cached, writes go to the origin and to the pool",
    reads_cached: true,
    writes_update: true,
};
