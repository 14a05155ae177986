//! Write-around: the pool holds what was read.
//!
//! For data written once and read seldom, whose copy in the pool would cost
//! endurance and the place of a line that is read.

use super::rules::Rules;

pub(super) const RULES: Rules = Rules {
    name: "write-around",
    help: "reads are cached, writes go to the origin only",
    reads_cached: true,
    writes_update: false,
};
