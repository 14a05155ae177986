//! The constants of a drive, and their consequences for a request.

use super::seek::SeekCurve;
use super::surface::Surface;
use crate::{DriveOp, DriveRequest, float};
use block::Nanos;

/// The constants of a drive; nanoseconds and bytes a nanosecond.
#[derive(Debug)]
pub(super) struct HddShape {
    pub(super) sectors: u64,
    pub(super) seek: SeekCurve,
    pub(super) surface: Surface,
    pub(super) turn_ns: f64,
    pub(super) turns_per_ns: f64,
    pub(super) phase: f64,
    pub(super) bus_rate: f64,
    pub(super) firmware: FirmwareShape,
}

/// The constants of a drive's firmware.
#[derive(Debug)]
pub(super) struct FirmwareShape {
    pub(super) command_ns: f64,
    pub(super) read_ahead_sectors: u64,
    pub(super) look_behind_sectors: u64,
    pub(super) queue_depth: usize,
    pub(super) age_weight: f64,
    pub(super) guard_ns: f64,
}

/// A request in the queue, with the numbers of its service computed once.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedRequest {
    pub(super) id: u64,
    pub(super) op: DriveOp,
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) arrived: f64,
    /// Time at which the command is decoded.
    pub(super) ready: f64,
    pub(super) first_cylinder: f64,
    pub(super) end_cylinder: f64,
    /// The angle of its first sector against the spindle at time zero, in turns.
    pub(super) angle: f64,
    pub(super) transfer_ns: f64,
}

/// Time at which a sector comes under the head.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadReach {
    pub(super) at: f64,
    /// Time added to `at` in choosing, since the drive may miss the sector.
    pub(super) risk: f64,
}

impl HddShape {
    /// Seeks to `cylinder` from `start` on and waits for `angle` to come round.
    #[inline(always)]
    pub(super) fn reach(&self, head: f64, cylinder: f64, angle: f64, start: f64) -> HeadReach {
        let distance = (cylinder - head).abs();
        let seeks = distance >= self.surface.track();
        let seek = self.seek.time(distance);
        let there = start + if seeks { seek } else { 0.0 };
        let wait = self.turn_ns * ahead(angle - there * self.turns_per_ns);
        let risky = seeks & (wait < self.firmware.guard_ns);
        HeadReach {
            at: there + wait,
            risk: if risky { self.turn_ns } else { 0.0 },
        }
    }

    pub(super) fn waiting(&self, now: Nanos, request: DriveRequest) -> QueuedRequest {
        let (first, end) = (request.extent.start.0, request.extent.end().0);
        let arrived = float(now);
        let first_cylinder = self.surface.cylinder(first);
        let end_cylinder = self.surface.cylinder(end);
        QueuedRequest {
            id: request.id,
            op: request.op,
            first,
            end,
            arrived,
            ready: arrived + self.firmware.command_ns,
            first_cylinder,
            end_cylinder,
            angle: fraction(self.surface.turns(first_cylinder) - self.phase),
            transfer_ns: self.surface.stream_ns(first_cylinder, end_cylinder),
        }
    }
}

/// The distance ahead of a difference of angles, in `0..1` turns.
///
/// A difference that only rounding makes negative is no turn at all, so that
/// queued writes that continue one another stream.
#[inline(always)]
pub(super) fn ahead(turns: f64) -> f64 {
    const ROUNDING: f64 = 1e-6;
    let fraction = fraction(turns);
    if fraction > 1.0 - ROUNDING {
        0.0
    } else {
        fraction
    }
}

/// `turns` less its whole turns, in `0..1`.
#[inline(always)]
pub(super) fn fraction(turns: f64) -> f64 {
    // Adding and subtracting 1.5 * 2^52 rounds to a whole number, in two
    // instructions that work on vectors; `floor` would be a call.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let rest = turns - ((turns + ROUND) - ROUND);
    if rest < 0.0 { rest + 1.0 } else { rest }
}
