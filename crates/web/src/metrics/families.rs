//! The list of the metrics, and the places of their values in the status.

use super::devices::FIGURES;
use super::value::MetricValue;
use super::volumes::{CLIENTS, LOG};
use cache::Counter;
use control::status::{
    ArrayReport, MemberStatus, NamedCounters, PoolReport, Status, VolumeReport, WriteBackReport,
};
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

/// The name, the help and the value of a gauge.
type Gauge<T> = (&'static str, &'static str, fn(&T) -> f64);

impl<'a> Families<'a> {
    fn add(
        &mut self,
        name: &str,
        help: &'static str,
        samples: impl Iterator<Item = (Labels<'a>, MetricValue<'a>)> + 'a,
    ) {
        let samples = samples.map(|(labels, value)| MetricSample { labels, value });
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
        let sample = move |item| (named(item), value(item));
        self.add(name, help, items.iter().map(sample));
    }

    /// Adds every gauge of `table`, for each of `items`, with the label `owner`.
    fn gauges<T>(
        &mut self,
        owner: &'static str,
        table: &'static [Gauge<T>],
        items: &'a [T],
        name_of: fn(&'a T) -> &'a str,
    ) {
        for (name, help, of) in table {
            let named = move |item| labels([(owner, name_of(item))]);
            let value = move |item| MetricValue::Gauge(of(item));
            self.each(name, help, items, named, value);
        }
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
) -> impl Iterator<Item = (Labels<'a>, MetricValue<'a>)> + 'a {
    let present = known.iter().copied().find(|state| now.starts_with(state));
    let other = if present.is_none() { Some(now) } else { None };
    let all = known.iter().copied().chain(other);
    let sample = move |state| {
        let is_now = state == present.unwrap_or(now);
        let value = MetricValue::Gauge(f64::from(u8::from(is_now)));
        (with(of, ("state", state)), value)
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
        to.add(name, help, iter::once((labels([]), value)));
    }
    let shards = status.shards.iter().map(|shard| {
        let named = labels([("shard", shard.name.as_str())]);
        (named, MetricValue::Seconds(shard.cpu_s))
    });
    let help =
        "Processor time that a thread of the daemon used; the first has volumes and devices.";
    to.add("shard_cpu_seconds", help, shards);
    let troubles = TroubleKind::ALL.into_iter().map(|kind| {
        let its = status
            .troubles
            .iter()
            .filter(|trouble| trouble.kind == kind);
        let labels = labels([("kind", kind.name()), ("severity", kind.severity().name())]);
        (labels, MetricValue::Gauge(its.count() as f64))
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
    let order = logs.clone().map(|(volume, log)| {
        let labels = labels([("volume", &volume.name), ("order", &log.order)]);
        (labels, MetricValue::Gauge(1.0))
    });
    to.add(
        "volume_write_back_info",
        "In what order the origin of a write-back volume gets writes.",
        order,
    );
    for (name, help, value) in LOG {
        let logs = logs.clone();
        let sample = move |(volume, log): (&'a VolumeReport, &'a WriteBackReport)| {
            let labels = labels([("volume", volume.name.as_str())]);
            (labels, MetricValue::Gauge(value(log)))
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

/// Reads the value of a gauge from a pool.
type OfPool = fn(&PoolReport) -> f64;
const POOL_GAUGES: [(&str, &str, OfPool); 4] = [
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

fn pools<'a>(status: &'a Status, to: &mut Families<'a>) {
    let pools = &status.pools;
    to.each(
        "pool_info",
        "The policy of a pool.",
        pools,
        |p| labels([("pool", &p.name), ("policy", &p.policy)]),
        |_| MetricValue::Gauge(1.0),
    );
    to.gauges("pool", &POOL_GAUGES, pools, |p| &p.name);
    let rules = pools.iter().flat_map(|p| {
        let rules = p.rule.would_miss.iter();
        rules.map(move |(rule, share)| {
            let labels = labels([("pool", &p.name), ("rule", rule)]);
            (labels, MetricValue::Gauge(*share))
        })
    });
    let help =
        "The share of recent accesses that a rule of a policy that tunes itself would have missed.";
    to.add("pool_rule_miss_ratio", help, rules);
    to.counters("pool", pools, |p| (&p.name, &p.counters));
    pool_devices(pools, to);
}

fn pool_devices<'a>(pools: &'a [PoolReport], to: &mut Families<'a>) {
    let devices = || {
        pools.iter().flat_map(|p| {
            let devices = p.devices.iter();
            devices.map(move |d| (labels([("pool", &*p.name), ("device", &*d.name)]), d))
        })
    };
    to.add(
        "pool_device_state",
        "Whether a pool's device is in this state.",
        devices().flat_map(|(labels, d)| states(labels, &DEVICE_STATES, &d.state)),
    );
    to.add(
        "pool_device_capacity_bytes",
        "Bytes of a pool device's lines.",
        devices().map(|(labels, d)| (labels, MetricValue::Gauge(d.capacity_bytes as f64))),
    );
    to.add(
        "pool_device_faults",
        "Faults of a pool's device.",
        devices().map(|(labels, d)| (labels, MetricValue::Counter(d.faults))),
    );
}

/// Reads the value of a gauge from an array.
type OfArray = fn(&ArrayReport) -> f64;
const ARRAY_GAUGES: [(&str, &str, OfArray); 4] = [
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
            let progress = a.progress.as_ref();
            progress.map_or(1.0, |progress| progress.percent / 100.0)
        },
    ),
    (
        "array_scrub_mismatches",
        "Places that differed in the scrub that runs, or the last one.",
        |a| {
            let scrub = a.scrub.as_ref();
            scrub.map_or(0.0, |scrub| scrub.mismatches as f64)
        },
    ),
];

fn arrays<'a>(status: &'a Status, to: &mut Families<'a>) {
    let arrays = &status.arrays;
    let state = arrays
        .iter()
        .flat_map(|a| states(labels([("array", &a.name)]), &ARRAY_STATES, &a.state));
    to.add("array_state", "Whether an array is in this state.", state);
    to.gauges("array", &ARRAY_GAUGES, arrays, |a| &a.name);
    members(arrays, to);
    to.each(
        "array_members_missing",
        "Roles of an array that no device has.",
        arrays,
        |a| labels([("array", &a.name)]),
        |a| {
            let missing = a.members.iter().filter(|m| m.device.is_none()).count();
            MetricValue::Gauge(missing as f64)
        },
    );
}

/// Reads the value of a counter from a member of an array.
type OfMember = fn(&MemberStatus) -> u64;
const MEMBER_COUNTERS: [(&str, &str, OfMember); 5] = [
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

/// Adds the metrics of the members that have a device.
fn members<'a>(arrays: &'a [ArrayReport], to: &mut Families<'a>) {
    let members = || {
        arrays.iter().flat_map(|a| {
            a.members.iter().filter_map(move |m| {
                let device = m.device.as_deref()?;
                Some((labels([("array", &*a.name), ("device", device)]), m))
            })
        })
    };
    to.add(
        "array_member_state",
        "Whether a member of an array is in this state.",
        members().flat_map(|(labels, m)| states(labels, &MEMBER_STATES, &m.state)),
    );
    for (name, help, of) in MEMBER_COUNTERS {
        let sample = move |(labels, m)| (labels, MetricValue::Counter(of(m)));
        to.add(name, help, members().map(sample));
    }
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
        worn().map(|(labels, wear)| {
            let ratio = f64::from(wear.used_percent) / 100.0;
            (labels, MetricValue::Gauge(ratio))
        }),
    );
    to.add(
        "device_lifetime_written_bytes",
        "What was written to a device in its life, as it says.",
        worn().map(|(labels, wear)| (labels, MetricValue::Counter(wear.written_bytes))),
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
