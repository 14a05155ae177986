//! The list of the metrics, and the places of their values in the status.

use super::devices::FIGURES;
use super::value::MetricValue;
use super::volumes::{CLIENTS, LOG};
use cache::Counter;
use control::status::{NamedCounters, Status, VolumeReport, WriteBackReport};
use control::trouble::TroubleKind;
use std::iter;

/// States of a pool's device; an ejected one has its fault after that word.
const DEVICE_STATES: [&str; 3] = ["online", "leaving", "ejected"];
const ARRAY_STATES: [&str; 6] = [
    "healthy",
    "degraded",
    "rebuilding",
    "resyncing",
    "failed",
    "inactive",
];
const MEMBER_STATES: [&str; 4] = ["in sync", "filling", "lost", "missing"];

/// Samples, made one by one: a thousand volumes have 150,000.
pub type Samples<'a> = Box<dyn Iterator<Item = MetricSample<'a>> + 'a>;

/// A metric with all its samples.
pub struct Family<'a> {
    pub name: String,
    pub help: &'static str,
    pub samples: Samples<'a>,
}

/// A value and its labels.
pub struct MetricSample<'a> {
    pub labels: Labels<'a>,
    pub value: MetricValue<'a>,
}

/// Names and values, four at most.
pub type Labels<'a> = [Option<(&'static str, &'a str)>; 4];

fn labels<'a, const N: usize>(given: [(&'static str, &'a str); N]) -> Labels<'a> {
    let mut labels = [None; 4];
    for (place, label) in labels.iter_mut().zip(given) {
        *place = Some(label);
    }
    labels
}

/// The metrics that were defined so far.
struct Families<'a>(Vec<Family<'a>>);

impl<'a> Families<'a> {
    fn add(
        &mut self,
        name: &str,
        help: &'static str,
        samples: impl Iterator<Item = MetricSample<'a>> + 'a,
    ) {
        self.0.push(Family {
            name: format!("hotset_{name}"),
            help,
            samples: Box::new(samples),
        });
    }

    /// A metric with one sample of each of `items`.
    fn each<T>(
        &mut self,
        name: &str,
        help: &'static str,
        items: &'a [T],
        named: impl Fn(&'a T) -> Labels<'a> + 'a,
        value: impl Fn(&'a T) -> MetricValue<'a> + 'a,
    ) {
        let sample = move |item| MetricSample {
            labels: named(item),
            value: value(item),
        };
        self.add(name, help, items.iter().map(sample));
    }

    /// Adds every counter of the cache, for each of `items`, under the prefix `owner`.
    fn counters<T>(
        &mut self,
        owner: &'static str,
        items: &'a [T],
        of: fn(&'a T) -> (&'a str, &'a NamedCounters),
    ) {
        for counter in Counter::ALL {
            let name = format!("{owner}_{}", counter.name());
            let named = move |item| labels([(owner, of(item).0)]);
            let value = move |item: &'a T| MetricValue::Counter(of(item).1.value(*counter));
            self.each(&name, counter.help(), items, named, value);
        }
    }
}

/// Adds one more label.
fn with<'a>(mut labels: Labels<'a>, more: (&'static str, &'a str)) -> Labels<'a> {
    let free = labels.iter_mut().find(|label| label.is_none());
    *free.expect("none has so many") = Some(more);
    labels
}

/// Returns a sample for each possible state; the present one is 1.
fn states<'a>(
    of: Labels<'a>,
    known: &'static [&'static str],
    now: &'a str,
) -> impl Iterator<Item = MetricSample<'a>> + 'a {
    let present = known.iter().copied().find(|state| now.starts_with(state));
    let other = if present.is_none() { Some(now) } else { None };
    let all = known.iter().copied().chain(other);
    let sample = move |state| MetricSample {
        labels: with(of, ("state", state)),
        value: MetricValue::Gauge(if state == present.unwrap_or(now) {
            1.0
        } else {
            0.0
        }),
    };
    all.map(sample)
}

/// All metrics of `status`.
pub fn families(status: &Status) -> Vec<Family<'_>> {
    let mut families = Families(Vec::new());
    daemon(status, &mut families);
    volumes(status, &mut families);
    pools(status, &mut families);
    arrays(status, &mut families);
    devices(status, &mut families);
    families.0
}

