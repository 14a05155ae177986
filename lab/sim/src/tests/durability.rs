//! Allowed outcomes of a power cut, against a reference that knows only the contract: each sector
//! holds its durable stamp, or one written since.

use super::hand::Hand;
use crate::{
    DiskSpec, FaultClass, FaultEffect, FaultPlan, FaultRule, OpFilter, PowerCut, RunMoment,
    SimHost, SimRng, SimWorld, When,
};
use block::{
    Completion, Driver, DriverOp, Extent, Fua, Geometry, Lba, Nanos, Payload, Sectors, SharedBuf,
    TargetId, Token,
};
use std::collections::HashMap;

const SECTORS: u64 = 64;

/// Stamps that a sector may hold after a cut.
#[derive(Clone, Default)]
struct Sector {
    durable: u64,
    /// Stamps written since, oldest first, each with a flag: acknowledged.
    since: Vec<(u64, bool)>,
}

enum Pending {
    Write(Extent, u64, Fua),
    Read(Extent),
    /// For each sector, the latest stamp that the flush will make durable.
    Flush(Vec<Option<u64>>),
}

struct Reference {
    sectors: Vec<Sector>,
    pending: HashMap<u64, Pending>,
}

fn span(extent: Extent) -> std::ops::Range<usize> {
    extent.start.0 as usize..extent.end().0 as usize
}

impl Reference {
    fn new() -> Reference {
        Reference {
            sectors: vec![Sector::default(); SECTORS as usize],
            pending: HashMap::new(),
        }
    }

    fn busy(&self, extent: Extent) -> bool {
        self.pending.values().any(|p| match p {
            Pending::Write(other, ..) | Pending::Read(other) => other.overlaps(extent),
            Pending::Flush(_) => false,
        })
    }

    fn begin(&mut self, token: Token, pending: Pending) {
        if let Pending::Write(extent, stamp, _) = &pending {
            for sector in &mut self.sectors[span(*extent)] {
                sector.since.push((*stamp, false));
            }
        }
        self.pending.insert(token.0, pending);
    }

    fn flush(&self) -> Pending {
        let covered = |s: &Sector| s.since.iter().rfind(|(_, acked)| *acked).map(|(v, _)| *v);
        Pending::Flush(self.sectors.iter().map(covered).collect())
    }

