//! A report of the daemon, and the part for a live view.

use cache::Counter;
use control::status::Status;
use std::sync::OnceLock;
use std::time::Instant;

/// Counters that a live view shows.
const LIVE: [Counter; 5] = [
    Counter::BlocksHit,
    Counter::BlocksMissed,
    Counter::ReadsHit,
    Counter::ReadsMissed,
    Counter::Writes,
];

/// A report.
pub struct DaemonReport {
    /// The status that the daemon reported.
    pub status: Status,
    /// The time of its arrival.
    pub at: Instant,
    live: OnceLock<String>,
}

impl DaemonReport {
    /// The report of `status`.
    pub fn new(status: Status) -> DaemonReport {
        let live = OnceLock::new();
        let at = Instant::now();
        DaemonReport { status, at, live }
    }

    /// The part for a live view, as JSON; made at the first call.
    pub fn live(&self) -> &str {
        self.live.get_or_init(|| live(&self.status))
    }
}

fn live(status: &Status) -> String {
    let mut live = status.clone();
    for volume in &mut live.volumes {
        volume.read_total = Default::default();
        volume.write_total = Default::default();
    }
    let volumes = live.volumes.iter_mut().map(|volume| &mut volume.counters);
    let pools = live.pools.iter_mut().map(|pool| &mut pool.counters);
    for counters in volumes.chain(pools) {
        *counters = counters.only(&LIVE);
    }
    for device in &mut live.devices {
        device.read_total = Default::default();
        device.write_total = Default::default();
    }
    serde_json::to_string(&live).expect("plain data")
}
