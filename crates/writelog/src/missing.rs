//! Claims of records and headers about others: the extent of the durable and complete log, and void
//! records.
//!
//! Invariant: claims of an incarnation count only up to the fence of a later one.

use layout::LogRecord;
use std::collections::BTreeMap;
use std::ops::Range;

/// Claims, by incarnation.
#[derive(Default)]
pub(super) struct KnownIncarnations {
    fences: BTreeMap<u32, u64>,
    durable: BTreeMap<u32, u64>,
    complete: BTreeMap<u32, u64>,
}

impl KnownIncarnations {
    /// Notes that, by `incarnation`, all records before `to` were durable.
    pub(super) fn durable(&mut self, incarnation: u32, to: u64) {
        raise(&mut self.durable, incarnation, to);
    }

    /// Notes the claims of a record. Its fence was set when all before the fence was durable.
    pub(super) fn record(&mut self, record: &LogRecord) {
        let incarnation = record.incarnation;
        self.fences.insert(incarnation, record.fence);
        raise(
            &mut self.durable,
            incarnation,
            record.fence.max(record.durable_to),
        );
        raise(&mut self.complete, incarnation, record.complete_to);
    }

    /// True if an incarnation after `incarnation` has made the record `number` void.
    pub(super) fn is_void(&self, number: u64, incarnation: u32) -> bool {
        number >= self.fence_after(incarnation)
    }

    /// True if `incarnation` had its record `number` on both copies, and no later one has made the
    /// record void.
    pub(super) fn is_complete(&self, number: u64, incarnation: u32) -> bool {
        let complete = self.complete.get(&incarnation);
        complete.is_some_and(|to| number < *to) && !self.is_void(number, incarnation)
    }

    /// End of the durable log or, if that `counts`, of the log that was on both copies.
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

/// Numbers of records, for an operator.
pub(super) fn listed(records: &[Range<u64>]) -> String {
    let mut text: Vec<String> = records.iter().take(LISTED).map(span).collect();
    if records.len() > LISTED {
        text.push("more".into());
    }
    text.join(", ")
}

/// Ranges that are listed.
const LISTED: usize = 8;

fn span(records: &Range<u64>) -> String {
    match records.end - records.start {
        1 => records.start.to_string(),
        _ => format!("{} to {}", records.start, records.end - 1),
    }
}
