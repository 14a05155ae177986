//! The parts of a case: a topology, a script of operations, faults, and the moments at which the
//! power goes. All of a case is data, so that a failing case can be made smaller piece by piece.

use crate::model::Space;
use block::{Extent, Lba, Nanos, Sectors, TargetId};
use cache::CacheMode;
use shard::ShardDisk;
use sim::{
    Domain, FaultEffect, FaultPlan, FaultRule, OpFilter, PowerCut, RunMoment, ServiceSpan,
    SimDriver, When,
};
use std::ops::Range;

/// The power domain of the origins.
pub(super) const ORIGINS: Domain = Domain(1);
/// The power domain of the pool's disks.
pub(super) const POOL: Domain = Domain(2);
/// The daemon's own "power domain": a kill of the process.
pub(super) const DAEMON: Domain = Domain(3);

/// The size of a witness without table areas: superblocks have room for all volumes of the pool.
pub(super) const WITNESS: Sectors = Sectors(64 * 8);
/// The size of a witness with table areas.
const WITNESS_WHOLE: Sectors = Sectors(layout::WITNESS_BLOCKS * layout::BLOCK_SECTORS);

pub(super) type Leaf = ShardDisk<SimDriver>;

/// Delay after which a failed write to an origin lands.
const LATE: Nanos = Nanos::from_micros(700);

/// One step of a client's script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CrashStep {
    /// Reads sectors of a volume.
    Read(usize, Range<u64>),
    /// Writes sectors; `true` forces unit access.
    Write(usize, Range<u64>, bool),
    /// Zeroes sectors.
    Zero(usize, Range<u64>),
    /// Discards sectors.
    Discard(usize, Range<u64>),
    /// Flushes a volume.
    Flush(usize),
    /// Changes a volume's mode.
    Mode(usize, CacheMode),
    /// Unplugs a pool disk.
    Unplug(usize),
    /// Plugs a pool disk in again, and puts the disk into the pool if the daemon runs.
    Plug(usize),
    /// Does nothing for a time.
    Pause(Nanos),
    /// A volume's origin loses the writes that are not durable, and goes on.
    Forget(usize),
    /// A volume's origin forgets likewise, and answers with errors for a time.
    Away(usize, Nanos),
    /// A pool disk is unresponsive for the rest of this life of the daemon.
    Hang(usize),
    /// The back end takes a snapshot of a quiesced volume.
    Snapshot(usize),
    /// The back end restores the last snapshot, and the volume is invalidated.
    Rollback(usize),
    /// A volume is invalidated.
    Invalidate(usize),
    /// The first pool gets new records of its other volumes.
    Renew,
    /// The daemon stops in order, and another one starts.
    Stop,
}

/// A daemon's configuration of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The number of its name.
    pub name: u8,
    /// The pool that caches it.
    pub pool: usize,
    /// Number of its windows that are within its size.
    pub windows: u64,
}

/// The parts that stop when the power goes. The daemon always stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerLoss {
    /// The process is killed; all disks keep their power.
    Daemon,
    /// The pool loses power with the daemon.
    Pool,
    /// The origins lose power with the daemon.
    Origins,
    /// The pool and the origins lose power with the daemon.
    All,
}

impl PowerLoss {
    /// Every loss.
    pub const ALL: [PowerLoss; 4] = [
        PowerLoss::Daemon,
        PowerLoss::Pool,
        PowerLoss::Origins,
        PowerLoss::All,
    ];

    fn domains(self) -> &'static [Domain] {
        match self {
            PowerLoss::Daemon => &[DAEMON],
            PowerLoss::Pool => &[DAEMON, POOL],
            PowerLoss::Origins => &[DAEMON, ORIGINS],
            PowerLoss::All => &[DAEMON, ORIGINS, POOL],
        }
    }

    /// True if the origins lose the writes that are not durable.
    pub(super) fn takes_origins(self) -> bool {
        matches!(self, PowerLoss::Origins | PowerLoss::All)
    }
}

/// A loss in the life of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaseCut {
    /// Disk steps (submissions and completions) after the life began.
    pub after: u64,
    /// The parts that stop.
    pub loss: PowerLoss,
    /// The pool disks that the next daemon finds, with their content.
    pub disks: PresentDisks,
    /// The witness goes back to its content of a life ago, as from a backup; only while that can be
    /// detected.
    pub witness_back: bool,
    /// The pool disks, as bits, that go back to their content at the end of an earlier life, as if
    /// restored from an image.
    pub disks_back: u8,
}

/// The pool disks that are there when a daemon starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PresentDisks {
    /// The disks that were there when the last daemon ended.
    Same,
    /// All disks.
    All,
    /// The disks with a set bit.
    Only(u8),
}

