//! The Network Block Device protocol: a server of any [`block::Device`] and a
//! client that is one.
//!
//! [`protocol`] turns bytes into events and events into bytes and does no I/O;
//! [`serve`] and [`client`] run it over any [`block::Stream`], with TLS where
//! asked for.
//!
//! Commands, limits and errors: `docs/nbd.md`.

pub mod client;
mod inbox;
mod outbox;
pub mod protocol;
pub mod serve;
pub mod tls;
mod until_stopped;
