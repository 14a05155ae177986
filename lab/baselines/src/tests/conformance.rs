//! The duties of every policy, whatever its choice of victims: one model of residency, fed with
//! random accesses, removals, losses and growth.

use crate::registry;
use policy::{
    BypassReason, Heat, Instruction, LineKey, LineParts, Policy, PolicyOp, PolicyRequest,
    SlotNumber, SlotPart, SlotStates, Unpinned, VictimVeto,
};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

#[derive(Clone, Debug)]
enum Step {
    Access {
        key: u64,
        write: bool,
        pinned_modulo: u32,
    },
    Scan {
        from: u64,
        len: u64,
    },
    Remove(u64),
    Adopt(u64, u32, u16),
    Grow(u32),
    Retire(u32, u32),
    Revive(u32, u32),
    SaveRestore,
}

fn step() -> impl Strategy<Value = Step> {
    let access = (0u64..400, any::<bool>(), 0u32..4).prop_map(|(key, write, pinned_modulo)| {
        // Squared so that low keys are hot.
        Step::Access {
            key: key * key / 400,
            write,
            pinned_modulo,
        }
    });
    prop_oneof![
        200 => access,
        2 => (0u64..400, 1u64..80).prop_map(|(from, len)| Step::Scan { from, len }),
        4 => (0u64..400).prop_map(Step::Remove),
        2 => (0u64..400, 0u32..130, any::<u16>()).prop_map(|(k, s, h)| Step::Adopt(k, s, h)),
        1 => (1u32..20).prop_map(Step::Grow),
        1 => (0u32..130, 1u32..60).prop_map(|(a, n)| Step::Retire(a, n)),
        1 => (0u32..130, 1u32..90).prop_map(|(a, n)| Step::Revive(a, n)),
        1 => Just(Step::SaveRestore),
    ]
}

/// The residency that the instructions given so far amount to.
struct Model {
    policy: Box<dyn Policy>,
    slot_of: HashMap<LineKey, SlotNumber>,
    key_in: HashMap<SlotNumber, LineKey>,
    retired: BTreeSet<u32>,
    total: u32,
    hits: u64,
}

impl Model {
    fn new(policy: Box<dyn Policy>, total: u32) -> Model {
        Model {
            policy,
            slot_of: HashMap::new(),
            key_in: HashMap::new(),
            retired: BTreeSet::new(),
            total,
            hits: 0,
        }
    }

    fn live(&self) -> usize {
        self.total as usize - self.retired.len()
    }

    fn access(&mut self, key: LineKey, op: PolicyOp, pins: &dyn VictimVeto) {
        let request = PolicyRequest {
            op,
            len_bytes: 4096,
            ..PolicyRequest::default()
        };
        let before = self.slot_of.get(&key).copied();
        assert_eq!(self.policy.peek(key), before, "peek disagrees for {key:?}");
        match self.policy.access(key, &request, pins) {
            Instruction::Hit(slot) => {
                assert_eq!(before, Some(slot), "false hit on {key:?}");
                self.hits += 1;
            }
            Instruction::Bypass(BypassReason::NoSlots) => assert_eq!(self.live(), 0),
            Instruction::Bypass(_) => assert_eq!(before, None),
            Instruction::Admit(slot) => {
                assert_eq!(before, None);
                self.put(key, slot);
            }
            Instruction::Replace { slot, victim } => {
                assert_eq!(before, None);
                assert!(
                    self.key_in.len() == self.live(),
                    "replaced beside a free slot"
                );
                assert!(!pins.pinned(slot), "{slot:?} is pinned");
                assert_eq!(self.slot_of.remove(&victim), Some(slot), "wrong victim");
                assert_eq!(self.key_in.remove(&slot), Some(victim));
                self.put(key, slot);
            }
        }
    }

    fn put(&mut self, key: LineKey, slot: SlotNumber) {
        assert!(slot.0 < self.total && !self.retired.contains(&slot.0));
        assert_eq!(self.key_in.insert(slot, key), None, "{slot:?} was taken");
        assert_eq!(self.slot_of.insert(key, slot), None);
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Access {
                key,
                write,
                pinned_modulo,
            } => {
                let op = if write {
                    PolicyOp::Write
                } else {
                    PolicyOp::Read
                };
                let pins = |slot: SlotNumber| {
                    pinned_modulo > 0 && slot.0.is_multiple_of(pinned_modulo + 1)
                };
                self.access(LineKey(key), op, &pins);
            }
            Step::Scan { from, len } => {
                for key in from..from + len {
                    self.access(LineKey(key), PolicyOp::Read, &Unpinned);
                }
            }
            Step::Remove(key) => {
                let slot = self.slot_of.remove(&LineKey(key));
                if let Some(slot) = slot {
                    self.key_in.remove(&slot);
                }
                assert_eq!(self.policy.remove(LineKey(key)), slot);
            }
            Step::Adopt(key, slot, heat) => {
                let usable = slot < self.total && !self.retired.contains(&slot);
                let free = usable && !self.key_in.contains_key(&SlotNumber(slot));
                let expected = free && !self.slot_of.contains_key(&LineKey(key));
                let adopted =
                    self.policy
                        .adopt(LineKey(key), SlotNumber(slot), Heat(heat), LineParts::WHOLE);
                assert_eq!(adopted, expected);
                if expected {
                    self.put(LineKey(key), SlotNumber(slot));
                }
            }
            Step::Grow(by) => {
                self.total += by;
                self.policy.grow(self.total);
            }
            Step::Retire(from, len) => {
                for slot in from..(from + len).min(self.total) {
                    self.retired.insert(slot);
                    if let Some(key) = self.key_in.remove(&SlotNumber(slot)) {
                        self.slot_of.remove(&key);
                    }
                }
                self.policy.retire(from..from + len);
            }
            Step::Revive(from, len) => {
                self.retired
                    .retain(|slot| !(from..from + len).contains(slot));
                let range = from..from + len;
                self.policy.revive(std::slice::from_ref(&range));
            }
            Step::SaveRestore => {
                let saved = self.policy.save();
                assert!(self.policy.restore(&saved), "a fresh save was refused");
                assert!(!self.policy.restore(b"not a saved state"));
            }
        }
        assert_eq!(self.policy.slots().live() as usize, self.live());
        assert_eq!(self.policy.slots().used() as usize, self.key_in.len());
    }

    fn check(&self) {
        self.policy.check();
        let mut seen = HashMap::new();
        self.policy.for_each(&mut |key, slot| {
            assert_eq!(seen.insert(key, slot), None, "{key:?} visited twice");
        });
        assert_eq!(seen, self.slot_of);
        let mut exported = HashMap::new();
        self.policy.export(&mut |key, slot, _| {
            assert_eq!(exported.insert(key, slot), None, "{key:?} exported twice");
        });
        assert_eq!(exported, self.slot_of);
    }
}

