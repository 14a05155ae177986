//! The cost of a rebuild or a scrub at the default rate to the array's clients, in virtual time, on
//! models of 15,000 rpm drives, and that of marks.

use crate::common::{Bench, drive, options, run, slow};
use block::{Device, Extent, Fua, Geometry, Lba, Nanos, Sectors, TargetId};
use drives::Hdd;
use drives::catalogue::hdd::SAS15K;
use futures_util::future::join_all;
use raid::{Array, ArrayPlan, Level, MemberState, Options, create};
use sim::{DiskSpec, OpFilter, ServiceTime, SimHost, SimRng, SimWorld};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MIB: u64 = 512;
const SPAN: Nanos = Nanos::from_secs(30);

/// Adds drives, one of them a spare, each at another point of its turn.
fn drives(world: &mut SimWorld, count: usize) -> Vec<TargetId> {
    let drive = |index| {
        let phase = index as f64 / count as f64;
        let model = world.add_model(Hdd::new(&SAS15K, phase).expect("a sound model"));
        let name = format!("disk-{index}");
        let mut spec = DiskSpec::new(Geometry::new(name, Sectors::from_mib(MIB), Sectors(1)));
        spec.service = ServiceTime::Model { model, unit: 0 };
        world.add_disk(spec).expect("a sound disk")
    };
    (0..count).map(drive).collect()
}

