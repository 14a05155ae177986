//! An impossible plan is one clear error, and changes nothing.

use super::hand::{Hand, one_disk};
use crate::{
    Direction, DiskSpec, Domain, FaultEffect, FaultPlan, FaultRule, Keep, LinkSpec, OpFilter,
    Outage, PowerCut, RunMoment, ServiceSpan, ServiceTime, SimHost, SimWorld, StreamEffect,
    StreamRule, Survival, When,
};
use block::{Address, Extent, Geometry, IoErrorKind, IoResult, Lba, Nanos, Sectors, TargetId};

#[track_caller]
fn refused(result: IoResult, parts: &[&str]) {
    let error = result.expect_err("impossible");
    assert_eq!(error.kind(), IoErrorKind::Invalid);
    let text = error.to_string();
    assert!(parts.iter().all(|p| text.contains(p)), "{text}");
}

fn rule(disk: TargetId) -> FaultRule {
    FaultRule::new(disk, OpFilter::All, When::Always, FaultEffect::Drop)
}

fn rules(rule: FaultRule) -> FaultPlan {
    FaultPlan::of(vec![rule])
}

#[test]
fn impossible_rules() {
    let (mut world, disk) = one_disk(1);
    let base = rule(disk);
    for (p, text) in [(1.5, "1.5"), (-0.1, "-0.1"), (f64::NAN, "NaN")] {
        let when = When::Chance(p);
        refused(
            world.set_plan(rules(FaultRule { when, ..base })),
            &[text, "from 0 to 1"],
        );
    }
    let when = When::Nth(0);
    refused(
        world.set_plan(rules(FaultRule { when, ..base })),
        &["from 1"],
    );
    let disk = TargetId(9);
    refused(
        world.set_plan(rules(FaultRule { disk, ..base })),
        &["target 9", "add_disk"],
    );
    let within = Some(Extent::new(Lba(2040), Sectors(9)));
    let past = world.set_plan(rules(FaultRule { within, ..base }));
    refused(past, &["disk", "past the end", "2040+9", "move"]);
    for (ops, effect, text) in [
        (OpFilter::Reads, FaultEffect::Drop, "do not write"),
        (OpFilter::Flushes, FaultEffect::FlipBit, "move no bytes"),
        (OpFilter::Writes, FaultEffect::IgnoreFlush, "do not flush"),
    ] {
        refused(
            world.set_plan(rules(FaultRule {
                ops,
                effect,
                ..base
            })),
            &[text],
        );
    }
}

#[test]
fn faults_of_contents_need_contents() {
    let mut world = SimWorld::new(1);
    let mut spec = DiskSpec::new(Geometry::new("hollow", Sectors(64), Sectors(8)));
    spec.keep = Keep::Nothing;
    let hollow = world.add_disk(spec).unwrap();
    let tiny = DiskSpec::new(Geometry::new("tiny", Sectors(8), Sectors(8)));
    let tiny = world.add_disk(tiny).unwrap();
    let flip = FaultRule {
        effect: FaultEffect::FlipBit,
        ..rule(hollow)
    };
    refused(world.set_plan(rules(flip)), &["hollow", "keeps none"]);
    let astray = FaultRule {
        effect: FaultEffect::Misdirect,
        ..rule(tiny)
    };
    refused(world.set_plan(rules(astray)), &["tiny", "one block"]);
    let off_the_blocks = FaultPlan {
        latent: vec![(tiny, Extent::new(Lba(1), Sectors(1)))],
        ..FaultPlan::default()
    };
    refused(world.set_plan(off_the_blocks), &["tiny", "logical blocks"]);
}

#[test]
fn impossible_times() {
    let (world, disk) = one_disk(1);
    let mut sim = SimHost::new(world);
    Hand::new(&mut sim).sleep(Nanos::from_secs(5));
    let mut world = sim.world_mut();
    let cut = |domain, at| FaultPlan {
        cuts: vec![PowerCut { domain, at }],
        ..FaultPlan::default()
    };
    let past = RunMoment::At(Nanos::from_secs(4));
    refused(
        world.set_plan(cut(None, past)),
        &["power cut", "4.000s", "5.000s", "later"],
    );
    refused(
        world.set_plan(cut(None, RunMoment::Step(0))),
        &["0 steps", "later"],
    );
    let later = RunMoment::At(Nanos::from_secs(6));
    refused(
        world.set_plan(cut(Some(Domain(3)), later)),
        &["domain 3", "place"],
    );
    let backwards = FaultPlan {
        outages: vec![Outage {
            disk,
            gone: later,
            back: Some(later),
        }],
        ..FaultPlan::default()
    };
    refused(world.set_plan(backwards), &["disk", "before it is gone"]);
    let survival = Some(Survival {
        kept: 0.7,
        torn: 0.7,
    });
    refused(
        world.set_plan(FaultPlan {
            survival,
            ..FaultPlan::default()
        }),
        &["1.4"],
    );
    let stall = FaultPlan {
        streams: vec![StreamRule {
            connection: None,
            direction: Direction::ToListener,
            byte: 0,
            effect: StreamEffect::Stall(Some(Nanos::ZERO)),
        }],
        ..FaultPlan::default()
    };
    refused(world.set_plan(stall), &["stalls for no time"]);
}

#[test]
fn a_refused_plan_leaves_the_one_before_it() {
    let (mut world, disk) = one_disk(1);
    let fail = FaultRule {
        effect: FaultEffect::Fail(IoErrorKind::Media),
        ..rule(disk)
    };
    world.set_plan(rules(fail)).unwrap();
    let mut bad = rules(rule(disk));
    bad.rules.push(rule(TargetId(9)));
    refused(world.set_plan(bad), &["target 9"]);
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    assert!(hand.read(disk, 0, 1).is_err());
}

#[test]
fn impossible_disks_and_links() {
    let mut world = SimWorld::new(1);
    let mut spec = super::hand::small_disk("odd");
    spec.service = ServiceTime::uniform(ServiceSpan {
        min: Nanos(2),
        max: Nanos(1),
    });
    refused(world.add_disk(spec).map(|_| ()), &["odd", "swap"]);
    let here = Address::Unix("/here".into());
    world.listen(here.clone(), LinkSpec::local()).unwrap();
    let again = world.listen(here, LinkSpec::local());
    refused(again.map(|_| ()), &["/here", "another address"]);
    let dead = LinkSpec {
        bytes_per_sec: 0,
        ..LinkSpec::local()
    };
    let there = Address::Tcp("there:1".into());
    refused(world.listen(there, dead).map(|_| ()), &["bandwidth"]);
}
