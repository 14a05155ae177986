//! One life of an array: a start, and the events until it ends.

use super::devices::{SearchWorld, run};
use super::{AssemblySearch, Bits, Copies, MEMBERS_MAX, RestState, Truth, bits, in_sync, put};
use crate::array::Array;
use crate::core::ArrayCore;
use crate::superblock::MemberState;
use block::{IoError, IoErrorKind};
use layout::Uuid;
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

/// An event while an array runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchEvent {
    /// A client's write, which is acknowledged if the array can.
    Write,
    /// A member answers no more, at once or from its second next superblock on.
    Lose(usize, bool),
    /// The same of a member that the array has just been started with.
    LoseFirst(usize, bool),
    /// A superblock is written although no request has missed a lost member yet.
    Notice,
    /// A member is given to the array again.
    Return(usize),
    /// The members that are being filled are complete.
    Fill,
}

/// A life that goes on.
pub struct SearchLife {
    pub world: Rc<RefCell<SearchWorld>>,
    pub array: Array,
    pub truth: Truth,
    /// The members that this life goes on without by force.
    pub apart: Bits,
}

impl SearchLife {
    fn core(&self) -> &Rc<ArrayCore> {
        self.array.core()
    }

    pub fn in_sync(&self) -> Bits {
        in_sync(self.core())
    }

    pub fn live(&self) -> Bits {
        let live = self.core().live();
        live.iter().fold(0, |set, (role, _)| set | 1 << role)
    }

    /// Returns all writes of the members in sync.
    pub fn held(&self) -> Bits {
        bits(self.in_sync()).fold(0, |held, role| held | self.truth.holds[role])
    }

    /// Counts the members in sync as part of this life.
    fn join(&mut self) {
        self.apart &= !self.in_sync();
        for role in bits(self.live()) {
            self.truth.without[role] = self.apart;
        }
    }

    /// Notes the members that were put into roles, which are filled from here on.
    fn filled(&mut self, whole: impl Fn(usize) -> bool) {
        for role in bits(self.live() & !self.in_sync()) {
            if whole(role) {
                self.truth.holds[role] = 0;
                put(&mut self.truth.torn, role, true);
            }
        }
    }
}

impl AssemblySearch {
    /// Replays a life of `state` up to the last of `events`, which has begun with `base` on the
    /// devices; `None` if the life did not come so far.
    pub fn replay(
        &self,
        state: &RestState,
        here: Bits,
        degraded: bool,
        events: &[SearchEvent],
    ) -> Option<(SearchLife, [Copies; MEMBERS_MAX], Truth)> {
        let (world, core, returned) = self.decide(state, here, degraded).ok()?;
        let mut truth = state.truth.clone();
        let mut apart = 0;
        if degraded {
            let held = bits(here).fold(0, |held, role| held | truth.holds[role]);
            for write in (0..truth.writes).filter(|w| held >> w & 1 == 0) {
                truth.excused[write] |= here;
            }
            apart = !here & ((1 << self.members) - 1);
        }
        apart |= bits(in_sync(&core)).fold(0, |apart, role| apart | truth.without[role]);
        let array = Array::start(core.clone());
        let mut life = SearchLife {
            world: world.clone(),
            array,
            truth,
            apart,
        };
        let (mut base, mut before) = (state.copies.clone(), life.truth.clone());
        let is_first = |event: &&SearchEvent| matches!(event, SearchEvent::LoseFirst(..));
        let first = events.iter().take_while(is_first).count();
        for event in &events[..first] {
            self.step(&mut life, *event)?;
        }
        // As `assemble` does.
        core.want_commit();
        run(&world, core.commit()).ok()?;
        life.join();
        let whole: HashSet<_> = returned.iter().filter(|r| r.2).map(|r| r.0).collect();
        for (role, member, whole) in returned {
            let claim = core.claim(role).ok()?;
            run(&world, core.adopt(claim, member, whole)).ok()?;
        }
        life.filled(|role| whole.contains(&role));
        life.join();
        for event in &events[first..] {
            let mut now = world.borrow_mut();
            (now.wrote, base) = (Vec::new(), now.copies.clone());
            drop(now);
            before = life.truth.clone();
            self.step(&mut life, *event)?;
            if *event == SearchEvent::Fill {
                // Data is durable before any superblock says so.
                before = life.truth.clone();
            }
        }
        Some((life, base, before))
    }

    /// Returns `None` if the event does not happen, or ends the life.
    fn step(&self, life: &mut SearchLife, event: SearchEvent) -> Option<()> {
        let (world, core) = (life.world.clone(), life.core().clone());
        let gone = |set: Bits| set & world.borrow().gone;
        let going = |set: Bits| set & world.borrow().going;
        match event {
            SearchEvent::Lose(role, later) | SearchEvent::LoseFirst(role, later) => {
                let mut world = world.borrow_mut();
                ((world.gone | world.going) >> role & 1 == 0).then_some(())?;
                put(&mut world.going, role, true);
                put(&mut world.gone, role, !later);
            }
            SearchEvent::Notice => {
                (going(life.live()) != 0).then_some(())?;
                core.want_commit();
                run(&world, core.commit()).ok()?;
            }
            SearchEvent::Write => {
                for role in bits(gone(life.live())) {
                    let error = IoError::new(IoErrorKind::Gone, "it was lost");
                    core.fail_role(role, &error).then_some(())?;
                }
                run(&world, core.commit()).ok()?;
                let write = life.truth.writes;
                life.truth.writes += 1;
                life.truth.excused[write] = life.apart;
                for role in bits(life.live()) {
                    put(&mut life.truth.holds[role], write, true);
                }
            }
            SearchEvent::Return(role) => {
                (core.state(role).is_failed() || gone(1 << role) != 0).then_some(())?;
                put(&mut world.borrow_mut().gone, role, false);
                put(&mut world.borrow_mut().going, role, false);
                // The member is unchanged.
                world.borrow_mut().map_writes = core.entry(role).map_writes;
                // A device without a legible superblock becomes a spare.
                let is_member = world.borrow().copies[role].iter().any(Option::is_some);
                (is_member && core.state(role).is_failed()).then_some(())?;
                let candidate = self.candidate(&world, role);
                run(
                    &world,
                    life.array.add(candidate, Uuid::from_bytes([98; 16]), false),
                )
                .ok()?;
                let whole = MemberState::Rebuilding { whole: true };
                life.filled(|role| core.state(role) == whole);
                life.join();
            }
            SearchEvent::Fill => {
                let filled = life.live() & !life.in_sync();
                // A lost member may have been lost once all was copied.
                (filled != 0 && gone(filled) == 0).then_some(())?;
                let held = life.held();
                for role in bits(filled) {
                    // As `rebuild` does, once it holds everything.
                    life.truth.holds[role] |= held;
                    put(&mut life.truth.torn, role, false);
                    core.set_entry(role, |entry| entry.state = MemberState::InSync);
                }
                run(&world, core.commit()).ok()?;
                life.join();
            }
        }
        Some(())
    }
}
