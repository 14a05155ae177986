//! By what volumes are reached from outside: one file a protocol.
//!
//! Invariants:
//!     a volume is served ⟹ every frontend of the node has it, and one of them offers it: that
//!     which the configuration names; more than one only if the volume is shared
//!     every request of a volume, by whichever frontend, goes through its one gate

pub mod nbd;

use crate::Later;
use block::{Env, Gate, IoResult, Nanos, Sectors};
use control::config::{Config, Listen};
use control::doors::Doors;
use control::status::Status;
use origin::Identity;

/// What a frontend shows of a volume beside its bytes.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// A line for people.
    pub description: String,
    /// Its origin: volumes with the same bytes have the same, whatever they are called.
    pub origin: Identity,
    /// Refuse everything that writes.
    pub read_only: bool,
    /// By what it is to be reached.
    pub doors: Doors,
    /// Bytes of requests that each door of its own may have in hand.
    pub memory_bytes_max: usize,
    /// The logical block of its disk. Less than that of the volume behind the gate, which
    /// merges, if a log has larger ones.
    pub block: Sectors,
}

/// Offers devices of type `D` to clients.
pub trait Frontend<D> {
    /// Takes the volume behind `gate` under `name`, and offers it if it is to.
    fn add(&self, name: &str, gate: Gate<D>, about: &About) -> IoResult;

    /// Offers it from now on as `about` says: a door that is not in there is closed, as by
    /// [`Frontend::withdraw`], one that is new is open in the end, and others are left alone.
    ///
    /// After an error, it is offered as it was or not at all.
    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a Gate<D>,
        about: &'a About,
        grace: Nanos,
    ) -> Later<'a, IoResult>;

    /// Offers it no longer. Requests in flight are finished; clients that have not gone
    /// within `grace` are cut off.
    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult>;

    /// As [`Frontend::withdraw`], of everything, for ever.
    fn shut_down(&self, grace: Nanos) -> Later<'_, ()>;

    /// Listens where `listen` says, if all volumes of this frontend are reached by it.
    fn open(&self, _listen: &Listen) -> IoResult {
        Ok(())
    }

    /// Listens at `place` no longer; those who came by it stay.
    fn close(&self, _place: &str) {}

    /// Shows those who come from now on what `listen` says, and its files have; whether that is
    /// something else than before.
    fn renew(&self, _listen: &Listen) -> IoResult<bool> {
        Ok(false)
    }

    /// Where clients reach the volume `name`; nothing if it is not offered here.
    fn addresses(&self, _name: &str) -> Vec<String> {
        Vec::new()
    }

    /// Fills in its part of a report.
    fn stats(&self, status: &mut Status);
}

/// The bytes that requests over NBD may hold: half of the pool, or of that a half if there
/// are other doors.
pub fn nbd_memory(config: &Config, env: &Env) -> usize {
    env.pool.total_bytes() / 2 / if config.own_doors() > 0 { 2 } else { 1 }
}

/// The bytes that those by each other door may hold, which share the other half of the half. What
/// is opened later has the same as if it were there at the start, beyond the pool if need be.
pub(crate) fn door_memory(config: &Config, env: &Env) -> usize {
    env.pool.total_bytes() / 4 / config.own_doors().max(1)
}
