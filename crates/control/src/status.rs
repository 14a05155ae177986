//! The report of a running daemon. Field names are the names in the JSON.

pub use crate::counters::NamedCounters;

use crate::explained::PolicyReport;
use crate::job::Job;
use crate::trouble::Trouble;
use serde::{Deserialize, Serialize};

/// The report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// Process number of the daemon.
    pub pid: u32,
    /// File of the daemon's configuration.
    #[serde(default)]
    pub config: Option<String>,
    /// Time since the daemon began.
    pub uptime_s: f64,
    /// Time span of rates and percentages.
    pub span_s: f64,
    /// Processor time used, in percent of one processor.
    pub cpu_percent: f64,
    /// Processor time used since the daemon began.
    #[serde(default)]
    pub cpu_s: f64,
    /// Threads that serve, the one of volumes and devices first.
    #[serde(default)]
    pub shards: Vec<ShardReport>,
    /// Memory resident.
    pub resident_bytes: u64,
    /// Current troubles, the most urgent first.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
    /// The NBD server.
    pub nbd: Nbd,
    /// Served volumes.
    pub volumes: Vec<VolumeReport>,
    /// Volumes that are not served yet.
    #[serde(default)]
    pub waiting: Vec<WaitingReport>,
    /// Caches.
    pub pools: Vec<PoolReport>,
    /// Devices made of devices.
    #[serde(default)]
    pub arrays: Vec<ArrayReport>,
    /// Long work: current jobs, and the last ended ones.
    #[serde(default)]
    pub jobs: Vec<Job>,
    /// Every open device.
    pub devices: Vec<DeviceActivity>,
    /// Devices and arrays of the configuration that nothing uses.
    #[serde(default)]
    pub unused: Vec<Unused>,
}

/// A thread that serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ShardReport {
    /// Number of the shard.
    pub name: String,
    /// Processor time used, in percent of one processor: all that a shard can have is 100.
    pub cpu_percent: f64,
    /// Processor time used since the daemon began.
    pub cpu_s: f64,
}

/// The NBD server, since the daemon began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Nbd {
    /// Listeners, as URIs.
    pub listeners: Vec<String>,
    /// Connections that are open.
    pub connections: u32,
    /// Connections whose handshake is under way.
    #[serde(default)]
    pub handshakes: u32,
    /// Connections ended for a violation, a stall or a failed handshake.
    pub connections_failed: u64,
    /// Connections closed after their handshake for want of free ones.
    pub connections_refused: u64,
    /// Requests answered without an error.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct VolumeReport {
    /// Name of the volume.
    pub name: String,
    /// Device that holds the volume's data.
    pub origin: String,
    /// Pool of the volume.
    pub pool: String,
    /// Mode of the volume.
    pub mode: String,
    /// Mode after the volume is on again, if it is off.
    #[serde(default)]
    pub off: Option<String>,
    /// True if changes of the volume are held back; see `docs/commands/volume.md`.
    pub quiesced: bool,
    /// Size of the volume.
    pub size_bytes: u64,
    /// Percentage of the 4 KiB blocks found in the pool among those looked up during the span;
    /// absent if none was looked up.
    pub hit_percent: Option<f64>,
    /// Addresses of the volume for clients: NBD URIs, block devices, and `vhost-user:SOCKET`.
    #[serde(default)]
    pub frontends: Vec<String>,
    /// State of the log, if the volume is write-back.
    #[serde(default)]
    pub write_back: Option<WriteBackReport>,
    /// Clients' reads during the span.
    #[serde(default)]
    pub read: RequestPace,
    /// Clients' writes during the span.
    #[serde(default)]
    pub write: RequestPace,
    /// Clients' reads since the volume was added.
    #[serde(default)]
    pub read_total: Total,
    /// Clients' writes since the volume was added, zeroes and discards left out.
    #[serde(default)]
    pub write_total: Total,
    /// Counters of the volume since it was added.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counters: NamedCounters,
}

