//! The default policy: learns the reuse of lines, and the rule that does best.
//!
//! The policy keeps no lists. A resident line has eight bytes ([`line`]): its last access, the
//! number of its accesses, its class ([`class`]), and its parts in the pool ([`fills`]). A sample
//! of the keys ([`monitor`]) teaches the chance of reuse for each class at each age ([`hazard`]).
//! The sample also runs miniature caches of the rules ([`expert`]): learned reuse, recency,
//! frequency, tenure. The rule with the fewest misses in miniature decides here: it judges a few
//! random resident lines and takes the one worth least. All rules read the same bytes, so a change
//! of rule hands nothing over and costs nothing.
//!
//! Invariants:
//!     lines[s] is vacant ⟺ slot s holds no line
//!     the index holds exactly the resident keys

mod class;
mod expert;
mod fills;
mod ghosts;
mod hazard;
mod line;
mod monitor;
mod random;
mod scale;
mod state;

use crate::index::mix;
use crate::{
    BypassReason, Explanation, Heat, Index, Instruction, LineKey, LineParts, Policy, PolicyRequest,
    SlotNumber, SlotPart, SlotStates, VictimVeto,
};
use block::Nanos;
use class::{COUNT_MAX, LineClass, bucket, bucket_start};
pub use expert::Expert;
use expert::{EXPERTS, score};
use ghosts::Ghosts;
use hazard::Hazards;
use line::PackedLine;
use monitor::{Monitor, SAMPLES};
use random::UniformNumbers;
use scale::AgeScale;
use state::AutoState;
use std::ops::Range;

/// Ghosts remembered for each slot.
const GHOSTS_PER_SLOT: u32 = 8;
/// Tries to find a resident line among random slots, for each sample.
const TRIES: u32 = 16;
/// Sampled accesses over which the rules' misses fade, in miniature pools.
const MEMORY_POOLS: f32 = 16.0;
/// Miss ratio by which another rule has to be better.
const HYSTERESIS: f32 = 0.01;
/// Number of times that every class is recomputed in as many accesses as the pool has lines.
const ROUNDS_PER_POOL: u32 = 4;

/// The content of a slot, key and record: together, so that a hit touches one line of the
/// processor's caches. Zeroes are no line: a fresh table is memory that nobody has touched.
type SlotWords = [u64; 2];

#[inline]
fn key_of(words: &SlotWords) -> LineKey {
    LineKey(words[0])
}

#[inline]
fn line_of(words: &SlotWords) -> PackedLine {
    PackedLine::unpacked(words[1])
}

/// The slots of `lines` that hold a line, with the line.
fn resident(lines: &[SlotWords]) -> impl Iterator<Item = (SlotNumber, LineKey, PackedLine)> {
    let all = (0..).zip(lines);
    let all = all.map(|(slot, words)| (SlotNumber(slot), key_of(words), line_of(words)));
    all.filter(|(_, _, line)| !line.is_vacant())
}

/// Self-tuning replacement and admission.
#[derive(Clone, Debug)]
pub struct Auto<I> {
    index: I,
    lines: Vec<SlotWords>,
    slots: SlotStates,
    ghosts: Ghosts,
    hazards: Hazards,
    monitor: Monitor,
    random: UniformNumbers,
    scale: AgeScale,
    accesses: u64,
    /// The value of `accesses` at the next step of the hazards.
    step_at: u64,
    active: Expert,
    /// True if the active rule stays whatever the miniatures show.
    is_fixed: bool,
    active_since: Nanos,
    changes: u64,
    time: Nanos,
    /// Faded misses of each rule, and faded sampled accesses.
    misses: [f32; EXPERTS],
    sampled: f32,
    chance_min: f32,
}

impl<I: Index> Auto<I> {
    /// For up to `slots` lines. A line is not filled if its chance of a reuse
    /// in time is below `chance_min`: zero for most hits, more for fewer writes
    /// to the pool.
    pub fn new(universe: I::Universe, slots: u32, chance_min: f32) -> Auto<I> {
        Auto {
            index: I::new(universe, slots),
            lines: vec![[0; 2]; slots as usize],
            slots: SlotStates::new(slots),
            ghosts: Ghosts::new(slots.saturating_mul(GHOSTS_PER_SLOT)),
            hazards: Hazards::new(),
            monitor: Monitor::new(slots),
            random: UniformNumbers::new(2),
            scale: AgeScale::of(slots),
            accesses: 0,
            step_at: 1,
            active: Expert::Reuse,
            is_fixed: false,
            active_since: Nanos::ZERO,
            changes: 0,
            time: Nanos::ZERO,
            misses: [0.0; EXPERTS],
            sampled: 0.0,
            chance_min,
        }
    }

