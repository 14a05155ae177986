//! Serves the requests of a port from a device: one task a tag, through a `Gate`.
//!
//! Invariants:
//!     a write is taken before it is answered, refused ones too
//!     bytes of requests in hand <= the limit; a tag that waits holds none
//!     a server that stops answers what it has begun, and begins nothing: what else its
//!     tags hold waits for the next server
//!
//! Not here: how a port comes to be (`ublk`, `uring`).

mod server;

pub use server::{Options, Server, Stats};
