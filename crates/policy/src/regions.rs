//! Counts the accesses of each part of a volume, with the time of the last.
//!
//! A volume is cut into at most [`REGIONS_MAX`] regions of equal length, so the
//! table is small whatever the volume. Counts are halved every [`HALF_LIFE`].

use crate::PolicyOp;
use block::Nanos;
use serde::{Deserialize, Serialize};

/// Regions of a volume, at the most.
pub const REGIONS_MAX: u64 = 1024;
/// The period after which counts are halved.
pub const HALF_LIFE: Nanos = Nanos::from_secs(600);

/// One part of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PolicyRegion {
    /// Reads of lines, the older the fewer.
    pub reads: u32,
    /// Writes of lines, alike.
    pub writes: u32,
    /// Time of a line's last access, in seconds since the policy's beginning, plus one; zero if
    /// never.
    pub last: u32,
}

/// The regions of a volume, with their table.
#[derive(Clone, Debug)]
pub struct PolicyRegions {
    regions: Box<[PolicyRegion]>,
    /// Lines of a region, as a power of two.
    shift: u32,
    now: Nanos,
    halved: Nanos,
}

impl PolicyRegions {
    /// Regions of a volume of `lines` lines.
    pub fn new(lines: u64) -> PolicyRegions {
        let lines = lines.max(1);
        let shift = lines.div_ceil(REGIONS_MAX).next_power_of_two().ilog2();
        PolicyRegions {
            regions: vec![PolicyRegion::default(); lines.div_ceil(1 << shift) as usize].into(),
            shift,
            now: Nanos::ZERO,
            halved: Nanos::ZERO,
        }
    }

    /// Lines of a region; the last may have fewer.
    pub fn region_lines(&self) -> u64 {
        1 << self.shift
    }

    /// The regions, in order.
    pub fn regions(&self) -> &[PolicyRegion] {
        &self.regions
    }

    /// Counts an access to a line. A line past the end counts nowhere.
    #[inline]
    pub fn access(&mut self, line: u64, op: PolicyOp) {
        self.accesses(line, op, 1);
    }

    /// Counts accesses to a line, as [`PolicyRegions::access`] does.
    #[inline]
    pub fn accesses(&mut self, line: u64, op: PolicyOp, times: u32) {
        let last = (self.now.0 / 1_000_000_000) as u32 + 1;
        if let Some(region) = self.regions.get_mut((line >> self.shift) as usize) {
            let count = match op {
                PolicyOp::Read => &mut region.reads,
                PolicyOp::Write => &mut region.writes,
            };
            *count = count.saturating_add(times);
            region.last = last;
        }
    }

    /// Passes the time, before the accesses that follow.
    pub fn tick(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let halvings = now.since(self.halved).0 / HALF_LIFE.0;
        if halvings > 0 {
            self.halved += Nanos(halvings * HALF_LIFE.0);
            let by = halvings.min(31) as u32;
            for region in &mut self.regions {
                region.reads >>= by;
                region.writes >>= by;
            }
        }
    }

    /// Memory held, in bytes.
    pub fn state_bytes(&self) -> usize {
        size_of::<PolicyRegions>() + self.regions.len() * size_of::<PolicyRegion>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_counted_where_they_are_and_fade() {
        let mut table = PolicyRegions::new(2500);
        assert_eq!((table.region_lines(), table.regions().len()), (4, 625));
        table.tick(Nanos::from_secs(5));
        (0..8).for_each(|_| table.access(7, PolicyOp::Read));
        table.access(2499, PolicyOp::Write);
        table.access(2500, PolicyOp::Write);
        table.access(1 << 50, PolicyOp::Write);
        let region = |reads, writes, last| PolicyRegion {
            reads,
            writes,
            last,
        };
        assert_eq!(table.regions()[1], region(8, 0, 6));
        assert_eq!(table.regions()[624], region(0, 1, 6));
        assert_eq!(table.regions()[0], PolicyRegion::default());
        table.tick(HALF_LIFE);
        table.tick(HALF_LIFE + Nanos(1));
        assert_eq!(table.regions()[1], region(4, 0, 6));
        table.tick(Nanos(HALF_LIFE.0 * 1000));
        assert_eq!(table.regions()[1], region(0, 0, 6));
    }

    #[test]
    fn the_table_is_bounded() {
        for lines in [0, 1, 1023, 1024, 1025, 1 << 20, (1 << 40) - 1] {
            let table = PolicyRegions::new(lines);
            assert!(table.regions().len() as u64 <= REGIONS_MAX);
            assert!(table.regions().len() as u64 * table.region_lines() >= lines);
            assert!(table.state_bytes() < 16 << 10);
        }
    }
}
