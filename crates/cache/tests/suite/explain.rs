//! The cache explains the place of a line.

use crate::common::{Leaf, Rig, Setup, run};
use block::{Device, Extent, Fua, Lba, Nanos, Sectors};
use cache::{CacheMode, Counter, Decision, DeviceState, HISTORY_BYTES, Volume};
use std::slice;

const LINE: u64 = 128;

async fn read(rig: &Rig, line: u64) {
    let buf = rig.env.pool.get(64 << 10).await;
    let (_, result) = rig.volume.read(Lba(line * LINE), buf).await;
    result.unwrap();
    rig.cache.settle().await;
}

fn last(volume: &Volume<Leaf>, line: u64) -> Decision {
    volume.explain(line).last.expect("remembered").decision
}

#[test]
fn every_step_of_a_lines_life_is_reported() {
    let setup = Setup {
        pool: vec![Sectors(LINE * 2)],
        ..Setup::default()
    };
    run(setup, async |rig| {
        let volume = &rig.volume;
        assert_eq!(volume.explain(0).last, None);
        assert_eq!(volume.explain(0).residence, None);
        rig.env.timer.sleep(Nanos::from_secs(5)).await;

        read(&rig, 0).await;
        let report = volume.explain(0);
        let noted = report.last.unwrap();
        assert_eq!(noted.decision, Decision::Admitted);
        assert!(noted.admitted == Some(noted.at) && noted.at >= Nanos::from_secs(5));
        assert_eq!(report.extent, Extent::new(Lba(0), Sectors(LINE)));
        let residence = report.residence.unwrap();
        assert_eq!(residence.device, rig.devices[0]);
        assert_eq!(residence.state, DeviceState::Online);
        assert_eq!(residence.valid.as_slice(), slice::from_ref(&(0..16)));
        assert_eq!(volume.valid_blocks(0), 16);

        rig.env.timer.sleep(Nanos::from_secs(5)).await;
        volume.set_mode(CacheMode::WriteAround);
        let data = rig.env.pool.get(4096).await.share();
        volume.write(Lba(24), data, Fua::No).await.unwrap();
        let report = volume.explain(0);
        assert_eq!(last(volume, 0), Decision::Overwritten);
        assert_eq!(report.residence.unwrap().valid, vec![0..3, 4..16]);
        let noted_now = report.last.unwrap();
        assert!(noted_now.at > noted.at && noted_now.admitted == noted.admitted);

        read(&rig, 1).await;
        read(&rig, 2).await;
        let Decision::Evicted(by) = last(volume, 0) else {
            panic!("{:?}", last(volume, 0));
        };
        assert_eq!(volume.owner(by), (volume.id(), 2));
        assert_eq!(volume.explain(0).residence, None);
    });
}

#[test]
fn refusals_are_reported_with_their_reason() {
    let setup = Setup {
        config: cache::Config {
            sequential_bytes: Some(256 << 10),
            ..cache::Config::default()
        },
        ..Setup::default()
    };
    run(setup, async |rig| {
        for line in 0..8 {
            read(&rig, line).await;
        }
        let refused = Decision::Refused(Counter::RejectedSequential);
        assert_eq!(last(&rig.volume, 7), refused);
        assert_eq!(last(&rig.volume, 1), Decision::Admitted);
    });
}

#[test]
fn a_lost_device_leaves_lines_admitted_but_not_resident() {
    run(Setup::default(), async |rig| {
        read(&rig, 3).await;
        rig.cache.remove_device(rig.devices[0]).await.unwrap();
        let report = rig.volume.explain(3);
        assert_eq!(report.residence, None);
        assert_eq!(report.last.unwrap().decision, Decision::Admitted);
        read(&rig, 3).await;
        let refused = Decision::Refused(Counter::RejectedNoSlots);
        assert_eq!(last(&rig.volume, 3), refused);
    });
}

#[test]
fn history_is_bounded_and_forgets_the_oldest() {
    let lines = (HISTORY_BYTES / 32) as u64;
    let setup = Setup {
        origin: Sectors(lines * 4 * 8),
        config: cache::Config {
            line_bytes: 4096,
            sequential_bytes: None,
            ..cache::Config::default()
        },
        ..Setup::default()
    };
    run(setup, move |rig| async move {
        for start in (0..lines * 4).step_by(16) {
            let buf = rig.env.pool.get(64 << 10).await;
            rig.volume.read(Lba(start * 8), buf).await.1.unwrap();
        }
        rig.cache.settle().await;
        let known = |range: std::ops::Range<u64>| {
            let known = range
                .clone()
                .filter(|l| rig.volume.explain(*l).last.is_some());
            known.count() as u64
        };
        assert!(known(0..lines * 4) <= lines);
        assert!(
            known(lines * 7 / 2..lines * 4) > lines / 4,
            "the newest are known"
        );
        assert!(known(0..lines) < lines / 100, "the oldest are forgotten");
    });
}
