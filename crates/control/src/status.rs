//! What a running daemon reports. Field names are the names in the JSON.

pub use crate::counters::Counters;

use crate::explained::Policy;
use crate::job::Job;
use crate::trouble::Trouble;
use serde::{Deserialize, Serialize};

/// The report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// The daemon's process number.
    pub pid: u32,
    /// The file that its configuration was read from.
    #[serde(default)]
    pub config: Option<String>,
    /// Time since it began.
    pub uptime_s: f64,
    /// The time that rates and percentages are over.
    pub span_s: f64,
    /// Processor time used, in percent of one processor.
    pub cpu_percent: f64,
    /// Processor time used since it began.
    #[serde(default)]
    pub cpu_s: f64,
    /// Memory resident.
    pub resident_bytes: u64,
    /// What is wrong, the most urgent first; nothing if all is well.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
    /// The NBD server.
    pub nbd: Nbd,
    /// What is served.
    pub volumes: Vec<Volume>,
    /// Volumes that are not served yet.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// Caches.
    pub pools: Vec<Pool>,
    /// Devices made of devices.
    #[serde(default)]
    pub arrays: Vec<Array>,
    /// Long work: what goes on, and what ended last.
    #[serde(default)]
    pub jobs: Vec<Job>,
    /// Every open device.
    pub devices: Vec<Device>,
    /// Devices of the configuration that nothing uses.
    #[serde(default)]
    pub unused: Vec<Unused>,
}

/// The NBD server, since the daemon began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Nbd {
    /// Where it listens, as URIs.
    pub listeners: Vec<String>,
    /// Connections that are open.
    pub connections: u32,
    /// Connections whose handshake is under way.
    #[serde(default)]
    pub handshakes: u32,
    /// Connections ended for a violation, a stall or a failed handshake.
    pub connections_failed: u64,
    /// Connections closed after their handshake because there were too many.
    pub connections_refused: u64,
    /// Requests answered without an error.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// The device that holds its data.
    pub origin: String,
    /// The pool it is cached in.
    pub pool: String,
    /// How it uses the pool.
    pub mode: String,
    /// The mode that it has once it is on again, if it is off.
    #[serde(default)]
    pub off: Option<String>,
    /// Its changes are held back; see `docs/commands/volume.md`.
    pub quiesced: bool,
    /// Its size.
    pub size_bytes: u64,
    /// Of the 4 KiB blocks looked up in the pool during the span, those found.
    /// Nothing if none was looked up.
    pub hit_percent: Option<f64>,
    /// By what clients reach it: NBD URIs, block devices, and `vhost-user:SOCKET`.
    #[serde(default)]
    pub frontends: Vec<String>,
    /// How its log stands, if it is write-back.
    #[serde(default)]
    pub write_back: Option<WriteBack>,
    /// Its clients' reads during the span.
    #[serde(default)]
    pub read: Pace,
    /// Their writes.
    #[serde(default)]
    pub write: Pace,
    /// Their reads since it was added.
    #[serde(default)]
    pub read_total: Total,
    /// Their writes, zeroes and discards left out.
    #[serde(default)]
    pub write_total: Total,
    /// Since it was added.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counters: Counters,
}

impl Volume {
    /// How it uses the pool, in a few words.
    pub fn standing(&self) -> String {
        let mode = match &self.off {
            Some(mode) => format!("off ({mode})"),
            None => self.mode.clone(),
        };
        let quiesced = if self.quiesced { ", quiesced" } else { "" };
        format!("{mode}{quiesced}")
    }
}

/// The log of a write-back volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WriteBack {
    /// In what order the origin gets writes: "ordered", "journaled", which needs a replay if the
    /// log is lost, or "coalesced", which promises nothing of the origin alone.
    #[serde(default)]
    pub order: String,
    /// Bytes that the origin does not have yet.
    pub owed_bytes: u64,
    /// The age of the oldest of them.
    pub lag_s: f64,
    /// Bytes a second that the origin takes, as lately measured while more was owed.
    #[serde(default)]
    pub rate_bytes: Option<u64>,
    /// The devices of the log, and the one of its journal if it has one.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Copies of the log that take part; with less than 2 the origin answers writes.
    pub copies: u32,
    /// Why nothing goes to the origin at present.
    pub trouble: Option<String>,
}

/// A volume of the configuration that is not served yet; it is tried again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Waiting {
    /// Its name.
    pub name: String,
    /// The device that holds its data.
    pub origin: String,
    /// The pool it is to be cached in.
    pub pool: String,
    /// Why it could not be served when last tried.
    pub why: String,
}

