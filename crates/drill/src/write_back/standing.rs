//! The state of the volumes of a drill, from a status.

use super::{DrivePart, Volumes};
use crate::play::Counts;
use cache::Counter;
use control::status::Status;

/// State of all volumes.
pub(super) struct VolumesStanding {
    /// True if both devices of each log and all devices of the pools take part.
    pub(super) whole: bool,
    /// True if some log runs without a device.
    pub(super) lost: bool,
    /// Dirty bytes.
    pub(super) dirty: u64,
    /// Age of the oldest dirty byte, in seconds.
    pub(super) lag_s: f64,
    /// Blocks that clients' reads did not find in a pool.
    pub(super) missed: u64,
    /// Requests of the drives so far.
    pub(super) counts: Counts,
}

impl VolumesStanding {
    pub(super) fn of(volumes: &Volumes, status: &Status) -> VolumesStanding {
        let served = status.volumes.len() == volumes.volumes.len();
        let logs = || status.volumes.iter().filter_map(|v| v.write_back.as_ref());
        let copies = || logs().map(|log| log.copies);
        let pools = status.pools.iter().flat_map(|pool| &pool.devices);
        let online = pools.filter(|device| device.state == "online").count();
        let here = online == volumes.drives_of(DrivePart::Pool).len();
        let missed = |v: &control::status::VolumeReport| v.counters.value(Counter::BlocksMissed);
        let counts = status.devices.iter().map(|device| {
            let name = format!("{} ({})", device.name, device.role);
            let (read, write) = (device.read_total.requests, device.write_total.requests);
            (name, read, write)
        });
        VolumesStanding {
            whole: served && here && copies().all(|copies| copies == 2),
            lost: copies().any(|copies| copies < 2),
            dirty: logs().map(|log| log.dirty_bytes).sum(),
            lag_s: logs().map(|log| log.lag_s).fold(0.0, f64::max),
            missed: status.volumes.iter().map(missed).sum(),
            counts: counts.collect(),
        }
    }
}
