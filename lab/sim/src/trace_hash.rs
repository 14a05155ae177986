//! The events of a world, as one number, and as text for a seed that failed.
//!
//! Invariants:
//!     every event enters the hash, with its time, in order
//!     the hash depends on no address, no map order and no width of `usize`
//!
//! Of the bytes moved, only the first and the last eight of each write and
//! send enter the hash: enough to notice a program that is not deterministic.

use crate::verb::SimVerb;
use block::{IoErrorKind, Nanos, ShardId, TargetId};
use std::collections::VecDeque;
use std::fmt;

/// An event of the world. Operations are named by their number in order of submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub enum TraceEvent {
    /// The shard runs.
    Turn { shard: ShardId },
    /// An operation begins: sectors for a disk, bytes for a stream.
    Submit {
        op: u64,
        shard: ShardId,
        target: TargetId,
        verb: SimVerb,
        start: u64,
        len: u64,
    },
    /// The bytes that an operation carries: their ends, mixed.
    Data { op: u64, ends: u64 },
    /// An operation ends well.
    Complete { op: u64, value: u64 },
    /// An operation fails.
    Fail { op: u64, kind: IoErrorKind },
    /// A fault strikes: its class, its target, and its place there.
    Fault {
        class: crate::fault::FaultClass,
        target: TargetId,
        place: u64,
    },
    /// A domain loses its power.
    PowerCut { domain: u32 },
    /// The power of a domain is back.
    PowerOn { domain: u32 },
    /// A disk is unplugged.
    Gone { target: TargetId },
    /// A disk is plugged in again.
    Back { target: TargetId },
    /// Bytes reach the receiving end of a stream.
    Arrive { stream: TargetId, bytes: u64 },
    /// A stream or listener is closed by its holder.
    Close { target: TargetId },
    /// Shards boot.
    Boot { shards: u32 },
}

impl TraceEvent {
    fn words(self) -> [u64; 5] {
        let id = |t: TargetId| u64::from(t.0);
        match self {
            TraceEvent::Turn { shard } => [1, u64::from(shard.0), 0, 0, 0],
            TraceEvent::Submit {
                op,
                shard,
                target,
                verb,
                start,
                len,
            } => {
                let head = 2 | (verb as u64) << 8 | u64::from(shard.0) << 16;
                [head, op, id(target), start, len]
            }
            TraceEvent::Data { op, ends } => [3, op, ends, 0, 0],
            TraceEvent::Complete { op, value } => [4, op, value, 0, 0],
            TraceEvent::Fail { op, kind } => [5, op, kind_number(kind), 0, 0],
            TraceEvent::Fault {
                class,
                target,
                place,
            } => [6, class as u64, id(target), place, 0],
            TraceEvent::PowerCut { domain } => [7, u64::from(domain), 0, 0, 0],
            TraceEvent::PowerOn { domain } => [8, u64::from(domain), 0, 0, 0],
            TraceEvent::Gone { target } => [9, id(target), 0, 0, 0],
            TraceEvent::Back { target } => [10, id(target), 0, 0, 0],
            TraceEvent::Arrive { stream, bytes } => [11, id(stream), bytes, 0, 0],
            TraceEvent::Close { target } => [12, id(target), 0, 0, 0],
            TraceEvent::Boot { shards } => [13, u64::from(shards), 0, 0, 0],
        }
    }
}

/// Numbered here, so that a kind added in the middle changes no hash.
fn kind_number(kind: IoErrorKind) -> u64 {
    match kind {
        IoErrorKind::Invalid => 1,
        IoErrorKind::Media => 2,
        IoErrorKind::Corrupt => 3,
        IoErrorKind::Gone => 4,
        IoErrorKind::Timeout => 5,
        IoErrorKind::NoSpace => 6,
        IoErrorKind::ReadOnly => 7,
        IoErrorKind::Denied => 8,
        IoErrorKind::Busy => 9,
        IoErrorKind::Unsupported => 10,
        IoErrorKind::Stream => 11,
        IoErrorKind::Reserved => 12,
        _ => 0,
    }
}

