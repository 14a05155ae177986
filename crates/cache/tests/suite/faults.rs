//! The engine on pool devices that fail: hits are lost, never bytes.

use crate::common::{ORIGIN_TIME, POOL_TIME, Rig, Setup, extent, run};
use block::{
    Access, BoxDevice, Buf, Device, Fua, IoErrorKind, IoResult, Layer, Lba, Nanos, RangeLock,
    Sectors, SharedBuf, Timer,
};
use cache::{
    Cache, CacheMode, Config, Counter, DeviceFault, DeviceState, NewPoolDevice, Volume,
    VolumeConfig,
};
use futures_util::future::{join, join_all};
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, When};

fn strike(ops: OpFilter, when: When, effect: FaultEffect) -> impl Fn(block::TargetId) -> FaultRule {
    move |disk| FaultRule::new(disk, ops, when, effect)
}

fn always(ops: OpFilter, effect: FaultEffect) -> impl Fn(block::TargetId) -> FaultRule {
    strike(ops, When::Always, effect)
}

fn plan(rule: impl Fn(block::TargetId) -> FaultRule, pool: &[block::TargetId]) -> FaultPlan {
    FaultPlan::of(pool.iter().map(|disk| rule(*disk)).collect())
}

#[test]
fn a_flipped_bit_is_found_dropped_and_read_again() {
    let setup = Setup {
        plan: |_, pool| {
            plan(
                strike(OpFilter::Reads, When::Nth(1), FaultEffect::FlipBit),
                pool,
            )
        },
        ..Setup::default()
    };
    run(setup, |rig| async move {
        rig.write(0, 64, 7).await.unwrap();
        rig.expect(0, 64, 7).await;
        assert_eq!(rig.count(Counter::BlocksCorrupt), 1);
        assert_eq!(rig.cache.devices()[0].faults, 1);
        rig.cache.settle().await;
        let (_, time) = rig.timed(rig.expect(0, 64, 7)).await;
        assert_eq!(time, POOL_TIME, "promoted again");
    });
}

#[test]
fn writes_that_vanish_or_go_astray_in_the_pool_are_found() {
    for effect in [FaultEffect::Drop, FaultEffect::Misdirect] {
        let plan_of: fn(_, &[_]) -> FaultPlan = match effect {
            FaultEffect::Drop => |_, pool| plan(always(OpFilter::Writes, FaultEffect::Drop), pool),
            _ => |_, pool| plan(always(OpFilter::Writes, FaultEffect::Misdirect), pool),
        };
        run(
            Setup {
                plan: plan_of,
                ..Setup::default()
            },
            |rig| async move {
                for round in 1..4 {
                    rig.write(0, 64, round).await.unwrap();
                    rig.expect(0, 64, round).await;
                }
                assert!(rig.count(Counter::BlocksCorrupt) > 0);
            },
        );
    }
}

#[test]
fn a_device_that_is_gone_is_ejected_at_once_and_costs_only_hits() {
    run(Setup::default(), |rig| async move {
        rig.write(0, 512, 3).await.unwrap();
        rig.control.kill(rig.disks[0]);
        let reads = (0..8).map(|i| rig.expect(i * 64, 64, 3));
        join_all(reads).await;
        let report = &rig.cache.devices()[0];
        assert_eq!(report.state, DeviceState::Ejected(DeviceFault::Gone));
        assert_eq!(rig.cache.lines(), (0, 0));
        rig.write(0, 512, 4).await.unwrap();
        rig.expect(0, 512, 4).await;
        assert_eq!(rig.count(Counter::DevicesEjected), 1);
        assert!(rig.count(Counter::RejectedNoSlots) > 0);

        rig.control.revive(rig.disks[0]);
        rig.cache.remove_device(rig.devices[0]).await.unwrap();
        let disk = rig.local.disk(rig.disks[0]).unwrap();
        rig.cache
            .add_device(NewPoolDevice::whole(disk, "controller-0"))
            .unwrap();
        rig.expect(0, 512, 4).await;
        rig.cache.settle().await;
        let (_, time) = rig.timed(rig.expect(0, 128, 4)).await;
        assert_eq!(
            time, POOL_TIME,
            "it serves again, with what the origin holds"
        );
    });
}

