//! One suite per contract, which every implementation runs.
//!
//! Each suite panics with a message that names the suite, the case and the seed; the same seed
//! repeats the same requests. The models that judge results share no code with the implementations.
//! Suites leave the bytes of the device changed.
//!
//! - [`driver`]: the raw queue pair, without an executor; [`host`]: several of them.
//! - [`device`]: any block device. [`gate`]: bytes in front of one.
//! - [`stream`]: connectors, listeners and streams. [`port`]: the requests of a device.
//!
//! A suite holds at most half of the buffer pool, as a frontend does.
//!
//! Not here: durability, which only a power cut shows (the simulator's crash runs), and speed.

mod begun;
mod bytes;
mod device;
mod driver;
mod flow;
mod gate;
mod host;
mod join;
mod linear;
mod pipes;
mod places;
mod port;
mod probe;
mod rng;
mod stream;
#[cfg(test)]
mod tests;

pub use begun::BeginningGate;
pub use device::device;
pub use driver::{DriverRig, driver, run};
pub use gate::{boundary, gate};
pub use host::host;
pub use port::{PortClients, port};
pub use stream::stream;

use std::cell::Cell;
use std::fmt;

/// Progress of a suite, for its messages.
struct SuiteCase {
    suite: &'static str,
    seed: u64,
    name: Cell<&'static str>,
}

impl SuiteCase {
    fn new(suite: &'static str, seed: u64) -> SuiteCase {
        SuiteCase {
            suite,
            seed,
            name: Cell::new("start"),
        }
    }

    fn enter(&self, name: &'static str) {
        self.name.set(name);
    }

    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        let SuiteCase { suite, seed, name } = self;
        panic!("{suite} conformance, seed {seed}, {}: {what}", name.get())
    }
}

/// Fails the case unless the condition holds.
macro_rules! check {
    ($case:expr, $condition:expr, $($message:tt)+) => {
        if !$condition {
            $case.fail(format_args!($($message)+))
        }
    };
}
use check;
