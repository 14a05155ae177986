//! Links.

use crate::{Figure, LinkParameters};

const ENGINEERING: &str = "engineering estimate";

const fn estimate(value: f64) -> Figure {
    Figure::estimate(value, ENGINEERING)
}

/// Gigabit Ethernet under iSCSI.
pub const GIGABIT: LinkParameters = LinkParameters {
    name: "1GbE",
    rate_mb_s: estimate(117.0),
    round_trip_us: estimate(150.0),
    links: estimate(1.0),
};

/// Ten-gigabit Ethernet under iSCSI.
pub const TEN_GIGABIT: LinkParameters = LinkParameters {
    name: "10GbE",
    rate_mb_s: estimate(1_150.0),
    ..GIGABIT
};

/// Every link.
pub const ALL: [LinkParameters; 2] = [GIGABIT, TEN_GIGABIT];
