//! The fault plan: faults, with their places and times.
//!
//! A plan is data. The whole plan is checked before any of it takes effect, and
//! an impossible plan is one clear error.
//!
//! Not here: the effect of a fault on a disk (`disk`) or a stream (`stream`).

use crate::contents::Survival;
use crate::rng::SimRng;
use crate::verb::SimVerb;
use block::{Extent, IoErrorKind, Lba, Nanos, TargetId};
use std::fmt;

/// A power domain: disks and shards that lose power together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Domain(pub u32);

/// The class of a fault that struck, for counting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FaultClass {
    /// An operation took longer.
    Delay,
    /// An operation failed by a rule.
    Error,
    /// A read met a latent bad sector.
    LatentSector,
    /// A bit changed in transfer.
    BitFlip,
    /// A write landed elsewhere and was acknowledged.
    Misdirected,
    /// A write landed nowhere and was acknowledged.
    Dropped,
    /// An operation waited for a release.
    Stuck,
    /// A flush, or the durability of a write, was acknowledged and not done.
    FlushIgnored,
    /// A domain lost its power.
    PowerCut,
    /// A write that was not durable vanished in a power cut.
    CutLost,
    /// A write that was not durable survived in part.
    CutTorn,
    /// A write that was not durable left bytes where an older one lost some.
    CutReordered,
    /// A disk was unplugged.
    DeviceGone,
    /// A disk was plugged in again.
    DeviceBack,
    /// A stream broke.
    StreamCut,
    /// A stream stalled.
    StreamStalled,
    /// A stream's bytes were parted at a chosen place.
    StreamSplit,
    /// A block that a power cut took from a write cannot be read.
    CutSpoiled,
    /// A bit changed at rest.
    Rot,
    /// A write failed, and its bytes landed later.
    LateWrite,
    /// A disk lost its volatile writes, and went on.
    Forgotten,
    /// A flush failed, once, since the disk had lost writes.
    LossReported,
    /// No shard ran for a while, though the clock did.
    Paused,
}

impl FaultClass {
    /// Every class.
    pub const ALL: [FaultClass; 23] = [
        FaultClass::Delay,
        FaultClass::Error,
        FaultClass::LatentSector,
        FaultClass::BitFlip,
        FaultClass::Misdirected,
        FaultClass::Dropped,
        FaultClass::Stuck,
        FaultClass::FlushIgnored,
        FaultClass::PowerCut,
        FaultClass::CutLost,
        FaultClass::CutTorn,
        FaultClass::CutReordered,
        FaultClass::DeviceGone,
        FaultClass::DeviceBack,
        FaultClass::StreamCut,
        FaultClass::StreamStalled,
        FaultClass::StreamSplit,
        FaultClass::CutSpoiled,
        FaultClass::Rot,
        FaultClass::LateWrite,
        FaultClass::Forgotten,
        FaultClass::LossReported,
        FaultClass::Paused,
    ];
}

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunMoment {
    /// This time on the world's clock.
    At(Nanos),
    /// Right after the n-th disk step, counted from 1 over the world's life: each
    /// submission and each completion of a disk operation is a step, so that
    /// cutting at every step of a run meets every boundary there is.
    Step(u64),
}

/// Operations of a disk that a rule looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpFilter {
    /// Reads.
    Reads,
    /// Writes and zeroing.
    Writes,
    /// Flushes, and for [`FaultEffect::IgnoreFlush`] also writes that force unit access.
    Flushes,
    /// Discards.
    Discards,
    /// Every operation.
    All,
}

impl OpFilter {
    fn include(self, verb: SimVerb) -> bool {
        match self {
            OpFilter::Reads => verb == SimVerb::Read,
            OpFilter::Writes => matches!(verb, SimVerb::Write | SimVerb::Zero),
            OpFilter::Flushes => verb == SimVerb::Flush,
            OpFilter::Discards => verb == SimVerb::Discard,
            OpFilter::All => true,
        }
    }
}

/// The operations that a rule strikes, of those it looks at.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum When {
    /// All of them.
    Always,
    /// Each with this probability.
    Chance(f64),
    /// The n-th, counted from 1.
    Nth(u64),
}

