//! The metrics of each open device, beside its wear.

use super::value::Value;
use control::status::Device;

/// Reads the value of a metric from a device.
pub type OfDevice = fn(&Device) -> Value<'_>;
/// Metrics of devices: size, transfers, latencies, errors and load.
pub const FIGURES: [(&str, &str, OfDevice); 8] = [
    ("device_size_bytes", "Size of an open device.", |d| {
        Value::Gauge(d.size_bytes as f64)
    }),
    ("device_read_bytes", "Bytes read from a device.", |d| {
        Value::Counter(d.read_total.bytes)
    }),
    ("device_written_bytes", "Bytes written to a device.", |d| {
        Value::Counter(d.write_total.bytes)
    }),
    (
        "device_read_latency_seconds",
        "Latency of a device's reads that succeeded.",
        |d| Value::Latency(&d.read_total),
    ),
    (
        "device_write_latency_seconds",
        "Latency of a device's writes that succeeded.",
        |d| Value::Latency(&d.write_total),
    ),
    (
        "device_errors",
        "Requests of any kind that a device failed.",
        |d| Value::Counter(d.errors),
    ),
    (
        "device_requests_in_flight",
        "Requests in flight on a device.",
        |d| Value::Gauge(d.in_flight as f64),
    ),
    (
        "device_busy_seconds",
        "Time in which a device had a request in flight.",
        |d| Value::Seconds(d.busy_s),
    ),
];
