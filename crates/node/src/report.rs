//! Reports of a node: the status; in files of their own, the observations of a volume, and the
//! reasons for its cached lines.

mod arrays;
mod explain;
mod observe;

use crate::hold::Hold;
use crate::node::{Node, NodePool, NodeVolume};
use crate::place::OpenedPlace;
use crate::platform::Platform;
use crate::sink::RecordingSink;
use block::{Device as _, Driver, Nanos, Peer, SECTOR_BYTES};
use cache::{Counter, DeviceState};
use control::config::{self, Name, VolumeMode};
use control::explained::PolicyReport;
use control::status::PoolReport as PoolStatus;
use control::status::{
    DeviceActivity, Flow, LATENCY_BOUNDS_US, NamedCounters, Nbd, PoolDeviceReport, ShardReport,
    Status,
};
use control::status::{Total, Unused, VolumeReport, WriteBackReport};
use filter::{AccessVerb, StatsInterval, StatsSnapshot, VerbLatency, VerbTally};
use std::collections::HashMap;
use writelog::Cleaning;

/// The state of a connection: the last values sent, from which the next report counts.
#[derive(Default)]
pub struct ReportSession {
    at: Option<Nanos>,
    cpu: Nanos,
    /// Processor time of each shard.
    shards: Vec<Nanos>,
    devices: HashMap<Name, SentDevice>,
    volumes: HashMap<Name, SeenVolume>,
    /// The process that opened the connection.
    pub(crate) peer: Option<Peer>,
    /// The recording that ends with the connection.
    pub recording: Option<RecordingSink>,
    /// The volume that is quiesced until the connection ends.
    pub(crate) hold: Option<Hold>,
}

/// The values last sent of a volume.
#[derive(Default)]
struct SeenVolume {
    hit: u64,
    missed: u64,
    read_total: Total,
    write_total: Total,
}

/// The values last sent of a device.
struct SentDevice {
    /// Time of the opening, which distinguishes one use of a name from a later one.
    opened_at: Nanos,
    snapshot: StatsSnapshot,
    read_total: Total,
    write_total: Total,
}

impl<P: Platform> Node<P> {
    /// The report, over the time since the last one of `session`.
    pub fn report(&self, session: &mut ReportSession) -> Status {
        let now = self.platform.local().env().timer.now();
        let since = session.at.replace(now).unwrap_or(self.began);
        let span_s = (now - since).as_secs_f64();
        let process = self.platform.process();
        let used = process.cpu - std::mem::replace(&mut session.cpu, process.cpu);
        let mut devices = Vec::new();
        let mut seen = HashMap::new();
        for (name, opened) in self.devices.open.borrow().iter() {
            let earlier = session.devices.remove(name);
            let earlier = earlier.filter(|seen| seen.opened_at == opened.at_first.at());
            let (device, now) = device(name, opened, now, earlier);
            devices.push(device);
            seen.insert(name.clone(), now);
        }
        session.devices = seen;
        let config = self.devices.config();
        let off = config.volumes.iter().filter(|volume| volume.off.value);
        let off: HashMap<&Name, VolumeMode> = off.map(|v| (&v.name.value, v.mode.value)).collect();
        let mut seen = HashMap::new();
        let mut volumes = Vec::new();
        for (name, served) in self.volumes.borrow().iter() {
            let earlier = session.volumes.remove(name).unwrap_or_default();
            let (mut volume, now) = volume(name, served, off.get(name), earlier, span_s);
            volume.frontends = self.addresses(name.as_str());
            volumes.push(volume);
            seen.insert(name.clone(), now);
        }
        session.volumes = seen;
        let mut status = Status {
            pid: process.pid,
            config: config.files.main().map(|file| file.display().to_string()),
            uptime_s: (now - self.began).as_secs_f64(),
            span_s,
            cpu_percent: per(used.as_secs_f64() * 100.0, span_s),
            cpu_s: process.cpu.as_secs_f64(),
            shards: self.report_shards(&mut session.shards, span_s),
            resident_bytes: process.resident_bytes,
            troubles: self.look_at_troubles(),
            nbd: Nbd::default(),
            volumes,
            waiting: self.report_waiting(),
            pools: self.report_pools(now),
            arrays: self.arrays(now),
            jobs: self.report_jobs(),
            devices,
            unused: self.unused(),
        };
        for frontend in &self.frontends {
            frontend.stats(&mut status);
        }
        status
    }
}

