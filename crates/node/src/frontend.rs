//! By what volumes are reached from outside: one file a protocol.
//!
//! Invariant: a volume is served ⟹ every frontend of the node offers it.

pub mod nbd;

use crate::Later;
use block::{IoResult, Nanos};
use control::status::Status;

/// What a frontend shows of a volume beside its bytes.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// A line for people.
    pub description: String,
    /// Refuse everything that writes.
    pub read_only: bool,
}

/// Offers devices of type `D` to clients.
pub trait Frontend<D> {
    /// Offers `device` under `name`.
    fn add(&self, name: &str, device: D, about: &About) -> IoResult;

    /// Offers it no longer. Requests in flight are finished; clients that have not gone
    /// within `grace` are cut off.
    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult>;

    /// As [`Frontend::withdraw`], of everything, for ever.
    fn shut_down(&self, grace: Nanos) -> Later<'_, ()>;

    /// Fills in its part of a report.
    fn stats(&self, status: &mut Status);
}
