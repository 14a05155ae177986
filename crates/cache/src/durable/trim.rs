//! Discards lines on their devices, so that these know the space as free: lines of volumes that the
//! pool has forgotten, and lines that clients' discards have emptied.
//!
//! Invariants:
//!     a line is discarded ⟹ the superblocks have no volume with its id, or nothing in it is valid
//!     a discard is in flight ⟹ its slots are pinned, not written, and nothing in them is valid
//!
//! A discard is no operation that a device is judged by: many take seconds for some.
//!
//! Not here: the trim of a device that leaves its pool. A line that makes room is not trimmed: its
//! slot is written at once.

use crate::cache::Cache;
use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::{DeviceState, PoolMember};
use crate::lines::{covering, split_key};
use block::{Device, Extent, IoResult, Sectors};
use policy::{LineKey, SlotNumber};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// Most bytes of a discard.
const STEP_BYTES: u64 = 1 << 20;
/// Most lines of a pass over the policy's table, whose keys take 16 MiB.
const PASS_LINES: usize = 1 << 20;

/// A line to be discarded.
type PlacedLine = (SlotNumber, LineKey);

/// Lines side by side on one device, which keeps them while they are discarded.
struct LineTrim<P: Device> {
    core: Rc<CacheCore<P>>,
    member: Rc<PoolMember<P>>,
    lines: Vec<PlacedLine>,
}

impl<P: Device> Cache<P> {
    /// Begins to discard the lines of forgotten volumes, with half of each device's time. Devices
    /// that cannot discard stay as they are.
    pub fn trim_forgotten(&self) {
        let core = &self.0;
        for member in core.state.borrow().devices.kept() {
            let trimming = trim(Rc::downgrade(core), member);
            core.env.spawn.spawn(trimming);
        }
    }
}

async fn trim<P: Device>(core: Weak<CacheCore<P>>, member: Rc<PoolMember<P>>) {
    loop {
        let core_now = core.upgrade();
        let lines = core_now.map_or_else(Vec::new, |core| core.forgotten_lines(&member));
        let discarded = trim_lines(&core, &member, &lines).await;
        if lines.len() < PASS_LINES || discarded.is_none_or(|discarded| discarded == 0) {
            return;
        }
    }
}

/// Discards `lines` of a device, with half of its time. Returns the number of those; `None` if the
/// device cannot discard, or the cache is gone.
async fn trim_lines<P: Device>(
    core: &Weak<CacheCore<P>>,
    member: &Rc<PoolMember<P>>,
    lines: &[PlacedLine],
) -> Option<usize> {
    let (mut rest, mut discarded) = (lines, 0);
    while !rest.is_empty() {
        let core = core.upgrade()?;
        let timer = core.env.timer.clone();
        let begun = timer.now();
        match LineTrim::begin(core, member, rest) {
            None => rest = &rest[1..],
            Some(trim) => {
                rest = &rest[trim.lines.len()..];
                discarded += trim.lines.len();
                trim.discard().await.ok()?;
                timer.sleep(timer.now() - begun).await;
            }
        }
    }
    Some(discarded)
}

async fn trim_discarded<P: Device>(core: Weak<CacheCore<P>>) {
    while let Some((volume, blocks, members)) = core.upgrade().and_then(|core| core.next_discard())
    {
        for member in members {
            let core_now = core.upgrade();
            let lines = core_now.map_or_else(Vec::new, |core| {
                core.emptied_lines(&member, volume, &blocks)
            });
            // A device that cannot discard has its slots free all the same.
            let _ = trim_lines(&core, &member, &lines).await;
        }
    }
}

/// A discard of a client: its volume, its blocks, and the devices that serve.
type NextDiscard<P> = (u32, Range<u64>, Vec<Rc<PoolMember<P>>>);

impl<P: Device> CacheCore<P> {
    /// Hands a discard of a client on to the pool, in the background.
    pub(crate) fn hand_on_discard(self: &Rc<Self>, volume: u32, extent: Extent) {
        let durable = self.durable.as_ref();
        let durable = durable.filter(|_| self.config.trims_discarded);
        if durable.is_some_and(|durable| durable.discarded.push(volume, covering(extent))) {
            let spawn = &self.env.spawn;
            spawn.spawn(trim_discarded(Rc::downgrade(self)));
        }
    }

    /// The oldest discard of a client; without one, the task is to end.
    fn next_discard(&self) -> Option<NextDiscard<P>> {
        let (volume, blocks) = self.durable.as_ref()?.discarded.pop()?;
        Some((volume, blocks, self.state.borrow().devices.kept()))
    }

