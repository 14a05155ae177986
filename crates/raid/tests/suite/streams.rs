//! The gain of two disks over one for a stream, in virtual time, on models of them.

use crate::common::{Bench, drive};
use block::{Device, Geometry, Lba, Nanos, Sectors};
use drives::Hdd;
use drives::catalogue::hdd::SAS15K;
use futures_util::future::join_all;
use raid::{Array, ArrayPlan, Level, Options, create};
use sim::{DiskSpec, Keep, ServiceTime, SimHost, SimWorld};
use std::cell::Cell;
use std::rc::Rc;

const READ_BYTES: u64 = 256 << 10;
const READS: u64 = 4000;

/// Reads a stream that `threads` share, one request each at a time. Returns the reads a second, and
/// the reads of each leg.
async fn stream(bench: &Bench, array: &Array, threads: usize) -> (f64, Vec<u64>) {
    let counts = || array.report().members.into_iter().map(|m| m.counts.reads);
    let before: Vec<_> = counts().collect();
    let (next, began) = (Cell::new(0), bench.env.timer.now());
    let thread = async || {
        let mut buf = bench.env.pool.get(READ_BYTES as usize).await;
        while next.get() < READS {
            let at = Lba(next.replace(next.get() + 1) * READ_BYTES / 512);
            let result;
            (buf, result) = array.read(at, buf).await;
            result.unwrap();
        }
    };
    join_all((0..threads).map(|_| thread())).await;
    let rate = READS as f64 / (bench.env.timer.now() - began).as_secs_f64();
    let reads = counts().zip(before).map(|(after, before)| after - before);
    (rate, reads.collect())
}

#[test]
fn a_deep_stream_gains_from_a_second_disk_and_a_shallow_one_stays() {
    let mut world = SimWorld::new(1);
    let disk = |index: u32| {
        let model = Hdd::new(&SAS15K, f64::from(index) * 0.37).unwrap();
        let model = world.add_model(model);
        let name = format!("disk-{index}");
        let mut spec = DiskSpec::new(Geometry::new(name, Sectors::from_mib(4096), Sectors(1)));
        spec.geometry.rotational = true;
        spec.service = ServiceTime::Model { model, unit: 0 };
        spec.keep = Keep::Nothing;
        world.add_disk(spec).unwrap()
    };
    let disks: Vec<_> = (0..2).map(disk).collect();
    let mut sim = SimHost::new(world).pool_bytes(128 << 20);
    let rates = Rc::new(Cell::new((0.0, 0.0)));
    let seen = rates.clone();
    drive(&mut sim, &disks, async move |bench| {
        let plan = ArrayPlan {
            name: "array".into(),
            level: Level::Raid1,
            chunk: Sectors(128),
            overwrite: false,
            zeroed: true,
        };
        let (members, mut fresh) = (bench.candidates(&[0, 1]), || bench.uuid());
        let options = Options::default();
        let array = create(&bench.env, &plan, members, Vec::new(), &mut fresh, options).await;
        let array = array.unwrap();
        let (shallow, reads) = stream(&bench, &array, 4).await;
        let least = reads.iter().min().unwrap();
        assert!(*least * 100 < READS, "one leg serves it: {reads:?}");
        bench.sleep(100).await;
        let (deep, reads) = stream(&bench, &array, 64).await;
        let least = reads.iter().min().unwrap();
        assert!(*least * 3 > READS, "the legs share it: {reads:?}");
        seen.set((shallow, deep));
    });
    let (shallow, deep) = rates.get();
    println!("{shallow:.0} reads a second from one disk, {deep:.0} from two");
    assert!(deep > 1.8 * shallow, "{deep:.0} of {shallow:.0}");
}

/// Of members without heads too: data that one reads ahead the other need not read.
#[test]
fn a_sequence_stays_on_a_leg_and_jumps_take_turns() {
    crate::common::run(2, 1, &[8, 8], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        let reads = async |places: &[u64]| {
            let counts = || array.report().members.into_iter().map(|m| m.counts.reads);
            let before: Vec<_> = counts().collect();
            for at in places {
                bench.read(&array, *at, 8).await.unwrap();
            }
            let reads = counts().zip(before).map(|(after, before)| after - before);
            reads.collect::<Vec<_>>()
        };
        let sequence: Vec<_> = (100..150).map(|n| n * 8).collect();
        let of = reads(&sequence).await;
        assert!(of.contains(&50), "{of:?}");
        let jumps: Vec<_> = (0..50).map(|n| 4096 + n * 37 % 50 * 16).collect();
        assert_eq!(reads(&jumps).await, [25, 25]);
    });
}

#[test]
fn bits_that_are_wanted_again_at_once_are_left() {
    let late = Rc::new(Cell::new(0));
    let seen = late.clone();
    crate::common::run(1, 8, &[64, 64], async move |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        let regions = 200;
        // Each region rests for longer than bits are left at first.
        for round in 0..40 {
            for region in 0..regions {
                let began = bench.env.timer.now();
                bench.write(&array, region * 512, 8, 1).await.unwrap();
                // With a bit to set, a write waits for two others.
                let slow = bench.env.timer.now() - began > Nanos::from_micros(155);
                seen.set(seen.get() + u64::from(slow && round >= 20));
                bench.env.timer.sleep(Nanos::from_millis(2)).await;
            }
        }
    });
    assert!(
        late.get() < 200,
        "{} of 4000 writes had to set a bit",
        late.get()
    );
}
