//! The decision on the lines that stay on the fast devices.
//!
//! A policy hears of accesses and answers each with an [`Instruction`]; the engine carries that
//! out. The live engine, the trace simulator and the miniature simulations inside `auto` run the
//! same objects.
//!
//! ```text
//! Policy::access ─┬─ touch   resident? -> Hit(slot)
//!                 └─ insert  absent    -> Admit | Replace | Bypass(reason)
//! ```
//!
//! Invariants, checked by one suite that every policy runs
//! (`lab/baselines/src/tests/conformance.rs`):
//!     a key occupies at most one slot, a slot holds at most one key
//!     Hit(s)            ⟹ the key held s before the access
//!     Replace{s, v}     ⟹ v held s, s was not pinned, no slot was free
//!     retired slots are never handed out
//!     no access allocates memory once the policy is built or grown
//!
//! Not here, on purpose: bytes, devices, dirty data, threads, a clock, a random source. Time comes
//! in through [`Policy::tick`], randomness as a seed.
//!
//! A new policy is one file that implements [`Policy`] (or, if made of linked lists,
//! [`lines::ListPolicy`]) and one line in [`registry`]; the published ones that pools do not have
//! are in the crate `baselines`.

mod auto;
mod heat;
mod index;
pub mod lines;
mod lru;
mod parts;
pub mod profile;
pub mod regions;
pub mod registry;
mod slots;
#[cfg(test)]
mod tests;
pub mod written;

pub use auto::{Auto, Expert};
pub use heat::Heat;
pub use index::{HashIndex, Index, mix};
pub use lru::Lru;
pub use parts::LineParts;
pub use slots::{SlotNumber, SlotPart, SlotStates};

use block::Nanos;
use std::ops::Range;

/// A line: its number on its volume, with the volume's id in the high bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LineKey(pub u64);

/// The effect of a request on the lines touched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PolicyOp {
    /// Reads the line, in whole or in part.
    #[default]
    Read,
    /// Writes the line, in whole or in part.
    Write,
}

/// The request that an access belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyRequest {
    /// Read or write.
    pub op: PolicyOp,
    /// Length of the whole client request in bytes, not of its part in this line.
    pub len_bytes: u32,
    /// The touched parts of the line: a slot holds these, and no more.
    pub parts: LineParts,
}

/// An instruction to the engine for one access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// The line is in this slot.
    Hit(SlotNumber),
    /// The line is not cached and is not to be.
    Bypass(BypassReason),
    /// The line is not cached; put it in this slot, which is free.
    Admit(SlotNumber),
    /// The line is not cached; put it in this slot in place of `victim`.
    Replace {
        /// The slot to reuse.
        slot: SlotNumber,
        /// The line that occupied the slot, and is no longer resident.
        victim: LineKey,
    },
}

/// Reason why an access was not cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BypassReason {
    /// Estimated to be used less than the line to be replaced.
    ColderThanVictim,
    /// Every line that could have made room is pinned by the engine.
    AllPinned,
    /// The pool has no usable slot.
    NoSlots,
}

/// The engine's veto over victims: a line with dirty data that cannot be
/// cleaned now, or with an operation in flight, is pinned.
pub trait VictimVeto {
    /// True if the line in `slot` must stay for now.
    fn pinned(&self, slot: SlotNumber) -> bool;
}

/// No slot is pinned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpinned;

impl VictimVeto for Unpinned {
    fn pinned(&self, _: SlotNumber) -> bool {
        false
    }
}

impl<F: Fn(SlotNumber) -> bool> VictimVeto for F {
    fn pinned(&self, slot: SlotNumber) -> bool {
        self(slot)
    }
}

/// The state of a self-tuning policy, for reports.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The rule in force.
    pub active: &'static str,
    /// Since when, by [`Policy::tick`].
    pub since: Nanos,
    /// The number of changes of the rule.
    pub changes: u64,
    /// Each rule, and the share of recent accesses that the rule would have missed.
    pub rules: Vec<(&'static str, f64)>,
}

/// A replacement policy for the engine: the choice of the resident line that makes room.
///
/// Usable as `Box<dyn Policy>` (one virtual call an access) or as a concrete type that the compiler
/// inlines.
pub trait Policy {
    /// Records one access to `key` and returns the instruction.
    ///
    /// `pins` is asked only about slots that are about to be replaced. On
    /// `Replace` the victim is forgotten at once; if the fill then fails, call
    /// [`Policy::remove`] with the new key.
    #[inline]
    fn access(
        &mut self,
        key: LineKey,
        request: &PolicyRequest,
        pins: &dyn VictimVeto,
    ) -> Instruction {
        match self.touch_common(key, request) {
            Some(slot) => Instruction::Hit(slot),
            None => access_fully(self, key, request, pins),
        }
    }