    /// For up to `slots` lines, always by this rule: to measure the worth of the choice.
    pub fn fixed(universe: I::Universe, slots: u32, rule: Expert) -> Auto<I> {
        Auto {
            active: rule,
            is_fixed: true,
            ..Auto::new(universe, slots, 0.0)
        }
    }

    #[inline]
    fn now(&self) -> u32 {
        (self.accesses >> self.scale.shift) as u32
    }

    #[inline]
    fn find(&self, key: LineKey) -> Option<u32> {
        self.index
            .get(key, |slot| key_of(&self.lines[slot as usize]))
    }

    #[inline]
    fn sampled(&self, key: LineKey) -> bool {
        let hash = (mix(key.0 ^ 0x5eed) >> 32) as u32;
        self.monitor.sampled(hash)
    }

    /// The line in `slot` is used now.
    #[inline]
    fn use_line(&mut self, slot: u32, request: &PolicyRequest) {
        let now = self.now();
        let words = &mut self.lines[slot as usize];
        let mut line = line_of(words);
        line.touch(now, request, &self.scale);
        words[1] = line.packed();
    }

    /// The work of every access, a hit of the line in `resident` or a miss.
    fn observe(&mut self, key: LineKey, request: &PolicyRequest, resident: Option<u32>) {
        self.accesses += 1;
        // Without slots there is nothing to decide, and nothing to learn of a rule.
        if self.slots.live() > 0 && self.sampled(key) {
            self.learn(key, request, resident);
        }
        if self.accesses == self.step_at {
            self.hazards.step();
            let live = self.slots.live();
            let every = (live / (class::CLASSES as u32 * ROUNDS_PER_POOL)).clamp(8, 1000);
            self.step_at += u64::from(every);
        }
    }

    fn learn(&mut self, key: LineKey, request: &PolicyRequest, resident: Option<u32>) {
        let now = self.now();
        if let Some(slot) = resident {
            self.hazards.again(line_of(&self.lines[slot as usize]));
        }
        let missed = self
            .monitor
            .access(key, request, &mut self.hazards, &self.scale, now);
        let keep = 1.0 - 1.0 / (MEMORY_POOLS * self.monitor.mini_lines() as f32);
        self.sampled = self.sampled * keep + 1.0;
        for (misses, missed) in self.misses.iter_mut().zip(missed) {
            *misses = *misses * keep + f32::from(u8::from(missed));
        }
        let best = Expert::ALL
            .into_iter()
            .min_by(|a, b| self.misses[*a as usize].total_cmp(&self.misses[*b as usize]))
            .expect("there are rules");
        let gain = self.misses[self.active as usize] - self.misses[best as usize];
        if gain > HYSTERESIS * self.sampled {
            self.follow(best);
        }
    }

    /// Decides by `rule` from now on.
    fn follow(&mut self, rule: Expert) {
        if rule != self.active && !self.is_fixed {
            self.active = rule;
            self.active_since = self.time;
            self.changes += 1;
        }
    }

    /// The resident line worth least among a few, and its worth.
    fn victim(&mut self, pins: &dyn VictimVeto, now: u32) -> Option<(SlotNumber, f32)> {
        // A copy of the loop for each rule: the loop is most of the cost of a replacement.
        match self.active {
            Expert::Reuse => self.least(Expert::Reuse, pins, now),
            Expert::Recency => self.least(Expert::Recency, pins, now),
            Expert::Frequency => self.least(Expert::Frequency, pins, now),
            Expert::Tenure => self.least(Expert::Tenure, pins, now),
        }
    }

    #[inline(always)]
    fn least(
        &mut self,
        rule: Expert,
        pins: &dyn VictimVeto,
        now: u32,
    ) -> Option<(SlotNumber, f32)> {
        let mut worst: Option<(f32, u32, u32)> = None;
        let mut random = self.random.clone();
        for _ in 0..SAMPLES {
            let draws = (0..TRIES).map(|_| random.below(self.lines.len() as u32));
            let mut held = draws.map(|slot| (slot, line_of(&self.lines[slot as usize])));
            let Some((slot, line)) = held.find(|(_, line)| !line.is_vacant()) else {
                continue;
            };
            let worth = score(rule, &self.hazards, &self.scale, line, now);
            let age = now.wrapping_sub(line.last);
            let worse = worst.is_none_or(|(w, a, _)| worth < w || (worth == w && age > a));
            if worse && !pins.pinned(SlotNumber(slot)) {
                worst = Some((worth, age, slot));
            }
        }
        self.random = random;
        worst.map(|(worth, _, slot)| (SlotNumber(slot), worth))
    }

