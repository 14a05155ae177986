//! The checker of write-back: whether an origin alone is an earlier state of its volume.
//!
//! A disk with a volatile cache may lose, with its power, any of the writes that no completed flush
//! covers. A volume without its pool has to look as if such a disk had lost its power at some
//! instant: *there is an instant at which each sector may hold its value*. A sector may hold a
//! write from the write's begin until a later write there became durable. A write is later than
//! another only if the other was over before it began. Writes that overlap in time may have come
//! either way round.
//!
//! Invariants, of a verdict:
//!     a verdict follows from the times of begin, answer and flush, and nothing else
//!     zeroes and discards, which cannot be distinguished, count with all spans they may be of
//!
//! Not here: the value in a sector's bytes (`crate::stamp`), when to judge (`run`).

use crate::stamp::{ANYTHING, Value, ZERO, describe};
use block::Nanos;
use std::ops::Range;

/// An operation that changes sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryOp(usize);

/// A flush that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush(u64);

/// The events of one volume, in the order in which clients saw them.
pub struct VolumeHistory {
    /// Counts events, so that no two happen at once.
    clock: u64,
    ops: Vec<HistoryChange>,
    /// The changes of each sector, in the order of their begins.
    sectors: Vec<Vec<usize>>,
    /// Changes that a flush may yet make durable.
    pending: Vec<usize>,
    newest_answer: Nanos,
}

struct HistoryChange {
    value: Value,
    begun: u64,
    /// The answer of the change, or the end of its daemon.
    over: Option<u64>,
    /// The first instant at which the change was durable.
    durable: Option<u64>,
    answered: Option<Nanos>,
    /// The daemon ended before the answer, or power was lost before the change was durable.
    uncertain: bool,
}

impl HistoryChange {
    fn is_before(&self, other: &HistoryChange) -> bool {
        self.over.is_some_and(|over| over < other.begun)
    }
}

/// An image that is an earlier state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Earlier {
    /// The time of the oldest answer of the acknowledged writes that are missing.
    pub missing_since: Option<Nanos>,
    /// The newest answer.
    pub newest_answer: Nanos,
}

impl Earlier {
    /// The span of acknowledged writes that are missing.
    pub fn lag(&self) -> Nanos {
        let missing = self.missing_since;
        missing.map_or(Nanos::ZERO, |since| self.newest_answer - since)
    }
}

impl VolumeHistory {
    /// The history of a volume of `sectors` sectors, all of them zero.
    pub fn new(sectors: usize) -> VolumeHistory {
        let zero = HistoryChange {
            value: ZERO,
            begun: 0,
            over: Some(0),
            durable: Some(0),
            answered: None,
            uncertain: false,
        };
        VolumeHistory {
            clock: 0,
            ops: vec![zero],
            sectors: vec![vec![0]; sectors],
            pending: Vec::new(),
            newest_answer: Nanos::ZERO,
        }
    }

