//! Devices that wrap one device, one file each.
//!
//! - [`Checked`] asserts the device contract on both sides of a boundary.
//! - [`Delayed`] makes a device as slow as a model says.
//! - [`Faulty`] injects errors, latency and corruption while it runs.
//! - [`Metered`] counts, as iostat does.
//! - [`Timed`] counts how long requests take, for less.
//! - [`Profiled`] learns how large a cache should be and what is hot.
//! - [`Swappable`] lets another device take its place.
//! - [`Traced`] reports each request to a sink.
//! - [`Tapped`] reports requests to a sink as they begin, while there is one.
//!
//! Each is exact about what passes: the same buffers, the same order of begin,
//! and an abandoned request still carries on below.
//!
//! Not here: clocks, threads, files and random sources. Time comes from the
//! shard's timer, seeds from the caller.

mod access;
mod checked;
mod delay;
mod faults;
mod latency;
mod observe;
mod profile;
mod stats;
mod swap;
mod tap;
mod trace;
mod watch;

pub use access::{Access, Verb};
pub use checked::Checked;
pub use delay::{Delayed, Pacer};
pub use faults::{Control, Effect, Faulty, Rule, RuleId};
pub use latency::{Latencies, Latency, Timed};
pub use observe::{Observe, Observed};
pub use profile::{Profiled, Profiling};
pub use stats::{Interval, Meter, Metered, Snapshot, Tally};
pub use swap::Swappable;
pub use tap::{Begin, Tap, Tapped};
pub use trace::{Last, Record, Sink, Traced, Tracer};
pub use watch::{Ending, Watch, Watched};
