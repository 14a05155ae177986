//! A value in the form of Prometheus.

use control::status::Total;

/// A value of one of the kinds that Prometheus knows.
pub enum MetricValue<'a> {
    Counter(u64),
    Seconds(f64),
    Gauge(f64),
    Latency(&'a Total),
}
