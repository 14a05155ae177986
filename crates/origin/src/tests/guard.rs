//! A guarded origin that loses its power again and again: writes of hotset are never taken for
//! changes by others, and changes by others are seen.

use crate::{
    DeviceIdentity, DoubtReason, Guarded, Keep, OriginRecord, OriginVerdict, again, judge, take,
    take_with,
};
use block::{
    Device, Env, Extent, Fua, Geometry, IoErrorKind, Lba, Nanos, SECTOR_BYTES, Sectors, TargetId,
};
use futures_util::future::{join, select};
use shard::ShardDisk;
use sim::{
    DiskSpec, FaultPlan, PowerCut, RunMoment, SimDriver, SimHost, SimRng, SimWorld, Survival,
};
use simnode::run_alone;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

type Kept = Rc<RefCell<Vec<u8>>>;
type Leaf = Rc<ShardDisk<SimDriver>>;

fn identity() -> DeviceIdentity {
    DeviceIdentity::new("origin")
}

/// A slow place for the record.
fn keep(kept: &Kept, env: &Env) -> Keep {
    let (kept, timer) = (kept.clone(), env.timer.clone());
    Box::new(move |bytes| {
        let (kept, timer) = (kept.clone(), timer.clone());
        Box::pin(async move {
            timer.sleep(Nanos::from_micros(300)).await;
            *kept.borrow_mut() = bytes;
        })
    })
}

fn live<F>(sim: &mut SimHost, disk: TargetId, work: impl FnOnce(Leaf, Env) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    run_alone(sim, move |local| {
        work(Rc::new(local.disk(disk).unwrap()), local.env())
    });
}

async fn verdict(disk: &Leaf, env: &Env, kept: &Kept) -> OriginVerdict {
    let record = OriginRecord::decode(&kept.borrow()).unwrap();
    let survey = again(disk, &env.pool, identity(), &record).await;
    judge(&record, &survey)
}

/// Two writers that together reach every place of a small device.
async fn write(device: Guarded<Leaf>, env: Env, seed: u64) {
    let writer = async |half: u64| {
        let mut rng = SimRng::fork(seed, half);
        loop {
            let len = rng.between(1, 24);
            let at = 512 * half + rng.below(512 - len);
            let mut buf = env.pool.get((len * SECTOR_BYTES) as usize).await;
            buf.fill(rng.below(5) as u8);
            let written = device.write(Lba(at), buf.share(), Fua::No).await;
            if written.is_err() || rng.chance(0.2) && device.flush().await.is_err() {
                return;
            }
        }
    };
    join(writer(0), writer(1)).await;
}

#[test]
fn own_writes_are_never_another_s() {
    for seed in 0..150 {
        let mut world = SimWorld::new(seed);
        let geometry = Geometry::new("origin", Sectors(1024), Sectors(1));
        let disk = world.add_disk(DiskSpec::new(geometry)).unwrap();
        let mut sim = SimHost::new(world);
        let kept = Kept::default();
        for life in 0..4 {
            let mut rng = SimRng::fork(seed, 100 + life);
            let at = RunMoment::Step(sim.world().steps() + 200 + rng.below(400));
            let cuts = vec![PowerCut { domain: None, at }];
            // A torn write leaves content that no record allows, which costs hits alone.
            let whole = Survival {
                kept: 0.5,
                torn: 0.0,
            };
            let plan = FaultPlan {
                cuts,
                survival: Some(whole),
                ..FaultPlan::default()
            };
            sim.world_mut().set_plan(plan).unwrap();
            let kept = kept.clone();
            live(&mut sim, disk, move |disk, env| {
                let kept = kept.clone();
                async move {
                    if life > 0 {
                        let verdict = verdict(&disk, &env, &kept).await;
                        // With all places suspect, the verdict may be unknown.
                        let fine = !matches!(verdict, OriginVerdict::Changed(_));
                        assert!(fine, "seed {seed}, life {life}: {verdict:?}");
                    }
                    let record = take(&disk, &env.pool, identity(), seed + life)
                        .await
                        .unwrap();
                    let keep = keep(&kept, &env);
                    let device = Guarded::new(disk, env.clone(), record, keep);
                    device.begin().await;
                    write(device, env, seed ^ life).await;
                }
            });
        }
    }
}

/// A disk of 512 KiB.
fn small() -> (SimWorld, TargetId) {
    let mut world = SimWorld::new(1);
    let geometry = Geometry::new("origin", Sectors(1024), Sectors(1));
    let disk = world.add_disk(DiskSpec::new(geometry)).unwrap();
    (world, disk)
}

/// Runs `test` with a guarded disk, its record and a watched place.
fn watch<F>(test: impl Fn(Leaf, Env, Kept, Extent, Guarded<Leaf>) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let (world, disk) = small();
    let test = Rc::new(test);
    live(&mut SimHost::new(world), disk, move |disk, env| {
        let test = test.clone();
        async move {
            let kept = Kept::default();
            let record = take(&disk, &env.pool, identity(), 1).await.unwrap();
            let place = record.watched[5].extent;
            let keep = keep(&kept, &env);
            let device = Guarded::new(disk.clone(), env.clone(), record, keep);
            device.begin().await;
            test(disk, env, kept, place, device).await;
        }
    });
}