/// The record of a world's events.
pub(crate) struct WorldTrace {
    hash: u64,
    events: u64,
    log: VecDeque<(Nanos, TraceEvent)>,
    log_max: usize,
}

impl WorldTrace {
    pub fn new() -> WorldTrace {
        WorldTrace {
            hash: 0,
            events: 0,
            log: VecDeque::new(),
            log_max: 0,
        }
    }

    #[inline]
    pub fn record(&mut self, now: Nanos, event: TraceEvent) {
        self.events += 1;
        let words = event.words();
        let mut hash = fold(self.hash ^ now.0, words[0] ^ MIX[0]);
        hash = fold(hash ^ words[1], words[2] ^ MIX[1]);
        self.hash = fold(hash ^ words[3], words[4] ^ MIX[2]);
        if self.log_max > 0 {
            self.keep(now, event);
        }
    }

    #[cold]
    fn keep(&mut self, now: Nanos, event: TraceEvent) {
        if self.log.len() == self.log_max {
            self.log.pop_front();
        }
        self.log.push_back((now, event));
    }

    pub fn keep_last(&mut self, events: usize) {
        self.log_max = events;
        self.log.truncate(events);
    }

    pub fn hash(&self) -> u64 {
        fold(self.hash ^ self.events, MIX[0])
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    pub fn log(&self) -> TraceLog<'_> {
        TraceLog(&self.log)
    }
}

/// The last events of a world, one a line when printed.
pub struct TraceLog<'a>(&'a VecDeque<(Nanos, TraceEvent)>);

impl TraceLog<'_> {
    /// The events kept, oldest first.
    pub fn events(&self) -> impl Iterator<Item = (Nanos, TraceEvent)> {
        self.0.iter().copied()
    }
}

impl fmt::Display for TraceLog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, event) in self.0 {
            writeln!(f, "{:>15}ns  {event:?}", at.0)?;
        }
        Ok(())
    }
}

const MIX: [u64; 3] = [
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
];

/// Multiply and fold, the mixing step of wyhash.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ MIX[1]) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// The first and the last eight bytes of `data`, mixed.
#[inline]
pub(crate) fn ends(data: &[u8]) -> u64 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        let len = bytes.len().min(8);
        word[..len].copy_from_slice(&bytes[..len]);
        u64::from_le_bytes(word)
    };
    fold(
        word(data),
        word(&data[data.len().saturating_sub(8)..]) ^ MIX[2],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(events: &[(u64, TraceEvent)]) -> u64 {
        let mut trace = WorldTrace::new();
        for &(at, event) in events {
            trace.record(Nanos(at), event);
        }
        trace.hash()
    }

    #[test]
    fn every_part_of_an_event_counts() {
        let a = TraceEvent::Complete { op: 1, value: 0 };
        let b = TraceEvent::Complete { op: 1, value: 1 };
        let base = hash(&[(5, a), (6, b)]);
        assert_eq!(base, hash(&[(5, a), (6, b)]));
        for other in [
            hash(&[(5, b), (6, a)]),
            hash(&[(4, a), (6, b)]),
            hash(&[(5, a)]),
            hash(&[(5, a), (6, a)]),
        ] {
            assert_ne!(base, other);
        }
        assert_ne!(ends(&[1; 9]), ends(&[2; 9]));
    }

    #[test]
    fn the_log_keeps_the_last_events() {
        let mut trace = WorldTrace::new();
        trace.keep_last(2);
        for op in 0..5 {
            trace.record(Nanos(op), TraceEvent::Complete { op, value: 0 });
        }
        assert_eq!(trace.events(), 5);
        assert_eq!(trace.log().to_string().lines().count(), 2);
        assert!(trace.log().to_string().contains("op: 4"));
    }
}
