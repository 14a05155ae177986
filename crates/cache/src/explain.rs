//! Why a line of a volume is cached or not.

use crate::history::Noted;
use crate::lines::{BLOCK_SECTORS, BlockRun, split_key};
use crate::volume::Volume;
use crate::{DeviceId, DeviceState};
use block::{Device, Extent, Lba, Sectors};
use policy::{Explanation, SlotNumber};
use std::ops::Range;

/// Place of a line in the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Residence {
    /// The pool device.
    pub device: DeviceId,
    /// State of that device.
    pub state: DeviceState,
    /// The 4 KiB blocks that are valid, counted from the start of the line.
    pub valid: Vec<Range<u32>>,
}

/// The state of one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineReport {
    /// Its place on the volume.
    pub extent: Extent,
    /// Place of the line in the pool, if it is cached.
    pub residence: Option<Residence>,
    /// The last decision about the line, unless the decision is forgotten.
    pub last: Option<Noted>,
}

impl<P: Device> Volume<P> {
    /// The number that keys of this volume carry; see [`Volume::owner`].
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The volume and the line that a key of [`crate::Decision`] stands for.
    pub fn owner(&self, key: policy::LineKey) -> (u32, u64) {
        split_key(key)
    }

    /// Sectors of a line.
    pub fn line(&self) -> Sectors {
        self.0.core.shape.sectors()
    }

    /// Lines that can be cached.
    pub fn lines(&self) -> u64 {
        self.0.cacheable_end.0.div_ceil(self.line().0)
    }

    /// The state of the line numbered `line`.
    pub fn explain(&self, line: u64) -> LineReport {
        let (inner, shape) = (&self.0, self.0.core.shape);
        let state = inner.core.state.borrow();
        let key = shape.key(inner.id(), line);
        let residence = state.policy.peek(key).and_then(|slot| {
            let member = state.devices.of(slot)?;
            Some(Residence {
                device: member.id,
                state: member.state.get(),
                valid: self.valid(&state.contents, slot),
            })
        });
        let start = Lba(line * self.line().0);
        let len = Sectors(self.line().0.min(inner.geometry.sectors.0 - start.0));
        LineReport {
            extent: Extent::new(start, len),
            residence,
            last: state.history.last(key),
        }
    }

    /// Valid 4 KiB blocks of the line numbered `line`.
    pub fn valid_blocks(&self, line: u64) -> u32 {
        let state = self.0.core.state.borrow();
        let key = self.0.core.shape.key(self.0.id(), line);
        let slot = state.policy.peek(key);
        let runs = slot.map_or_else(Vec::new, |slot| self.valid(&state.contents, slot));
        runs.iter().map(|run| run.end - run.start).sum()
    }

    fn valid(&self, contents: &crate::contents::PoolContents, slot: SlotNumber) -> Vec<Range<u32>> {
        let blocks = (self.line().0 / BLOCK_SECTORS) as u32;
        let (mut first, mut runs) = (0, Vec::new());
        while first < blocks {
            let run = BlockRun {
                first,
                count: blocks - first,
            };
            let (valid, count) = contents.leading(slot, run);
            if valid {
                runs.push(first..first + count);
            }
            first += count;
        }
        runs
    }
}

impl<P: Device> crate::Cache<P> {
    /// The rule of a self-tuning policy; `None` from all others.
    pub fn explanation(&self) -> Option<Explanation> {
        self.core().state.borrow().policy.explanation()
    }
}
