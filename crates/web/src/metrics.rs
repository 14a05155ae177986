//! The status for Prometheus: base units, `_total` on counters, histograms of
//! latencies. Labels are names of the configuration and states, both bounded.
//!
//! [`families`] is the one list of the metrics, but for the counters of volumes and pools, which
//! the cache itself lists.

#[cfg(test)]
mod contrib;
mod devices;
mod families;
mod value;
mod volumes;

use crate::report::DaemonReport;
use control::status::LATENCY_BOUNDS_US;
use families::{MetricSample, families};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, LabelSetEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use value::MetricValue;

/// The format of a scrape.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the buckets of a latency.
const BOUNDS_S: [f64; LATENCY_BOUNDS_US.len() + 1] = {
    let mut bounds = [f64::INFINITY; LATENCY_BOUNDS_US.len() + 1];
    let mut at = 0;
    while at < LATENCY_BOUNDS_US.len() {
        bounds[at] = LATENCY_BOUNDS_US[at] as f64 / 1e6;
        at += 1;
    }
    bounds
};

/// Encodes the metrics of a report; without one, `hotset_up` is 0.
pub fn encode(report: Option<Arc<DaemonReport>>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(report)));
    let mut text = String::new();
    prometheus_client::encoding::prometheus_text::encode(&mut text, &registry)
        .expect("a string takes all that is written");
    text
}

