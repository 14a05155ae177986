//! The choice of the leg that serves a read.
//!
//! A read that continues a leg's last one stays on that leg: its head is there, and its read-ahead.
//! A stream that asks for more at once than one leg should have in flight leaves the leg. Its runs
//! on each leg are so long that a disk gains by skipping the reads of the other one. Other reads go
//! to the leg with the shorter queue; with equal queues, on rotating members, to the leg with the
//! nearest head. A leg that takes [`SLOW`] times as long as the quickest is spared. A probe now and
//! then notices its recovery.

use crate::levels::Leg;
use crate::member::ArrayMember;
use block::{Device, Nanos};
use std::rc::Rc;

#[cfg(test)]
mod tests;

/// Factor by which a leg may be slower than the quickest.
const SLOW: u64 = 4;
/// Differences of less than this do not count.
const SLOW_MIN: Nanos = Nanos::from_millis(2);
/// Of this many reads, one goes to a slow leg.
const PROBE: u64 = 64;
/// A stream stays on its leg while that has at most so many requests more than another in flight.
const STREAM_LEAD: u32 = 8;
/// The same in bytes, of rotating members. A stream that passes back and forth makes runs of twice
/// this: of several turns of one disk, or of a turn or so of each of seven behind a leg.
const STREAM_LEAD_BYTES: u64 = 4 << 20;

/// Returns the index of the leg that should serve read number `turn`.
pub(crate) fn choose(legs: &[(Leg, Rc<ArrayMember>)], turn: u64) -> Option<usize> {
    if legs.len() < 2 {
        return (!legs.is_empty()).then_some(0);
    }
    let times = legs.iter().map(|(_, member)| member.read_time.get());
    let quickest = times.min().unwrap_or_default();
    let is_slow = |member: &ArrayMember| {
        let time = member.read_time.get();
        time > SLOW_MIN && time.0 > quickest.0 * SLOW
    };
    let probing = turn.is_multiple_of(PROBE);
    let shortest = legs.iter().map(|(_, m)| m.in_flight.get()).min()?;
    let fit = |member: &ArrayMember| probing || !is_slow(member);
    let least = legs.iter().map(|(_, m)| m.reading_bytes.get()).min()?;
    let leads = |member: &ArrayMember| match member.device.geometry().rotational {
        true => member.reading_bytes.get() > least + STREAM_LEAD_BYTES,
        false => member.in_flight.get() > shortest + STREAM_LEAD,
    };
    let goes_on = |leg: &Leg, member: &ArrayMember| member.head.get() == leg.at && leg.at.0 > 0;
    let streaming = legs
        .iter()
        .position(|(leg, member)| goes_on(leg, member) && fit(member) && !leads(member));
    if streaming.is_some() {
        return streaming;
    }
    let first = (turn % legs.len() as u64) as usize;
    let cost = |index: usize| {
        let (leg, member) = &legs[index];
        let way = match member.device.geometry().rotational {
            true => leg.at.0.abs_diff(member.head.get().0),
            false => 0,
        };
        let spared = is_slow(member) != (probing && is_slow(member));
        (spared, member.in_flight.get(), way)
    };
    // With all alike the legs take turns.
    (0..legs.len())
        .map(|i| (first + i) % legs.len())
        .min_by_key(|index| cost(*index))
}
