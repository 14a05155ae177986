//! The engine on healthy disks: hits, promotions, and lines that stay.

use crate::common::{ORIGIN_TIME, POOL_TIME, Setup, extent, run};
use block::{Device, Fua, IoErrorKind, Lba, Nanos, Sectors};
use cache::{CacheMode, Config, Counter};
use futures_util::future::{join, join_all};

#[test]
fn a_second_read_comes_from_the_pool() {
    run(Setup::default(), |rig| async move {
        rig.write(0, 128, 7).await.unwrap();
        rig.volume.set_mode(CacheMode::WriteAround);
        rig.write(0, 128, 8).await.unwrap();
        let (_, first) = rig.timed(rig.expect(0, 128, 8)).await;
        assert!(first >= ORIGIN_TIME);
        rig.cache.settle().await;
        let (_, second) = rig.timed(rig.expect(0, 128, 8)).await;
        assert_eq!(second, POOL_TIME);
        assert_eq!(rig.count(Counter::ReadsHit), 1);
        assert_eq!(rig.count(Counter::BlocksPromoted), 16);
    });
}

#[test]
fn a_miss_is_answered_before_its_promotion_ends() {
    run(Setup::default(), |rig| async move {
        let (_, time) = rig.timed(rig.expect(64, 8, 0)).await;
        assert_eq!(time, ORIGIN_TIME);
        assert_eq!(rig.count(Counter::Promotions), 0);
        rig.cache.settle().await;
        assert_eq!(rig.count(Counter::Promotions), 1);
    });
}

#[test]
fn write_through_leaves_what_was_written_in_the_pool() {
    run(Setup::default(), |rig| async move {
        rig.write(1000, 80, 3).await.unwrap();
        let (_, time) = rig.timed(rig.expect(1000, 80, 3)).await;
        assert_eq!(time, POOL_TIME);
        assert_eq!(rig.count(Counter::BlocksUpdated), 10);
    });
}

#[test]
fn blocks_written_in_part_are_read_whole_again() {
    run(Setup::default(), |rig| async move {
        rig.write(0, 32, 1).await.unwrap();
        rig.write(3, 2, 2).await.unwrap();
        rig.write(15, 2, 4).await.unwrap();
        assert_eq!(rig.count(Counter::BlocksInvalidated), 3);
        rig.expect(0, 3, 1).await;
        rig.expect(3, 2, 2).await;
        rig.expect(5, 10, 1).await;
        rig.expect(15, 2, 4).await;
        rig.expect(17, 15, 1).await;
        rig.cache.settle().await;
        let before = rig.count(Counter::OriginReads);
        rig.expect(15, 2, 4).await;
        assert_eq!(
            rig.count(Counter::OriginReads),
            before,
            "promoted by the reads"
        );
    });
}

#[test]
fn pass_through_goes_by_the_pool_and_keeps_it_right() {
    run(Setup::default(), |rig| async move {
        rig.write(0, 16, 1).await.unwrap();
        rig.volume.set_mode(CacheMode::PassThrough);
        rig.write(0, 8, 2).await.unwrap();
        let (_, time) = rig.timed(rig.expect(8, 8, 1)).await;
        assert_eq!(time, ORIGIN_TIME);
        rig.volume.set_mode(CacheMode::WriteThrough);
        rig.expect(0, 8, 2).await;
        let (_, time) = rig.timed(rig.expect(8, 8, 1)).await;
        assert_eq!(time, POOL_TIME, "the other block is still there");
        assert_eq!(rig.count(Counter::ModeSwitches), 2);
    });
}

#[test]
fn a_large_request_is_one_origin_read_and_comes_back_in_one_piece() {
    run(Setup::default(), |rig| async move {
        rig.volume.set_mode(CacheMode::WriteAround);
        for i in 0..64 {
            rig.write(i * 64, 64, i as u8).await.unwrap();
        }
        let check = async |from: u64, sectors: u64| {
            let bytes = rig.read(from, sectors).await.unwrap();
            for (i, chunk) in bytes.chunks(512).enumerate() {
                let expected = ((from + i as u64) / 64) as u8;
                assert!(
                    chunk.iter().all(|b| *b == expected),
                    "sector {}",
                    from + i as u64
                );
            }
        };
        check(5, 2000).await;
        assert_eq!(rig.count(Counter::OriginReads), 1);
        rig.cache.settle().await;
        check(0, 4096).await;
        rig.cache.settle().await;
        let before = rig.count(Counter::OriginReads);
        assert_eq!(before, 2, "what was missing after the end of the first");
        check(0, 4096).await;
        check(9, 3000).await;
        assert_eq!(rig.count(Counter::OriginReads), before);
    });
}