/// A fault of a pool disk's operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DiskFault {
    /// The disk.
    pub disk: usize,
    /// The operations that the fault strikes.
    pub ops: OpFilter,
    /// The effect on those operations.
    pub effect: FaultEffect,
    /// The probability of the fault.
    pub chance: f64,
}

/// A case.
#[derive(Clone, Debug)]
pub struct CrashCase {
    /// Seeds the world.
    pub seed: u64,
    /// The origins' logical block.
    pub block: Sectors,
    /// The volumes.
    pub volumes: Vec<Space>,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// The replacement policy.
    pub policy: &'static str,
    /// Sizes of the pool's disks.
    pub pool: Vec<Sectors>,
    /// Steps in progress at once.
    pub clients: u64,
    /// The script, over all lives of the daemon.
    pub steps: Vec<CrashStep>,
    /// The end of each life but the last, which ends in order.
    pub cuts: Vec<CaseCut>,
    /// Faults of pool disks.
    pub faults: Vec<DiskFault>,
    /// The probability that a write to an origin fails and lands later.
    pub origin_late: f64,
    /// Number of pools. A disk's number, modulo the number of pools, is its pool.
    pub pools: usize,
    /// Volumes that the first pool remembers beside these, with long records.
    pub neighbours: u64,
    /// The volumes in each life; the last ones stay.
    pub settings: Vec<Vec<Setting>>,
    /// Service times of origins.
    pub origin_time: ServiceSpan,
    /// Service times of the pool.
    pub pool_time: ServiceSpan,
    /// The engine's limit for hits.
    pub hit_latency_max: Nanos,
    /// Interval of the engine's map commits.
    pub commit_period: Nanos,
    /// Number of these intervals after which an unused bit is cleared.
    pub mark_idle_periods: u32,
}

impl CrashCase {
    /// The configuration of the daemon of life `number`.
    pub fn setting(&self, number: usize) -> &[Setting] {
        &self.settings[number.min(self.settings.len() - 1)]
    }

    /// The size of a pool's witness.
    pub(super) fn witness(&self) -> Sectors {
        match self.neighbours {
            0 => WITNESS,
            _ => WITNESS_WHOLE,
        }
    }

    /// The pool that a disk belongs to.
    pub fn pool_of(&self, disk: usize) -> usize {
        disk % self.pools
    }

    /// Where a fault strikes. The promise excludes a disk that acknowledges a durable write of the
    /// bitmap and does not hold the write. All other faults are found.
    fn struck(&self, fault: &DiskFault) -> Vec<Option<Extent>> {
        let line_blocks = self.line_bytes / layout::BLOCK_BYTES as u32;
        let len = self.pool[fault.disk];
        match (fault.effect, layout::LayoutPlan::new(len, line_blocks)) {
            (FaultEffect::Drop | FaultEffect::Misdirect | FaultEffect::IgnoreFlush, Ok(plan)) => {
                let bitmap = plan.bitmap.extent(Lba::ZERO);
                let before = Extent::new(Lba::ZERO, Sectors(bitmap.start.0));
                let after = Extent::new(bitmap.end(), Sectors(len.0 - bitmap.end().0));
                vec![Some(before), Some(after)]
            }
            _ => vec![None],
        }
    }

    /// The faults of a life that begins after `steps` disk steps and, if the life does not end in
    /// order, ends with `cut`.
    pub(super) fn plan(
        &self,
        origins: &[TargetId],
        pool: &[TargetId],
        steps: u64,
        cut: Option<CaseCut>,
    ) -> FaultPlan {
        let rule = |(fault, within): (&DiskFault, Option<Extent>)| FaultRule {
            disk: pool[fault.disk],
            ops: fault.ops,
            within,
            when: When::Chance(fault.chance),
            effect: fault.effect,
        };
        let rules = self.faults.iter().flat_map(|fault| {
            let within = self.struck(fault).into_iter();
            within.map(move |within| (fault, within))
        });
        let late = origins.iter().map(|disk| {
            FaultRule::new(
                *disk,
                OpFilter::Writes,
                When::Chance(self.origin_late),
                FaultEffect::Late(LATE),
            )
        });
        let late = late.filter(|_| self.origin_late > 0.0);
        let cuts = cut.into_iter().flat_map(|cut| {
            let at = RunMoment::Step(steps + cut.after);
            let domains = cut.loss.domains().iter();
            domains.map(move |d| PowerCut {
                domain: Some(*d),
                at,
            })
        });
        FaultPlan {
            rules: rules.map(rule).chain(late).collect(),
            cuts: cuts.collect(),
            ..FaultPlan::default()
        }
    }
}
