//! The tables of a cache, and the steps that change several of them at once.
//!
//! Nothing here waits: each step is atomic on its shard.

use crate::budget::PromotionBudget;
use crate::busy::{Busy, LateOperation};
use crate::contents::PoolContents;
use crate::counters::{CacheCounters, Counter};
use crate::devices::{DeviceState, PoolDevices, PoolMember};
use crate::durable::PoolMetadata;
use crate::health::DeviceFault;
use crate::history::{Decision, GhostHistory};
use crate::lines::{BLOCK_BYTES, BlockRun, LinePart, LineShape, split_key};
use crate::resting::RestingLines;
use block::{Device, Nanos};
use policy::{
    BypassReason, Instruction, LineKey, Policy, PolicyOp, PolicyRequest, SlotNumber, VictimVeto,
};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

/// Place of a line.
#[derive(Clone, Copy)]
pub(crate) enum LinePlace {
    /// The line was there before.
    Resident(SlotNumber),
    /// The line is there from now on, without valid blocks.
    Entered(SlotNumber),
}

impl LinePlace {
    pub(crate) fn slot(self) -> SlotNumber {
        match self {
            LinePlace::Resident(slot) | LinePlace::Entered(slot) => slot,
        }
    }
}

pub(crate) struct CacheState<P> {
    pub(crate) shape: LineShape,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) contents: PoolContents,
    pub(crate) busy: Busy,
    pub(crate) devices: PoolDevices<P>,
    /// Lines of bypassed devices.
    pub(crate) resting: RestingLines,
    pub(crate) budget: Rc<PromotionBudget>,
    pub(crate) history: GhostHistory,
    /// Counters of the cache; each volume has its own.
    pub(crate) counters: Rc<CacheCounters>,
    /// The metadata of the pool's devices, if any.
    pub(crate) durable: Option<Rc<PoolMetadata>>,
}

impl<P: Device> CacheState<P> {
    /// The one look-up of a request in a line: the present place of the line, or its place from now
    /// on. A line that is not resident and may not enter, for the reason in `may_enter`, is not
    /// passed to the policy: the policy would make room.
    #[inline]
    pub(crate) fn look_up(
        &mut self,
        key: LineKey,
        request: &PolicyRequest,
        may_enter: Result<(), Counter>,
        counters: &CacheCounters,
    ) -> Option<LinePlace> {
        if let Err(why) = may_enter
            && self.policy.peek(key).is_none()
        {
            self.refuse(key, why, counters);
            return None;
        }
        match self.policy.access(key, request, &self.busy.pins) {
            Instruction::Hit(slot) => Some(LinePlace::Resident(slot)),
            Instruction::Bypass(reason) => {
                self.refuse(key, rejection(reason), counters);
                None
            }
            Instruction::Admit(slot) => {
                if self.busy.pins.pinned(slot) {
                    self.policy.remove(key);
                    self.refuse(key, Counter::RejectedPinned, counters);
                    return None;
                }
                self.admitted(slot, key, counters);
                Some(LinePlace::Entered(slot))
            }
            Instruction::Replace { slot, victim } => {
                counters.count(Counter::LinesEvicted);
                self.history.note(victim, Decision::Evicted(key));
                self.admitted(slot, key, counters);
                Some(LinePlace::Entered(slot))
            }
        }
    }

    /// Notes that a read of `len_bytes` has hit a part of the line in `slot`.
    #[inline]
    pub(crate) fn touch(&mut self, slot: SlotNumber, part: LinePart, len_bytes: usize) {
        let touches = PolicyRequest {
            op: PolicyOp::Read,
            len_bytes: len_bytes as u32,
            parts: self.shape.touched(part.run),
        };
        self.policy.touch_resident(slot, part.key, &touches);
    }

    /// Counts why `key` is not admitted, or not written to the pool.
    pub(crate) fn refuse(&mut self, key: LineKey, why: Counter, counters: &CacheCounters) {
        counters.count(why);
        self.history.note(key, Decision::Refused(why));
    }

