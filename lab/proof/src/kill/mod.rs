//! Rounds of `kill -9` of the real daemon, with every answer checked.
//!
//! Clients of a volume read and write their own parts, and compare each answer with the crash
//! laboratory's reference model. fio writes another volume with checksums. The daemon is killed at
//! a random moment and started again on the same origins and the same pool. Then all of both
//! volumes is read back.
//!
//! The kernel keeps the daemon's writes, so that acknowledged writes must be there, flushed or not.

mod client;
mod daemon;
mod rounds;

pub use rounds::{Kills, rounds};