/// The effect of a rule on an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultEffect {
    /// The operation completes this much later.
    Delay(Nanos),
    /// The operation fails. A write lands in part if the kind says that data may have changed.
    Fail(IoErrorKind),
    /// The operation fails with `Media`, and its sectors cannot be read until they are written.
    Ruin,
    /// One bit of the read or stored bytes is wrong.
    FlipBit,
    /// The bytes land on other sectors of the same disk; the operation succeeds.
    Misdirect,
    /// The bytes land nowhere; the operation succeeds.
    Drop,
    /// The operation waits until the disk is released, or until this time.
    Stick(Option<Nanos>),
    /// The operation succeeds and makes nothing durable.
    IgnoreFlush,
    /// The operation fails with `Timeout`, and its bytes land this much later, over any bytes
    /// written there since.
    Late(Nanos),
}

/// A fault of single disk operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FaultRule {
    /// The disk.
    pub disk: TargetId,
    /// Operations that the rule looks at.
    pub ops: OpFilter,
    /// Sectors of which such an operation touches some; all if not given.
    pub within: Option<Extent>,
    /// Operations that the rule strikes, of those it looks at.
    pub when: When,
    /// Effect on the struck operations.
    pub effect: FaultEffect,
}

impl FaultRule {
    /// Strikes `ops` of `disk` in any sectors.
    pub fn new(disk: TargetId, ops: OpFilter, when: When, effect: FaultEffect) -> FaultRule {
        FaultRule {
            disk,
            ops,
            within: None,
            when,
            effect,
        }
    }
}

/// An unplugged disk. The disk loses its power: its volatile writes are settled as in a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// The disk.
    pub disk: TargetId,
    /// Time of the unplugging.
    pub gone: RunMoment,
    /// Time of the return, if ever.
    pub back: Option<RunMoment>,
}

/// One way of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Bytes from the end that connected.
    ToListener,
    /// Bytes from the end that accepted.
    FromListener,
}

/// The effect on a stream at a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEffect {
    /// The connection breaks; bytes not yet received are lost.
    Cut,
    /// Later bytes wait this long; without a time, until the stream is released.
    Stall(Option<Nanos>),
    /// No receive returns bytes from both sides of this place.
    Split,
}

/// A fault of a byte stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamRule {
    /// The n-th connection of the world, counted from 0 over its life; `None`
    /// is every one.
    pub connection: Option<u64>,
    /// Direction of the bytes.
    pub direction: Direction,
    /// Number of bytes before the fault.
    pub byte: u64,
    /// Effect at that byte.
    pub effect: StreamEffect,
}

/// A loss of power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerCut {
    /// The domain; `None` is all of them.
    pub domain: Option<Domain>,
    /// Time of the cut.
    pub at: RunMoment,
}

/// All faults of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FaultPlan {
    /// Faults of single disk operations. An operation may be struck by several.
    pub rules: Vec<FaultRule>,
    /// Sectors that cannot be read until written.
    pub latent: Vec<(TargetId, Extent)>,
    /// Disks that go, and may come back.
    pub outages: Vec<Outage>,
    /// Losses of power.
    pub cuts: Vec<PowerCut>,
    /// Faults of byte streams.
    pub streams: Vec<StreamRule>,
    /// Fates, in cuts, of writes that were not durable; drawn for each cut if not given.
    pub survival: Option<Survival>,
    /// The probability that a block taken from a write by a cut cannot be read until written again.
    pub spoiled: f64,
}

impl FaultPlan {
    /// These rules, and no other faults.
    pub fn of(rules: Vec<FaultRule>) -> FaultPlan {
        FaultPlan {
            rules,
            ..FaultPlan::default()
        }
    }
}

/// The plan's faults for one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FaultStrike {
    pub delay: Nanos,
    pub fail: Option<IoErrorKind>,
    pub ruin: bool,
    pub flip: bool,
    pub misdirect: bool,
    pub drop: bool,
    pub stick: bool,
    pub stick_until: Option<Nanos>,
    pub ignore_flush: bool,
    pub late: Option<Nanos>,
}