    fn end(&mut self, completion: Completion) -> Result<(), String> {
        completion.result.map_err(|e| e.to_string())?;
        match self
            .pending
            .remove(&completion.token.0)
            .expect("begun once")
        {
            Pending::Write(extent, stamp, fua) => {
                for sector in &mut self.sectors[span(extent)] {
                    let last = sector.since.last_mut().expect("begun");
                    assert_eq!(last.0, stamp, "no two writes overlap");
                    last.1 = true;
                    if fua == Fua::Yes {
                        sector.durable = stamp;
                        sector.since.clear();
                    }
                }
            }
            Pending::Flush(covered) => {
                for (sector, covered) in self.sectors.iter_mut().zip(covered) {
                    let position = |v| sector.since.iter().position(|(s, _)| *s == v);
                    if let Some(i) = covered.and_then(position) {
                        sector.durable = sector.since[i].0;
                        sector.since.drain(..=i);
                    }
                }
            }
            Pending::Read(extent) => {
                let Payload::Buf(buf) = completion.payload else {
                    panic!("a read gives its buffer back");
                };
                for (at, bytes) in span(extent).zip(buf.chunks(512)) {
                    let sector = &self.sectors[at];
                    let latest = sector.since.last().map_or(sector.durable, |(v, _)| *v);
                    let seen = stamp_of(at, bytes)?;
                    if seen != latest {
                        return Err(format!("sector {at} reads {seen}, not {latest}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the disk's bytes after a power cut, if allowed.
    fn after_cut(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.pending.clear();
        for (at, bytes) in bytes.chunks(512).enumerate() {
            let seen = stamp_of(at, bytes)?;
            let sector = &mut self.sectors[at];
            let allowed = seen == sector.durable || sector.since.iter().any(|(v, _)| *v == seen);
            if !allowed {
                let (durable, since) = (sector.durable, &sector.since);
                return Err(format!(
                    "sector {at} holds {seen}; durable is {durable}, since then {since:?}"
                ));
            }
            sector.durable = seen;
            sector.since.clear();
        }
        Ok(())
    }
}

/// Every 16 bytes of a sector hold its number and the stamp of its write.
fn stamped(hand: &Hand, extent: Extent, stamp: u64) -> SharedBuf {
    let mut buf = hand.buf(extent.len.bytes() as usize);
    for (at, sector) in span(extent).zip(buf.chunks_mut(512)) {
        for part in sector.chunks_mut(16) {
            part[..8].copy_from_slice(&(at as u64).to_le_bytes());
            part[8..].copy_from_slice(&stamp.to_le_bytes());
        }
    }
    buf.share()
}

fn stamp_of(at: usize, bytes: &[u8]) -> Result<u64, String> {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("eight bytes"));
    if bytes.chunks(16).any(|part| part != &bytes[..16]) {
        return Err(format!("sector {at} is torn inside"));
    }
    let (place, stamp) = (word(&bytes[..8]), word(&bytes[8..16]));
    if stamp != 0 && place != at as u64 {
        return Err(format!("sector {at} holds sector {place}"));
    }
    Ok(stamp)
}

struct Trial {
    sim: SimHost,
    disk: TargetId,
    reference: Reference,
    rules: Vec<FaultRule>,
    rng: SimRng,
    stamp: u64,
}

impl Trial {
    fn new(seed: u64, spec: &DiskSpec, rule: Option<FaultRule>) -> Trial {
        let mut world = SimWorld::new(seed);
        let disk = world.add_disk(spec.clone()).unwrap();
        Trial {
            sim: SimHost::new(world),
            rules: rule.into_iter().collect(),
            disk,
            reference: Reference::new(),
            rng: SimRng::new(seed ^ 0xd15c),
            stamp: 0,
        }
    }

    /// Works until the power goes or `operations` are done.
    fn work(&mut self, operations: u64) -> Result<(), String> {
        let mut hand = Hand::new(&mut self.sim);
        let block = hand.driver.geometry(self.disk).expect("a disk").block.0;
        let mut left = operations;
        while hand.driver.has_power() {
            while left > 0 && self.reference.pending.len() < 8 {
                left -= 1;
                self.submit(&mut hand, block);
            }
            if self.reference.pending.is_empty() {
                break;
            }
            for completion in hand.park(Nanos::MAX) {
                self.reference.end(completion)?;
            }
        }
        Ok(())
    }

    fn submit(&mut self, hand: &mut Hand, block: u64) {
        let blocks = self.rng.between(1, 8.min(SECTORS / block));
        let first = self.rng.below(SECTORS / block - blocks + 1);
        let extent = Extent::new(Lba(first * block), Sectors(blocks * block));
        let choice = self.rng.below(8);
        if choice == 0 {
            let pending = self.reference.flush();
            let token = hand.start(self.disk, DriverOp::Flush);
            self.reference.begin(token, pending);
        } else if !self.reference.busy(extent) {
            let (op, pending) = if choice < 3 {
                let buf = hand.buf(extent.len.bytes() as usize);
                (DriverOp::Read(extent.start, buf), Pending::Read(extent))
            } else {
                self.stamp += 1;
                let data = stamped(hand, extent, self.stamp);
                let fua = if choice == 3 { Fua::Yes } else { Fua::No };
                (
                    DriverOp::Write(extent.start, data, fua),
                    Pending::Write(extent, self.stamp, fua),
                )
            };
            let token = hand.start(self.disk, op);
            self.reference.begin(token, pending);
        }
    }

    fn inspect(&mut self) -> Result<(), String> {
        let mut bytes = vec![0; SECTORS as usize * 512];
        self.sim.world().peek(self.disk, Lba(0), &mut bytes);
        self.reference.after_cut(&bytes)
    }

    fn cut_at(&mut self, at: RunMoment) {
        let plan = FaultPlan {
            rules: self.rules.clone(),
            cuts: vec![PowerCut { domain: None, at }],
            ..FaultPlan::default()
        };
        self.sim.world_mut().set_plan(plan).unwrap();
    }

    /// Several rounds of work, each ended by a cut at a random time.
    fn rounds(&mut self) -> Result<(), String> {
        for _ in 0..4 {
            let at = self.sim.world().now() + Nanos(self.rng.between(1, 2_000_000));
            self.cut_at(RunMoment::At(at));
            self.work(60)?;
            // The work may have ended before the plan struck.
            self.sim.world().control().cut_power(None);
            Hand::new(&mut self.sim);
            self.inspect()?;
        }
        Ok(())
    }
}

fn disk(block: u64, volatile: bool) -> DiskSpec {
    let mut geometry = Geometry::new("disk", Sectors(SECTORS), Sectors(block));
    geometry.volatile = volatile;
    DiskSpec::new(geometry)
}

/// Number of `seeds` that end in a breach of the contract, and one breach.
fn breaches(
    seeds: u64,
    spec: &DiskSpec,
    lie: Option<(OpFilter, FaultEffect)>,
) -> (u64, Option<String>) {
    let (mut count, mut first) = (0, None);
    for seed in 0..seeds {
        let rule = |(ops, effect)| FaultRule::new(TargetId(0), ops, When::Always, effect);
        if let Err(what) = Trial::new(seed, spec, lie.map(rule)).rounds() {
            count += 1;
            first.get_or_insert(format!("seed {seed}: {what}"));
        }
    }
    (count, first)
}

#[test]
fn a_cut_leaves_only_what_the_contract_allows() {
    let mut small_cache = disk(1, true);
    small_cache.cache_pages_max = 3;
    for spec in [disk(1, true), disk(8, true), disk(1, false), small_cache] {
        assert_eq!(breaches(300, &spec, None), (0, None), "{spec:?}");
    }
}

#[test]
fn canary_a_disk_that_lies_is_found() {
    let lie = |ops, effect| breaches(100, &disk(1, true), Some((ops, effect))).0;
    assert!(lie(OpFilter::Flushes, FaultEffect::IgnoreFlush) > 50);
    assert!(lie(OpFilter::Writes, FaultEffect::Drop) > 90);
    assert!(lie(OpFilter::Writes, FaultEffect::Misdirect) > 90);
    assert!(lie(OpFilter::Writes, FaultEffect::FlipBit) > 90);
    assert!(lie(OpFilter::Reads, FaultEffect::FlipBit) > 90);
}

#[test]
fn cuts_lose_tear_and_reorder_writes() {
    let mut total = [0; 3];
    for seed in 0..50 {
        let mut trial = Trial::new(seed, &disk(1, true), None);
        trial.rounds().unwrap();
        let classes = [
            FaultClass::CutLost,
            FaultClass::CutTorn,
            FaultClass::CutReordered,
        ];
        for (total, class) in total.iter_mut().zip(classes) {
            *total += trial.sim.world().tally().count(class);
        }
    }
    assert!(total.iter().all(|n| *n > 50), "{total:?}");
}

#[test]
fn every_step_of_a_run_can_be_cut() {
    let mut dry = Trial::new(5, &disk(1, true), None);
    dry.work(40).unwrap();
    let steps = dry.sim.world().steps();
    assert!(steps > 30, "{steps}");
    for step in 1..=steps {
        let mut trial = Trial::new(5, &disk(1, true), None);
        trial.cut_at(RunMoment::Step(step));
        trial.work(40).unwrap();
        assert_eq!(trial.sim.world().steps(), step, "the cut comes right there");
        assert_eq!(trial.sim.world().tally().count(FaultClass::PowerCut), 1);
        Hand::new(&mut trial.sim);
        trial
            .inspect()
            .unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}
