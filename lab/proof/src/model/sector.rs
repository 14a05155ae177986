//! The reference of one sector.

use crate::stamp::{self, ANYTHING, Value, ZERO};

#[derive(Clone)]
pub(super) struct ModelSector {
    /// Values that may be there now.
    pub(super) now: Vec<Value>,
    /// Values that may be durable, but for those in `tail`.
    pub(super) base: Vec<Value>,
    /// Writes that may not be durable, in order of their ends.
    pub(super) tail: Vec<EndedWrite>,
    /// Writes in flight, each with the origin's losses when the write began.
    pub(super) pending: Vec<(Value, u64)>,
    /// Writes that may land at any time.
    pub(super) loose: Vec<Value>,
    /// The origin may not hold the last acknowledged value, and no reader has had a failure for
    /// that.
    pub(super) unsettled: bool,
}

/// A write that has ended.
#[derive(Clone, Copy)]
pub(super) struct EndedWrite {
    /// Its place among the ends of all writes.
    pub(super) number: u64,
    pub(super) acknowledged: bool,
    /// The origin forgot while the write was in flight, before the write landed or after.
    pub(super) crossed: bool,
    pub(super) value: Value,
}

impl ModelSector {
    /// One that was never written.
    pub(super) fn zeroes() -> ModelSector {
        ModelSector {
            now: vec![ZERO],
            base: vec![ZERO],
            tail: Vec::new(),
            pending: Vec::new(),
            loose: Vec::new(),
            unsettled: false,
        }
    }

    /// Ends a write in flight. Returns the origin's losses when the write began.
    pub(super) fn ends(&mut self, value: Value) -> u64 {
        let at = self.pending.iter().position(|(v, _)| *v == value);
        self.pending.swap_remove(at.expect("it began")).1
    }

    pub(super) fn may_be(&mut self, values: Vec<Value>) {
        for value in values {
            if !self.now.contains(&value) {
                self.now.push(value);
            }
        }
    }

    /// The writes that had ended by `lost_to` may be lost.
    pub(super) fn take_loss(&mut self, lost_to: u64) {
        let kept = self.tail.partition_point(|ended| ended.number <= lost_to);
        let lost = self.tail.drain(..kept).map(|ended| ended.value);
        self.base.extend(lost);
        for ended in self.tail.iter_mut().filter(|ended| ended.crossed) {
            ended.acknowledged = false;
        }
    }

    /// The origin holds `value` here, and nothing is in flight.
    pub(super) fn check(&mut self, at: u64, value: Option<Value>) -> Result<(), String> {
        if !self.allows(value) {
            return Err(format!(
                "sector {at} holds {}",
                stamp::describe(value, &self.now)
            ));
        }
        self.see(value);
        Ok(())
    }

    pub(super) fn allows(&self, value: Option<Value>) -> bool {
        self.now.iter().any(|v| *v == ANYTHING || Some(*v) == value)
    }

    /// `value`, which is allowed, has been seen; discarded bytes may still change.
    pub(super) fn see(&mut self, value: Option<Value>) {
        if self.now.len() == 1 || self.unsettled || self.now.contains(&ANYTHING) {
            return;
        }
        let value = value.expect("allowed");
        self.now.clear();
        self.now.push(value);
        if self.tail.is_empty() {
            self.base.clear();
            self.base.push(value);
        }
    }
}