fn conforms(policy: Box<dyn Policy>, slots: u32, steps: &[Step]) {
    let mut model = Model::new(policy, slots);
    for (i, step) in steps.iter().enumerate() {
        model.apply(step);
        if i % 64 == 0 {
            model.check();
        }
    }
    model.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_policy_conforms(
        slots in 0u32..120,
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 0..1500),
    ) {
        for name in registry::POLICIES.iter().chain(registry::RULES) {
            let policy = registry::build(name, slots, seed).expect("registered");
            conforms(policy, slots, &steps);
        }
    }
}

/// A run long enough to reach the states that random steps rarely do.
#[test]
fn every_policy_survives_a_long_run() {
    for name in registry::POLICIES.iter().chain(registry::RULES) {
        let mut model = Model::new(registry::build(name, 500, 3).expect("registered"), 500);
        let mut x = 1u64;
        for i in 0..200_000u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let r = x >> 33;
            let key = match i / 10_000 % 4 {
                0 => (r % 2000) * (r / 2000 % 2000) / 2000,
                1 => i % 700,
                2 => 10_000 + i,
                _ => r % 3000,
            };
            let op = if r & 8 == 0 {
                PolicyOp::Read
            } else {
                PolicyOp::Write
            };
            model.access(LineKey(key), op, &Unpinned);
            if i % 20_000 == 0 {
                model.check();
            }
        }
        model.check();
        assert!(model.hits > 30_000, "{name} hardly hits");
    }
}

#[test]
fn a_pool_that_is_all_pinned_bypasses() {
    for name in registry::POLICIES.iter().chain(registry::RULES) {
        let mut policy = registry::build(name, 300, 1).expect("registered");
        let request = PolicyRequest::default();
        for key in 0..300 {
            policy.access(LineKey(key), &request, &Unpinned);
        }
        for key in 1000..1400 {
            let answer = policy.access(LineKey(key), &request, &|_: SlotNumber| true);
            assert!(
                matches!(answer, Instruction::Bypass(_)),
                "{name}: {answer:?}"
            );
        }
        policy.check();
        assert_eq!(policy.slots().used(), 300, "{name}");
    }
}

/// Claims that a line removed long ago is still there.
struct Forgetful(Box<dyn Policy>);

impl Policy for Forgetful {
    fn access(
        &mut self,
        key: LineKey,
        request: &PolicyRequest,
        pins: &dyn VictimVeto,
    ) -> Instruction {
        match self.0.access(key, request, pins) {
            Instruction::Replace { slot, .. } => Instruction::Admit(slot),
            other => other,
        }
    }
    fn touch(&mut self, key: LineKey, request: &PolicyRequest) -> Option<SlotNumber> {
        self.0.touch(key, request)
    }
    fn insert(
        &mut self,
        key: LineKey,
        request: &PolicyRequest,
        pins: &dyn VictimVeto,
    ) -> Instruction {
        self.0.insert(key, request, pins)
    }
    fn peek(&self, key: LineKey) -> Option<SlotNumber> {
        self.0.peek(key)
    }
    fn remove(&mut self, key: LineKey) -> Option<SlotNumber> {
        self.0.remove(key)
    }
    fn adopt(&mut self, key: LineKey, slot: SlotNumber, heat: Heat, held: LineParts) -> bool {
        self.0.adopt(key, slot, heat, held)
    }
    fn export(&self, visit: &mut dyn FnMut(LineKey, SlotNumber, Heat)) {
        self.0.export(visit);
    }
    fn grow(&mut self, total: u32) {
        self.0.grow(total);
    }
    fn retire(&mut self, slots: Range<u32>) {
        self.0.retire(slots);
    }
    fn revive(&mut self, slots: &[Range<u32>]) {
        self.0.revive(slots);
    }
    fn share(&mut self, parts: &[SlotPart]) -> u64 {
        self.0.share(parts)
    }
    fn slots(&self) -> &SlotStates {
        self.0.slots()
    }
    fn for_each(&self, visit: &mut dyn FnMut(LineKey, SlotNumber)) {
        self.0.for_each(visit);
    }
    fn check(&self) {}
}

/// The canary: the suite fails on a policy that evicts without a report.
#[test]
#[should_panic(expected = "was taken")]
fn the_suite_notices_a_silent_eviction() {
    let policy = Box::new(Forgetful(registry::build("lru", 8, 1).expect("registered")));
    let steps: Vec<Step> = (0..100).map(|from| Step::Scan { from, len: 5 }).collect();
    conforms(policy, 8, &steps);
}
