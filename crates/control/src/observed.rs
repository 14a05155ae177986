//! What a daemon has observed of a volume, from which advice follows. Field
//! names are the names in the JSON.

use crate::status::Total;
use policy::profile::Profile;
use policy::written::Written;
use serde::{Deserialize, Serialize};

/// Quantiles reported of a latency.
pub const QUANTILES: usize = 200;

/// A volume and the devices behind it, since it was added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Observed {
    /// The volume.
    pub volume: String,
    /// Its pool.
    pub pool: String,
    /// The pool's policy.
    pub policy: String,
    /// How the volume uses the pool.
    pub mode: String,
    /// Volumes that share the pool, this one included.
    pub volumes_in_pool: u32,
    /// Bytes of the pool's lines.
    pub pool_bytes: u64,
    /// The stream of requests of this volume.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub profile: Profile,
    /// How its clients write and flush; nothing of a daemon that does not count it.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub written: Option<Written>,
    /// 4 KiB blocks read that were in the pool.
    pub blocks_hit: u64,
    /// Those that were not.
    pub blocks_missed: u64,
    /// Of these, those that sequential streams read, which are not promoted.
    #[serde(default)]
    pub blocks_streamed: u64,
    /// Bytes written to the pool after a miss.
    pub promoted_bytes: u64,
    /// Bytes written to the pool beside a client's write.
    pub updated_bytes: u64,
    /// Reads of the volume's clients.
    #[serde(default)]
    pub read_total: Total,
    /// Their writes, zeroes and discards left out.
    #[serde(default)]
    pub write_total: Total,
    /// The origin.
    pub origin: Service,
    /// The pool's devices together; those of no volume alone.
    pub cache: Service,
}

/// What devices served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Service {
    /// Reads.
    pub reads: Kind,
    /// Writes.
    pub writes: Kind,
    /// Flushes.
    #[serde(default)]
    pub flushes: Kind,
    /// The part of the time in which a request was in flight.
    pub busy: f64,
    /// For how long they were observed, on average.
    #[serde(default)]
    pub span_s: f64,
}

/// Requests of one kind that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Kind {
    /// How many.
    pub requests: u64,
    /// What they moved.
    pub bytes: u64,
    /// The mean latency.
    pub latency_us_mean: f64,
    /// Latencies at [`QUANTILES`] evenly spread quantiles, the middle of each
    /// step; empty if there were no requests.
    pub latency_us: Vec<f64>,
}
