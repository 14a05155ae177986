//! Changes of the map that are not on the devices yet.
//!
//! Invariant:
//!     the map of a slot in memory differs from checkpoint and log ⟹ the slot
//!     is pending here, or in a commit under way

use crate::lines::BlockRun;
use layout::Mask;
use policy::{LineKey, SlotNumber};
use std::collections::BTreeMap;
use std::ops::Range;

/// The content of a slot's next record in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PendingRecord {
    /// The line that entered since the last record.
    pub(crate) key: Option<LineKey>,
    /// Blocks with new checksums.
    pub(crate) changed: Mask,
}

/// Slots with a due record.
#[derive(Debug, Default)]
pub(crate) struct Changes(BTreeMap<u32, PendingRecord>);

impl Changes {
    /// Notes that a line was given the slot, without valid blocks.
    pub(crate) fn entered(&mut self, slot: SlotNumber, key: LineKey) {
        let pending = PendingRecord {
            key: Some(key),
            changed: Mask::default(),
        };
        self.0.insert(slot.0, pending);
    }

    /// Blocks became valid.
    pub(crate) fn validated(&mut self, slot: SlotNumber, run: BlockRun) {
        let pending = self.0.entry(slot.0).or_default();
        for block in run.first..run.first + run.count {
            pending.changed[block as usize / 64] |= 1 << (block % 64);
        }
    }

    /// Blocks stopped being valid.
    pub(crate) fn touched(&mut self, slot: SlotNumber) {
        self.0.entry(slot.0).or_default();
    }

    /// Forgets due changes of `slots`: their device is lost.
    pub(crate) fn forget(&mut self, slots: &Range<u32>) {
        self.take(slots);
    }

    /// Takes due changes of `slots`, in order.
    pub(crate) fn take(&mut self, slots: &Range<u32>) -> BTreeMap<u32, PendingRecord> {
        let mut here = self.0.split_off(&slots.start);
        let mut after = here.split_off(&slots.end);
        self.0.append(&mut after);
        here
    }

    /// The number of slots that are due.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_by_device_and_a_new_line_forgets_the_old_one() {
        let mut changes = Changes::default();
        changes.validated(SlotNumber(3), BlockRun { first: 1, count: 2 });
        changes.entered(SlotNumber(3), LineKey(9));
        changes.validated(
            SlotNumber(3),
            BlockRun {
                first: 64,
                count: 1,
            },
        );
        changes.touched(SlotNumber(10));
        changes.touched(SlotNumber(2));
        let here = changes.take(&(3..10));
        let pending = PendingRecord {
            key: Some(LineKey(9)),
            changed: [0, 1, 0, 0],
        };
        assert_eq!(here.into_iter().collect::<Vec<_>>(), [(3, pending)]);
        assert_eq!(changes.len(), 2);
        changes.forget(&(0..100));
        assert_eq!(changes.len(), 0);
    }
}