#[test]
fn errors_eject_by_their_rate() {
    let setup = Setup {
        plan: |_, pool| {
            plan(
                always(OpFilter::Reads, FaultEffect::Fail(IoErrorKind::Media)),
                pool,
            )
        },
        ..Setup::default()
    };
    run(setup, |rig| async move {
        let mut hits = 0;
        while rig.count(Counter::DevicesEjected) == 0 {
            rig.write(hits * 8, 8, 5).await.unwrap();
            rig.expect(hits * 8, 8, 5).await;
            hits += 1;
        }
        assert_eq!(hits, 16);
        assert_eq!(
            rig.cache.devices()[0].state,
            DeviceState::Ejected(DeviceFault::Error)
        );
    });
}

#[test]
fn a_hit_that_hangs_is_served_by_the_origin_within_the_limit() {
    let setup = Setup {
        plan: |_, pool| plan(always(OpFilter::Reads, FaultEffect::Stick(None)), pool),
        ..Setup::default()
    };
    run(setup, |rig| async move {
        let limit = Config::default().hit_latency_max;
        rig.write(0, 8 * 32, 6).await.unwrap();
        let (_, time) = rig.timed(rig.expect(0, 8, 6)).await;
        assert!(
            time >= limit && time <= Nanos(limit.0 * 5 / 4) + ORIGIN_TIME,
            "{time}"
        );
        assert_eq!(rig.count(Counter::HitsLate), 1);
        // A large request with parts from both sides is assembled.
        rig.volume.set_mode(CacheMode::WriteAround);
        rig.write(256, 256, 6).await.unwrap();
        rig.expect(0, 512, 6).await;
        let (_, time) = rig
            .timed(join_all((0..16).map(|i| rig.expect(i * 8, 8, 6))))
            .await;
        assert!(time <= Nanos(limit.0 * 3) + ORIGIN_TIME, "{time}");
        assert_eq!(rig.count(Counter::DevicesEjected), 1);
        let (_, time) = rig.timed(rig.expect(0, 8, 6)).await;
        assert_eq!(time, ORIGIN_TIME);
    });
}

#[test]
fn a_pool_write_that_hangs_keeps_no_client_waiting() {
    let setup = Setup {
        plan: |_, pool| plan(always(OpFilter::Writes, FaultEffect::Stick(None)), pool),
        ..Setup::default()
    };
    run(setup, |rig| async move {
        let (_, time) = rig.timed(rig.write(0, 64, 6)).await;
        assert_eq!(time, ORIGIN_TIME);
        rig.expect(0, 64, 6).await;
        let (_, time) = rig.timed(rig.write(0, 64, 7)).await;
        assert_eq!(
            time, ORIGIN_TIME,
            "the blocks under the write that hangs are left alone"
        );
        rig.expect(0, 64, 7).await;
        rig.control.release(rig.disks[0]);
        rig.cache.settle().await;
        rig.cache.check();
        rig.expect(0, 64, 7).await;
    });
}

/// The first write's bytes come to the pool after their answer; the second's are in flight when a
/// third write overtakes them.
#[test]
fn what_the_pool_has_later_than_the_origin_is_a_hit_unless_it_was_overtaken() {
    run(Setup::default(), |rig| async move {
        rig.control.hang(rig.disks[0]);
        let (_, time) = rig.timed(rig.write(0, 64, 6)).await;
        assert_eq!(time, ORIGIN_TIME);
        rig.control.release(rig.disks[0]);
        rig.cache.settle().await;
        let (_, time) = rig.timed(rig.expect(0, 64, 6)).await;
        assert!(time < ORIGIN_TIME, "{time:?} is no hit's");
        assert_eq!(rig.count(Counter::BlocksUpdated), 8);
        rig.control.hang(rig.disks[0]);
        rig.write(0, 64, 7).await.unwrap();
        rig.write(8, 8, 8).await.unwrap();
        rig.control.release(rig.disks[0]);
        rig.cache.settle().await;
        rig.cache.check();
        assert_eq!(rig.count(Counter::PoolWritesPoisoned), 1);
        rig.expect(0, 8, 7).await;
        rig.expect(8, 8, 8).await;
        rig.expect(16, 48, 7).await;
    });
}

/// Takes one write after the other, 20 ms each; reads wait behind them where `is_one_queue`.
struct Queued<D> {
    device: D,
    is_one_queue: bool,
    timer: Timer,
    writing: RangeLock,
}