    fn admitted(&mut self, slot: SlotNumber, key: LineKey, counters: &CacheCounters) {
        counters.count(Counter::LinesAdmitted);
        self.history.note(key, Decision::Admitted);
        self.contents.enter(slot, key);
    }

    /// Invalidates `blocks` of a volume, which a client is about to change; pool writes in flight
    /// no longer make them valid.
    pub(crate) fn invalidate(&mut self, volume: u32, blocks: Range<u64>, counters: &CacheCounters) {
        let shape = self.shape;
        let lines = blocks.start >> shape.shift()..=blocks.end.saturating_sub(1) >> shape.shift();
        let part = |key| shape.part_of(volume, &blocks, key);
        let mut dropped = self.invalidate_resting(volume, lines, part);
        let resident = u64::from(self.policy.slots().used());
        if self.shape.lines(&blocks) <= resident {
            for LinePart { key, run } in self.shape.parts(volume, blocks) {
                if let Some(slot) = self.policy.peek(key) {
                    self.busy.poison(slot, run);
                    let were = self.contents.invalidate(slot, run);
                    if were > 0 {
                        self.history.note(key, Decision::Overwritten);
                    }
                    dropped += were;
                }
            }
        } else {
            let Self {
                shape,
                policy,
                contents,
                busy,
                history,
                ..
            } = self;
            policy.for_each(&mut |key, slot| {
                if let Some(run) = shape.part_of(volume, &blocks, key) {
                    busy.poison(slot, run);
                    let were = contents.invalidate(slot, run);
                    if were > 0 {
                        history.note(key, Decision::Overwritten);
                    }
                    dropped += were;
                }
            });
        }
        counters.add(Counter::BlocksInvalidated, u64::from(dropped));
    }

    /// Invalidates the run that `part` gives for each resting line in `lines`. Returns the number
    /// of blocks that were valid.
    fn invalidate_resting(
        &mut self,
        volume: u32,
        lines: RangeInclusive<u64>,
        part: impl Fn(LineKey) -> Option<BlockRun>,
    ) -> u32 {
        let mut dropped = 0;
        let keys = self.shape.key(volume, *lines.start())..=self.shape.key(volume, *lines.end());
        for (key, slot) in self.resting.within(keys) {
            if let Some(run) = part(key) {
                self.busy.poison(slot, run);
                dropped += self.contents.invalidate(slot, run);
            }
        }
        dropped
    }

    /// Invalidates the lines of `volume` that are `suspect`: the origin may hold other bytes than
    /// expected. Pool writes in flight no longer make them valid.
    pub(crate) fn distrust(&mut self, volume: u32, suspect: impl Fn(u64) -> bool) {
        let whole = self.shape.whole();
        let all = 0..=split_key(LineKey(u64::MAX)).1;
        self.invalidate_resting(volume, all, |key| {
            suspect(split_key(key).1).then_some(whole)
        });
        let Self {
            policy,
            contents,
            busy,
            history,
            ..
        } = self;
        policy.for_each(&mut |key, slot| {
            let (of, line) = split_key(key);
            if of == volume && suspect(line) {
                busy.poison(slot, whole);
                if contents.invalidate(slot, whole) > 0 {
                    history.note(key, Decision::Distrusted);
                }
            }
        });
    }

    /// Gives up the line of `key` if no block of the line is or is becoming valid.
    pub(crate) fn drop_if_empty(&mut self, key: LineKey, counters: &CacheCounters) {
        if let Some(slot) = self.policy.peek(key)
            && self.contents.is_empty(slot)
            && !self.busy.pins.pinned(slot)
        {
            self.policy.remove(key);
            counters.count(Counter::LinesDropped);
            self.history.dropped(key);
        }
    }

