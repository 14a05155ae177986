//! The common part of disk and stream operations.
//!
//! Each is a state that makes the next request to the kernel (`entry`) and takes
//! the answer (`advance`), until it has ended.

use block::IoResult;

/// The next step after an answer of the kernel.
pub(crate) enum OpStep {
    /// Ask again; the operation's next entry continues where this one ended.
    Again,
    /// The operation has ended.
    Done(IoResult<u64>),
}