    fn vacate(&mut self, slot: u32) {
        let words = &mut self.lines[slot as usize];
        words[1] = PackedLine::VACANT.packed();
        self.index.remove(key_of(words), slot);
    }

    fn occupy(&mut self, slot: SlotNumber, key: LineKey, line: PackedLine) {
        self.lines[slot.0 as usize] = [key.0, line.packed()];
        self.index.insert(key, slot.0);
    }

    /// The memory of a line that is not resident, at its access.
    fn newcomer(&mut self, key: LineKey, request: &PolicyRequest, now: u32) -> PackedLine {
        let (count, distance) = match self.ghosts.take(key, now) {
            Some(ghost) => {
                let count = self.scale.faded(ghost.count, ghost.age) + 1;
                (count.min(COUNT_MAX), Some(ghost.age))
            }
            None => (1, None),
        };
        let class = LineClass::of(count, distance, request, &self.scale);
        PackedLine::new(now, class, count, request.parts)
    }

    /// Adapts to another number of usable slots: time is measured in other ticks from now on.
    /// Sample and ghosts start over at their new size; the learnt state stays.
    fn resized(&mut self) {
        let live = self.slots.live();
        let (old, now) = (self.scale.shift, self.now());
        self.scale = AgeScale::of(live);
        let new = self.scale.shift;
        if new != old {
            let then = self.now();
            for words in self.lines.iter_mut().filter(|w| !line_of(w).is_vacant()) {
                let mut line = line_of(words);
                let accesses = u64::from(now.wrapping_sub(line.last)) << old;
                let ticks = (accesses >> new).min(u64::from(u32::MAX));
                line.last = then.wrapping_sub(ticks as u32);
                words[1] = line.packed();
            }
            self.hazards = self.hazards.rescaled(old, new);
        }
        self.ghosts = Ghosts::new(live.saturating_mul(GHOSTS_PER_SLOT));
        self.monitor = Monitor::new(live);
        self.step_at = self.accesses + 1;
    }
}

impl<I: Index> Policy for Auto<I> {
    #[inline(always)]
    fn touch(&mut self, key: LineKey, request: &PolicyRequest) -> Option<SlotNumber> {
        let slot = self.find(key);
        self.observe(key, request, slot);
        let slot = slot?;
        self.use_line(slot, request);
        Some(SlotNumber(slot))
    }

    #[inline(always)]
    fn touch_common(&mut self, key: LineKey, request: &PolicyRequest) -> Option<SlotNumber> {
        let accesses = self.accesses + 1;
        if accesses == self.step_at || self.sampled(key) {
            return None;
        }
        let lines = &self.lines;
        let slot = self
            .index
            .get_near(key, |slot| key_of(&lines[slot as usize]))?;
        self.accesses = accesses;
        self.use_line(slot, request);
        Some(SlotNumber(slot))
    }

    #[inline]
    fn touch_resident(&mut self, slot: SlotNumber, key: LineKey, request: &PolicyRequest) {
        let accesses = self.accesses + 1;
        if accesses == self.step_at || self.sampled(key) {
            self.observe(key, request, Some(slot.0));
        } else {
            self.accesses = accesses;
        }
        self.use_line(slot.0, request);
    }

    #[inline(never)]
    fn insert(
        &mut self,
        key: LineKey,
        request: &PolicyRequest,
        pins: &dyn VictimVeto,
    ) -> Instruction {
        if self.slots.live() == 0 {
            return Instruction::Bypass(BypassReason::NoSlots);
        }
        let now = self.now();
        let line = self.newcomer(key, request, now);
        if let Some(slot) = self.slots.take() {
            self.occupy(slot, key, line);
            return Instruction::Admit(slot);
        }
        let victim = self.victim(pins, now);
        let Some((slot, worth)) = victim else {
            self.ghosts.put(key, line.count(), now, now);
            return Instruction::Bypass(BypassReason::AllPinned);
        };
        let own = score(self.active, &self.hazards, &self.scale, line, now);
        if own < worth || self.hazards.chance(line.class()) < self.chance_min {
            self.ghosts.put(key, line.count(), now, now);
            return Instruction::Bypass(BypassReason::ColderThanVictim);
        }
        let words = &self.lines[slot.0 as usize];
        let (victim, old) = (key_of(words), line_of(words));
        if self.sampled(victim) {
            self.hazards.evicted(old);
        }
        self.vacate(slot.0);
        self.ghosts.put(victim, old.count(), old.last, now);
        self.occupy(slot, key, line);
        Instruction::Replace { slot, victim }
    }

