//! Devices that wrap one device, and observers of requests, one file each.
//!
//! - [`Delayed`] makes a device as slow as a model says.
//! - [`Metered`] counts, as iostat does.
//! - [`Swappable`] lets another device take its place.
//! - [`ObservedDevice`] reports requests to an observer, a [`RequestObserver`]:
//!     - [`Latencies`] counts how long they take, for less than [`Metered`].
//!     - [`Profiling`] learns the best size of a cache and the hot regions.
//!     - [`Tap`] reports them to a sink as they begin, while there is one.
//!
//! Each passes requests on exactly: the same buffers, the same order of begin, and an abandoned
//! request still carries on below.
//!
//! Not here: clocks, threads, files and random sources. Time comes from the shard's timer.

mod access;
mod delay;
mod latency;
mod profile;
mod stats;
mod swap;
mod tap;
#[cfg(test)]
mod tests;
mod watch;

pub use access::{AccessVerb, RawAccess};
pub use delay::{DelayPacer, Delayed};
pub use latency::{Latencies, VerbLatency};
pub use profile::Profiling;
pub use stats::{Metered, StatsInterval, StatsSnapshot, VerbMeter, VerbTally};
pub use swap::Swappable;
pub use tap::{Begin, Tap};
pub use watch::{Ending, ObservedDevice, RequestObserver, RequestSpan};
