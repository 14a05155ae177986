//! The parameters of the model, and its parts.

use super::scale::RedskinScale;
use crate::parameters::{COSTS, ModelParameter, ModelPart, micros};

/// The parameters that can be set.
pub const PARAMETERS: [ModelParameter<RedskinScale>; 13] = [
    ("files", 1e4..=1e7, |scale, value| {
        scale.files = value as u32
    }),
    ("exponent", 0.1..=2.0, |scale, value| scale.exponent = value),
    ("memory_mib", 0.25..=1e6, |scale, value| {
        scale.memory_pages = (value * 256.0) as u32;
    }),
    ("answer_us", 0.0..=1e6, |scale, value| {
        scale.client.answer = micros(value);
    }),
    ("between_us", 0.0..=1e6, |scale, value| {
        scale.client.between = micros(value);
    }),
    ("processor_us", 0.0..=1e6, |scale, value| {
        scale.processor = micros(value);
    }),
    ("has_way", 0.0..=1.0, |scale, value| {
        scale.has_way = value != 0.0
    }),
    ("has_metadata", 0.0..=1.0, |scale, value| {
        scale.has_metadata = value != 0.0;
    }),
    ("has_log", 0.0..=1.0, |scale, value| {
        scale.has_log = value != 0.0
    }),
    ("heads_far", 0.0..=1.0, |scale, value| {
        scale.heads_far = value != 0.0;
    }),
    ("sent", 0.01..=1.0, |scale, value| scale.sent = value),
    ("flash_cost", COSTS, |scale, value| scale.flash_cost = value),
    ("disk_cost", COSTS, |scale, value| scale.disk_cost = value),
];

/// The parts of the model that can be left out.
pub const PARTS: [ModelPart; 7] = [
    ("the server's processor time", &[("processor_us", 0.0)]),
    (
        "the client's own time",
        &[("answer_us", 0.0), ("between_us", 0.0)],
    ),
    (
        "the way's time for a connection and an answer",
        &[("has_way", 0.0)],
    ),
    ("directories and inodes", &[("has_metadata", 0.0)]),
    ("the server's own log", &[("has_log", 0.0)]),
    (
        "the survey of the disks at the start, which leaves their heads far out",
        &[("heads_far", 0.0)],
    ),
    ("the server's page cache", &[("memory_mib", 0.25)]),
];