impl<D: Device> Layer for Queued<D> {
    type Below = D;

    fn below(&self) -> &D {
        &self.device
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let all = extent(0, 1);
        let _alone = match self.is_one_queue {
            true => Some(self.writing.lock(all, Access::Exclusive).await),
            false => None,
        };
        self.device.read(at, buf).await
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let all = extent(0, 1);
        let _alone = self.writing.lock(all, Access::Exclusive).await;
        self.timer.sleep(Nanos::from_millis(20)).await;
        self.device.write(at, data, fua).await
    }
}

/// A cache of its own on the first disk as [`Queued`], and a volume of that cache.
fn queued(rig: &Rig, is_one_queue: bool) -> (Cache<BoxDevice>, Volume<BoxDevice>) {
    let policy = policy::registry::build("lru", 0, 1).expect("registered");
    let cache = Cache::new(Config::default(), policy, rig.env.clone()).unwrap();
    let device = BoxDevice::new(Queued {
        device: rig.local.disk(rig.disks[0]).unwrap(),
        is_one_queue,
        timer: rig.env.timer.clone(),
        writing: RangeLock::new(),
    });
    let device = NewPoolDevice::whole(device, "controller-0");
    cache.add_device(device).unwrap();
    let config = VolumeConfig::whole("slow");
    let origin = BoxDevice::new(rig.local.disk(rig.origin).unwrap());
    let volume = cache.add_volume(config, origin).unwrap();
    (cache, volume)
}

#[test]
fn a_sound_device_slower_than_promotions_gets_fewer_and_stays() {
    run(Setup::default(), |rig| async move {
        let (cache, volume) = queued(&rig, false);
        let end = rig.env.timer.now() + Nanos::from_secs(30);
        let reader = async |number: u64| {
            for step in 0.. {
                // 1024 lines of 64 KiB, none next to the one before.
                let line = (number * 64 + step * 37) % 1024;
                let (_, result) = volume.read(Lba(line * 128), rig.buf(128).await).await;
                result.unwrap();
                if rig.env.timer.now() >= end {
                    break;
                }
            }
        };
        join_all((0..16).map(reader)).await;
        cache.settle().await;
        assert_eq!(cache.devices()[0].state, DeviceState::Online);
        let count = |counter| cache.counters().get(counter);
        assert!(count(Counter::RejectedInFlight) > 0);
        // The device can take 50 a second, and is kept busy.
        assert!(
            count(Counter::Promotions) > 1200,
            "{}",
            count(Counter::Promotions)
        );
        let late = count(Counter::PoolWritesLate);
        assert!((1..300).contains(&late), "{late}");
    });
}

/// An idle device with the requested lines, while many other lines are requested at once: hits wait
/// behind the promotions.
#[test]
fn a_sound_device_whose_hits_wait_behind_promotions_stays() {
    run(Setup::default(), |rig| async move {
        let (cache, volume) = queued(&rig, true);
        let read = async |line: u64| {
            let (_, result) = volume.read(Lba(line * 128), rig.buf(128).await).await;
            result.unwrap();
        };
        for line in 0..32 {
            read(line).await;
        }
        cache.settle().await;
        let end = rig.env.timer.now() + Nanos::from_secs(30);
        let reader = async |number: u64| {
            for step in 0.. {
                // Of four lines three are cached; the fourth is never next to the one before.
                let line = match step % 4 {
                    0 => 32 + (number * 64 + step * 37) % 900,
                    _ => (number + step) % 32,
                };
                read(line).await;
                if rig.env.timer.now() >= end {
                    break;
                }
            }
        };
        join_all((0..128).map(reader)).await;
        cache.settle().await;
        assert_eq!(cache.devices()[0].state, DeviceState::Online);
        let count = |counter| cache.counters().get(counter);
        assert!(
            count(Counter::HitsLate) >= 16,
            "{}",
            count(Counter::HitsLate)
        );
        assert!(count(Counter::RejectedInFlight) > 0);
    });
}