impl<P: Platform> Node<P> {
    /// The shards, over the time since `before`, their processor times then.
    fn report_shards(&self, before: &mut Vec<Nanos>, span_s: f64) -> Vec<ShardReport> {
        let now = self.platform.shard_times();
        before.resize(now.len(), Nanos::ZERO);
        let before = std::mem::replace(before, now.clone());
        let shards = now.iter().zip(before).enumerate();
        let report = |(number, (now, before)): (usize, (&Nanos, Nanos))| ShardReport {
            name: number.to_string(),
            cpu_percent: per(now.since(before).as_secs_f64() * 100.0, span_s),
            cpu_s: now.as_secs_f64(),
        };
        shards.map(report).collect()
    }

    fn report_pools(&self, now: Nanos) -> Vec<PoolStatus> {
        let pools = self.pools.borrow();
        pools.iter().map(|(n, p)| pool(n, p, now)).collect()
    }

    /// Devices and arrays of the configuration that are not open and in no array.
    fn unused(&self) -> Vec<Unused> {
        let config = self.devices.config();
        let in_array = |name: &Name| {
            let mut all = config
                .arrays
                .iter()
                .flat_map(|a| a.members.iter().chain(a.spares.iter()));
            all.any(|member| member == name)
        };
        let is_unused = |name: &Name| !self.devices.is_open(name) && !in_array(name);
        let arrays = config.arrays.iter();
        let arrays = arrays.filter(|array| is_unused(&array.name.value));
        let arrays = arrays.map(|array| Unused {
            name: array.name.value.to_string(),
            place: array_place(array),
            model: None,
        });
        let devices = config.devices.iter();
        let devices = devices.filter(|device| is_unused(&device.name.value));
        let devices = devices.map(|device| Unused {
            name: device.name.value.to_string(),
            place: match (&device.path, &device.nbd) {
                (Some(path), _) => path.display().to_string(),
                (None, Some(uri)) => uri.value.to_string(),
                (None, None) => String::new(),
            },
            model: device.model.as_ref().map(|model| model.value.clone()),
        });
        devices.chain(arrays).collect()
    }
}

/// The level and the members of an array, for its place.
fn array_place(array: &config::Array) -> String {
    let members = array.members.value.iter().map(Name::as_str);
    let members = members.collect::<Vec<_>>().join(", ");
    format!("{} of {members}", array.level.value.name())
}

/// A rate per second; 0 over no time.
fn per(amount: f64, span_s: f64) -> f64 {
    if span_s > 0.0 { amount / span_s } else { 0.0 }
}

/// The report of a volume. A new volume with a former volume's name starts from zero.
fn volume<P: Platform>(
    name: &Name,
    served: &NodeVolume<P>,
    off: Option<&VolumeMode>,
    earlier: SeenVolume,
    span_s: f64,
) -> (VolumeReport, SeenVolume) {
    let counters = served.volume.cached().counters();
    let now = SeenVolume {
        hit: counters.get(Counter::BlocksHit),
        missed: counters.get(Counter::BlocksMissed),
        read_total: of_clients(served.volume.latencies().reads()),
        write_total: of_clients(served.volume.latencies().writes()),
    };
    let hit = now.hit.saturating_sub(earlier.hit);
    let all = hit + now.missed.saturating_sub(earlier.missed);
    let volume = VolumeReport {
        name: name.to_string(),
        origin: served.origin.to_string(),
        pool: served.pool.to_string(),
        mode: served.volume.mode().name().to_owned(),
        off: off.map(|mode| mode.name().to_owned()),
        quiesced: served.volume.cached().is_quiesced(),
        size_bytes: served.volume.geometry().sectors.bytes(),
        hit_percent: (all > 0).then(|| 100.0 * hit as f64 / all as f64),
        frontends: Vec::new(),
        write_back: served
            .volume
            .log()
            .map(|log| write_back(log.engine().status(), log.devices())),
        read: now.read_total.since(&earlier.read_total).pace(span_s),
        write: now.write_total.since(&earlier.write_total).pace(span_s),
        read_total: now.read_total.clone(),
        write_total: now.write_total.clone(),
        counters: NamedCounters::from(&counters),
    };
    (volume, now)
}

fn of_clients(latency: VerbLatency) -> Total {
    Total {
        requests: latency.requests,
        bytes: latency.sectors * SECTOR_BYTES,
        latency_s: latency.time.as_secs_f64(),
        latency_counts: latency.counts,
    }
}

fn write_back(log: writelog::WriteBackStatus, devices: &[Name]) -> WriteBackReport {
    WriteBackReport {
        order: match log.forsaken {
            false => log.cleaning.name().into(),
            true => format!("{}, its journal is lost", Cleaning::Ordered.name()),
        },
        dirty_bytes: log.dirty_bytes,
        lag_s: log.lag.as_secs_f64(),
        rate_bytes: log.rate,
        devices: devices.iter().map(Name::to_string).collect(),
        copies: log.copies as u32,
        trouble: log.trouble.map(|error| error.to_string()),
    }
}