    /// The history of a volume that begins as an image, durably.
    pub fn from_image(image: &[Option<Value>]) -> VolumeHistory {
        let mut history = VolumeHistory::new(image.len());
        for (sector, value) in image.iter().enumerate() {
            let op = history.begin(sector..sector + 1, value.unwrap_or(ANYTHING));
            history.answer(op, true, Nanos::ZERO);
        }
        history
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A client writes `value`, zeroes, or discards with [`ANYTHING`]. No two writes have
    /// one value.
    pub fn begin(&mut self, sectors: Range<usize>, value: Value) -> HistoryOp {
        let begun = self.tick();
        let number = self.ops.len();
        self.ops.push(HistoryChange {
            value,
            begun,
            over: None,
            durable: None,
            answered: None,
            uncertain: false,
        });
        self.sectors[sectors]
            .iter_mut()
            .for_each(|s| s.push(number));
        self.pending.push(number);
        HistoryOp(number)
    }

    /// The change was acknowledged, `durable` if unit access was forced. A failed change is never
    /// answered here: a failed change may land at any time.
    pub fn answer(&mut self, op: HistoryOp, durable: bool, at: Nanos) {
        let now = self.tick();
        let op = &mut self.ops[op.0];
        op.over = Some(now);
        op.answered = Some(at);
        op.durable = durable.then_some(now);
        self.newest_answer = self.newest_answer.max(at);
    }

    /// A client flushes.
    pub fn begin_flush(&mut self) -> Flush {
        Flush(self.tick())
    }

    /// The flush succeeded: all changes answered before its begin are durable.
    pub fn end_flush(&mut self, flush: Flush) {
        let now = self.tick();
        let ops = &mut self.ops;
        self.pending.retain(|number| {
            let op = &mut ops[*number];
            if op.over.is_some_and(|over| over < flush.0) {
                op.durable.get_or_insert(now);
            }
            op.durable.is_none()
        });
    }

    /// The daemon of the volume ended, and with the daemon, perhaps, the changes not `kept`
    /// durably.
    pub fn cut(&mut self, kept: bool) {
        let now = self.tick();
        for number in self.pending.drain(..).collect::<Vec<_>>() {
            let op = &mut self.ops[number];
            match (op.over, op.durable) {
                (_, Some(_)) => {}
                (Some(_), None) if kept => self.pending.push(number),
                (Some(_), None) => op.uncertain = true,
                (None, None) => {
                    op.over = Some(now);
                    op.uncertain = true;
                }
            }
        }
    }

    /// The values that may be read of a sector now, by a client with reads that overlap no change
    /// of another.
    pub fn may_read(&self, sector: usize) -> Vec<Value> {
        let changes = || self.sectors[sector].iter().map(|number| &self.ops[*number]);
        let surely = |c: &&HistoryChange| c.over.is_some() && !c.uncertain;
        let overtaken =
            |c: &HistoryChange| changes().filter(surely).any(|later| c.is_before(later));
        let standing = changes().filter(|c| !overtaken(c));
        standing.map(|c| c.value).collect()
    }

    /// A sector was read after a cut, and keeps `value` from then on. The error names the allowed
    /// values.
    pub fn settle(&mut self, sector: usize, value: Option<Value>) -> Result<(), String> {
        let allowed = self.may_read(sector);
        let any = allowed.contains(&ANYTHING);
        let Some(value) = value.filter(|v| any || allowed.contains(v)) else {
            return Err(describe(value, &allowed));
        };
        if allowed.len() == 1 {
            return Ok(());
        }
        let op = self.begin(sector..sector + 1, if any { ANYTHING } else { value });
        let now = self.tick();
        self.ops[op.0].over = Some(now);
        Ok(())
    }

    /// The spans, from and until, in which a sector may have held `value`.
    fn spans(&self, sector: usize, value: Option<Value>) -> Vec<(u64, u64)> {
        let changes = || self.sectors[sector].iter().map(|number| &self.ops[*number]);
        let mut spans: Vec<(u64, u64)> = changes()
            .filter(|c| c.value == ANYTHING || Some(c.value) == value)
            .map(|c| {
                let later = changes().filter(|later| c.is_before(later));
                let until = later.filter_map(|later| later.durable).min();
                (c.begun, until.unwrap_or(u64::MAX))
            })
            .collect();
        spans.sort_unstable();
        spans.dedup_by(|next, span| {
            let touch = next.0 <= span.1;
            if touch {
                span.1 = span.1.max(next.1);
            }
            touch
        });
        spans
    }

    /// The oldest answer of the acknowledged changes that are missing in a sector which holds
    /// `value`.
    fn missing_since(&self, sector: usize, value: Option<Value>) -> Option<Nanos> {
        let changes = || self.sectors[sector].iter().map(|number| &self.ops[*number]);
        let newest = changes()
            .rfind(|c| c.value == ANYTHING || Some(c.value) == value)
            .expect("it has a span");
        let missing = changes().filter(|c| newest.is_before(c));
        missing.filter_map(|c| c.answered).min()
    }

    /// Judges an image, a value a sector, `None` for bytes of no client.
    pub fn judge(&self, image: &[Option<Value>]) -> Result<Earlier, String> {
        assert_eq!(image.len(), self.sectors.len());
        let mut edges = Vec::new();
        let (mut from, mut until) = ((0, 0), (u64::MAX, 0));
        let mut apart = 0i64;
        for (sector, value) in image.iter().enumerate() {
            match &self.spans(sector, *value)[..] {
                [] => {
                    let held = describe(*value, &self.may_read(sector));
                    return Err(format!("sector {sector}: {held}"));
                }
                [(begin, end)] => {
                    from = from.max((*begin, sector));
                    until = until.min((*end, sector));
                }
                spans => {
                    apart += 1;
                    edges.extend(spans.iter().flat_map(|(b, e)| [(*b, 1), (*e, -1)]));
                }
            }
        }
        if from.0 >= until.0 {
            return Err(format!(
                "sector {} holds what began at event {}, and sector {} what was durably \
                 overwritten at event {}",
                from.1, from.0, until.1, until.0
            ));
        }
        if !meet(edges, apart, from.0, until.0) {
            return Err(format!(
                "no instant between events {} and {} suits all zeroed or discarded sectors",
                from.0, until.0
            ));
        }
        Ok(self.earlier(image))
    }

    /// Judges an image sector by sector, for a log that keeps no order: each sector may hold any
    /// value that was written there at any time.
    pub fn judge_apart(&self, image: &[Option<Value>]) -> Result<Earlier, String> {
        assert_eq!(image.len(), self.sectors.len());
        for (sector, value) in image.iter().enumerate() {
            if self.spans(sector, *value).is_empty() {
                let held = describe(*value, &self.may_read(sector));
                return Err(format!("sector {sector}: {held}"));
            }
        }
        Ok(self.earlier(image))
    }

    fn earlier(&self, image: &[Option<Value>]) -> Earlier {
        let missing = image.iter().enumerate();
        Earlier {
            missing_since: missing.filter_map(|(s, v)| self.missing_since(s, *v)).min(),
            newest_answer: self.newest_answer,
        }
    }
}

/// Returns true if there is an instant inside of `from..until` at which `all` spans are open.
/// `edges` has both ends of each span.
fn meet(mut edges: Vec<(u64, i64)>, all: i64, from: u64, until: u64) -> bool {
    edges.sort_unstable();
    let (mut open, mut last) = (0, 0);
    for (at, change) in edges.into_iter().chain([(u64::MAX, 0)]) {
        // A span that is open between two edges is open throughout.
        if open == all && last.max(from) < at.min(until) {
            return true;
        }
        open += change;
        last = at;
    }
    false
}

#[cfg(test)]
mod tests;