/// A pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Which line makes room for another.
    pub policy: String,
    /// What that policy is doing, if it tunes itself.
    pub rule: Policy,
    /// The unit of replacement.
    pub line_bytes: u32,
    /// Lines that hold something.
    pub lines_used: u32,
    /// Lines that there is room for.
    pub lines: u32,
    /// Memory for validity and checksums.
    pub memory_bytes: u64,
    /// Its devices.
    pub devices: Vec<PoolDevice>,
    /// Of the pool and all its volumes, since the daemon began.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counters: Counters,
}

/// A device as a part of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PoolDevice {
    /// Its name.
    pub name: String,
    /// Its failure domain.
    pub controller: String,
    /// `online`, `leaving`, or `ejected (FAULT)`.
    pub state: String,
    /// Bytes of its lines.
    pub capacity_bytes: u64,
    /// Faults since it was added.
    pub faults: u64,
}

/// An array.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = ArrayStatus))]
pub struct Array {
    /// Its name.
    pub name: String,
    /// How it spreads its data.
    pub level: String,
    /// `healthy`, `degraded`, `rebuilding`, `resyncing`, `failed` or `inactive`.
    pub state: String,
    /// Its size.
    pub size_bytes: u64,
    /// What lies on one member before the next follows.
    pub chunk_bytes: u64,
    /// Its identity; nothing for one without superblocks.
    pub uuid: Option<String>,
    /// Its members, by role.
    pub members: Vec<Member>,
    /// Devices that wait to take a lost member's place.
    pub spares: Vec<String>,
    /// What is being filled or brought into agreement.
    pub progress: Option<Progress>,
    /// The scrub that runs, or the last one since the array was started.
    pub scrub: Option<Scrub>,
    /// How long ago the last scrub of all of it ended, if one has.
    #[serde(default)]
    pub scrubbed_s: Option<u64>,
    /// In what time the next one begins by itself, if one does.
    #[serde(default)]
    pub scrub_due_s: Option<u64>,
    /// Bytes whose data is lost; reads of them fail until they are written.
    pub lost_bytes: u64,
    /// Why writes are refused, if they are.
    pub down: Option<String>,
    /// Why it could not start when last tried, if it is inactive.
    #[serde(default)]
    pub inactive: Option<String>,
    /// What would be lost together.
    pub warnings: Vec<String>,
    /// What happened last, the newest at the end.
    pub events: Vec<String>,
}

/// A member of an array.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Member {
    /// Its role.
    pub role: u32,
    /// The device or array; nothing if none has the role.
    pub device: Option<String>,
    /// Its failure domain.
    pub controller: Option<String>,
    /// `in sync`, `filling`, `lost` or `missing`.
    pub state: String,
    /// Reads that succeeded, since it joined.
    pub reads: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Sectors that could not be read and were written again from elsewhere.
    pub repaired: u64,
}

/// How far a rebuild or resynchronisation is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Progress {
    /// The role that is filled; nothing while copies are compared after a crash.
    pub role: Option<u32>,
    /// What is done.
    pub percent: f64,
    /// How long it still takes at the rate so far.
    pub left_s: Option<f64>,
}

/// A scrub.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Scrub {
    /// Whether it runs still; the figures are those of its end.
    pub running: bool,
    /// Places where copies, or data and parity, differed.
    pub mismatches: u64,
    /// Of these, how many were brought into agreement.
    pub repaired: u64,
    /// Places that could not be read on one member.
    pub unreadable: u64,
    /// Why it stopped early, if it did.
    pub error: Option<String>,
}

/// A device of the configuration that nothing uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Unused {
    /// Its name.
    pub name: String,
    /// The file, block device or NBD export behind it.
    pub place: String,
    /// The drive that it is as slow as, if it is a simulated one.
    pub model: Option<String>,
}

/// What a device did during the span.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Device {
    /// Its name.
    pub name: String,
    /// `origin`, `pool`, `log` or `member`.
    pub role: String,
    /// The file, block device or NBD export behind it.
    pub place: String,
    /// Its failure domain.
    pub controller: String,
    /// Its size.
    pub size_bytes: u64,
    /// Reads.
    pub read: Flow,
    /// Writes, zeroes and discards left out.
    pub write: Flow,
    /// Requests of any kind that failed since it was opened.
    pub errors: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// The mean number of requests in flight.
    pub queue_mean: f64,
    /// The part of the time in which a request was in flight.
    pub busy_percent: f64,
    /// Reads since it was opened.
    #[serde(default)]
    pub read_total: Total,
    /// Writes since it was opened, zeroes and discards left out.
    #[serde(default)]
    pub write_total: Total,
    /// For how long a request was in flight, since it was opened.
    #[serde(default)]
    pub busy_s: f64,
    /// How worn it says that it is.
    #[serde(default)]
    pub wear: Option<Wear>,
}

/// How worn a device is, by its own account.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Wear {
    /// Of its rated endurance; more than 100 if it outlasts that.
    pub used_percent: u8,
    /// What was written to it in its life.
    pub written_bytes: u64,
}

