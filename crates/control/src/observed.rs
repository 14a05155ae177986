//! Observations of a volume by a daemon, from which advice follows. Field names are the names in
//! the JSON.

use crate::status::Total;
use policy::profile::Profile;
use policy::written::WrittenFigures;
use serde::{Deserialize, Serialize};

/// Quantiles reported of a latency.
pub const QUANTILES: usize = 200;

/// A volume and the devices behind it, since it was added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Observed {
    /// Name of the volume.
    pub volume: String,
    /// Name of its pool.
    pub pool: String,
    /// The pool's policy.
    pub policy: String,
    /// Mode of the volume.
    pub mode: String,
    /// Volumes that share the pool, this one included.
    pub volumes_in_pool: u32,
    /// Bytes of the pool's lines.
    pub pool_bytes: u64,
    /// The stream of requests of this volume.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub profile: Profile,
    /// Pattern of the clients' writes and flushes; absent if the daemon does not count them.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub written: Option<WrittenFigures>,
    /// 4 KiB blocks read that were in the pool.
    pub blocks_hit: u64,
    /// 4 KiB blocks read that were not in the pool.
    pub blocks_missed: u64,
    /// Blocks missed by reads of sequential streams, which are not promoted.
    #[serde(default)]
    pub blocks_streamed: u64,
    /// Bytes written to the pool after a miss.
    pub promoted_bytes: u64,
    /// Bytes written to the pool beside a client's write.
    pub updated_bytes: u64,
    /// Reads of the volume's clients.
    #[serde(default)]
    pub read_total: Total,
    /// Writes of the volume's clients, zeroes and discards left out.
    #[serde(default)]
    pub write_total: Total,
    /// The origin.
    pub origin: ServiceReport,
    /// The pool's devices together, for all volumes of the pool.
    pub cache: ServiceReport,
}

/// Requests that devices served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServiceReport {
    /// Reads.
    pub reads: ObservedKind,
    /// Writes.
    pub writes: ObservedKind,
    /// Flushes.
    #[serde(default)]
    pub flushes: ObservedKind,
    /// The part of the time in which a request was in flight.
    pub busy: f64,
    /// Time over which the devices were observed, on average.
    #[serde(default)]
    pub span_s: f64,
}

/// Requests of one kind that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ObservedKind {
    /// Number of requests.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// The mean latency.
    pub latency_us_mean: f64,
    /// Latencies at [`QUANTILES`] evenly spread quantiles, the middle of each
    /// step; empty if there were no requests.
    pub latency_us: Vec<f64>,
}
