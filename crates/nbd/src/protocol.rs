//! The protocol as pure functions and state machines: bytes in, bytes out.
//!
//! Section names quoted below this module are those of `doc/proto.md` of the
//! NetworkBlockDevice project, which defines the protocol.
//!
//! Invariants:
//!   - nothing here reads, writes, waits, or knows the time;
//!   - memory held for a peer is bounded by constants, never by a length the
//!     peer claims: anything beyond a limit is skipped as it arrives;
//!   - bytes may arrive split anywhere; the answer does not depend on where.
//!
//! Not here, on purpose: oldstyle negotiation, extended headers and resize. The
//! intended peers do not need them.

pub mod client_handshake;
pub mod coverage;
pub mod errno;
pub mod export;
pub mod gather;
pub mod printable;
pub mod replies;
pub mod reply;
pub mod request;
pub mod server_handshake;
pub mod session;
pub mod wire;
