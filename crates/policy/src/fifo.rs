//! A policy that tests alone have: a file and a line of `registry`, which is all that a
//! policy takes.
//!
//! FIFO: the line that came first makes room, used or not.

use crate::lines::{Lines, ListPolicy};
use crate::{Index, Key, Pins, Slot};

const LIST: usize = 0;

/// First in, first out.
pub struct Fifo<I> {
    lines: Lines<I>,
}

impl<I: Index> Fifo<I> {
    pub fn new(universe: I::Universe, slots: u32) -> Fifo<I> {
        Fifo {
            lines: Lines::new(universe, slots, 0),
        }
    }
}

impl<I: Index> ListPolicy for Fifo<I> {
    type Index = I;

    fn lines(&self) -> &Lines<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut Lines<I> {
        &mut self.lines
    }

    fn hit(&mut self, _: u32) {}

    fn evict(&mut self, _: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let node = self.lines.oldest(LIST, pins)?;
        self.lines.unlink(node);
        Some(self.lines.evict(node))
    }

    fn place(&mut self, node: u32, _: bool) {
        self.lines.push(LIST, node);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Instruction, Key, Request, Unpinned, registry};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const SLOTS: usize = 16;

    proptest! {
        /// Found by its name like any other, and judged by a queue of the standard library.
        #[test]
        fn is_found_by_its_name_and_evicts_the_oldest(keys in prop::collection::vec(0_u64..40, 1..2_000)) {
            prop_assert!(registry::POLICIES.iter().any(|(name, _)| *name == "fifo"));
            let mut policy = registry::build("fifo", SLOTS as u32, 7).unwrap();
            let mut model = VecDeque::new();
            for key in keys.into_iter().map(Key) {
                match policy.access(key, &Request::default(), &Unpinned) {
                    Instruction::Hit(_) => prop_assert!(model.contains(&key), "{key:?} had gone"),
                    Instruction::Admit(_) => model.push_back(key),
                    Instruction::Replace { victim, .. } => {
                        prop_assert_eq!(model.pop_front(), Some(victim));
                        model.push_back(key);
                    }
                    Instruction::Bypass(reason) => prop_assert!(false, "refused: {reason:?}"),
                }
                prop_assert!(model.contains(&key) && model.len() <= SLOTS);
            }
            policy.check();
        }
    }
}