fn daemon<'a>(status: &'a Status, to: &mut Families<'a>) {
    let nbd = &status.nbd;
    for (name, help, value) in [
        (
            "daemon_uptime_seconds",
            "Time since the daemon began.",
            MetricValue::Gauge(status.uptime_s),
        ),
        (
            "daemon_cpu_seconds",
            "Processor time that the daemon used.",
            MetricValue::Seconds(status.cpu_s),
        ),
        (
            "daemon_resident_memory_bytes",
            "Memory of the daemon that is resident.",
            MetricValue::Gauge(status.resident_bytes as f64),
        ),
        (
            "nbd_connections",
            "NBD connections that are open.",
            MetricValue::Gauge(nbd.connections.into()),
        ),
        (
            "nbd_handshakes",
            "NBD connections whose handshake is under way.",
            MetricValue::Gauge(nbd.handshakes.into()),
        ),
        (
            "nbd_connections_failed",
            "NBD connections ended for a violation, a stall or a failed handshake.",
            MetricValue::Counter(nbd.connections_failed),
        ),
        (
            "nbd_connections_refused",
            "NBD connections closed because there were too many.",
            MetricValue::Counter(nbd.connections_refused),
        ),
        (
            "nbd_requests",
            "NBD requests answered without an error.",
            MetricValue::Counter(nbd.requests),
        ),
        (
            "nbd_errors",
            "NBD requests answered with an error.",
            MetricValue::Counter(nbd.errors),
        ),
    ] {
        let labels = labels([]);
        to.add(name, help, iter::once(MetricSample { labels, value }));
    }
    let troubles = TroubleKind::ALL.into_iter().map(|kind| {
        let its = status
            .troubles
            .iter()
            .filter(|trouble| trouble.kind == kind);
        MetricSample {
            labels: labels([("kind", kind.name()), ("severity", kind.severity().name())]),
            value: MetricValue::Gauge(its.count() as f64),
        }
    });
    to.add("troubles", "What is wrong, by kind.", troubles);
}

fn volumes<'a>(status: &'a Status, to: &mut Families<'a>) {
    let volumes = &status.volumes;
    to.each(
        "volume_info",
        "The origin, pool and mode of a volume that is served.",
        volumes,
        |v| {
            labels([
                ("volume", &v.name),
                ("origin", &v.origin),
                ("pool", &v.pool),
                ("mode", &v.mode),
            ])
        },
        |_| MetricValue::Gauge(1.0),
    );
    to.each(
        "volume_waiting",
        "A volume of the configuration that is not served yet.",
        &status.waiting,
        |v| {
            labels([
                ("volume", &v.name),
                ("origin", &v.origin),
                ("pool", &v.pool),
            ])
        },
        |_| MetricValue::Gauge(1.0),
    );
    to.each(
        "volume_size_bytes",
        "Size of a volume.",
        volumes,
        |v| labels([("volume", &v.name)]),
        |v| MetricValue::Gauge(v.size_bytes as f64),
    );
    let logs = volumes
        .iter()
        .filter_map(|v| Some((v, v.write_back.as_ref()?)));
    let order = logs.clone().map(|(volume, log)| MetricSample {
        labels: labels([("volume", &volume.name), ("order", &log.order)]),
        value: MetricValue::Gauge(1.0),
    });
    to.add(
        "volume_write_back_info",
        "In what order the origin of a write-back volume gets writes.",
        order,
    );
    for (name, help, value) in LOG {
        let logs = logs.clone();
        let sample = move |(volume, log): (&'a VolumeReport, &'a WriteBackReport)| MetricSample {
            labels: labels([("volume", volume.name.as_str())]),
            value: MetricValue::Gauge(value(log)),
        };
        to.add(name, help, logs.map(sample));
    }
    to.each(
        "volume_quiesced",
        "Whether the changes of a volume are held back.",
        volumes,
        |v| labels([("volume", &v.name)]),
        |v| MetricValue::Gauge(f64::from(u8::from(v.quiesced))),
    );
    for (name, help, of) in CLIENTS {
        to.each(name, help, volumes, |v| labels([("volume", &v.name)]), of);
    }
    to.counters("volume", volumes, |v| (&v.name, &v.counters));
}

fn pools<'a>(status: &'a Status, to: &mut Families<'a>) {
    let pools = &status.pools;
    to.each(
        "pool_info",
        "The policy of a pool.",
        pools,
        |p| labels([("pool", &p.name), ("policy", &p.policy)]),
        |_| MetricValue::Gauge(1.0),
    );
    type Of = fn(&control::status::PoolReport) -> f64;
    let figures: [(&str, &str, Of); 4] = [
        ("pool_line_size_bytes", "The unit of replacement.", |p| {
            p.line_bytes.into()
        }),
        ("pool_lines", "Lines that there is room for.", |p| {
            p.lines.into()
        }),
        ("pool_lines_used", "Lines that hold something.", |p| {
            p.lines_used.into()
        }),
        (
            "pool_memory_bytes",
            "Memory for validity and checksums.",
            |p| p.memory_bytes as f64,
        ),
    ];
    for (name, help, of) in figures {
        to.each(
            name,
            help,
            pools,
            |p| labels([("pool", &p.name)]),
            move |p| MetricValue::Gauge(of(p)),
        );
    }
    let rules = pools.iter().flat_map(|p| {
        p.rule
            .would_miss
            .iter()
            .map(move |(rule, share)| MetricSample {
                labels: labels([("pool", &p.name), ("rule", rule)]),
                value: MetricValue::Gauge(*share),
            })
    });
    let help =
        "The share of recent accesses that a rule of a policy that tunes itself would have missed.";
    to.add("pool_rule_miss_ratio", help, rules);
    to.counters("pool", pools, |p| (&p.name, &p.counters));
    let devices = || {
        let pools = pools.iter();
        pools.flat_map(|p| {
            p.devices
                .iter()
                .map(move |d| (labels([("pool", &*p.name), ("device", &*d.name)]), d))
        })
    };
    let state = devices().flat_map(|(labels, d)| states(labels, &DEVICE_STATES, &d.state));
    to.add(
        "pool_device_state",
        "Whether a pool's device is in this state.",
        state,
    );
    let capacity = devices().map(|(labels, d)| MetricSample {
        labels,
        value: MetricValue::Gauge(d.capacity_bytes as f64),
    });
    to.add(
        "pool_device_capacity_bytes",
        "Bytes of a pool device's lines.",
        capacity,
    );
    let faults = devices().map(|(labels, d)| MetricSample {
        labels,
        value: MetricValue::Counter(d.faults),
    });
    to.add("pool_device_faults", "Faults of a pool's device.", faults);
}