    /// Records an access; the slot if `key` is resident.
    fn touch(&mut self, key: LineKey, request: &PolicyRequest) -> Option<SlotNumber>;

    /// As `touch`, for hits that need little work; `None`, with nothing recorded, for others: call
    /// `touch` for them.
    #[inline]
    fn touch_common(&mut self, _key: LineKey, _request: &PolicyRequest) -> Option<SlotNumber> {
        None
    }

    /// Records an access to `key`, which is resident in `slot`.
    #[inline]
    fn touch_resident(&mut self, slot: SlotNumber, key: LineKey, request: &PolicyRequest) {
        let touched = self.touch(key, request);
        debug_assert_eq!(touched, Some(slot));
    }

    /// Makes room for `key`, which is not resident.
    fn insert(
        &mut self,
        key: LineKey,
        request: &PolicyRequest,
        pins: &dyn VictimVeto,
    ) -> Instruction;

    /// Returns the slot of `key`, without recording an access.
    fn peek(&self, key: LineKey) -> Option<SlotNumber>;

    /// Forgets `key` and frees its slot, which is returned.
    fn remove(&mut self, key: LineKey) -> Option<SlotNumber>;

    /// Declares that `key` already occupies `slot`, as after a restart, with the parts `held`, and
    /// with the heat that [`Policy::export`] gave, or the default if that is lost. Returns false,
    /// and changes nothing, if either is taken or unusable. Counts as no access.
    fn adopt(&mut self, key: LineKey, slot: SlotNumber, heat: Heat, held: LineParts) -> bool;

    /// Visits every resident line once, with its heat, in the order of adoption after a restart. Of
    /// lines of equal heat the one unused for longest comes first.
    ///
    /// A restart that forgets nothing: store the lines in this order and the bytes of
    /// [`Policy::save`]; afterwards build a policy of the same name and size, `restore` the bytes,
    /// `adopt` the lines in the stored order. Lines that are no longer valid are left out. Another
    /// policy may adopt them too: it uses the parts of the heat that it knows.
    fn export(&self, visit: &mut dyn FnMut(LineKey, SlotNumber, Heat));

    /// Makes the slots `..total` exist; those added are free. Allocates.
    fn grow(&mut self, total: u32);

    /// Takes slots out of use, as when a device is lost or removed. Lines in
    /// them are forgotten: a device to be emptied is emptied beforehand.
    fn retire(&mut self, slots: Range<u32>);

    /// Puts retired slots back in use, free. Each call rebuilds all that depends on their number:
    /// revive many at once.
    fn revive(&mut self, slots: &[Range<u32>]);

    /// Spreads lines over `parts` as far as slots are free: in proportion to slots, and less to
    /// slow parts. Without parts, lines go to the lowest free slot. Returns the lines that slow parts
    /// passed on since the last call.
    fn share(&mut self, parts: &[SlotPart]) -> u64;

    /// The slots: existing, free and retired ones.
    fn slots(&self) -> &SlotStates;

    /// Visits every resident line once, in no particular order.
    fn for_each(&self, visit: &mut dyn FnMut(LineKey, SlotNumber));

    /// Passes the time. Call at any steady pace, such as once a second.
    fn tick(&mut self, _now: Nanos) {}

    /// The learnt state, for [`Policy::restore`] after a restart; empty for a policy that only
    /// knows its present lines.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes up the bytes of [`Policy::save`]. Returns false, and changes
    /// nothing, if the bytes are damaged or from another version.
    fn restore(&mut self, saved: &[u8]) -> bool {
        saved.is_empty()
    }

    /// The rule of a self-tuning policy; `None` from all others.
    fn explanation(&self) -> Option<Explanation> {
        None
    }

    /// Panics if an internal invariant does not hold. Costs O(lines).
    fn check(&self);
}

/// Apart, so that a hit of the common kind saves no registers for this call.
#[inline(never)]
fn access_fully<P: Policy + ?Sized>(
    policy: &mut P,
    key: LineKey,
    request: &PolicyRequest,
    pins: &dyn VictimVeto,
) -> Instruction {
    match policy.touch(key, request) {
        Some(slot) => Instruction::Hit(slot),
        None => policy.insert(key, request, pins),
    }
}
