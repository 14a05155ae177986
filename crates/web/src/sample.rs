//! A report in which everything occurs, for tests.

use crate::report::DaemonReport;
use control::status::Status;
use serde_json::json;

/// The report of a daemon with one of each.
pub fn report() -> DaemonReport {
    let total = |bytes| {
        let counts = [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        json!({"requests": 4, "bytes": bytes, "latency_s": 0.5, "latency_counts": counts})
    };
    let flow = json!({"iops": 1.0, "mb_s": 1.0, "latency_us_mean": 1.0, "latency_us_p99": 1.0,
                      "latency_us_max": 1.0});
    let trouble = |kind, severity, subject, what| {
        json!({"kind": kind, "severity": severity, "subject": subject, "what": what, "for_s": 5.0,
               "cost": "something", "remedy": "mend it"})
    };
    let status: Status = serde_json::from_value(json!({
        "pid": 1, "uptime_s": 10.0, "span_s": 1.0, "cpu_percent": 5.0, "cpu_s": 0.5,
        "resident_bytes": 1 << 20,
        "shards": [{"name": "0", "cpu_percent": 5.0, "cpu_s": 0.5}],
        "troubles": [trouble("array-degraded", "critical", "array mirror", "is degraded: member 1 is missing"),
                     trouble("pool-device-ejected", "warning", "device ssd of pool fast",
                             "was ejected (error)")],
        "nbd": {"listeners": ["nbd+unix:///?socket=/nbd"], "connections": 1, "handshakes": 0,
                "connections_failed": 0, "connections_refused": 0, "requests": 9, "errors": 0},
        "volumes": [{"name": "<script>", "origin": "disk", "pool": "fast", "mode": "write-through",
                     "quiesced": false, "size_bytes": 1 << 30, "hit_percent": 50.0,
                     "read_total": total(16384), "write_total": total(4096),
                     "counters": {"blocks_hit": 7}}],
        "waiting": [{"name": "later", "origin": "mirror", "pool": "fast", "why": "it is away"}],
        "pools": [{"name": "fast", "policy": "auto", "line_bytes": 65536, "lines_used": 1,
                   "lines": 10, "memory_bytes": 100, "counters": {},
                   "rule": {"name": "auto", "active": "recency", "active_for_s": 1.0, "changes": 1,
                            "would_miss": [["recency", 0.5], ["frequency", 0.25]]},
                   "devices": [{"name": "ssd", "controller": "pcie0", "state": "ejected (read error)",
                                "capacity_bytes": 1 << 20, "faults": 3}]}],
        "arrays": [{"name": "mirror", "level": "raid1", "state": "degraded", "size_bytes": 1 << 20,
                    "chunk_bytes": 65536, "uuid": null, "spares": [],
                    "members": [{"role": 0, "device": "a", "controller": "sas0", "state": "in sync",
                                 "reads": 1, "writes": 2, "read_errors": 3, "write_errors": 4,
                                 "repaired": 5},
                                {"role": 1, "device": null, "controller": null, "state": "missing",
                                 "reads": 0, "writes": 0, "read_errors": 0, "write_errors": 0,
                                 "repaired": 0}],
                    "progress": {"role": 1, "percent": 40.0, "left_s": 3.0}, "scrub": null,
                    "lost_bytes": 0, "down": null, "warnings": [], "events": ["a member was lost"]}],
        "devices": [{"name": "disk", "role": "origin", "place": "/disk", "controller": "disk",
                     "size_bytes": 1 << 30, "read": flow, "write": flow, "errors": 1,
                     "in_flight": 2, "queue_mean": 1.5, "busy_percent": 50.0, "busy_s": 5.0,
                     "wear": {"used_percent": 3, "written_bytes": 512000},
                     "read_total": total(16384), "write_total": total(4096)}],
    }))
    .unwrap();
    DaemonReport::new(status)
}