fn pool<D: Driver>(name: &Name, pool: &NodePool<D>, now: Nanos) -> PoolStatus {
    let (lines_used, lines) = pool.cache.lines();
    let reports = pool.cache.devices();
    let devices = pool.devices.borrow();
    let devices = devices.iter().filter_map(|(name, id)| {
        let report = reports.iter().find(|report| report.id == *id)?;
        let state = match report.state {
            DeviceState::Online => "online".to_owned(),
            DeviceState::Leaving => "leaving".to_owned(),
            DeviceState::Ejected(fault) => format!("ejected ({})", fault.name()),
        };
        Some(PoolDeviceReport {
            name: name.to_string(),
            controller: report.controller.to_string(),
            state,
            capacity_bytes: report.place.len.bytes(),
            faults: report.faults,
        })
    });
    PoolStatus {
        name: name.to_string(),
        policy: pool.policy.to_owned(),
        rule: policy(pool, now),
        line_bytes: pool.line_bytes,
        lines_used,
        lines,
        memory_bytes: pool.cache.memory_bytes() as u64,
        devices: devices.collect(),
        counters: NamedCounters::from(&pool.cache.counters()),
    }
}

/// The pool's policy, with the evidence behind its choice of rule.
fn policy<D: Driver>(pool: &NodePool<D>, now: Nanos) -> PolicyReport {
    let name = pool.policy.to_owned();
    let Some(policy) = pool.cache.explanation() else {
        return PolicyReport {
            name,
            ..PolicyReport::default()
        };
    };
    let rules = policy
        .rules
        .iter()
        .map(|(rule, share)| ((*rule).to_owned(), *share));
    PolicyReport {
        name,
        active: Some(policy.active.to_owned()),
        active_for_s: Some(now.since(policy.since).as_secs_f64()),
        changes: Some(policy.changes),
        would_miss: rules.collect(),
    }
}

fn device<P: Platform>(
    name: &Name,
    opened: &OpenedPlace<P>,
    now: Nanos,
    earlier: Option<SentDevice>,
) -> (DeviceActivity, SentDevice) {
    let now = opened.leaf.meter().snapshot(now);
    let (before, known) = match &earlier {
        Some(seen) => (&seen.snapshot, Some([&seen.read_total, &seen.write_total])),
        None => (&opened.at_first, None),
    };
    let interval = now.since(before);
    let [read_total, write_total] =
        [(AccessVerb::Read, 0), (AccessVerb::Write, 1)].map(|(verb, at)| {
            let known = known.filter(|_| !now.has_moved(verb, before));
            known.map_or_else(|| total(now.tally(verb)), |totals| totals[at].clone())
        });
    let device = DeviceActivity {
        name: name.to_string(),
        role: opened.role.name().to_owned(),
        place: opened.place.clone(),
        controller: opened.controller.to_string(),
        size_bytes: opened.leaf.geometry().sectors.bytes(),
        read: flow(&interval, AccessVerb::Read),
        write: flow(&interval, AccessVerb::Write),
        errors: AccessVerb::ALL
            .iter()
            .map(|verb| now.tally(*verb).errors)
            .sum(),
        in_flight: now.in_flight(),
        queue_mean: interval.queue_mean(),
        busy_percent: interval.utilisation() * 100.0,
        read_total: read_total.clone(),
        write_total: write_total.clone(),
        busy_s: now.busy().as_secs_f64(),
        wear: opened.wear.get().1,
    };
    let seen = SentDevice {
        opened_at: opened.at_first.at(),
        snapshot: now,
        read_total,
        write_total,
    };
    (device, seen)
}

fn total(tally: &VerbTally) -> Total {
    let mut counts = vec![0; LATENCY_BOUNDS_US.len()];
    for step in tally.latency.iter_recorded() {
        let bound = LATENCY_BOUNDS_US.partition_point(|us| us * 1000 < step.value_iterated_to());
        if let Some(count) = counts.get_mut(bound) {
            *count += step.count_since_last_iteration();
        }
    }
    Total {
        requests: tally.requests,
        bytes: tally.sectors * SECTOR_BYTES,
        latency_s: tally.latency.mean() * tally.latency.len() as f64 / 1e9,
        latency_counts: counts,
    }
}

fn flow(interval: &StatsInterval, verb: AccessVerb) -> Flow {
    let latency = &interval.tally(verb).latency;
    if latency.is_empty() {
        return Flow::default();
    }
    let us = |ns: u64| ns as f64 / 1e3;
    Flow {
        iops: interval.iops(verb),
        mb_s: interval.mb_s(verb),
        latency_us_mean: latency.mean() / 1e3,
        latency_us_p99: us(latency.value_at_quantile(0.99)),
        latency_us_max: us(latency.max()),
    }
}
