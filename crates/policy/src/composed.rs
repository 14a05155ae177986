//! A replacement and an admission policy as one counted [`Policy`].

use crate::admission::Admission;
use crate::{
    Counters, Explanation, Heat, Instruction, Key, Parts, Pins, Policy, Replacement, Request, Slot,
    Slots,
};
use block::Nanos;
use std::ops::Range;

/// Asks `R` about hits, `A` about misses, `R` about room; counts the answers.
#[derive(Clone, Debug)]
pub struct Composed<R, A> {
    replacement: R,
    admission: A,
    counters: Counters,
}

impl<R: Replacement, A: Admission> Composed<R, A> {
    /// Joins the two.
    pub fn new(replacement: R, mut admission: A) -> Composed<R, A> {
        admission.resized(replacement.slots().live());
        Composed {
            replacement,
            admission,
            counters: Counters::default(),
        }
    }

    /// Apart, so that a hit of the common kind saves no registers for it.
    #[inline(never)]
    fn access_fully(&mut self, key: Key, request: &Request, pins: &dyn Pins) -> Instruction {
        if let Some(slot) = self.replacement.touch(key, request) {
            self.counters.hits += 1;
            return Instruction::Hit(slot);
        }
        self.miss(key, request, pins)
    }

    /// Apart, too.
    #[inline(never)]
    fn miss(&mut self, key: Key, request: &Request, pins: &dyn Pins) -> Instruction {
        let instruction = match self.admission.admit(key, request) {
            Ok(()) => self.replacement.insert(key, request, pins),
            Err(reason) => {
                self.replacement.refused(key, request);
                Instruction::Bypass(reason)
            }
        };
        match instruction {
            Instruction::Hit(_) => unreachable!("a miss cannot become a hit"),
            Instruction::Bypass(reason) => self.counters.bypasses[reason as usize] += 1,
            Instruction::Admit(_) => self.counters.admits += 1,
            Instruction::Replace { .. } => self.counters.replaces += 1,
        }
        instruction
    }

    fn resized(&mut self) {
        self.admission.resized(self.replacement.slots().live());
    }
}

impl<R: Replacement, A: Admission> Policy for Composed<R, A> {
    #[inline]
    fn access(&mut self, key: Key, request: &Request, pins: &dyn Pins) -> Instruction {
        if let Some(slot) = self.replacement.touch_common(key, request) {
            self.counters.hits += 1;
            return Instruction::Hit(slot);
        }
        self.access_fully(key, request, pins)
    }

    fn peek(&self, key: Key) -> Option<Slot> {
        self.replacement.peek(key)
    }

    fn remove(&mut self, key: Key) -> Option<Slot> {
        self.replacement.remove(key)
    }

    fn adopt(&mut self, key: Key, slot: Slot, heat: Heat, held: Parts) -> bool {
        self.replacement.adopt(key, slot, heat, held)
    }

    fn export(&self, visit: &mut dyn FnMut(Key, Slot, Heat)) {
        self.replacement.export(visit);
    }

    fn grow(&mut self, total: u32) {
        self.replacement.grow(total);
        self.resized();
    }

    fn retire(&mut self, slots: Range<u32>) {
        self.replacement.retire(slots);
        self.resized();
    }

    fn revive(&mut self, slots: &[Range<u32>]) {
        self.replacement.revive(slots);
        self.resized();
    }

    fn slots(&self) -> &Slots {
        self.replacement.slots()
    }

    fn for_each(&self, visit: &mut dyn FnMut(Key, Slot)) {
        self.replacement.for_each(visit);
    }

    fn tick(&mut self, now: Nanos) {
        self.replacement.tick(now);
        self.admission.tick(now);
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn save(&self) -> Vec<u8> {
        self.replacement.save()
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        self.replacement.restore(saved)
    }

    fn explanation(&self) -> Option<Explanation> {
        self.replacement.explanation()
    }

    fn check(&self) {
        self.replacement.check();
    }
}