/// Issues requests of 4 KiB that arrive by chance, `rate` a second for [`SPAN`], half of them
/// writes, at random places. Returns the 99th percentile of their latency.
async fn p99(bench: &Bench, array: &Array, rate: u64, seed: u64) -> Nanos {
    let mut rng = SimRng::new(seed);
    let times = Rc::new(RefCell::new(Vec::new()));
    let timer = &bench.env.timer;
    let end = timer.now() + SPAN;
    let blocks = array.geometry().sectors.0 / 8;
    while timer.now() < end {
        let (at, write) = (Lba(rng.below(blocks) * 8), rng.chance(0.5));
        let (array, env, times) = (array.clone(), bench.env.clone(), times.clone());
        bench.env.spawn.spawn(async move {
            let buf = env.pool.get(4096).await;
            let began = env.timer.now();
            let result = match write {
                true => array.write(at, buf.share(), Fua::No).await,
                false => array.read(at, buf).await.1,
            };
            result.expect("one member is missing at most");
            times.borrow_mut().push(env.timer.now() - began);
        });
        timer.sleep(Nanos(rng.below(2_000_000_000 / rate))).await;
    }
    bench.sleep(1000).await;
    let mut times = times.borrow_mut();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Makes an array of disks `0..members`, with these spares.
async fn made(bench: &Bench, level: Level, members: usize, spares: &[usize]) -> Array {
    let plan = ArrayPlan {
        name: "array".into(),
        level,
        chunk: Sectors(128),
        overwrite: false,
        zeroed: false,
    };
    let roles: Vec<_> = (0..members).collect();
    let (members, spares) = (bench.candidates(&roles), bench.candidates(spares));
    let (mut fresh, options) = (|| bench.uuid(), Options::default());
    let array = create(&bench.env, &plan, members, spares, &mut fresh, options).await;
    array.unwrap()
}

#[test]
fn a_rebuild_at_the_default_rate_leaves_the_foreground_its_time() {
    for (level, members, rate) in [
        (Level::Raid1, 2, 60),
        (Level::Raid10, 4, 120),
        (Level::Raid5, 4, 40),
    ] {
        let mut world = SimWorld::new(1);
        let disks = drives(&mut world, members + 1);
        let mut sim = SimHost::new(world);
        drive(&mut sim, &disks, async move |bench| {
            let array = made(&bench, level, members, &[members]).await;
            let healthy = p99(&bench, &array, rate, 1).await;
            array.fail(1).await.unwrap();
            bench.sleep(500).await;
            let rebuilt = p99(&bench, &array, rate, 1).await;
            let state = array.report().members[1].state;
            let rebuilding = matches!(state, MemberState::Rebuilding { .. });
            assert!(rebuilding, "{level:?}: it continued all the while");
            let ratio = rebuilt.0 as f64 / healthy.0 as f64;
            println!("{level:?}: p99 healthy {healthy}, in rebuild {rebuilt}: {ratio:.2} times");
            assert!(ratio <= 2.0, "{level:?}: {ratio:.2} times");
        });
    }
}

#[test]
fn a_scrub_at_the_default_rate_leaves_the_foreground_its_time() {
    for (level, members, rate) in [
        (Level::Raid1, 2, 60),
        (Level::Raid10, 4, 120),
        (Level::Raid5, 4, 40),
    ] {
        let mut world = SimWorld::new(1);
        let disks = drives(&mut world, members);
        let mut sim = SimHost::new(world);
        drive(&mut sim, &disks, async move |bench| {
            let array = made(&bench, level, members, &[]).await;
            let alone = p99(&bench, &array, rate, 1).await;
            let ended = Rc::new(Cell::new(false));
            let (scrubbed, seen) = (array.clone(), ended.clone());
            bench.env.spawn.spawn(async move {
                scrubbed.scrub(false).await.expect("all is sound");
                seen.set(true);
            });
            bench.sleep(500).await;
            let beside = p99(&bench, &array, rate, 1).await;
            assert!(!ended.get(), "{level:?}: it continued all the while");
            let ratio = beside.0 as f64 / alone.0 as f64;
            println!("{level:?}: p99 alone {alone}, in a scrub {beside}: {ratio:.2} times");
            assert!(ratio <= 2.0, "{level:?}: {ratio:.2} times");
        });
    }
}

/// Writes once to each of 64 regions. A write of the map takes 5 ms.
fn time_of_writes(mark_ahead: Sectors) -> Nanos {
    let (mut sim, disks) = run(1, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    let map = Some(Extent::new(Lba(16), Sectors(8)));
    let delay = Nanos::from_millis(5);
    slow(&mut sim, &disks, OpFilter::Writes, map, delay);
    let took = Rc::new(Cell::new(Nanos::ZERO));
    let seen = took.clone();
    drive(&mut sim, &disks, async move |bench| {
        let options = Options {
            mark_ahead,
            ..options()
        };
        let array = bench.assemble_with(bench.candidates(&[0, 1]), options);
        let array = array.await.unwrap();
        let began = bench.env.timer.now();
        for region in 0..64 {
            bench.write(&array, region * 128, 8, 1).await.unwrap();
        }
        seen.set(bench.env.timer.now() - began);
    });
    took.get()
}

#[test]
fn writes_near_each_other_wait_for_one_mark() {
    let each = time_of_writes(Sectors::ZERO);
    let ahead = time_of_writes(Options::default().mark_ahead);
    assert!(each - ahead >= Nanos::from_millis(63 * 5), "{each} {ahead}");
}

/// Four disks of 256 MiB with a RAID 5, on which operations of a kind take `delay`.
fn slow_stripes(ops: OpFilter, delay: Nanos, test: impl AsyncFnOnce(Bench, Array) + 'static) {
    let (mut sim, disks) = run(1, 1, &[256; 4], async |bench| {
        made(&bench, Level::Raid5, 4, &[])
            .await
            .close()
            .await
            .unwrap();
    });
    slow(&mut sim, &disks, ops, None, delay);
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble_with(bench.candidates(&[0, 1, 2, 3]), options());
        let array = array.await.unwrap();
        bench.write(&array, 0, STRIPE, 1).await.unwrap();
        test(bench, array).await;
    });
}

/// Sectors of the data of a stripe of [`made`].
const STRIPE: u64 = 3 * 128;

/// Each waits for its record, and then for its data: twice the delay, however many there are.
#[test]
fn many_whole_stripes_are_written_at_once() {
    let delay = Nanos::from_millis(10);
    slow_stripes(OpFilter::Writes, delay, async move |bench, array| {
        let write = |stripe| bench.write(&array, stripe * STRIPE, STRIPE, 2);
        // The first writes wait for marks too.
        for is_marked in [false, true] {
            let began = bench.env.timer.now();
            for written in join_all((1..17).map(write)).await {
                written.unwrap();
            }
            let took = bench.env.timer.now() - began;
            assert!(!is_marked || took < Nanos(3 * delay.0), "{took}");
        }
    });
}

#[test]
fn room_in_the_journals_is_made_before_a_write_needs_it() {
    let delay = Nanos::from_millis(10);
    slow_stripes(OpFilter::Flushes, delay, async move |bench, array| {
        for stripe in 1..600 {
            let began = bench.env.timer.now();
            let written = bench.write(&array, stripe * STRIPE, STRIPE, 2);
            written.await.unwrap();
            let took = bench.env.timer.now() - began;
            assert!(took < delay, "stripe {stripe}: {took}");
        }
    });
}
