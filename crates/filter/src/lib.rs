//! Devices that wrap one device, one file each.
//!
//! - [`Delayed`] makes a device as slow as a model says.
//! - [`Metered`] counts, as iostat does.
//! - [`Timed`] counts how long requests take, for less.
//! - [`Profiled`] learns how large a cache should be and what is hot.
//! - [`Swappable`] lets another device take its place.
//! - [`Tapped`] reports requests to a sink as they begin, while there is one.
//!
//! Each is exact about what passes: the same buffers, the same order of begin,
//! and an abandoned request still carries on below.
//!
//! Not here: clocks, threads, files and random sources. Time comes from the
//! shard's timer.

mod access;
mod delay;
mod latency;
mod observe;
mod profile;
mod stats;
mod swap;
mod tap;
mod watch;

pub use access::{Access, Verb};
pub use delay::{Delayed, Pacer};
pub use latency::{Latencies, Latency, Timed};
pub use observe::{Observe, Observed};
pub use profile::{Profiled, Profiling};
pub use stats::{Interval, Meter, Metered, Snapshot, Tally};
pub use swap::Swappable;
pub use tap::{Begin, Tap, Tapped};
pub use watch::{Ending, Watch, Watched};