    fn peek(&self, key: LineKey) -> Option<SlotNumber> {
        self.find(key).map(SlotNumber)
    }

    fn remove(&mut self, key: LineKey) -> Option<SlotNumber> {
        let slot = self.find(key)?;
        self.vacate(slot);
        self.slots.release(SlotNumber(slot));
        Some(SlotNumber(slot))
    }

    fn adopt(&mut self, key: LineKey, slot: SlotNumber, heat: Heat, held: LineParts) -> bool {
        if self.find(key).is_some() || !self.slots.take_this(slot) {
            return false;
        }
        let count = (heat.uses() + 1).min(COUNT_MAX);
        let age = bucket_start(usize::from(heat.age()));
        let class = LineClass::recalled(count, heat.kind());
        let line = PackedLine::adopted(self.now().wrapping_sub(age), class, count, held);
        self.occupy(slot, key, line);
        true
    }

    fn export(&self, visit: &mut dyn FnMut(LineKey, SlotNumber, Heat)) {
        let now = self.now();
        for (slot, key, line) in resident(&self.lines) {
            let age = bucket(now.wrapping_sub(line.last)) as u8;
            let heat = Heat::new(line.count().saturating_sub(1), age, line.class().kind());
            visit(key, slot, heat);
        }
    }

    fn grow(&mut self, total: u32) {
        if total <= self.slots.total() {
            return;
        }
        self.slots.grow(total);
        let mut lines = vec![[0; 2]; total as usize];
        lines[..self.lines.len()].copy_from_slice(&self.lines);
        self.lines = lines;
        let lines = &self.lines;
        self.index.grow(total, |slot| key_of(&lines[slot as usize]));
        self.resized();
    }

    fn retire(&mut self, slots: Range<u32>) {
        for slot in slots.start..slots.end.min(self.slots.total()) {
            if !line_of(&self.lines[slot as usize]).is_vacant() {
                self.vacate(slot);
                self.slots.release(SlotNumber(slot));
            }
        }
        self.slots.retire(slots);
        self.resized();
        // The rules' misses in the larger pool do not apply to this one.
        self.misses = [0.0; EXPERTS];
        self.sampled = 0.0;
        self.follow(Expert::Reuse);
    }

    fn revive(&mut self, slots: &[Range<u32>]) {
        for range in slots {
            self.slots.revive(range.clone());
        }
        self.resized();
    }

    fn share(&mut self, parts: &[SlotPart]) -> u64 {
        self.slots.share(parts)
    }

    fn slots(&self) -> &SlotStates {
        &self.slots
    }

    fn for_each(&self, visit: &mut dyn FnMut(LineKey, SlotNumber)) {
        for (slot, key, _) in resident(&self.lines) {
            visit(key, slot);
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.time = now;
    }

    fn save(&self) -> Vec<u8> {
        state::encode(&AutoState {
            active: self.active,
            shift: self.scale.shift as u8,
            misses: self.misses,
            sampled: self.sampled,
            hazards: self.hazards.clone(),
        })
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        let Some(state) = state::decode(saved) else {
            return false;
        };
        if !self.is_fixed {
            self.active = state.active;
        }
        self.misses = state.misses;
        self.sampled = state.sampled;
        let old = u32::from(state.shift);
        self.hazards = state.hazards.rescaled(old, self.scale.shift);
        true
    }

    fn explanation(&self) -> Option<Explanation> {
        let miss_ratio = |e: Expert| f64::from(self.misses[e as usize] / self.sampled.max(1.0));
        Some(Explanation {
            active: self.active.name(),
            since: self.active_since,
            changes: self.changes,
            rules: Expert::ALL.map(|e| (e.name(), miss_ratio(e))).to_vec(),
        })
    }

    fn check(&self) {
        for (slot, key, _) in resident(&self.lines) {
            assert!(self.slots.is_used(slot));
            assert_eq!(self.find(key), Some(slot.0));
        }
        assert_eq!(resident(&self.lines).count() as u32, self.slots.used());
        self.monitor.check();
    }
}
