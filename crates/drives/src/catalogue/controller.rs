//! Controllers.

use crate::{ControllerParameters, Figure};

const ENGINEERING: &str = "engineering estimate";

const fn estimate(value: f64, source: &'static str) -> Figure {
    Figure::estimate(value, source)
}

/// A host bus adapter that passes every request on.
pub const WRITE_THROUGH: ControllerParameters = ControllerParameters {
    name: "write-through",
    command_us: estimate(20.0, ENGINEERING),
    cache_ack_us: estimate(50.0, ENGINEERING),
    cache_mb: estimate(0.0, "write-through"),
    destage_depth: estimate(8.0, ENGINEERING),
    cache_survives: false,
};

/// Dell PERC H710P: 1 GB of write-back cache kept by flash.
pub const H710P: ControllerParameters = ControllerParameters {
    name: "H710P",
    cache_mb: Figure::datasheet(1_024.0, "Dell PERC H710P: 1 GB of cache"),
    cache_survives: true,
    ..WRITE_THROUGH
};

/// The volatile write cache of a hard disk, put in front of its model.
pub const DRIVE_CACHE: ControllerParameters = ControllerParameters {
    name: "drive-cache",
    command_us: estimate(0.0, "counted by the drive's model"),
    cache_ack_us: estimate(100.0, ENGINEERING),
    cache_mb: estimate(16.0, ENGINEERING),
    ..WRITE_THROUGH
};

/// Every controller.
pub const ALL: [ControllerParameters; 3] = [WRITE_THROUGH, H710P, DRIVE_CACHE];
