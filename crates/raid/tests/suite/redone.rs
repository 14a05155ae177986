//! Records of RAID 5 journals that are done again.

use crate::common::{drive, run, spoil, strike};
use block::{Device, Extent, IoErrorKind, Lba, Nanos, Sectors};
use futures_util::future::join;
use raid::{ArrayStart, Level};
use sim::{Domain, FaultEffect, FaultRule, OpFilter, When};

/// Two records name one place, and a chunk beside it cannot be read, so that they are done again.
/// Power goes before that is flushed, and then the chunk can be read.
#[test]
fn doing_records_again_writes_nothing_older_over_what_is_durable() {
    for (seed, members) in (0..40).flat_map(|seed| [(seed, 3), (seed, 4)]) {
        let all: Vec<usize> = (0..members).collect();
        let roles = all.clone();
        let (mut sim, disks) = run(seed, 1, &vec![8; members], async move |bench| {
            let array = bench.create(Level::Raid5, &roles, &[]).await.unwrap();
            bench.write(&array, 0, 128, 7).await.unwrap();
            array.flush().await.unwrap();
            // The last but one writes sectors that both of the others do not.
            for (at, len, byte) in [(0, 8, 1), (4, 12, 2), (2, 4, 3)] {
                bench.write(&array, at, len, byte).await.unwrap();
            }
            array.flush().await.unwrap();
            bench.cut_power().await;
        });
        let control = sim.world().control();
        let unread = FaultRule {
            disk: disks[1],
            ops: OpFilter::Reads,
            within: Some(Extent::new(Lba(4096 + 32), Sectors(1))),
            when: When::Always,
            effect: FaultEffect::Fail(IoErrorKind::Media),
        };
        let unflushed = disks.iter().map(|disk| {
            FaultRule::new(
                *disk,
                OpFilter::Flushes,
                When::Always,
                FaultEffect::Delay(Nanos::from_millis(500)),
            )
        });
        let rules = unflushed.chain([unread]).collect();
        strike(&mut sim, rules);
        control.power_on(Domain(0));
        let roles = all.clone();
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            let cut = async {
                // Once the members have been flushed before the start, and it is at the next.
                bench.sleep(900).await;
                bench.cut_power().await;
            };
            let _ = join(bench.assemble(&roles), cut).await;
        });
        strike(&mut sim, Vec::new());
        control.power_on(Domain(0));
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            let array = bench.assemble(&all).await.unwrap();
            let what = format!("{seed}, {members}");
            for (at, len, byte) in [(0, 2, 1), (2, 4, 3), (6, 10, 2), (16, 112, 7)] {
                assert!(bench.holds(&array, at, len, byte).await, "{what}: {at}");
            }
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{what}");
        });
    }
}

/// A record outlives the bit of its region: it is done with, and says so only later. A record that
/// is done again without a member changes data that the member lacks then, in whatever region.
#[test]
fn a_member_gets_what_doing_a_record_again_changed_while_it_was_away() {
    let all = [0, 1, 2];
    // Stripes with parity on the same member.
    for stripe in [0, 3] {
        let at = stripe * 128;
        let (mut sim, disks) = run(1, 1, &[8; 3], async move |bench| {
            let array = bench.create(Level::Raid5, &all, &[]).await.unwrap();
            bench.write(&array, at, 128, 7).await.unwrap();
            // The bit is cleared by then.
            bench.sleep(600).await;
            bench.cut_power().await;
        });
        sim.world().control().power_on(Domain(0));
        let unread = Extent::new(Lba(4096 + stripe * 64 + 32), Sectors(1));
        spoil(&mut sim, vec![(disks[1], unread)]);
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            // Two chunks of a stripe that was written whole: the data of both is lost.
            let array = bench.start(&[1, 2], ArrayStart::Degraded).await.unwrap();
            assert!(bench.read(&array, at, 128).await.is_err(), "{stripe}");
            array
                .add(bench.candidate(0), bench.uuid(), false)
                .await
                .unwrap();
            bench.settled(&array).await;
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{stripe}");
        });
    }
}
