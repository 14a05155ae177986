//! Service-time models: the time at which a device would complete each request.
//!
//! A model owns its queue and decides the order of service. It is a pure
//! function of its parameters and of the calls made to it: the same calls give
//! the same times on every machine, because times are computed with `f64`
//! addition, multiplication, division and square root only, which IEEE 754
//! rounds exactly.
//!
//! Models nest: a [`ModelledLink`] or a [`Controller`] stands in front of other models.
//! [`DrivePacer`] runs a model against real time.
//!
//! Not here, on purpose: data, errors and power cuts (the simulated world has
//! them), clocks, threads and random sources (time and phase are arguments).

mod agenda;
pub mod catalogue;
mod controller;
mod hdd;
mod link;
pub mod measure;
mod pacer;
mod parameter;
mod ssd;
#[cfg(test)]
mod tests;

pub use controller::{Controller, ControllerParameters};
pub use hdd::{Hdd, HddFirmware, HddParameters, SeekCurve, Surface};
pub use link::{LinkParameters, ModelledLink};
pub use pacer::DrivePacer;
pub use parameter::{Basis, Figure};
pub use ssd::{SsdModel, SsdParameters, SsdWear};

use block::{Extent, Fua, Nanos};

/// The operation of a request.
///
/// Writing zeroes costs the same as [`DriveOp::Write`] of the same extent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DriveOp {
    /// Move the extent from the device.
    Read,
    /// Move the extent to the device.
    Write,
    /// Make acknowledged writes durable; the extent is ignored.
    Flush,
    /// Forget the extent: command time only.
    Discard,
}

/// A request to a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveRequest {
    /// Chosen by the caller; unique among the requests in flight in one model.
    pub id: u64,
    /// The unit behind a controller or a link; ignored by a single drive.
    pub unit: u32,
    /// The operation.
    pub op: DriveOp,
    /// The sectors of the request; they must lie inside the unit.
    pub extent: Extent,
    /// True of a write that must be on the medium when it completes.
    pub fua: Fua,
}

impl DriveRequest {
    /// Stops a request that the layers above should have refused.
    fn assert_inside(&self, sectors: u64) {
        let moves = matches!(self.op, DriveOp::Read | DriveOp::Write);
        assert!(!moves || !self.extent.is_empty(), "{self:?} moves nothing");
        let inside = self.extent.end().0 <= sectors;
        assert!(
            inside || self.op == DriveOp::Flush,
            "{self:?} past {sectors} sectors"
        );
    }
}

/// A request that has completed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Completed {
    /// Time of completion; never later than the `now` of the call that reported it.
    pub at: Nanos,
    /// The id its [`DriveRequest`] had.
    pub id: u64,
}

/// A device seen as a queue with service times.
///
/// Time never goes back from one call to the next. A caller that lets time pass
/// calls [`advance`](Model::advance) at every [`next_event`](Model::next_event)
/// on the way, so that each decision is made at its own instant. Every request
/// completes exactly once, and not before it arrived.
pub trait DriveModel {
    /// Takes a request. No event may be due before `now`.
    fn arrive(&mut self, now: Nanos, request: DriveRequest);

    /// Time of the next completion or decision; `None` when idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Handles the events due up to `now` and appends the completed requests, in order of time.
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>);
}

impl<M: DriveModel + ?Sized> DriveModel for Box<M> {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        (**self).arrive(now, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        (**self).next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        (**self).advance(now, done);
    }
}

/// Nanoseconds as the models compute with them.
fn float(at: Nanos) -> f64 {
    at.0 as f64
}

/// The nearest whole nanosecond of a time that is not negative.
fn nanos(ns: f64) -> Nanos {
    Nanos((ns + 0.5) as u64)
}

/// The time of `bytes` at a rate in MB/s, which is bytes a microsecond.
fn transfer(bytes: u64, mb_s: f64) -> Nanos {
    nanos(bytes as f64 * 1e3 / mb_s)
}
