//! What records and headers say of others: how far the log was durable or complete, and what is
//! void.
//!
//! Invariant: of what an incarnation says nothing counts from the fence of a later one on.

use layout::Record;
use std::collections::BTreeMap;
use std::ops::Range;

/// By incarnations.
#[derive(Default)]
pub(super) struct Known {
    fences: BTreeMap<u32, u64>,
    durable: BTreeMap<u32, u64>,
    complete: BTreeMap<u32, u64>,
}

impl Known {
    /// All before `to` was durable, says `incarnation`.
    pub(super) fn durable(&mut self, incarnation: u32, to: u64) {
        raise(&mut self.durable, incarnation, to);
    }

    /// What a record says. Its fence came when all before it was durable.
    pub(super) fn record(&mut self, record: &Record) {
        let incarnation = record.incarnation;
        self.fences.insert(incarnation, record.fence);
        raise(
            &mut self.durable,
            incarnation,
            record.fence.max(record.durable_to),
        );
        raise(&mut self.complete, incarnation, record.complete_to);
    }

    /// Whether a later incarnation than its own has made the record `number` void.
    pub(super) fn is_void(&self, number: u64, incarnation: u32) -> bool {
        number >= self.fence_after(incarnation)
    }

    /// The log was durable up to here, or if that `counts`, on both copies.
    pub(super) fn to(&self, counts: bool) -> u64 {
        let complete = self.complete.iter().filter(|_| counts);
        let said = self.durable.iter().chain(complete);
        let said = said.map(|(incarnation, to)| self.fence_after(*incarnation).min(*to));
        said.max().unwrap_or(0)
    }

    fn fence_after(&self, incarnation: u32) -> u64 {
        let later = self.fences.range(incarnation + 1..);
        later.map(|(_, fence)| *fence).min().unwrap_or(u64::MAX)
    }
}

fn raise(said: &mut BTreeMap<u32, u64>, incarnation: u32, to: u64) {
    let known = said.entry(incarnation).or_default();
    *known = to.max(*known);
}

/// Numbers of records, as an operator reads them.
pub(super) fn listed(records: &[Range<u64>]) -> String {
    let mut text: Vec<String> = records.iter().take(LISTED).map(span).collect();
    if records.len() > LISTED {
        text.push("more".into());
    }
    text.join(", ")
}

/// As many are listed.
const LISTED: usize = 8;

fn span(records: &Range<u64>) -> String {
    match records.end - records.start {
        1 => records.start.to_string(),
        _ => format!("{} to {}", records.start, records.end - 1),
    }
}