/// Requests of one kind that succeeded, since the device was opened or the volume added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Total {
    /// How many.
    pub requests: u64,
    /// What they moved.
    pub bytes: u64,
    /// Their latencies together.
    pub latency_s: f64,
    /// How many took at most each of [`LATENCY_BOUNDS_US`] and longer than the one before.
    pub latency_counts: Vec<u64>,
}

/// Bounds of latencies, in microseconds; requests that take longer are in no count.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];

/// Requests of clients during the span. Latencies are those of successes, and as exact as
/// [`LATENCY_BOUNDS_US`] are close.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pace {
    /// Requests a second.
    pub iops: f64,
    /// 10^6 bytes a second.
    pub mb_s: f64,
    /// The mean latency; nothing if there was no request.
    pub latency_us_mean: Option<f64>,
    /// The latency that half of the requests stayed within.
    pub latency_us_p50: Option<f64>,
    /// The latency that 99% of the requests stayed within.
    pub latency_us_p99: Option<f64>,
}

impl Total {
    /// Adds those of another volume or device.
    pub fn add(&mut self, other: &Total) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.latency_s += other.latency_s;
        let len = self.latency_counts.len().max(other.latency_counts.len());
        self.latency_counts.resize(len, 0);
        for (count, more) in self.latency_counts.iter_mut().zip(&other.latency_counts) {
            *count = count.saturating_add(*more);
        }
    }

    /// What came after `before`.
    pub fn since(&self, before: &Total) -> Total {
        let counts = self.latency_counts.iter().enumerate();
        let counts = counts.map(|(at, count)| {
            count.saturating_sub(before.latency_counts.get(at).copied().unwrap_or(0))
        });
        Total {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            latency_s: (self.latency_s - before.latency_s).max(0.0),
            latency_counts: counts.collect(),
        }
    }

    /// The latency in microseconds that the share `part` of the requests stayed within, if there
    /// were any; of those that took longer than all bounds, the last bound.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = part * self.requests as f64;
        if self.requests == 0 {
            return None;
        }
        let (mut below, mut from) = (0.0, 0.0);
        for (count, bound) in self.latency_counts.iter().zip(LATENCY_BOUNDS_US) {
            let (count, bound) = (*count as f64, bound as f64);
            if count > 0.0 && below + count >= wanted {
                return Some(from + (bound - from) * (wanted - below) / count);
            }
            (below, from) = (below + count, bound);
        }
        Some(from)
    }

    /// The same over `span_s` seconds.
    pub fn pace(&self, span_s: f64) -> Pace {
        let per_s = |amount: f64| if span_s > 0.0 { amount / span_s } else { 0.0 };
        let mean = 1e6 * self.latency_s / self.requests as f64;
        Pace {
            iops: per_s(self.requests as f64),
            mb_s: per_s(self.bytes as f64 / 1e6),
            latency_us_mean: (self.requests > 0).then_some(mean),
            latency_us_p50: self.quantile(0.5),
            latency_us_p99: self.quantile(0.99),
        }
    }
}

/// Requests of one kind during the span. Latencies are those of successes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Flow {
    /// Requests a second.
    pub iops: f64,
    /// 10^6 bytes a second.
    pub mb_s: f64,
    /// The mean latency.
    pub latency_us_mean: f64,
    /// The latency that 99% of the requests stayed within.
    pub latency_us_p99: f64,
    /// The longest latency.
    pub latency_us_max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(requests: u64, latency_s: f64, counts: &[u64]) -> Total {
        let mut latency_counts = counts.to_vec();
        latency_counts.resize(LATENCY_BOUNDS_US.len(), 0);
        Total {
            requests,
            bytes: requests * 4096,
            latency_s,
            latency_counts,
        }
    }

    #[test]
    fn the_pace_of_an_interval_is_that_of_what_came_in_it() {
        // A thousand slow requests before, which do not count.
        let before = total(1000, 100.0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1000]);
        // Then 98 within 50 us, one within 100 us, and one within 1 ms.
        let now = total(1100, 100.01, &[98, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1000]);
        let pace = now.since(&before).pace(2.0);
        assert_eq!(pace.iops, 50.0);
        assert!((pace.mb_s - 0.2048).abs() < 1e-9);
        assert!((pace.latency_us_mean.unwrap() - 100.0).abs() < 1e-6);
        assert!(pace.latency_us_p50.unwrap() < 50.0);
        assert_eq!(pace.latency_us_p99, Some(100.0));
        let none = before.since(&before).pace(2.0);
        assert_eq!((none.iops, none.latency_us_p99), (0.0, None));
        // One that took longer than all bounds.
        assert_eq!(total(1, 60.0, &[]).quantile(0.99), Some(10_000_000.0));
    }
}