impl VolumeReport {
    /// The mode of the volume, with `off` and `quiesced`, in a few words.
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
pub struct WriteBackReport {
    /// Order of writes to the origin: "ordered"; "journaled", which needs a replay if the log is
    /// lost; or "coalesced", which promises nothing of the origin alone.
    #[serde(default)]
    pub order: String,
    /// Dirty bytes: those that the origin does not have yet.
    pub dirty_bytes: u64,
    /// Age of the oldest dirty byte.
    pub lag_s: f64,
    /// Bytes a second that the origin takes, as last measured while more data was dirty.
    #[serde(default)]
    pub rate_bytes: Option<u64>,
    /// Devices of the log, and of its journal if there is one.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Current copies of the log; with fewer than 2, writes go to the origin before their reply.
    pub copies: u32,
    /// Reason why write-back is stopped, if it is.
    pub trouble: Option<String>,
}

/// A volume of the configuration that is not served yet; the daemon keeps trying.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WaitingReport {
    /// Name of the volume.
    pub name: String,
    /// Device that holds the volume's data.
    pub origin: String,
    /// Pool that is to cache the volume.
    pub pool: String,
    /// Reason of the last failed attempt.
    pub why: String,
}

/// A pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PoolReport {
    /// Name of the pool.
    pub name: String,
    /// Replacement policy.
    pub policy: String,
    /// Current rule of a policy that tunes itself.
    pub rule: PolicyReport,
    /// The unit of replacement.
    pub line_bytes: u32,
    /// Lines that have content.
    pub lines_used: u32,
    /// Lines that the pool has room for.
    pub lines: u32,
    /// Memory for validity and checksums.
    pub memory_bytes: u64,
    /// Devices of the pool.
    pub devices: Vec<PoolDeviceReport>,
    /// Counters of the pool and all its volumes, since the daemon began.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counters: NamedCounters,
}

/// A device as a part of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PoolDeviceReport {
    /// Name of the device.
    pub name: String,
    /// Failure domain of the device.
    pub controller: String,
    /// `online`, `leaving`, or `ejected (FAULT)`.
    pub state: String,
    /// Bytes of the device's lines.
    pub capacity_bytes: u64,
    /// Faults since the device was added.
    pub faults: u64,
}

/// An array.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = ArrayStatus))]
pub struct ArrayReport {
    /// Name of the array.
    pub name: String,
    /// RAID level.
    pub level: String,
    /// `healthy`, `degraded`, `rebuilding`, `resyncing`, `failed` or `inactive`.
    pub state: String,
    /// Size of the array.
    pub size_bytes: u64,
    /// Bytes on one member before the data goes on with the next.
    pub chunk_bytes: u64,
    /// Identity of the array; absent without superblocks.
    pub uuid: Option<String>,
    /// Members, by role.
    pub members: Vec<MemberStatus>,
    /// Devices that wait to replace a lost member.
    pub spares: Vec<String>,
    /// Progress of a rebuild or resync.
    pub progress: Option<ProgressReport>,
    /// The running scrub, or the last one since the array was started.
    pub scrub: Option<ScrubStatus>,
    /// Time since the last scrub of the whole array ended, if there was one.
    #[serde(default)]
    pub scrubbed_s: Option<u64>,
    /// Time until the next automatic scrub, if there is one.
    #[serde(default)]
    pub scrub_due_s: Option<u64>,
    /// Bytes with lost data, which cannot be read until they are written.
    pub lost_bytes: u64,
    /// Reason why writes are refused, if they are.
    pub down: Option<String>,
    /// Reason of the last failed start, if the array is inactive.
    #[serde(default)]
    pub inactive: Option<String>,
    /// Redundancy that one failure domain takes away.
    pub warnings: Vec<String>,
    /// The last events, the newest at the end.
    pub events: Vec<String>,
}

/// A member of an array.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberStatus {
    /// Role of the member.
    pub role: u32,
    /// Device or array in the role; absent if there is none.
    pub device: Option<String>,
    /// Failure domain of the member.
    pub controller: Option<String>,
    /// `in sync`, `filling`, `lost` or `missing`.
    pub state: String,
    /// Reads that succeeded, since the member joined.
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

