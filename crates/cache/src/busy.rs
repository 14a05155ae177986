//! Operations on the pool in flight, and the state of their blocks.
//!
//! Invariants:
//!     a slot with an operation in flight is pinned: the policy keeps its line,
//!     and no other line is put into the slot
//!     two pool writes in flight never overlap
//!     a pool write to b began while a hit on b was in flight ⟹ the hit is torn
//!     a client write to b began while a pool write to b was in flight ⟹ the
//!     pool write is poisoned, and makes nothing valid
//!
//! The memory used here depends on the operations in flight, not on the pool's size.

use crate::budget::PromotionPermit;
use crate::contents::PoolContents;
use crate::lines::BlockRun;
use crate::watchdog::TICKS_MAX;
use policy::SlotNumber;
use slab::Slab;
use std::ops::Range;
use std::task::Waker;

/// The number of operations in flight on each slot. Slots that are equal modulo the table's size
/// are counted together: one busy slot pins them all, which costs another choice of victim and
/// nothing else.
pub(crate) struct SlotPins(Box<[u32; PINS]>);
const PINS: usize = 4096;

impl SlotPins {
    fn of(&mut self, slot: SlotNumber) -> &mut u32 {
        &mut self.0[slot.0 as usize % PINS]
    }
}

impl policy::VictimVeto for SlotPins {
    fn pinned(&self, slot: SlotNumber) -> bool {
        self.0[slot.0 as usize % PINS] != 0
    }
}

struct PinnedHit {
    slot: SlotNumber,
    run: BlockRun,
    tick: u32,
    torn: bool,
    late: bool,
    waker: Option<Waker>,
}

struct SlotWrite {
    slot: SlotNumber,
    run: BlockRun,
    tick: u32,
    /// The writes that the device had answered by then.
    answered: u64,
    late: bool,
    poisoned: bool,
    /// Given back when the device has answered, or answers nothing any more, so that one
    /// that hangs does not keep others from being promoted to.
    permit: Option<PromotionPermit>,
}

pub(crate) struct Busy {
    pub(crate) pins: SlotPins,
    hits: Slab<PinnedHit>,
    writes: Slab<SlotWrite>,
    /// Slots under a discard.
    trims: Vec<SlotNumber>,
    tick: u32,
    /// Number of ticks to come for which a write counts as slow not long ago.
    slow: u32,
}

/// A pool write that has reached the time limit of its device, perhaps once more.
pub(crate) struct LateWrite {
    pub(crate) id: usize,
    pub(crate) slot: SlotNumber,
    /// The writes that the device had answered when the wait began.
    pub(crate) answered: u64,
    /// True if the write was not reported before.
    pub(crate) first: bool,
}

/// An operation that has just become late.
pub(crate) enum LateOperation {
    Hit(SlotNumber),
    Write(LateWrite),
}

