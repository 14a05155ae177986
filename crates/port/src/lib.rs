//! Serves the requests of a port from a device: through a `Boundary`.
//!
//! Invariants:
//!     a write's data is taken before the answer, of refused writes too
//!     bytes of requests in hand <= the limit; a tag that waits holds none
//!     a server that stops answers its begun requests, and begins none: other requests of its
//!     tags wait for the next server
//!
//! Not here: how a port comes to be (`ublk`, `uring`).

mod server;

pub use server::{Options, PortServer, PortStats};
