//! Rounds of `kill -9` of the real daemon, with every answer checked.
//!
//! Clients of a volume read and write it, each its own part, and ask the crash
//! laboratory's reference model about each answer; fio writes another with
//! checksums. The daemon is killed at a random moment and started again on the
//! same origins and the same pool; then all of both volumes is read back.
//!
//! The kernel keeps what the daemon had written, so that what was acknowledged
//! must be there, flushed or not.

mod client;
pub(crate) mod daemon;
mod rounds;

pub use rounds::{Kills, rounds};
