//! The Network Block Device protocol.
//!
//! [`protocol`] turns bytes into events and events into bytes and does no I/O.
//!
//! What is spoken, the limits and the errors are in `docs/nbd.md`.

pub mod protocol;