struct Scrape(Option<Arc<DaemonReport>>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

/// The labels of one sample.
struct Labels<'a, 'b>(&'b families::Labels<'a>);

impl EncodeLabelSet for Labels<'_, '_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        for (name, value) in self.0.iter().flatten() {
            let mut label = encoder.encode_label();
            let mut key = label.encode_label_key()?;
            key.write_str(name)?;
            let mut text = key.encode_label_value()?;
            text.write_str(value)?;
            text.finish()?;
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let up = self.0.is_some();
        let help = "Whether the daemon answered this scrape.";
        let descriptor = encoder.encode_descriptor("hotset_up", help, None, MetricType::Gauge)?;
        prometheus_client::metrics::gauge::ConstGauge::new(i64::from(up)).encode(descriptor)?;
        let help = "1, for the version of the web server, which is that of its daemon.";
        let mut build =
            encoder.encode_descriptor("hotset_build_info", help, None, MetricType::Gauge)?;
        let version = families::MetricSample {
            labels: [
                Some(("version", env!("CARGO_PKG_VERSION"))),
                None,
                None,
                None,
            ],
            value: MetricValue::Gauge(1.0),
        };
        encode_sample(&mut build, &version)?;
        let Some(report) = &self.0 else {
            return Ok(());
        };
        for family in families(&report.status) {
            let mut samples = family.samples.peekable();
            let Some(first) = samples.peek() else {
                continue;
            };
            let kind = match first.value {
                MetricValue::Counter(_) | MetricValue::Seconds(_) => MetricType::Counter,
                MetricValue::Gauge(_) => MetricType::Gauge,
                MetricValue::Latency(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(&family.name, family.help, None, kind)?;
            for sample in samples {
                encode_sample(&mut metric, &sample)?;
            }
        }
        Ok(())
    }
}

fn encode_sample(
    family: &mut prometheus_client::encoding::MetricEncoder,
    sample: &MetricSample,
) -> fmt::Result {
    let labels = Labels(&sample.labels);
    let mut metric = family.encode_family(&labels)?;
    match &sample.value {
        MetricValue::Counter(n) => metric.encode_counter::<NoLabelSet, _, u64>(n, None),
        MetricValue::Seconds(s) => metric.encode_counter::<NoLabelSet, _, f64>(s, None),
        MetricValue::Gauge(value) => metric.encode_gauge(value),
        MetricValue::Latency(total) => {
            let within: u64 = total.latency_counts.iter().sum();
            let more = total.requests.saturating_sub(within);
            let counts = total.latency_counts.iter().copied().chain([more]);
            let mut buckets = BOUNDS_S.map(|bound| (bound, 0));
            for (bucket, count) in buckets.iter_mut().zip(counts) {
                bucket.1 = count;
            }
            metric.encode_histogram::<NoLabelSet>(total.latency_s, total.requests, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    /// The complaints of promtool; empty if all is well.
    fn promtool(text: &str) -> String {
        let mut child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`promtool` is missing: install the Debian package `prometheus`");
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let found = [output.stdout, output.stderr].concat();
        let found = String::from_utf8_lossy(&found).into_owned();
        assert_eq!(output.status.success(), found.is_empty(), "{found}");
        found
    }

    #[test]
    fn promtool_finds_nothing_wrong_with_a_whole_report() {
        let text = encode(Some(Arc::new(crate::sample::report())));
        assert_eq!(promtool(&text), "", "in:\n{text}");
        for line in [
            r#"hotset_volume_blocks_hit_total{volume="<script>"} 7"#,
            r#"hotset_volume_read_latency_seconds_bucket{volume="<script>",le="0.0001"} 3"#,
            r#"hotset_volume_write_latency_seconds_count{volume="<script>"} 4"#,
            r#"hotset_volume_written_bytes_total{volume="<script>"} 4096"#,
            r#"hotset_device_read_latency_seconds_bucket{device="disk",role="origin",le="0.0001"} 3"#,
            r#"hotset_device_read_latency_seconds_bucket{device="disk",role="origin",le="+Inf"} 4"#,
            r#"hotset_device_read_bytes_total{device="disk",role="origin"} 16384"#,
            r#"hotset_device_endurance_used_ratio{device="disk",role="origin"} 0.03"#,
            r#"hotset_device_lifetime_written_bytes_total{device="disk",role="origin"} 512000"#,
            r#"hotset_pool_device_state{pool="fast",device="ssd",state="ejected"} 1.0"#,
            r#"hotset_array_state{array="mirror",state="degraded"} 1.0"#,
            r#"hotset_array_state{array="mirror",state="healthy"} 0.0"#,
            r#"hotset_troubles{kind="array-degraded",severity="critical"} 1.0"#,
            r#"hotset_troubles{kind="log-copy-lost",severity="critical"} 0.0"#,
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in:\n{text}"
            );
        }
        for counter in cache::Counter::ALL {
            for owner in ["volume", "pool"] {
                let name = format!("hotset_{owner}_{}_total{{", counter.name());
                assert!(text.contains(&name), "no {name}");
            }
        }
    }

    #[test]
    fn the_log_of_a_write_back_volume_has_its_order() {
        let mut report = crate::sample::report();
        let info = "hotset_volume_write_back_info{";
        assert!(!encode(Some(Arc::new(crate::sample::report()))).contains(info));
        report.status.volumes[0].write_back = Some(control::status::WriteBackReport {
            order: "journaled".into(),
            dirty_bytes: 8192,
            lag_s: 1.5,
            rate_bytes: None,
            devices: Vec::new(),
            copies: 2,
            trouble: None,
        });
        let text = encode(Some(Arc::new(report)));
        assert_eq!(promtool(&text), "", "in:\n{text}");
        for line in [
            r#"hotset_volume_write_back_info{volume="<script>",order="journaled"} 1.0"#,
            r#"hotset_volume_dirty_bytes{volume="<script>"} 8192.0"#,
            r#"hotset_volume_lag_seconds{volume="<script>"} 1.5"#,
        ] {
            assert!(text.contains(line), "no {line} in:\n{text}");
        }
    }

    #[test]
    fn canary_promtool_finds_a_counter_by_the_wrong_name() {
        let found =
            promtool("# HELP hotset_reads Reads.\n# TYPE hotset_reads counter\nhotset_reads 1\n");
        assert!(found.contains("_total"), "{found}");
    }

    #[test]
    fn a_daemon_that_is_away_is_reported() {
        let text = encode(None);
        assert!(text.contains("\nhotset_up 0\n"), "{text}");
        let build = format!(
            "\nhotset_build_info{{version=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION")
        );
        assert!(text.contains(&build), "{text}");
        assert_eq!(promtool(&text), "");
    }
}
