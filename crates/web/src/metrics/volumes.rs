//! The metrics of each volume beside its counters: its log, and the latencies of its clients.

use super::value::MetricValue;
use control::status::{VolumeReport, WriteBackReport};

/// Reads the value of a gauge from the log of a write-back volume.
pub type OfLog = fn(&WriteBackReport) -> f64;
/// Gauges of the logs of write-back volumes.
pub const LOG: [(&str, &str, OfLog); 4] = [
    (
        "volume_dirty_bytes",
        "Dirty data of a write-back volume: bytes that its origin does not have yet.",
        |log| log.dirty_bytes as f64,
    ),
    (
        "volume_lag_seconds",
        "The age of the oldest write that the origin of a write-back volume does not have yet.",
        |log| log.lag_s,
    ),
    (
        "volume_log_copies",
        "Copies of the log of a write-back volume that take part.",
        |log| f64::from(log.copies),
    ),
    (
        "volume_log_troubled",
        "Whether the write-back of a volume's dirty data is halted.",
        |log| f64::from(u8::from(log.trouble.is_some())),
    ),
];

/// Reads the value of a metric from a volume.
pub type OfVolume = fn(&VolumeReport) -> MetricValue<'_>;
/// The requests of clients, and their latencies.
pub const CLIENTS: [(&str, &str, OfVolume); 4] = [
    (
        "volume_read_bytes",
        "Bytes that clients read of a volume.",
        |v| MetricValue::Counter(v.read_total.bytes),
    ),
    (
        "volume_written_bytes",
        "Bytes that clients wrote to a volume.",
        |v| MetricValue::Counter(v.write_total.bytes),
    ),
    (
        "volume_read_latency_seconds",
        "What clients waited for reads of a volume that succeeded.",
        |v| MetricValue::Latency(&v.read_total),
    ),
    (
        "volume_write_latency_seconds",
        "What clients waited for writes to a volume that succeeded.",
        |v| MetricValue::Latency(&v.write_total),
    ),
];