#[test]
fn another_s_write_is_seen_after_an_end_in_order() {
    watch(|disk, env, kept, place, device| async move {
        let write = async |byte: u8| {
            let mut buf = env.pool.get(place.len.bytes() as usize).await;
            buf.fill(byte);
            buf.share()
        };
        let own = write(7).await;
        device.write(place.start, own, Fua::No).await.unwrap();
        assert_eq!(verdict(&disk, &env, &kept).await, OriginVerdict::Same);
        device.renew(identity(), 1).await.unwrap();
        assert_eq!(verdict(&disk, &env, &kept).await, OriginVerdict::Same);
        let others = write(8).await;
        disk.write(place.start, others, Fua::No).await.unwrap();
        let message = verdict(&disk, &env, &kept).await;
        assert!(matches!(message, OriginVerdict::Changed(_)), "{message:?}");
    });
}

/// As for a new file system, the whole device is discarded first.
#[test]
fn a_device_that_was_discarded_whole_can_be_compared_again() {
    watch(|disk, env, kept, place, device| async move {
        let all = Extent::new(Lba(0), Sectors(1024));
        device.discard(all).await.unwrap();
        device.flush().await.unwrap();
        let early = verdict(&disk, &env, &kept).await;
        assert_eq!(early, OriginVerdict::Unknown(DoubtReason::NothingLeft));
        env.timer.sleep(Nanos::from_secs(11)).await;
        device.flush().await.unwrap();
        env.timer.sleep(Nanos::from_secs(1)).await;
        assert_eq!(verdict(&disk, &env, &kept).await, OriginVerdict::Same);
        let mut buf = env.pool.get(place.len.bytes() as usize).await;
        buf.fill(8);
        disk.write(place.start, buf.share(), Fua::No).await.unwrap();
        let message = verdict(&disk, &env, &kept).await;
        assert!(matches!(message, OriginVerdict::Changed(_)), "{message:?}");
    });
}

/// Such a disk, on which `bad` cannot be read.
fn spoiled(bad: Extent) -> (SimHost, TargetId) {
    let (mut world, disk) = small();
    let plan = FaultPlan {
        latent: vec![(disk, bad)],
        ..FaultPlan::default()
    };
    world.set_plan(plan).unwrap();
    (SimHost::new(world), disk)
}

#[test]
fn sectors_that_cannot_be_read_are_not_watched() {
    let bad = Extent::new(Lba(3), Sectors(40));
    let (mut sim, disk) = spoiled(bad);
    live(&mut sim, disk, move |disk, env| async move {
        let record = take(&disk, &env.pool, identity(), 1).await.unwrap();
        assert!(record.watched.len() > 16, "{record:?}");
        assert!(record.watched.iter().all(|w| !w.extent.overlaps(bad)));
        let survey = again(&disk, &env.pool, identity(), &record).await;
        assert_eq!(judge(&record, &survey), OriginVerdict::Same);
    });
}

#[test]
fn an_origin_of_which_nothing_can_be_read_is_refused() {
    let (mut sim, disk) = spoiled(Extent::new(Lba(0), Sectors(1024)));
    live(&mut sim, disk, |disk, env| async move {
        let error = take(&disk, &env.pool, identity(), 1).await.unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Media, "{error}");
    });
}

/// The device is recognised with any writes in flight; writes of others are not taken for its own.
#[test]
fn an_open_device_is_recognised_at_any_moment_and_another_is_not() {
    let seen = Rc::new(Cell::new(0));
    for seed in 0..40 {
        let mut world = SimWorld::new(seed);
        let geometry = Geometry::new("origin", Sectors(1024), Sectors(1));
        let disk = world.add_disk(DiskSpec::new(geometry)).unwrap();
        let seen = seen.clone();
        live(&mut SimHost::new(world), disk, move |disk, env| {
            let seen = seen.clone();
            async move {
                let first = [Extent::new(Lba(0), Sectors(8))];
                let record = take_with(&disk, &env.pool, identity(), seed, &first);
                let device = Guarded::watching(disk.clone(), env.clone(), record.await.unwrap());
                let recogniser = device.recogniser();
                let looks = async {
                    for look in 0..30 {
                        env.timer.sleep(Nanos::from_micros(700)).await;
                        let doubt = recogniser.doubt(&disk).await.unwrap();
                        assert_eq!(doubt, None, "seed {seed}, look {look}");
                    }
                };
                let writes = write(device.clone(), env.clone(), seed);
                select(pin!(looks), pin!(writes)).await;
                device.flush().await.unwrap();
                assert_eq!(recogniser.doubt(&disk).await.unwrap(), None);
                let mut buf = env.pool.take(1024 * SECTOR_BYTES as usize);
                buf.fill(99);
                disk.write(Lba(0), buf.share(), Fua::No).await.unwrap();
                let doubt = recogniser.doubt(&disk).await.unwrap();
                assert!(matches!(doubt, Some(DoubtReason::Content(..))), "{doubt:?}");
                drop(device);
                assert_eq!(recogniser.doubt(&disk).await.unwrap(), None);
                seen.set(seen.get() + 1);
            }
        });
    }
    assert_eq!(seen.get(), 40);
}
