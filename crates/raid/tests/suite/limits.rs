//! Time limits of members, on models of real drives: a sound drive is never lost, whatever its
//! load.

use crate::common::{Bench, drive, plan, run, strike};
use block::{Device, Extent, Fua, Geometry, Lba, Nanos, Sectors, TargetId};
use drives::catalogue::hdd::{ST3500320AS, WD10EADS};
use drives::{Hdd, HddParameters};
use futures_util::future::join_all;
use raid::{ArrayPlan, Level, MemberState, Options, create};
use sim::{DiskSpec, FaultEffect, FaultRule, OpFilter, ServiceTime, SimHost, SimWorld, When};

fn hdds(world: &mut SimWorld, parameters: &HddParameters, gib: u64) -> Vec<TargetId> {
    let drive = |index: usize| {
        let model = Hdd::new(parameters, index as f64 / 2.0).expect("a sound model");
        let model = world.add_model(model);
        let size = Sectors::from_mib(gib << 10);
        let mut geometry = Geometry::new(format!("disk-{index}"), size, Sectors(1));
        geometry.rotational = true;
        let mut spec = DiskSpec::new(geometry);
        spec.service = ServiceTime::Model { model, unit: 0 };
        world.add_disk(spec).expect("a sound disk")
    };
    (0..2).map(drive).collect()
}

/// Runs `test` beside two drives of a model.
fn on_drives(parameters: &HddParameters, gib: u64, test: impl AsyncFn(Bench) + Clone + 'static) {
    let mut world = SimWorld::new(1);
    let disks = hdds(&mut world, parameters, gib);
    drive(&mut SimHost::new(world), &disks, test);
}

/// Returns the daemon's options for a `detection` of so many seconds.
fn detecting(seconds: u64) -> Options {
    Options {
        timeout: Some(Nanos::from_millis(seconds * 900)),
        ..Options::default()
    }
}

async fn mirror(bench: &Bench, plan: &ArrayPlan, options: Options) -> raid::Array {
    let members = bench.candidates(&[0, 1]);
    let mut fresh = || bench.uuid();
    let made = create(&bench.env, plan, members, vec![], &mut fresh, options).await;
    made.expect("it can be made")
}

fn assert_whole(array: &raid::Array) {
    let report = array.report();
    let in_sync = |m: &raid::MemberReport| m.state == MemberState::InSync;
    assert!(report.members.iter().all(in_sync), "{:?}", array.events().0);
}

/// Zeroing the drives takes far longer than one operation may.
#[test]
fn an_array_of_slow_drives_can_be_made_whatever_the_detection() {
    for (parameters, detection) in [(ST3500320AS, 10), (WD10EADS, 10), (ST3500320AS, 2)] {
        on_drives(&parameters, 2, async move |bench| {
            let array = mirror(&bench, &plan(Level::Raid1), detecting(detection)).await;
            assert_whole(&array);
        });
    }
}

/// Zeroes as a client does that makes a file system.
#[test]
fn zeroing_all_of_an_array_loses_no_drive() {
    on_drives(&WD10EADS, 2, async |bench| {
        let plan = ArrayPlan {
            zeroed: true,
            ..plan(Level::Raid1)
        };
        let array = mirror(&bench, &plan, detecting(2)).await;
        let all = array.geometry().extent();
        array
            .zero(Extent::new(Lba(8), all.len - Sectors(8)))
            .await
            .unwrap();
        assert_whole(&array);
    });
}

/// An operation that waits for its turn is not yet in flight on the drive.
#[test]
fn thousands_of_writers_lose_no_drive() {
    on_drives(&ST3500320AS, 400, async |bench| {
        let plan = ArrayPlan {
            zeroed: true,
            ..plan(Level::Raid1)
        };
        let array = mirror(&bench, &plan, detecting(10)).await;
        let blocks = array.geometry().sectors.0 / 8;
        let end = bench.env.timer.now() + Nanos::from_secs(40);
        let writers = (0..2048).map(|i| {
            let (array, env) = (array.clone(), bench.env.clone());
            async move {
                let mut rng = sim::SimRng::fork(7, i);
                while env.timer.now() < end {
                    let mut buf = env.pool.get(4096).await;
                    buf.fill(1);
                    let at = Lba(rng.below(blocks) * 8);
                    array.write(at, buf.share(), Fua::No).await.unwrap();
                }
            }
        });
        join_all(writers).await;
        assert_whole(&array);
    });
}

/// The time that a wait for a turn takes is not given to a drive that is stuck.
#[test]
fn a_stuck_drive_is_lost_in_time_however_much_is_asked() {
    let (mut sim, disks) = run(1, 1, &[64; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    let stuck = FaultRule {
        disk: disks[1],
        ops: OpFilter::All,
        within: Some(Extent::new(Lba(2048), Sectors(62 * 2048))),
        when: When::Always,
        effect: FaultEffect::Stick(None),
    };
    strike(&mut sim, vec![stuck]);
    drive(&mut sim, &disks, async |bench| {
        let members = bench.candidates(&[0, 1]);
        let array = bench.assemble_with(members, detecting(10)).await;
        let array = array.unwrap();
        let began = bench.env.timer.now();
        let writes = (0..1024).map(|i| {
            let (array, bench) = (array.clone(), bench.clone());
            async move { bench.write(&array, i * 64, 8, 1).await }
        });
        for written in join_all(writes).await {
            written.unwrap();
        }
        let took = bench.env.timer.now() - began;
        assert!(array.report().members[1].state.is_failed());
        assert!(took < Nanos::from_secs(12), "{took}");
        bench.control.release(bench.disks[1]);
    });
}
