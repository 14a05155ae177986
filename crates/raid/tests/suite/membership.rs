//! Who is a member: legs that went on apart, stale legs, and starts with members that
//! cannot be used.

use crate::common::{drive, run, strike};
use block::{Device, Extent, Kind, Lba, Nanos, Sectors, TargetId};
use futures_util::future::join;
use raid::{Level, MemberState};
use sim::{Effect, Ops, Rule, When};

fn rule(disk: TargetId, ops: Ops, within: (u64, u64), when: When, effect: Effect) -> Rule {
    Rule {
        disk,
        ops,
        within: Some(Extent::new(Lba(within.0), Sectors(within.1))),
        when,
        effect,
    }
}

/// While a read of a returning member's metadata takes long, a spare is filled in its
/// place: the returning one is not taken for in sync by what it had missed before that.
#[test]
fn of_a_member_that_returns_and_a_spare_one_takes_the_place() {
    for nth in 1..=8 {
        let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
            bench.write(&array, 0, 4096, 1).await.unwrap();
            array.close().await.unwrap();
        });
        let slow = Effect::Delay(Nanos::from_secs(8));
        let nth = When::Nth(nth);
        let rule = rule(disks[1], Ops::Reads, (0, 16), nth, slow);
        strike(&mut sim, vec![rule]);
        let control = sim.world().control();
        drive(&mut sim, &control, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            bench.settled(&array).await;
            bench.sleep(120).await;
            let missed = async {
                array.fail(1).await.unwrap();
                bench.write(&array, 0, 256, 2).await.unwrap();
                array.flush().await.unwrap();
            };
            let back = async {
                bench.sleep(3).await;
                array.add(bench.candidate(1), bench.uuid(), true).await
            };
            let ((), added) = join(missed, back).await;
            if let Err(error) = added {
                assert_eq!(error.kind(), Kind::Busy, "{nth:?}: {error}");
            }
            bench.sleep(2000).await;
            bench.settled(&array).await;
            for _ in 0..4 {
                assert!(bench.holds(&array, 0, 256, 2).await, "{nth:?}");
            }
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{nth:?}: {:?}", array.events());
        });
    }
}

/// A member that refuses all writes, as one that has become read-only does, is lost or
/// stays lost, and the array starts without it, as often as it is started.
#[test]
fn an_array_starts_with_a_member_that_refuses_writes() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        let all: Vec<usize> = (0..members).collect();
        let roles = all.clone();
        let (mut sim, disks) = run(1, 1, &vec![8; members], async move |bench| {
            let array = bench.create(level, &roles, &[]).await.unwrap();
            bench.write(&array, 0, 512, 1).await.unwrap();
            array.close().await.unwrap();
        });
        for kind in [Kind::ReadOnly, Kind::Media] {
            let refusal = Effect::Fail(kind);
            let disk = (0, 8 * 2048);
            let rule = rule(disks[1], Ops::Writes, disk, When::Always, refusal);
            strike(&mut sim, vec![rule]);
            let control = sim.world().control();
            let all = all.clone();
            drive(&mut sim, &control, &disks, async move |bench| {
                for byte in 2..5 {
                    let array = bench.assemble(&all).await.unwrap();
                    bench.write(&array, 0, 512, byte).await.unwrap();
                    let state = array.report().members[1].state;
                    assert!(matches!(state, MemberState::Failed { .. }), "{state:?}");
                    bench.sleep(1000).await;
                    array.close().await.unwrap();
                    bench.sleep(500).await;
                    let array = bench.assemble(&all).await.unwrap();
                    assert!(bench.holds(&array, 0, 512, byte).await);
                    array.close().await.unwrap();
                    bench.sleep(500).await;
                }
            });
        }
    }
}
