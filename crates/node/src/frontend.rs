//! Frontends: access to volumes from outside, one file for each protocol.
//!
//! Invariants:
//!     a volume is served ⟹ every frontend of the node has it, and the configured one offers
//!     it; more than one only if the volume is shared
//!     every request of a volume, of each frontend, goes through its one gate

pub mod further;
pub mod nbd;

use crate::Later;
use block::{Env, Gate, IoResult, Nanos, Sectors};
use control::config::{Config, Listen};
use control::frontends::VolumeFrontends;
use control::status::Status;
use origin::DeviceIdentity;

/// The properties of a volume that a frontend shows, beside its bytes.
#[derive(Clone, Debug, Default)]
pub struct VolumeAbout {
    /// A description for people.
    pub description: String,
    /// Identity of the origin: equal for volumes with the same bytes, under any name.
    pub origin: DeviceIdentity,
    /// Refuses all writes.
    pub read_only: bool,
    /// The frontends to offer the volume by.
    pub frontends: VolumeFrontends,
    /// Most bytes in flight of each frontend of the volume's own.
    pub memory_bytes_max: usize,
    /// Logical block of the volume's disk. Smaller than the block of the volume behind the gate if
    /// a log has larger blocks: the gate merges.
    pub block: Sectors,
}

/// Offers devices of type `D` to clients.
pub trait Frontend<D> {
    /// Takes the volume behind `gate` under `name`, and offers it if `about` names this frontend.
    fn add(&self, name: &str, gate: Gate<D>, about: &VolumeAbout) -> IoResult;

    /// Changes the offer of the volume to `about`: a frontend missing there is closed, as by
    /// [`Frontend::withdraw`]; a new one is open at the end; others are left alone.
    ///
    /// After an error, the volume is offered as before or not at all.
    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a Gate<D>,
        about: &'a VolumeAbout,
        grace: Nanos,
    ) -> Later<'a, IoResult>;

    /// Withdraws the volume. Requests in flight are finished; clients still connected after `grace`
    /// are cut off.
    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult>;

    /// Withdraws all volumes as [`Frontend::withdraw`] does, for ever.
    fn shut_down(&self, grace: Nanos) -> Later<'_, ()>;

    /// Listens at the place in `listen`, if that serves all volumes of this frontend.
    fn open(&self, _listen: &Listen) -> IoResult {
        Ok(())
    }

    /// Stops listening at `place`; open connections stay.
    fn close(&self, _place: &str) {}

    /// Shows new clients the present certificates of `listen`. Returns true if these have changed.
    fn renew(&self, _listen: &Listen) -> IoResult<bool> {
        Ok(false)
    }

    /// Addresses of the volume `name` for clients; none if it is not offered here.
    fn addresses(&self, _name: &str) -> Vec<String> {
        Vec::new()
    }

    /// Fills in this frontend's part of a report.
    fn stats(&self, status: &mut Status);
}

/// Most bytes in flight of NBD requests: half of the pool, or a quarter if there are other
/// frontends.
pub fn nbd_memory(config: &Config, env: &Env) -> usize {
    env.pool.total_bytes() / 2 / if config.own_frontends() > 0 { 2 } else { 1 }
}

/// Most bytes in flight of each other frontend, which together have another quarter. A frontend
/// opened later gets the same share as at a start, beyond the pool if needed.
pub(crate) fn frontend_memory(config: &Config, env: &Env) -> usize {
    env.pool.total_bytes() / 4 / config.own_frontends().max(1)
}
