//! What disk and stream operations have in common.
//!
//! Each is a state that says what to ask of the kernel next (`entry`) and takes
//! the answer (`advance`), until it has ended.

use block::IoResult;

/// What to do after an answer of the kernel.
pub(crate) enum Step {
    /// Ask again; the operation's next entry goes on where this one ended.
    Again,
    /// The operation has ended.
    Done(IoResult<u64>),
}
