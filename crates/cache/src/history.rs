//! The last decision about each line with a recent decision, so that the cache can explain the
//! place of a line.
//!
//! A table of a fixed [`HISTORY_BYTES`], four entries to a set. A set that is full forgets the
//! oldest decision: after a long scan reasons are forgotten, never contents. Hits write nothing
//! here.

use crate::counters::Counter;
use block::{Nanos, Timer};
use policy::LineKey;

/// Memory of the table.
pub const HISTORY_BYTES: usize = 1 << 20;
const WAYS: usize = 4;
const SETS: usize = HISTORY_BYTES / (WAYS * size_of::<GhostEntry>());
/// The unit of times in the table, so that 32 bits last for 13 years.
const TICK: Nanos = Nanos::from_millis(100);

const _: () = assert!(size_of::<GhostEntry>() == 32 && SETS.is_power_of_two());

/// A decision about a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The line was given a slot.
    Admitted,
    /// The line made room for the line with this key.
    Evicted(LineKey),
    /// The line was not admitted, or not written to the pool, for this reason.
    Refused(Counter),
    /// A client's write, zero or discard made blocks of the line invalid.
    Overwritten,
    /// Its blocks were dropped because the origin may have lost writes to them.
    Distrusted,
    /// The line was given up because it had no valid block left.
    Dropped,
}

/// A decision, with its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    /// The decision.
    pub decision: Decision,
    /// Time, to a tenth of a second.
    pub at: Nanos,
    /// Time at which the line was last given a slot, if remembered.
    pub admitted: Option<Nanos>,
}

#[derive(Clone, Copy)]
struct GhostEntry {
    key: LineKey,
    decision: Decision,
    at: u32,
    /// The tick of the last admission plus one; zero if unknown.
    admitted: u32,
}

const VACANT: GhostEntry = GhostEntry {
    key: LineKey(u64::MAX),
    decision: Decision::Dropped,
    at: 0,
    admitted: 0,
};

pub(crate) struct GhostHistory {
    sets: Box<[[GhostEntry; WAYS]]>,
    timer: Timer,
}

fn place(key: LineKey) -> usize {
    // Multiplicative hashing by the golden ratio (Knuth, TAOCP 3, 6.4).
    let hash = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - SETS.ilog2())) as usize
}

impl GhostHistory {
    pub(crate) fn new(timer: Timer) -> GhostHistory {
        GhostHistory {
            sets: vec![[VACANT; WAYS]; SETS].into_boxed_slice(),
            timer,
        }
    }

    /// Remembers a decision about `key`.
    pub(crate) fn note(&mut self, key: LineKey, decision: Decision) {
        let at = u32::try_from(self.timer.now().0 / TICK.0).unwrap_or(u32::MAX);
        let set = &mut self.sets[place(key)];
        let known = set.iter().position(|entry| entry.key == key);
        let way = known.unwrap_or_else(|| {
            let by_age = |way: &usize| (set[*way].key != VACANT.key, set[*way].at);
            (0..WAYS).min_by_key(by_age).expect("a set has ways")
        });
        let admitted = match (decision, known) {
            (Decision::Admitted, _) => at.saturating_add(1),
            (_, Some(way)) => set[way].admitted,
            (_, None) => 0,
        };
        set[way] = GhostEntry {
            key,
            decision,
            at,
            admitted,
        };
    }

    /// Notes that `key` was given up, unless an earlier decision has the reason.
    pub(crate) fn dropped(&mut self, key: LineKey) {
        let before = self.last(key).map(|noted| noted.decision);
        if matches!(before, None | Some(Decision::Admitted)) {
            self.note(key, Decision::Dropped);
        }
    }

    /// The last decision about `key`, unless the decision is forgotten.
    pub(crate) fn last(&self, key: LineKey) -> Option<Noted> {
        let found = self.sets[place(key)].iter().find(|e| e.key == key)?;
        let time = |tick: u32| Nanos(u64::from(tick) * TICK.0);
        Some(Noted {
            decision: found.decision,
            at: time(found.at),
            admitted: found.admitted.checked_sub(1).map(time),
        })
    }
}