fn arrays<'a>(status: &'a Status, to: &mut Families<'a>) {
    let arrays = &status.arrays;
    let state = arrays
        .iter()
        .flat_map(|a| states(labels([("array", &a.name)]), &ARRAY_STATES, &a.state));
    to.add("array_state", "Whether an array is in this state.", state);
    type Of = fn(&control::status::ArrayReport) -> f64;
    let figures: [(&str, &str, Of); 4] = [
        ("array_size_bytes", "Size of an array.", |a| {
            a.size_bytes as f64
        }),
        (
            "array_lost_bytes",
            "Bytes of an array whose data is lost.",
            |a| a.lost_bytes as f64,
        ),
        (
            "array_progress_ratio",
            "How much of a rebuild or resynchronisation is done; 1 if none runs.",
            |a| {
                a.progress
                    .as_ref()
                    .map_or(1.0, |progress| progress.percent / 100.0)
            },
        ),
        (
            "array_scrub_mismatches",
            "Places that differed in the scrub that runs, or the last one.",
            |a| {
                a.scrub
                    .as_ref()
                    .map_or(0.0, |scrub| scrub.mismatches as f64)
            },
        ),
    ];
    for (name, help, of) in figures {
        to.each(
            name,
            help,
            arrays,
            |a| labels([("array", &a.name)]),
            move |a| MetricValue::Gauge(of(a)),
        );
    }
    let members = || {
        let arrays = arrays.iter();
        arrays.flat_map(|a| {
            a.members.iter().map(move |m| {
                let device = m.device.as_deref().unwrap_or("");
                (labels([("array", &*a.name), ("device", device)]), m)
            })
        })
    };
    let present = || members().filter(|(_, m)| m.device.is_some());
    let state = present().flat_map(|(labels, m)| states(labels, &MEMBER_STATES, &m.state));
    to.add(
        "array_member_state",
        "Whether a member of an array is in this state.",
        state,
    );
    type Count = fn(&control::status::MemberStatus) -> u64;
    let counts: [(&str, &str, Count); 5] = [
        (
            "array_member_reads",
            "Reads of a member that succeeded.",
            |m| m.reads,
        ),
        (
            "array_member_writes",
            "Writes of a member that succeeded.",
            |m| m.writes,
        ),
        (
            "array_member_read_errors",
            "Reads of a member that failed.",
            |m| m.read_errors,
        ),
        (
            "array_member_write_errors",
            "Writes and flushes of a member that failed.",
            |m| m.write_errors,
        ),
        (
            "array_member_repaired_sectors",
            "Sectors of a member that could not be read and were written again.",
            |m| m.repaired,
        ),
    ];
    for (name, help, of) in counts {
        let sample = move |(labels, m)| MetricSample {
            labels,
            value: MetricValue::Counter(of(m)),
        };
        to.add(name, help, present().map(sample));
    }
    let missing = arrays.iter().map(|a| {
        let missing = a.members.iter().filter(|m| m.device.is_none()).count();
        MetricSample {
            labels: labels([("array", &*a.name)]),
            value: MetricValue::Gauge(missing as f64),
        }
    });
    to.add(
        "array_members_missing",
        "Roles of an array that no device has.",
        missing,
    );
}

fn devices<'a>(status: &'a Status, to: &mut Families<'a>) {
    let worn = || {
        let devices = status.devices.iter();
        devices.filter_map(|d| {
            let labels = labels([("device", &*d.name), ("role", &*d.role)]);
            Some((labels, d.wear?))
        })
    };
    to.add(
        "device_endurance_used_ratio",
        "The share of its rated endurance that a device says it has used.",
        worn().map(|(labels, wear)| MetricSample {
            labels,
            value: MetricValue::Gauge(f64::from(wear.used_percent) / 100.0),
        }),
    );
    to.add(
        "device_lifetime_written_bytes",
        "What was written to a device in its life, as it says.",
        worn().map(|(labels, wear)| MetricSample {
            labels,
            value: MetricValue::Counter(wear.written_bytes),
        }),
    );
    for (name, help, of) in FIGURES {
        to.each(
            name,
            help,
            &status.devices,
            |d| labels([("device", &d.name), ("role", &d.role)]),
            of,
        );
    }
}