impl Busy {
    pub(crate) fn new() -> Busy {
        Busy {
            pins: SlotPins(Box::new([0; PINS])),
            hits: Slab::new(),
            writes: Slab::new(),
            trims: Vec::new(),
            tick: 0,
            slow: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.hits.is_empty() && self.writes.is_empty()
    }

    pub(crate) fn begin_hit(&mut self, slot: SlotNumber, run: BlockRun) -> usize {
        *self.pins.of(slot) += 1;
        self.hits.insert(PinnedHit {
            slot,
            run,
            tick: self.tick,
            torn: false,
            late: false,
            waker: None,
        })
    }

    pub(crate) fn end_hit(&mut self, id: usize) {
        let hit = self.hits.remove(id);
        *self.pins.of(hit.slot) -= 1;
    }

    pub(crate) fn is_torn(&self, hit: usize) -> bool {
        self.hits[hit].torn
    }

    /// Returns true if the hit is late; if not, `waker` is woken once the hit becomes late.
    pub(crate) fn is_late(&mut self, hit: usize, waker: &Waker) -> bool {
        let hit = &mut self.hits[hit];
        match &mut hit.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        hit.late
    }

    /// The caller has checked [`Busy::is_written`]. `answered`: how many writes the device
    /// has answered so far.
    pub(crate) fn begin_write(
        &mut self,
        slot: SlotNumber,
        run: BlockRun,
        permit: PromotionPermit,
        answered: u64,
    ) -> usize {
        if policy::VictimVeto::pinned(&self.pins, slot) {
            for (_, hit) in &mut self.hits {
                hit.torn |= hit.slot == slot && hit.run.overlaps(run);
            }
        }
        *self.pins.of(slot) += 1;
        self.writes.insert(SlotWrite {
            slot,
            run,
            tick: self.tick,
            answered,
            late: false,
            poisoned: false,
            permit: Some(permit),
        })
    }

    /// The device answers others: the write waits once more.
    pub(crate) fn wait_on(&mut self, id: usize, answered: u64) {
        let write = &mut self.writes[id];
        (write.tick, write.answered) = (self.tick, answered);
        self.slow = TICKS_MAX + 1;
    }

    /// Notes that the device has answered, or is not waited for. The rest of the write's time, such
    /// as the origin's, does not count as the device's fault.
    pub(crate) fn answered(&mut self, id: usize) {
        let write = &mut self.writes[id];
        write.permit = None;
        if self.tick.wrapping_sub(write.tick) > TICKS_MAX / 2 {
            self.slow = TICKS_MAX + 1;
        }
    }

    /// True if a write took at least half of its time limit, when a hit that is late now may have
    /// waited behind that write.
    pub(crate) fn were_slow(&self) -> bool {
        self.slow > 0
    }

    pub(crate) fn end_write(&mut self, id: usize) {
        let write = self.writes.remove(id);
        *self.pins.of(write.slot) -= 1;
    }

    /// Pins a slot for a discard; false if an operation is in flight there.
    pub(crate) fn begin_trim(&mut self, slot: SlotNumber) -> bool {
        let is_at_rest = !policy::VictimVeto::pinned(&self.pins, slot);
        if is_at_rest {
            *self.pins.of(slot) += 1;
            self.trims.push(slot);
        }
        is_at_rest
    }

    pub(crate) fn end_trim(&mut self, slot: SlotNumber) {
        let at = self.trims.iter().position(|trimmed| *trimmed == slot);
        self.trims.swap_remove(at.expect("its discard has begun"));
        *self.pins.of(slot) -= 1;
    }

    pub(crate) fn is_poisoned(&self, write: usize) -> bool {
        self.writes[write].poisoned
    }

    /// True if a pool write to blocks of `run`, or a discard, is in flight.
    pub(crate) fn is_written(&self, slot: SlotNumber, run: BlockRun) -> bool {
        let mut writes = self.writes.iter();
        policy::VictimVeto::pinned(&self.pins, slot)
            && (writes.any(|(_, w)| w.slot == slot && w.run.overlaps(run))
                || self.trims.contains(&slot))
    }

    /// Poisons the pool writes to blocks of `run`.
    pub(crate) fn poison(&mut self, slot: SlotNumber, run: BlockRun) {
        if policy::VictimVeto::pinned(&self.pins, slot) {
            for (_, write) in &mut self.writes {
                write.poisoned |= write.slot == slot && write.run.overlaps(run);
            }
        }
    }

    /// Poisons every pool write to `slots`.
    pub(crate) fn poison_slots(&mut self, slots: &Range<u32>) {
        for (_, write) in &mut self.writes {
            write.poisoned |= slots.contains(&write.slot.0);
        }
    }

    /// Panics if a block is valid that is being written, or a pin is wrong.
    pub(crate) fn check(&self, contents: &PoolContents) {
        let mut pins = [0; PINS];
        for (_, hit) in &self.hits {
            pins[hit.slot.0 as usize % PINS] += 1;
        }
        for (_, write) in &self.writes {
            pins[write.slot.0 as usize % PINS] += 1;
            assert_eq!(
                contents.leading(write.slot, write.run),
                (false, write.run.count),
                "{:?} of {:?} is valid and being written",
                write.run,
                write.slot
            );
        }
        for slot in &self.trims {
            pins[slot.0 as usize % PINS] += 1;
            assert!(
                contents.is_empty(*slot),
                "{slot:?} is valid and being discarded"
            );
        }
        assert_eq!(*self.pins.0, pins);
    }

    /// Ends a period, and passes the operations that are late now to `late`.
    pub(crate) fn tick(&mut self, mut late: impl FnMut(LateOperation)) {
        self.tick = self.tick.wrapping_add(1);
        self.slow = self.slow.saturating_sub(1);
        let now = self.tick;
        for (_, hit) in &mut self.hits {
            if !hit.late && now.wrapping_sub(hit.tick) > TICKS_MAX {
                hit.late = true;
                late(LateOperation::Hit(hit.slot));
                if let Some(waker) = hit.waker.take() {
                    waker.wake();
                }
            }
        }
        for (id, write) in &mut self.writes {
            if write.permit.is_some() && now.wrapping_sub(write.tick) > TICKS_MAX {
                late(LateOperation::Write(LateWrite {
                    id,
                    slot: write.slot,
                    answered: write.answered,
                    first: !std::mem::replace(&mut write.late, true),
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::PromotionBudget;
    use block::Nanos;
    use policy::VictimVeto as _;

    const SLOT: SlotNumber = SlotNumber(7);

    fn run(first: u32, count: u32) -> BlockRun {
        BlockRun { first, count }
    }

    #[test]
    fn writes_tear_the_hits_they_overlap_and_no_other() {
        let budget = PromotionBudget::new(1 << 20, None, Nanos::ZERO);
        let mut busy = Busy::new();
        let (a, b) = (
            busy.begin_hit(SLOT, run(0, 2)),
            busy.begin_hit(SLOT, run(2, 1)),
        );
        let other = busy.begin_hit(SlotNumber(8), run(0, 16));
        let write = busy.begin_write(SLOT, run(1, 1), budget.promote(4096).unwrap(), 0);
        assert!(busy.is_torn(a) && !busy.is_torn(b) && !busy.is_torn(other));
        assert!(busy.is_written(SLOT, run(0, 2)) && !busy.is_written(SLOT, run(2, 14)));
        busy.poison(SLOT, run(2, 3));
        busy.poison(SlotNumber(8), run(0, 16));
        assert!(!busy.is_poisoned(write));
        busy.poison(SLOT, run(0, 3));
        assert!(busy.is_poisoned(write));
        busy.end_hit(a);
        busy.end_hit(b);
        assert!(busy.pins.pinned(SLOT) && busy.pins.pinned(SlotNumber(8)));
        busy.end_write(write);
        assert!(!busy.pins.pinned(SLOT));
        assert!(budget.room(1 << 20).is_ok(), "its permit came back");
    }

    #[test]
    fn operations_become_late_once_and_writes_again_that_are_waited_for() {
        let budget = PromotionBudget::new(4096, None, Nanos::ZERO);
        let mut busy = Busy::new();
        let hit = busy.begin_hit(SLOT, run(0, 1));
        let write = busy.begin_write(SlotNumber(9), run(0, 1), budget.promote(4096).unwrap(), 3);
        let (mut hits, mut writes) = (Vec::new(), Vec::new());
        for tick in 1..20 {
            let mut late = Vec::new();
            busy.tick(|operation| late.push(operation));
            for operation in late {
                match operation {
                    LateOperation::Hit(_) => hits.push(tick),
                    LateOperation::Write(late) if late.first => {
                        writes.push((tick, late.answered));
                        busy.wait_on(late.id, 5);
                    }
                    LateOperation::Write(late) => {
                        writes.push((tick, late.answered));
                        busy.answered(late.id);
                    }
                }
            }
            let free = budget.room(4096).is_ok();
            assert_eq!(free, tick > 2 * TICKS_MAX + 1, "{tick}");
        }
        assert_eq!(hits, [TICKS_MAX + 1]);
        assert_eq!(writes, [(TICKS_MAX + 1, 3), (2 * TICKS_MAX + 2, 5)]);
        assert!(busy.is_late(hit, Waker::noop()));
        busy.end_hit(hit);
        busy.end_write(write);
        assert!(busy.is_idle());
    }

    /// A write through an origin slower than any limit once had the pool's
    /// device ejected, which had answered long before.
    #[test]
    fn a_write_that_the_device_has_answered_is_never_late() {
        let budget = PromotionBudget::new(4096, None, Nanos::ZERO);
        let mut busy = Busy::new();
        let write = busy.begin_write(SLOT, run(0, 1), budget.promote(4096).unwrap(), 0);
        busy.answered(write);
        assert!(budget.room(4096).is_ok());
        for _ in 0..20 {
            busy.tick(|_| panic!("it was answered"));
        }
        busy.end_write(write);
    }
}
