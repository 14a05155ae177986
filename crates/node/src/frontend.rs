//! By what volumes are reached from outside: one file a protocol.
//!
//! Invariants:
//!     a volume is served ⟹ every frontend of the node has it, and one of them offers it: that
//!     which the configuration names; more than one only if the volume is shared
//!     every request of a volume, by whichever frontend, goes through its one gate

pub mod nbd;

use crate::Later;
use block::{Env, Gate, IoResult, Nanos};
use control::config::{Config, Listen};
use control::status::Status;

/// What a frontend shows of a volume beside its bytes.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// A line for people.
    pub description: String,
    /// Refuse everything that writes.
    pub read_only: bool,
    /// Offer it though it has another door.
    pub shared: bool,
}

/// Offers devices of type `D` to clients.
pub trait Frontend<D> {
    /// Takes the volume behind `gate` under `name`, and offers it if it is to.
    fn add(&self, name: &str, gate: Gate<D>, about: &About) -> IoResult;

    /// Offers it no longer. Requests in flight are finished; clients that have not gone
    /// within `grace` are cut off.
    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult>;

    /// As [`Frontend::withdraw`], of everything, for ever.
    fn shut_down(&self, grace: Nanos) -> Later<'_, ()>;

    /// Listens where `listen` says, if that is for this frontend.
    fn open(&self, _listen: &Listen) -> IoResult {
        Ok(())
    }

    /// Listens at `place` no longer; those who came by it stay.
    fn close(&self, _place: &str) {}

    /// Shows those who come from now on what `listen` says.
    fn renew(&self, _listen: &Listen) -> IoResult {
        Ok(())
    }

    /// Fills in its part of a report.
    fn stats(&self, status: &mut Status);
}

/// The bytes that one kind of frontend may hold: half of the pool is for all of them.
pub fn frontend_memory(config: &Config, env: &Env) -> usize {
    let others = [
        !config.attachments.is_empty(),
        config.guests().next().is_some(),
    ];
    let kinds = 1 + others.into_iter().filter(|is_used| *is_used).count();
    env.pool.total_bytes() / 2 / kinds
}
