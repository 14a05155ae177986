//! The suites accept sound implementations in memory, and each flaw planted in
//! one is caught.

mod clock;
mod device;
mod driver;
mod gate;
mod memory;
mod port;
mod queue;
mod sockets;
mod stream;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Passes if `run` panics with a message that contains `expected`.
fn caught(expected: &str, run: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the suite accepts the flaw");
    let message = panic.downcast::<String>().expect("a formatted message");
    assert!(
        message.contains(expected) && message.contains("seed"),
        "the suite says {message:?}, not {expected:?}"
    );
}