#[test]
fn misses_of_the_same_blocks_read_the_origin_once() {
    run(Setup::default(), |rig| async move {
        let reads = (0..8)
            .map(|_| rig.expect(256, 128, 0))
            .chain([rig.expect(256, 128, 0)]);
        join_all(reads).await;
        assert_eq!(rig.count(Counter::OriginReads), 1);
        assert_eq!(rig.count(Counter::ReadsJoined), 8);
        join(rig.expect(1024, 64, 0), rig.expect(1056, 64, 0)).await;
        assert_eq!(
            rig.count(Counter::OriginReads),
            3,
            "the part that was not under way"
        );
    });
}

#[test]
fn who_joined_a_read_that_was_given_up_reads_the_origin() {
    run(Setup::default(), |rig| async move {
        let leader = async {
            let read = rig.volume.read(Lba(0), rig.buf(8).await);
            assert!(rig.env.timer.timeout(Nanos(1000), read).await.is_none());
        };
        join(leader, rig.expect(0, 8, 0)).await;
        assert_eq!(rig.count(Counter::JoinsFailed), 1);
        assert_eq!(rig.count(Counter::OriginReads), 2);
    });
}

#[test]
fn a_write_given_up_by_its_caller_keeps_its_blocks_out_of_the_pool() {
    run(Setup::default(), |rig| async move {
        rig.expect(0, 8, 0).await;
        rig.cache.settle().await;
        let write = rig.write(0, 8, 9);
        assert!(
            rig.env
                .timer
                .timeout(ORIGIN_TIME - Nanos(1000), write)
                .await
                .is_none()
        );
        // Old bytes may come back while the write is in flight, but not stay.
        rig.read(0, 8).await.unwrap();
        rig.cache.settle().await;
        rig.expect(0, 8, 9).await;
    });
}

#[test]
fn a_write_across_a_promotion_leaves_nothing_stale() {
    for delay_us in [0, 2500, 4999, 5000, 5001, 5050, 5099, 5100, 5200] {
        run(Setup::default(), move |rig| async move {
            rig.volume.set_mode(CacheMode::WriteAround);
            rig.write(0, 128, 1).await.unwrap();
            let write = async {
                rig.env.timer.sleep(Nanos::from_micros(delay_us)).await;
                // A part of a block: the client's lock does not keep this write from a read of the
                // block's other sectors.
                rig.write(3, 1, 2).await.unwrap();
            };
            join(rig.expect(8, 120, 1), write).await;
            join(rig.read(0, 3), rig.write(4, 1, 3)).await.1.unwrap();
            rig.cache.settle().await;
            rig.expect(3, 1, 2).await;
            rig.expect(4, 1, 3).await;
            rig.cache.settle().await;
            rig.expect(3, 1, 2).await;
            rig.expect(4, 1, 3).await;
            rig.expect(5, 123, 1).await;
        });
    }
}

#[test]
fn long_streams_are_not_promoted_and_random_reads_are() {
    run(Setup::default(), |rig| async move {
        for i in 0..64 {
            rig.expect(i * 256, 256, 0).await;
        }
        rig.cache.settle().await;
        let promoted = rig.count(Counter::BlocksPromoted);
        assert_eq!(promoted, 1024, "the first 4 MiB of the stream");
        assert_eq!(rig.count(Counter::RejectedSequential), 64);
        rig.expect(100_000, 8, 0).await;
        rig.cache.settle().await;
        assert_eq!(rig.count(Counter::BlocksPromoted), promoted + 1);
    });
}

#[test]
fn lines_make_room_and_come_back_right() {
    for policy in ["lru", "auto"] {
        let setup = Setup {
            policy,
            pool: vec![Sectors::from_mib(1); 2],
            ..Setup::default()
        };
        run(setup, |rig| async move {
            assert_eq!(rig.cache.lines(), (0, 32));
            for round in 0..3 {
                for line in 0..100 {
                    let byte = (line + round) as u8;
                    rig.write(line * 128, 128, byte).await.unwrap();
                    rig.expect(line * 128, 128, byte).await;
                    let other = (line * 37) % 100;
                    let written = other <= line || round > 0;
                    let age = u64::from(other > line);
                    let byte = if written {
                        (other + round - age.min(round)) as u8
                    } else {
                        0
                    };
                    rig.expect(other * 128, 8, byte).await;
                }
            }
            rig.cache.settle().await;
            rig.cache.check();
            assert_eq!(rig.cache.lines().0, 32);
            assert!(rig.count(Counter::LinesEvicted) > 200);
        });
    }
}