/// Progress of a rebuild or resync.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgressReport {
    /// The role that is filled; nothing while copies are compared after a crash.
    pub role: Option<u32>,
    /// Percentage that is done.
    pub percent: f64,
    /// Remaining time at the rate so far.
    pub left_s: Option<f64>,
}

/// A scrub.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScrubStatus {
    /// True if the scrub is still running; else the figures are its final ones.
    pub running: bool,
    /// Places where copies, or data and parity, differed.
    pub mismatches: u64,
    /// Mismatches that were repaired.
    pub repaired: u64,
    /// Places that could not be read on one member.
    pub unreadable: u64,
    /// Reason of an early end, if there was one.
    pub error: Option<String>,
}

/// A device or an array of the configuration that nothing uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Unused {
    /// Name of the device.
    pub name: String,
    /// File, block device or NBD export behind the device; level and members of an array.
    pub place: String,
    /// Drive model of a simulated device, which is as slow.
    pub model: Option<String>,
}

/// The work of a device during the span.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeviceActivity {
    /// Name of the device.
    pub name: String,
    /// `origin`, `pool`, `log` or `member`.
    pub role: String,
    /// File, block device or NBD export behind the device.
    pub place: String,
    /// Failure domain of the device.
    pub controller: String,
    /// Size of the device.
    pub size_bytes: u64,
    /// Reads.
    pub read: Flow,
    /// Writes, zeroes and discards left out.
    pub write: Flow,
    /// Requests of any kind that failed since the device was opened.
    pub errors: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// The mean number of requests in flight.
    pub queue_mean: f64,
    /// The part of the time in which a request was in flight.
    pub busy_percent: f64,
    /// Reads since the device was opened.
    #[serde(default)]
    pub read_total: Total,
    /// Writes since the device was opened, zeroes and discards left out.
    #[serde(default)]
    pub write_total: Total,
    /// Time with a request in flight, since the device was opened.
    #[serde(default)]
    pub busy_s: f64,
    /// Wear that the device reports.
    #[serde(default)]
    pub wear: Option<WearReport>,
}

/// The wear of a device, by its own report.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WearReport {
    /// Percentage of the rated endurance; more than 100 for a device that outlasts its rating.
    pub used_percent: u8,
    /// Bytes written in the device's life.
    pub written_bytes: u64,
}

/// Requests of one kind that succeeded, since the device was opened or the volume added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Total {
    /// Number of requests.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum of the latencies.
    pub latency_s: f64,
    /// Numbers of requests by latency: at most each of [`LATENCY_BOUNDS_US`], above the bound
    /// before.
    pub latency_counts: Vec<u64>,
}

/// Bounds of latencies, in microseconds; requests that take longer are in no count.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];

/// Requests of clients during the span. Latencies are those of successes. Quantiles are
/// interpolated between [`LATENCY_BOUNDS_US`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RequestPace {
    /// Requests a second.
    pub iops: f64,
    /// 10^6 bytes a second.
    pub mb_s: f64,
    /// Mean latency; absent if there was no request.
    pub latency_us_mean: Option<f64>,
    /// Median latency.
    pub latency_us_p50: Option<f64>,
    /// 99th percentile of the latency.
    pub latency_us_p99: Option<f64>,
}

impl Total {
    /// Adds the requests of another volume or device.
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

    /// The requests after `before`.
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

    /// The latency in microseconds within which the share `part` of the requests stayed, if there
    /// were any; at most the last bound.
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

    /// The rates over `span_s` seconds.
    pub fn pace(&self, span_s: f64) -> RequestPace {
        let per_s = |amount: f64| if span_s > 0.0 { amount / span_s } else { 0.0 };
        let mean = 1e6 * self.latency_s / self.requests as f64;
        RequestPace {
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
    /// 99th percentile of the latency.
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
        // A thousand slow requests before the span do not count.
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
        // A request slower than all bounds.
        assert_eq!(total(1, 60.0, &[]).quantile(0.99), Some(10_000_000.0));
    }
}
