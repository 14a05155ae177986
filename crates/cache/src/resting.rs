//! Lines of pool devices that are bypassed for being late, until these devices are taken back.
//!
//! Invariants:
//!     a line rests ⟹ its slot is retired, so that no part of the line is a hit
//!     a block of a resting line is valid ⟹ the device's copy is the content of the origin: every
//!         invalidation of lines in use applies to resting lines too
//!
//! Not here: the return of a device (`durable::readmit`).

use crate::devices::DeviceId;
use policy::{Heat, LineKey, Policy, SlotNumber};
use std::ops::{Range, RangeInclusive};

/// Most resting lines of a device. The others start cold after its return: the keys of all lines of
/// a large device are more memory than a device in trouble is to cost.
const LINES_MAX: usize = 4 << 20;

/// A resting line.
#[derive(Clone, Copy)]
pub(crate) struct RestingLine {
    pub(crate) key: LineKey,
    pub(crate) slot: SlotNumber,
    pub(crate) heat: Heat,
    /// True until the line is adopted.
    rests: bool,
}

/// The resting lines of one device.
struct DeviceRest {
    device: DeviceId,
    /// Lines, in the order of their adoption by the policy.
    lines: Vec<RestingLine>,
    /// Their places in `lines`, by key.
    by_key: Vec<u32>,
}

/// All resting lines.
#[derive(Default)]
pub(crate) struct RestingLines(Vec<DeviceRest>);

impl RestingLines {
    /// The lines that `policy` has in the slots of `device` rest from now on.
    pub(crate) fn begin(&mut self, device: DeviceId, slots: &Range<u32>, policy: &dyn Policy) {
        let (mut lines, mut count) = (self.end(device), 0);
        policy.for_each(&mut |_, slot| count += usize::from(slots.contains(&slot.0)));
        let mut skipped = (lines.len() + count).saturating_sub(LINES_MAX);
        policy.export(&mut |key, slot, heat| {
            if !slots.contains(&slot.0) {
                return;
            }
            let rests = true;
            match skipped {
                0 => lines.push(RestingLine {
                    key,
                    slot,
                    heat,
                    rests,
                }),
                _ => skipped -= 1,
            }
        });
        let mut by_key: Vec<u32> = (0..lines.len() as u32).collect();
        by_key.sort_unstable_by_key(|at| lines[*at as usize].key);
        self.0.push(DeviceRest {
            device,
            lines,
            by_key,
        });
    }

    /// Forgets the lines of `device`, and returns those that still rested.
    pub(crate) fn end(&mut self, device: DeviceId) -> Vec<RestingLine> {
        let Some(at) = self.0.iter().position(|rest| rest.device == device) else {
            return Vec::new();
        };
        let mut lines = self.0.swap_remove(at).lines;
        lines.retain(|line| line.rests);
        lines
    }

    /// The next of the lines of `device`, at most `count` from `from` on, which are adopted now.
    pub(crate) fn adopt(
        &mut self,
        device: DeviceId,
        from: usize,
        count: usize,
    ) -> Vec<RestingLine> {
        let rest = self.0.iter_mut().find(|rest| rest.device == device);
        let lines = rest.map_or(&mut [][..], |rest| &mut rest.lines[..]);
        let lines = lines.iter_mut().skip(from).take(count);
        let adopted = lines.map(|line| {
            line.rests = false;
            *line
        });
        adopted.collect()
    }

    /// The resting lines with keys in `keys`.
    pub(crate) fn within(&self, keys: RangeInclusive<LineKey>) -> Vec<(LineKey, SlotNumber)> {
        let mut found = Vec::new();
        for DeviceRest { lines, by_key, .. } in &self.0 {
            let line = |at: &u32| lines[*at as usize];
            let from = by_key.partition_point(|at| line(at).key < *keys.start());
            let here = by_key[from..].iter().map(line);
            let here = here.take_while(|line| line.key <= *keys.end());
            found.extend(
                here.filter(|line| line.rests)
                    .map(|line| (line.key, line.slot)),
            );
        }
        found
    }
}
