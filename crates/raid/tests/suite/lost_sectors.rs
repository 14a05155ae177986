//! Sectors with lost data, and the most runs of them.

use crate::common::{after_power, drive, refused, run, spoil};
use block::{Device, Extent, IoErrorKind, Lba, Sectors, TargetId};
use raid::{BAD_MAX, Level, examine};
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, SimHost, When};

/// Beginning of the data on a member of a mirror.
const DATA_AT: u64 = 2048;
/// Distance from one unreadable run to the next.
const STEP: u64 = 64;

/// Makes a mirror of two disks of `mib` MiB, full of 1. Only the first has all data, and cannot
/// read `lost`.
fn with_one_copy(mib: u64, lost: &[Extent]) -> (SimHost, Vec<TargetId>) {
    let (mut sim, disks) = run(8, 1, &[mib; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.fail(1).await.unwrap();
        let sectors = array.geometry().sectors.0;
        for at in (0..sectors).step_by(STEP as usize) {
            bench.write(&array, at, STEP, 1).await.unwrap();
        }
        array.close().await.unwrap();
    });
    let latent = lost
        .iter()
        .map(|run| (disks[0], Extent::new(run.start + Sectors(DATA_AT), run.len)));
    spoil(&mut sim, latent.collect());
    (sim, disks)
}

/// The only copy cannot be read in as many places as can be remembered, so that a rebuild gives
/// these up. Rewriting some of them may not make more of them.
#[test]
fn a_run_too_many_is_refused_and_the_others_stay_known() {
    let lost = (0..BAD_MAX as u64).map(|run| Extent::new(Lba(run * STEP + 8), Sectors(3)));
    let lost: Vec<_> = lost.collect();
    let (mut sim, disks) = with_one_copy(8, &lost);
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[0]).await.unwrap();
        let given = array.add(bench.candidate(1), bench.uuid(), false).await;
        given.unwrap();
        bench.settled(&array).await;
        assert_eq!(array.report().bad, lost, "as many as can be remembered");
        let written = bench.write(&array, lost[7].start.0 + 1, 1, 2).await;
        let message = refused(written);
        assert!(message.contains("more runs of lost sectors"), "{message}");
        assert_eq!(array.report().bad, lost);
        let all = (lost[7].start.0, lost[7].len.0);
        bench.write(&array, all.0, all.1, 3).await.unwrap();
        assert!(bench.holds(&array, all.0, all.1, 3).await);
        bench
            .write(&array, lost[9].start.0 + 1, 1, 4)
            .await
            .unwrap();
        assert!(bench.holds(&array, lost[9].start.0 + 1, 1, 4).await);
        refused(bench.read(&array, lost[9].start.0, 1).await);
        array.close().await.unwrap();
        drop(array);
        let array = bench.assemble(&[0, 1]).await.unwrap();
        assert_eq!(array.report().bad.len(), BAD_MAX);
    });
}

/// The only copy cannot be read in more places than can be remembered. The data between the closest
/// is read from the only copy alone, no stale byte is served, and nothing else is lost.
#[test]
fn a_rebuild_ends_however_many_runs_are_lost() {
    const RUNS: u64 = BAD_MAX as u64 + 10;
    // The first twelve are closer to each other than the others.
    let start = |run: u64| run * STEP + if run < 12 { run + 8 } else { 40 };
    let lost = (0..RUNS).map(|run| Extent::new(Lba(start(run)), Sectors(1)));
    let lost: Vec<_> = lost.collect();
    let (mut sim, disks) = with_one_copy(9, &lost);
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[0]).await.unwrap();
        let given = array.add(bench.candidate(1), bench.uuid(), false).await;
        given.unwrap();
        bench.settled(&array).await;
        let bad = array.report().bad;
        assert_eq!(bad.len(), BAD_MAX);
        let is_lost = |at: u64| {
            bad.iter()
                .any(|run| run.contains(Extent::new(Lba(at), Sectors(1))))
        };
        assert!(lost.iter().all(|run| is_lost(run.start.0)));
        let given_up = bad.iter().map(|run| run.len.0).sum::<u64>();
        assert!(given_up < 11 * (STEP + 16) + RUNS, "{given_up} sectors");
        let is_illegible = |at: u64| lost.iter().any(|run| run.start.0 == at);
        for at in 0..array.geometry().sectors.0 {
            match is_illegible(at) {
                true => drop(refused(bench.read(&array, at, 1).await)),
                false => assert!(bench.holds(&array, at, 1, 1).await),
            }
        }
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
    });
}

#[test]
fn what_one_member_cannot_read_is_written_again() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        let all: Vec<usize> = (0..members).collect();
        let (first, roles) = (all[0], all.clone());
        let data_at = std::rc::Rc::new(std::cell::Cell::new(0));
        let found = data_at.clone();
        let (mut sim, disks) = run(9, 1, &vec![8; members], async move |bench| {
            let array = bench.create(level, &roles, &[]).await.unwrap();
            for at in (0..1024).step_by(64) {
                bench.write(&array, at, 64, 1).await.unwrap();
            }
            array.close().await.unwrap();
            let superblock = examine(&bench.env, &bench.candidate(first).device).await;
            found.set(superblock.unwrap().expect("a superblock").data_at.0);
        });
        let lost = Extent::new(Lba(data_at.get() + 8), Sectors(3));
        spoil(&mut sim, vec![(disks[first], lost)]);
        drive(&mut sim, &disks, async move |bench| {
            let raw = bench.candidate(first).device;
            let buf = bench.env.pool.get(3 * 512).await;
            assert!(raw.read(lost.start, buf).await.1.is_err(), "{level:?}");
            let array = bench.assemble(&all).await.unwrap();
            // Each leg has its turn.
            for _ in 0..4 {
                assert!(bench.holds(&array, 0, 64, 1).await, "{level:?}");
                bench.sleep(100).await;
            }
            let counts = array.report().members[first].counts;
            assert_eq!((counts.read_errors, counts.repaired), (1, 64), "{level:?}");
            let buf = bench.env.pool.get(3 * 512).await;
            let (buf, result) = raw.read(lost.start, buf).await;
            result.unwrap();
            assert!(buf.iter().all(|byte| *byte == 1), "{level:?}");
        });
    }
}

/// Copies may differ after a loss of power, one cannot be read and the member of the other is lost
/// just then: the sectors are unreadable, while the array goes on.
#[test]
fn a_member_lost_while_copies_are_compared_hides_no_unreadable_sector() {
    const FAR: u64 = 8192;
    let (mut sim, disks) = run(9, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        for at in [0, FAR] {
            bench.write(&array, at, 64, 1).await.unwrap();
        }
        bench.cut_power().await;
    });
    let there = Extent::new(Lba(DATA_AT + FAR), Sectors(1));
    let lost = FaultRule {
        disk: disks[1],
        ops: OpFilter::Reads,
        within: Some(there),
        when: When::Nth(1),
        effect: FaultEffect::Fail(IoErrorKind::Gone),
    };
    let plan = FaultPlan {
        latent: vec![(disks[0], there)],
        rules: vec![lost],
        ..FaultPlan::default()
    };
    sim.world_mut().set_plan(plan).unwrap();
    after_power(&mut sim, &disks, &[0, 1], async |bench, array| {
        let error = bench.read(&array, FAR, 8).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Media, "{error}");
        assert!(array.report().members[1].state.is_failed());
        bench.write(&array, FAR, 8, 2).await.unwrap();
        assert!(bench.holds(&array, FAR, 8, 2).await);
    });
}