impl FaultStrike {
    pub const NONE: FaultStrike = FaultStrike {
        delay: Nanos::ZERO,
        fail: None,
        ruin: false,
        flip: false,
        misdirect: false,
        drop: false,
        stick: false,
        stick_until: None,
        ignore_flush: false,
        late: None,
    };
}

/// A rule at work on its disk.
pub(crate) struct ActiveRule {
    rule: FaultRule,
    matched: u64,
}

impl ActiveRule {
    pub fn new(rule: FaultRule) -> ActiveRule {
        ActiveRule { rule, matched: 0 }
    }

    /// Adds the effect of this rule on an operation to `strike`.
    pub fn judge(
        &mut self,
        verb: SimVerb,
        fua: bool,
        extent: Extent,
        rng: &mut SimRng,
        strike: &mut FaultStrike,
    ) {
        let rule = &self.rule;
        let lies = rule.effect == FaultEffect::IgnoreFlush && fua;
        let outside = rule.within.is_some_and(|w| !w.overlaps(extent));
        if !(rule.ops.include(verb) || lies) || outside {
            return;
        }
        self.matched += 1;
        let struck = match rule.when {
            When::Always => true,
            When::Chance(p) => rng.chance(p),
            When::Nth(n) => self.matched == n,
        };
        if !struck {
            return;
        }
        match rule.effect {
            FaultEffect::Delay(span) => strike.delay += span,
            FaultEffect::Fail(kind) => strike.fail = Some(kind),
            FaultEffect::Ruin => {
                strike.fail = Some(IoErrorKind::Media);
                strike.ruin = true;
            }
            FaultEffect::FlipBit => strike.flip = true,
            FaultEffect::Misdirect => strike.misdirect = true,
            FaultEffect::Drop => strike.drop = true,
            FaultEffect::IgnoreFlush => strike.ignore_flush = true,
            FaultEffect::Late(span) => strike.late = Some(span),
            FaultEffect::Stick(until) => {
                strike.stick = true;
                strike.stick_until = until;
            }
        }
    }
}

/// A fault that struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Landed {
    /// Time of the fault.
    pub at: Nanos,
    /// Class of the fault.
    pub class: FaultClass,
    /// The disk, or the end of the stream; of a power cut of all domains
    /// [`TargetId::NONE`].
    pub target: TargetId,
    /// The sector of a disk, the byte of a stream, or the number of a domain.
    pub place: u64,
}

/// Every fault that struck, counted, and where.
#[derive(Clone, Debug, Default)]
pub struct FaultTally {
    counts: [u64; FaultClass::ALL.len()],
    landed: Vec<Landed>,
}

impl FaultTally {
    /// Number of places remembered; the counts have no limit.
    pub const LANDED_MAX: usize = 1 << 16;

    /// Count of the faults of this class.
    pub fn count(&self, class: FaultClass) -> u64 {
        self.counts[class as usize]
    }

    /// Places of the first [`FaultTally::LANDED_MAX`] faults, in order of time.
    pub fn landed(&self) -> &[Landed] {
        &self.landed
    }

    pub(crate) fn add(&mut self, landed: Landed) {
        self.counts[landed.class as usize] += 1;
        if self.landed.len() < Self::LANDED_MAX {
            self.landed.push(landed);
        }
    }
}

impl fmt::Display for FaultTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut any = false;
        for class in FaultClass::ALL.into_iter().filter(|c| self.count(*c) > 0) {
            write!(
                f,
                "{}{class:?} {}",
                if any { ", " } else { "" },
                self.count(class)
            )?;
            any = true;
        }
        if any {
            Ok(())
        } else {
            write!(f, "no fault struck")
        }
    }
}

/// Place of a misdirected write of `extent`: other sectors of the same disk.
pub(crate) fn elsewhere(extent: Extent, disk: Extent, block: u64, rng: &mut SimRng) -> Lba {
    let places = (disk.len.0 - extent.len.0) / block + 1;
    let here = extent.start.0 / block;
    Lba((here + rng.between(1, places - 1)) % places * block)
}