#[test]
fn zeroes_and_discards_are_seen() {
    run(Setup::default(), |rig| async move {
        rig.write(0, 256, 5).await.unwrap();
        rig.volume.zero(extent(13, 100)).await.unwrap();
        rig.expect(0, 13, 5).await;
        rig.expect(13, 100, 0).await;
        rig.expect(113, 143, 5).await;
        let all = rig.volume.geometry().extent();
        rig.volume.zero(all).await.unwrap();
        rig.expect(0, 256, 0).await;
        rig.volume.discard(all).await.unwrap();
        rig.volume.flush().await.unwrap();
        rig.write(0, 8, 6).await.unwrap();
        rig.expect(0, 8, 6).await;
    });
}

#[test]
fn the_budget_bounds_promotions_and_hits_do_not_wait_for_them() {
    let config = Config {
        fill_bytes_per_s: Some(1 << 20),
        ..Config::default()
    };
    run(
        Setup {
            config,
            ..Setup::default()
        },
        |rig| async move {
            for i in 0..200 {
                rig.expect(i * 512, 128, 0).await;
            }
            rig.cache.settle().await;
            let bytes = rig.count(Counter::BlocksPromoted) * 4096;
            // One second of reads, and the allowance of one second at the start.
            assert!(
                (1 << 20..=(2 << 20) + (1 << 17)).contains(&bytes),
                "{bytes}"
            );
            assert!(rig.count(Counter::RejectedRate) > 0);
        },
    );
}

#[test]
fn volumes_share_a_pool_and_do_not_mix() {
    run(Setup::default(), |rig| async move {
        let disk = rig.local.disk(rig.origin).unwrap();
        let config = cache::VolumeConfig {
            name: "other".into(),
            sectors: Some(Sectors::from_mib(1)),
            mode: CacheMode::WriteThrough,
        };
        // The same disk represents another origin, without a writer here.
        let other = rig
            .cache
            .add_volume(config, block::BoxDevice::new(disk))
            .unwrap();
        rig.write(0, 8, 7).await.unwrap();
        let mut buf = rig.buf(8).await;
        buf.fill(9);
        other.write(Lba(8), buf.share(), Fua::No).await.unwrap();
        rig.expect(0, 8, 7).await;
        rig.expect(8, 8, 9).await;
        assert_eq!(other.counters().get(Counter::ReadsHit), 0);
        other.close().await;
        assert_eq!(other.flush().await.unwrap_err().kind(), IoErrorKind::Gone);
        let (_, result) = other.read(Lba(0), rig.buf(8).await).await;
        assert_eq!(result.unwrap_err().kind(), IoErrorKind::Gone);
        let writes = rig.count(Counter::Writes);
        drop(other);
        assert_eq!(
            rig.count(Counter::Writes),
            writes,
            "its counters stay in the sum"
        );
    });
}

#[test]
fn a_volume_longer_than_its_origin_is_refused() {
    run(Setup::default(), |rig| async move {
        let disk = rig.local.disk(rig.origin).unwrap();
        let config = cache::VolumeConfig {
            name: "long".into(),
            sectors: Some(Sectors::from_mib(65)),
            mode: CacheMode::WriteThrough,
        };
        let refused = rig.cache.add_volume(config, block::BoxDevice::new(disk));
        assert_eq!(refused.err().unwrap().kind(), IoErrorKind::Invalid);
    });
}

#[test]
fn the_last_sectors_of_an_odd_volume_are_served() {
    let setup = Setup {
        origin: Sectors(4099),
        ..Setup::default()
    };
    run(setup, |rig| async move {
        rig.write(4090, 9, 4).await.unwrap();
        rig.expect(4090, 9, 4).await;
        rig.expect(4098, 1, 4).await;
        rig.expect(4088, 2, 0).await;
        rig.write(4096, 3, 5).await.unwrap();
        rig.expect(4096, 3, 5).await;
        rig.expect(4090, 6, 4).await;
    });
}

#[test]
fn a_volume_keeps_the_contract_of_devices() {
    for (seed, block) in [(1, Sectors(1)), (2, Sectors(8)), (3, Sectors(1))] {
        for mode in CacheMode::ALL {
            let config = Config {
                line_bytes: 4096 << (2 * seed),
                ..Config::default()
            };
            let setup = Setup {
                seed,
                block,
                mode,
                config,
                origin: Sectors::from_mib(5),
                pool: vec![Sectors::from_mib(2), Sectors::from_mib(1)],
                ..Setup::default()
            };
            run(setup, move |rig| async move {
                block::conformance::device(&rig.volume, &rig.env, seed).await;
                block::conformance::gate(rig.volume.clone(), &rig.env, seed).await;
                rig.cache.settle().await;
                rig.cache.check();
            });
        }
    }
}
