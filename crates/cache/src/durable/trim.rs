//! Discards the lines of volumes that the pool has forgotten, so that its devices know the space as
//! free.
//!
//! Invariants:
//!     a line is discarded ⟹ the superblocks have no volume with its id
//!     a discard is in flight ⟹ its slots are pinned, and nothing in them is valid
//!
//! A discard is no operation that a device is judged by: many take seconds for some.
//!
//! Not here: the trim of a device that leaves its pool, and of lines replaced one by one.

use crate::cache::Cache;
use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::{DeviceState, PoolMember};
use crate::lines::split_key;
use block::{Device, Extent, IoResult, Sectors};
use policy::{LineKey, SlotNumber};
use std::rc::{Rc, Weak};

/// Most bytes of a discard.
const STEP_BYTES: u64 = 1 << 20;
/// Most lines of a pass over the policy's table, whose keys take 16 MiB.
const PASS_LINES: usize = 1 << 20;

/// A line of a forgotten volume.
type ForgottenLine = (SlotNumber, LineKey);

/// Lines side by side on one device, which keeps them while they are discarded.
struct LineTrim<P: Device> {
    core: Rc<CacheCore<P>>,
    member: Rc<PoolMember<P>>,
    lines: Vec<ForgottenLine>,
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
        let (mut rest, mut discarded) = (&lines[..], 0);
        while !rest.is_empty() {
            let Some(core) = core.upgrade() else { return };
            let timer = core.env.timer.clone();
            let begun = timer.now();
            match LineTrim::begin(core, &member, rest) {
                None => rest = &rest[1..],
                Some(trim) => {
                    rest = &rest[trim.lines.len()..];
                    discarded += trim.lines.len();
                    if trim.discard().await.is_err() {
                        return;
                    }
                    timer.sleep(timer.now() - begun).await;
                }
            }
        }
        if lines.len() < PASS_LINES || discarded == 0 {
            return;
        }
    }
}

impl<P: Device> CacheCore<P> {
    /// The lines of forgotten volumes on a device, by slot.
    fn forgotten_lines(&self, member: &PoolMember<P>) -> Vec<ForgottenLine> {
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

    /// Pins and empties the first of `lines`, and those beside it, that are at rest.
    fn pin_for_trim(&self, lines: &[ForgottenLine]) -> Vec<ForgottenLine> {
        let state = &mut *self.state.borrow_mut();
        let beside = (lines[0].0.0..).zip(lines);
        let pinned: Vec<_> = beside
            .take_while(|(at, (slot, key))| {
                slot.0 == *at
                    && state.policy.peek(*key) == Some(*slot)
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
        lines: &[ForgottenLine],
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
