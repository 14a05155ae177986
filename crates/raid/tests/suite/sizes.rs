//! Arrays of large drives.

use crate::common::{after_power, plan, run};
use block::{Device, Lba, Sectors};
use raid::{ArrayPlan, Level, MemberState, examine};

const TB: u64 = 1_000_000_000_000;
const MIB: u64 = 1 << 20;

fn of_drives(level: Level) -> ArrayPlan {
    ArrayPlan {
        zeroed: true,
        ..plan(level)
    }
}

/// A bit of 20 TB narrows the search to 64 MiB, and survives a loss of power whichever block of the
/// bitmap it is in.
#[test]
fn a_write_to_a_large_array_leaves_little_to_compare_or_to_fill() {
    for level in [Level::Raid1, Level::Raid5] {
        let members: &[usize] = &[0, 1, 2][..if level == Level::Raid1 { 2 } else { 3 }];
        let mib = vec![20 * TB / MIB; members.len()];
        let (mut sim, disks) = run(1, 1, &mib, async move |bench| {
            let array = bench.make(&of_drives(level), members, &[]).await.unwrap();
            let end = array.geometry().sectors.0;
            let superblock = examine(&bench.env, &bench.candidate(0).device).await;
            let region = superblock.unwrap().expect("a superblock").region;
            // An array of 40 TB has as many regions as there may be.
            let most = if level == Level::Raid1 { 64 } else { 80 };
            assert!(region.bytes() <= most * MIB, "{region:?}");
            bench.write(&array, 0, 8, 1).await.unwrap();
            array.fail(1).await.unwrap();
            bench.write(&array, end - 8, 8, 2).await.unwrap();
            array.flush().await.unwrap();
            bench.cut_power().await;
        });
        after_power(&mut sim, &disks, members, async move |bench, array| {
            let end = array.geometry().sectors.0;
            bench.sleep(1).await;
            let progress = array.report().progress.expect("it gets what it missed");
            assert!(progress.total.bytes() <= 320 * MIB, "{progress:?}");
            // All of it would take days.
            bench.settled(&array).await;
            array.fail(0).await.unwrap();
            assert!(bench.holds(&array, end - 8, 8, 2).await);
            assert!(bench.holds(&array, 0, 8, 1).await);
        });
    }
}

#[test]
fn a_drive_with_a_little_less_takes_a_lost_ones_place() {
    let mib = [
        500_107 * 1_000_000 / MIB,
        500_107 * 1_000_000 / MIB,
        500_000 * 1_000_000 / MIB,
    ];
    run(1, 1, &mib, async |bench| {
        let array = bench
            .make(&of_drives(Level::Raid1), &[0, 1], &[])
            .await
            .unwrap();
        array.fail(1).await.unwrap();
        let spare = bench.candidate(2);
        assert!(spare.device.geometry().sectors < bench.candidate(0).device.geometry().sectors);
        array.add(spare, bench.uuid(), false).await.unwrap();
        bench.sleep(1000).await;
        let state = array.report().members[1].state;
        assert!(matches!(state, MemberState::Rebuilding { .. }), "{state:?}");
        assert!(array.geometry().sectors > Sectors(499 * 1_000_000_000 / 512));
        bench.write(&array, 0, 8, 1).await.unwrap();
        assert!(bench.holds(&array, 0, 8, 1).await, "{:?}", Lba(0));
    });
}
