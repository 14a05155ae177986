//! The metrics of each open device, beside its wear.

use super::value::MetricValue;
use control::status::DeviceActivity;

/// Reads the value of a metric from a device.
pub type OfDevice = fn(&DeviceActivity) -> MetricValue<'_>;
/// Metrics of devices: size, transfers, latencies, errors and load.
pub const FIGURES: [(&str, &str, OfDevice); 8] = [
    ("device_size_bytes", "Size of an open device.", |d| {
        MetricValue::Gauge(d.size_bytes as f64)
    }),
    ("device_read_bytes", "Bytes read from a device.", |d| {
        MetricValue::Counter(d.read_total.bytes)
    }),
    ("device_written_bytes", "Bytes written to a device.", |d| {
        MetricValue::Counter(d.write_total.bytes)
    }),
    (
        "device_read_latency_seconds",
        "Latency of a device's reads that succeeded.",
        |d| MetricValue::Latency(&d.read_total),
    ),
    (
        "device_write_latency_seconds",
        "Latency of a device's writes that succeeded.",
        |d| MetricValue::Latency(&d.write_total),
    ),
    (
        "device_errors",
        "Requests of any kind that a device failed.",
        |d| MetricValue::Counter(d.errors),
    ),
    (
        "device_requests_in_flight",
        "Requests in flight on a device.",
        |d| MetricValue::Gauge(d.in_flight as f64),
    ),
    (
        "device_busy_seconds",
        "Time in which a device had a request in flight.",
        |d| MetricValue::Seconds(d.busy_s),
    ),
];