#[test]
fn a_device_is_removed_under_load_in_bounded_time() {
    for stuck in [false, true] {
        let plan_of: fn(_, &[_]) -> FaultPlan = if stuck {
            |_, pool| {
                plan(
                    strike(OpFilter::All, When::Chance(0.1), FaultEffect::Stick(None)),
                    pool,
                )
            }
        } else {
            |_, _| FaultPlan::default()
        };
        let pool = vec![Sectors::from_mib(2); 2];
        run(
            Setup {
                plan: plan_of,
                pool,
                ..Setup::default()
            },
            move |rig| async move {
                rig.write(0, 4096, 8).await.unwrap();
                let load = async {
                    for i in 0..64 {
                        rig.expect(i * 64, 64, 8).await;
                    }
                };
                let remove = rig.timed(rig.cache.remove_device(rig.devices[0]));
                let (_, (removed, time)) = join(load, remove).await;
                removed.unwrap();
                assert!(time <= Nanos::from_secs(1), "{time}");
                assert_eq!(rig.cache.devices().len(), 1);
                rig.expect(0, 4096, 8).await;
                let again = rig.cache.remove_device(rig.devices[0]).await;
                assert_eq!(again.unwrap_err().kind(), IoErrorKind::Invalid);
            },
        );
    }
}

#[test]
fn slots_of_a_device_that_left_are_used_again() {
    run(Setup::default(), |rig| async move {
        let memory = rig.cache.memory_bytes();
        let mut device = rig.devices[0];
        for round in 0..5 {
            rig.write(0, 1024, round).await.unwrap();
            rig.cache.remove_device(device).await.unwrap();
            let disk = rig.local.disk(rig.disks[0]).unwrap();
            device = rig
                .cache
                .add_device(NewPoolDevice::whole(disk, "controller-0"))
                .unwrap();
            rig.expect(0, 1024, round).await;
        }
        assert_eq!(rig.cache.memory_bytes(), memory);
    });
}

#[test]
fn a_pool_device_that_holds_no_line_is_refused() {
    let setup = Setup {
        pool: vec![Sectors(64), Sectors(256)],
        ..Setup::default()
    };
    let config = Config {
        line_bytes: 1 << 15,
        ..Config::default()
    };
    run(Setup { config, ..setup }, |rig| async move {
        assert_eq!(rig.cache.lines(), (0, 5));
        let part = |start, len| {
            let disk = rig.local.disk(rig.disks[1]).unwrap();
            let mut device = NewPoolDevice::whole(disk, "controller-0");
            device.extent = crate::common::extent(start, len);
            rig.cache.add_device(device).map_err(|e| e.kind())
        };
        assert_eq!(part(0, 32), Err(IoErrorKind::Invalid));
        assert_eq!(part(4, 64), Err(IoErrorKind::Invalid));
        assert_eq!(part(0, 512), Err(IoErrorKind::Invalid));
        assert!(part(128, 64).is_ok());
    });
}

#[test]
fn an_error_of_the_origin_reaches_its_client_and_no_other() {
    let setup = Setup {
        mode: CacheMode::WriteThrough,
        plan: |origin, _| FaultPlan {
            latent: vec![(origin, crate::common::extent(8, 1))],
            rules: vec![strike(
                OpFilter::Writes,
                When::Nth(1),
                FaultEffect::Fail(IoErrorKind::Media),
            )(origin)],
            ..FaultPlan::default()
        },
        ..Setup::default()
    };
    run(setup, |rig| async move {
        let reads = join(rig.read(0, 16), rig.read(0, 8)).await;
        assert_eq!(reads.0.unwrap_err().device(), Some("origin"));
        reads.1.expect("its own sectors can be read");
        assert!(rig.write(64, 8, 1).await.is_err());
        assert_eq!(rig.count(Counter::PoolWritesInVain), 1);
        let (buf, result) = rig.volume.read(Lba(64), rig.buf(8).await).await;
        result.unwrap();
        let raw = rig
            .local
            .disk(rig.origin)
            .unwrap()
            .read(Lba(64), rig.buf(8).await)
            .await
            .0;
        assert_eq!(buf[..], raw[..], "whatever the origin made of it");
    });
}

#[test]
fn no_memory_for_a_promotion_is_counted_and_harmless() {
    run(Setup::default(), |rig| async move {
        let mut hog = Vec::new();
        let keep = rig.buf(8).await;
        while let Some(buf) = rig.env.pool.try_get(4096) {
            hog.push(buf);
        }
        drop(keep);
        rig.expect(0, 8, 0).await;
        assert_eq!(rig.count(Counter::RejectedMemory), 1);
        assert_eq!(
            rig.cache.lines().0,
            0,
            "a line that holds nothing keeps no slot"
        );
    });
}
