//! Members that are declared to read as zeroes are trusted, but for a sample.

use crate::common::{Bench, plan, refused, run};
use block::{Device, Fua, IoResult, Lba};
use raid::{Array, ArrayPlan, Level};

const MIB: u64 = 64;

async fn make(bench: &Bench, level: Level, zeroed: bool) -> IoResult<Array> {
    let plan = ArrayPlan {
        overwrite: true,
        zeroed,
        ..plan(level)
    };
    bench.make(&plan, &[0, 1, 2, 3], &[]).await
}

/// Fills `sectors` of the last disk.
async fn soil(bench: &Bench, at: u64, sectors: u64) {
    let device = bench.candidate(3).device;
    for at in (at..at + sectors).step_by(8) {
        let mut buf = bench.env.pool.get(8 * 512).await;
        buf.fill(1);
        let written = device.write(Lba(at), buf.share(), Fua::No).await;
        written.unwrap();
    }
}

#[test]
fn members_of_zeroes_agree_without_being_zeroed() {
    for level in [Level::Raid1, Level::Raid10, Level::Raid5] {
        run(1, 8, &[MIB; 4], async move |bench| {
            let array = make(&bench, level, true).await.unwrap();
            assert!(array.is_settled(), "{level:?}");
            bench.write(&array, 1024, 64, 7).await.unwrap();
            let seen = array.scrub(false).await.unwrap();
            assert_eq!(seen.mismatches, 0, "{level:?}");
            assert!(bench.holds(&array, 0, 512, 0).await, "{level:?}");
        });
    }
}

/// Zeroes are written a GiB at a time.
#[test]
fn large_members_are_zeroed_to_their_end() {
    run(4, 8, &[1200; 4], async |bench| {
        for at in [1199 * 2048, 1023 * 2048, 1024 * 2048] {
            soil(&bench, at, 2048).await;
        }
        make(&bench, Level::Raid1, false).await.unwrap();
        make(&bench, Level::Raid1, true).await.unwrap();
        let device = bench.candidate(3).device;
        for at in [1199 * 2048, 1023 * 2048, 1024 * 2048] {
            let buf = bench.env.pool.get(2048 * 512).await;
            let (buf, result) = device.read(Lba(at), buf).await;
            result.unwrap();
            assert!(buf.iter().all(|byte| *byte == 0), "at {at}");
        }
    });
}

#[test]
fn a_member_that_holds_something_is_refused() {
    for level in [Level::Raid1, Level::Raid10, Level::Raid5] {
        run(2, 8, &[MIB; 4], async move |bench| {
            for (at, sectors) in [(MIB * 2048 - 8, 8), (16384, 8192)] {
                soil(&bench, at, sectors).await;
                let message = refused(make(&bench, level, true).await);
                assert!(message.contains("disk-3: it holds data"), "{message}");
                make(&bench, level, false).await.unwrap();
            }
            make(&bench, level, true).await.unwrap();
        });
    }
}

#[test]
fn canary_what_no_sample_meets_differs() {
    run(3, 8, &[MIB; 4], async |bench| {
        let all = MIB * 2048;
        soil(&bench, all / 2 + 8, 8).await;
        let array = make(&bench, Level::Raid1, true).await.unwrap();
        let seen = array.scrub(false).await.unwrap();
        assert!(seen.mismatches > 0, "a scrub finds what was hidden");
    });
}
