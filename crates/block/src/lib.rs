//! The seam that every layer of hotset is built on.
//!
//! Below it are drivers that perform operations (`uring` on real files and
//! sockets, `sim` in virtual time); above it are layers written as ordinary
//! `async fn` that never learn which driver runs them.
//!
//! Not here, on purpose: any implementation of a driver or a device, any
//! thread, clock, file or random source. This crate depends on nothing.

mod error;
mod units;

pub use error::{IoError, IoResult, Kind};
pub use units::{Extent, Fua, Lba, Nanos, SECTOR_BYTES, Sectors};
