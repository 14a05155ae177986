//! The difference of two reports of one daemon.

use super::sample::Sample;
use cache::Counter;
use control::status::{Status, Total, VolumeReport};
use std::collections::{BTreeSet, HashMap};

/// Arrays of arrays of devices are looked into, and none that are deeper.
const DEPTH_MAX: usize = 2;

/// Reads and writes of a volume's clients, or of an origin.
#[derive(Clone, Default)]
struct Requests {
    reads: Total,
    writes: Total,
}

impl Requests {
    fn add(&mut self, other: &Requests) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
    }

    fn since(&self, before: &Requests) -> Requests {
        Requests {
            reads: self.reads.since(&before.reads),
            writes: self.writes.since(&before.writes),
        }
    }
}

/// The difference of two reports of a volume, or of all.
#[derive(Default)]
struct ReportChange {
    clients: Requests,
    origin: Requests,
    hits: u64,
    misses: u64,
    kept: u64,
    dirty: Option<(u64, f64)>,
}

/// The sample that began at `at` and took `span_s`, of all volumes under no name and of each
/// that was in both reports.
pub fn between<'a>(
    at: u64,
    before: &Status,
    now: &'a Status,
    span_s: f64,
) -> Vec<(Option<&'a str>, Sample)> {
    let (origins, origins_before) = (Origins::of(now), Origins::of(before));
    let volumes_before: HashMap<&str, &VolumeReport> = by_name(&before.volumes);
    let mut all = ReportChange::default();
    let mut served = BTreeSet::new();
    let mut samples = Vec::new();
    for volume in &now.volumes {
        let Some(earlier) = volumes_before.get(&*volume.name) else {
            continue;
        };
        // A volume that was removed and added again has begun from zero.
        if volume.read_total.requests < earlier.read_total.requests
            || volume.write_total.requests < earlier.write_total.requests
        {
            continue;
        }
        let origin = origins.requests(&volume.origin, DEPTH_MAX);
        let origin = origin.since(&origins_before.requests(&volume.origin, DEPTH_MAX));
        let change = ReportChange::of(volume, earlier, origin);
        // Volumes may share an origin.
        if served.insert(&volume.origin) {
            all.origin.add(&change.origin);
        }
        all.add(&change);
        samples.push((Some(&*volume.name), change.sample(at, span_s)));
    }
    samples.insert(0, (None, all.sample(at, span_s)));
    samples
}

fn by_name(volumes: &[VolumeReport]) -> HashMap<&str, &VolumeReport> {
    volumes.iter().map(|v| (&*v.name, v)).collect()
}

impl ReportChange {
    fn of(now: &VolumeReport, before: &VolumeReport, origin: Requests) -> ReportChange {
        let clients = |volume: &VolumeReport| Requests {
            reads: volume.read_total.clone(),
            writes: volume.write_total.clone(),
        };
        let clients = clients(now).since(&clients(before));
        let count = |counter| {
            let count = now.counters.value(counter);
            count.saturating_sub(before.counters.value(counter))
        };
        let log = now.write_back.as_ref();
        // Writes that a log merges do not reach its origin.
        let written = clients.writes.requests;
        let merged = written.saturating_sub(origin.writes.requests);
        ReportChange {
            hits: count(Counter::BlocksHit),
            misses: count(Counter::BlocksMissed),
            kept: count(Counter::ReadsHit).saturating_add(log.map_or(0, |_| merged)),
            dirty: log.map(|log| (log.dirty_bytes, log.lag_s)),
            clients,
            origin,
        }
    }

    /// Adds all of a volume but its origin, which others may have too.
    fn add(&mut self, other: &ReportChange) {
        self.clients.add(&other.clients);
        self.hits = self.hits.saturating_add(other.hits);
        self.misses = self.misses.saturating_add(other.misses);
        self.kept = self.kept.saturating_add(other.kept);
        if let Some((bytes, lag)) = other.dirty {
            let (sum, longest) = self.dirty.unwrap_or_default();
            self.dirty = Some((sum.saturating_add(bytes), longest.max(lag)));
        }
    }

    fn sample(&self, at: u64, span_s: f64) -> Sample {
        let Requests { reads, writes } = &self.clients;
        let origin = &self.origin;
        let per_s = |n: u64| Some((n as f64 / span_s) as f32);
        let [read, written, origin_read] =
            [reads, writes, &origin.reads].map(|total| total.pace(span_s));
        let us = |figure: Option<f64>| figure.map(|us| us as f32);
        Sample {
            at,
            reads_s: per_s(reads.requests),
            writes_s: per_s(writes.requests),
            read_bytes_s: per_s(reads.bytes),
            written_bytes_s: per_s(writes.bytes),
            hits_s: per_s(self.hits),
            misses_s: per_s(self.misses),
            origin_s: per_s(origin.reads.requests.saturating_add(origin.writes.requests)),
            kept_s: per_s(self.kept),
            dirty_bytes: self.dirty.map(|(bytes, _)| bytes as f32),
            lag_s: self.dirty.map(|(_, lag)| lag as f32),
            read_us_mean: us(read.latency_us_mean),
            read_us_p50: us(read.latency_us_p50),
            read_us_p99: us(read.latency_us_p99),
            write_us_p50: us(written.latency_us_p50),
            write_us_p99: us(written.latency_us_p99),
            origin_read_us_mean: us(origin_read.latency_us_mean),
        }
    }
}

/// The requests of the devices of a report, by name.
struct Origins<'a> {
    devices: HashMap<&'a str, Requests>,
    /// Names of the members of each array.
    arrays: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Origins<'a> {
    fn of(status: &'a Status) -> Origins<'a> {
        let requests = |device: &'a control::status::DeviceActivity| Requests {
            reads: device.read_total.clone(),
            writes: device.write_total.clone(),
        };
        let members = |array: &'a control::status::ArrayReport| {
            let members = array.members.iter();
            members.filter_map(|m| m.device.as_deref()).collect()
        };
        let (devices, arrays) = (status.devices.iter(), status.arrays.iter());
        Origins {
            devices: devices.map(|d| (&*d.name, requests(d))).collect(),
            arrays: arrays.map(|a| (&*a.name, members(a))).collect(),
        }
    }

    /// The requests of a device, or of the members of an array.
    fn requests(&self, name: &str, depth: usize) -> Requests {
        if let Some(found) = self.devices.get(name) {
            return found.clone();
        }
        let mut sum = Requests::default();
        if let Some(members) = self.arrays.get(name).filter(|_| depth > 0) {
            for member in members {
                sum.add(&self.requests(member, depth - 1));
            }
        }
        sum
    }
}