    /// The lines of a device that `blocks` of a volume touch and that have nothing valid, by slot.
    fn emptied_lines(
        &self,
        member: &PoolMember<P>,
        volume: u32,
        blocks: &Range<u64>,
    ) -> Vec<PlacedLine> {
        let state = &*self.state.borrow();
        let mut lines = Vec::new();
        let mut look = |key, slot: SlotNumber| {
            let is_touched = self.shape.part_of(volume, blocks, key).is_some();
            if is_touched && member.slots.contains(&slot.0) && state.contents.is_empty(slot) {
                lines.push((slot, key));
            }
        };
        if self.shape.lines(blocks) <= u64::from(state.policy.slots().used()) {
            for part in self.shape.parts(volume, blocks.clone()) {
                if let Some(slot) = state.policy.peek(part.key) {
                    look(part.key, slot);
                }
            }
        } else {
            state.policy.for_each(&mut look);
        }
        lines.sort_unstable_by_key(|(slot, _)| *slot);
        lines
    }

    /// The lines of forgotten volumes on a device, by slot.
    fn forgotten_lines(&self, member: &PoolMember<P>) -> Vec<PlacedLine> {
        let Some(durable) = &self.durable else {
            return Vec::new();
        };
        let (mut lines, mut verdict) = (Vec::new(), None);
        let mut is_forgotten = |id: u32| match verdict {
            Some((known, verdict)) if known == id => verdict,
            _ => verdict.insert((id, durable.has_forgotten(id))).1,
        };
        let policy = &self.state.borrow().policy;
        policy.for_each(&mut |key, slot| {
            let is_wanted = lines.len() < PASS_LINES && member.slots.contains(&slot.0);
            if is_wanted && is_forgotten(split_key(key).0) {
                lines.push((slot, key));
            }
        });
        lines.sort_unstable_by_key(|(slot, _)| *slot);
        lines
    }

    /// Pins and empties the first of `lines`, and those beside it, that are at rest. A line of a
    /// volume that there is must be empty still.
    fn pin_for_trim(&self, lines: &[PlacedLine]) -> Vec<PlacedLine> {
        let durable = self.durable.as_ref();
        let is_forgotten =
            |key: LineKey| durable.is_some_and(|durable| durable.has_forgotten(split_key(key).0));
        let state = &mut *self.state.borrow_mut();
        let beside = (lines[0].0.0..).zip(lines);
        let pinned: Vec<_> = beside
            .take_while(|(at, (slot, key))| {
                slot.0 == *at
                    && state.policy.peek(*key) == Some(*slot)
                    && (state.contents.is_empty(*slot) || is_forgotten(*key))
                    && state.busy.begin_trim(*slot)
            })
            .map(|(_, line)| *line)
            .collect();
        for (slot, _) in &pinned {
            state.contents.invalidate(*slot, self.shape.whole());
        }
        pinned
    }
}

impl<P: Device> LineTrim<P> {
    /// Pins the first of `lines`, and those beside it, that are at rest.
    fn begin(
        core: Rc<CacheCore<P>>,
        member: &Rc<PoolMember<P>>,
        lines: &[PlacedLine],
    ) -> Option<LineTrim<P>> {
        let is_closed = core
            .durable
            .as_ref()
            .is_none_or(|durable| durable.closed.get());
        if is_closed || member.state.get() != DeviceState::Online {
            return None;
        }
        let most = (STEP_BYTES / core.shape.sectors().bytes()).max(1) as usize;
        let lines = core.pin_for_trim(&lines[..most.min(lines.len())]);
        if lines.is_empty() {
            return None;
        }
        member.operations.begin();
        Some(LineTrim {
            core,
            member: member.clone(),
            lines,
        })
    }

    /// Discards the lines, and gives their slots back.
    async fn discard(self) -> IoResult {
        let spawn = self.core.env.spawn.clone();
        let _working = self.core.background.enter();
        let discarding = async move {
            let first = self.lines[0].0;
            let len = self.core.shape.sectors().0 * self.lines.len() as u64;
            let extent = Extent::new(self.member.at(first, 0), Sectors(len));
            let result = self.member.device.discard(extent).await;
            if result.is_ok() {
                let count = self.lines.len() as u64;
                self.core.counters.add(Counter::LinesTrimmed, count);
            }
            result
        };
        spawn.persist(discarding).await
    }
}

impl<P: Device> Drop for LineTrim<P> {
    fn drop(&mut self) {
        let state = &mut *self.core.state.borrow_mut();
        for (slot, key) in &self.lines {
            state.busy.end_trim(*slot);
            if state.policy.peek(*key) == Some(*slot) {
                state.policy.remove(*key);
            }
        }
        self.member.operations.end();
    }
}