    /// Verifies the bytes of a hit; drops the blocks that are bad and returns
    /// how many those are.
    #[inline]
    pub(crate) fn verify(&mut self, slot: SlotNumber, run: BlockRun, bytes: &[u8]) -> u64 {
        let mut bad = 0;
        for (first, bytes) in (run.first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            if crc_fast::crc32_iscsi(bytes) != self.contents.crc(slot, first) {
                self.contents.invalidate(slot, BlockRun { first, count: 1 });
                bad += 1;
            }
        }
        bad
    }

    /// Records a fault of a device; ejects the device after too many.
    pub(crate) fn fault(&mut self, member: &PoolMember<P>, fault: DeviceFault, now: Nanos) {
        if member.health.fault(fault, now) {
            self.eject(member, fault);
        }
    }

    /// Ejects a device, whatever its record.
    pub(crate) fn eject(&mut self, member: &PoolMember<P>, fault: DeviceFault) {
        if member.state.get() == DeviceState::Online {
            self.retire(member, DeviceState::Ejected(fault));
            self.counters.count(Counter::DevicesEjected);
        }
    }

    /// Takes the slots of a device out of use. The lines of one that is late rest.
    pub(crate) fn retire(&mut self, member: &PoolMember<P>, state: DeviceState) {
        let rests = state == DeviceState::Ejected(DeviceFault::Late) && member.may_return();
        let served = member.state.replace(state) == DeviceState::Online;
        if served && rests {
            self.resting.begin(member.id, &member.slots, &*self.policy);
            self.contents.hide(&member.slots);
        }
        if served {
            self.policy.retire(member.slots.clone());
            self.busy.poison_slots(&member.slots);
            self.contents.generations().change_all();
            if let (Some(durable), Some(_)) = (&self.durable, &member.store) {
                durable.member_left();
            }
        }
        if !rests {
            self.resting.end(member.id);
            self.contents.show(&member.slots);
            self.contents.lose(&member.slots);
        }
    }

    /// Lets the devices that serve take turns at new lines, by size and by the service shown.
    pub(crate) fn share(&mut self) {
        let passed_on = self.policy.share(&self.devices.parts());
        self.counters.add(Counter::LinesPassedOn, passed_on);
    }

    /// Counts a located read that was late: a fault of the device, unless slow writes explain it.
    pub(crate) fn late_hit(&mut self, member: &PoolMember<P>, now: Nanos) {
        self.counters.count(Counter::HitsLate);
        if !self.busy.were_slow() || !self.budget.may_shrink() {
            self.fault(member, DeviceFault::Late, now);
        }
    }

    /// Ends a period of the watchdog, with faults for late operations.
    pub(crate) fn tick(&mut self, now: Nanos) {
        let (mut hits, mut writes) = (Vec::new(), Vec::new());
        self.busy.tick(|operation| match operation {
            LateOperation::Hit(slot) => hits.push(slot),
            LateOperation::Write(write) => writes.push(write),
        });
        let mut queued = false;
        let mut faulty = Vec::new();
        for write in writes {
            self.counters
                .add(Counter::PoolWritesLate, u64::from(write.first));
            let member = self.devices.of(write.slot);
            let answered = member.map_or(0, |member| member.health.answered());
            if answered > write.answered {
                self.busy.wait_on(write.id, answered);
                queued = true;
            } else {
                self.busy.answered(write.id);
                faulty.push(write.slot);
            }
        }
        self.counters.add(Counter::HitsLate, hits.len() as u64);
        if (queued || self.busy.were_slow()) && self.budget.may_shrink() {
            queued |= !hits.is_empty();
        } else {
            faulty.append(&mut hits);
        }
        for slot in faulty {
            if let Some(member) = self.devices.of(slot).cloned() {
                self.fault(&member, DeviceFault::Late, now);
            }
        }
        self.budget.adapt(queued);
        self.budget.refill(now);
    }
}

/// The counter of a refusal by the policy.
fn rejection(reason: BypassReason) -> Counter {
    match reason {
        BypassReason::ColderThanVictim => Counter::RejectedCold,
        BypassReason::AllPinned => Counter::RejectedPinned,
        BypassReason::NoSlots => Counter::RejectedNoSlots,
    }
}
