//! Writes that wait join one record: the bytes saved, and the order kept.

use super::rig::{Tapped, config, run};
use block::{Device, Fua, Lba, Nanos};
use futures_util::future::join_all;
use layout::BLOCK_BYTES;
use std::cell::Cell;
use std::rc::Rc;
use writelog::Config;

/// Blocks written by each measurement: less than half of the log, so that nothing is paced.
const BLOCKS: u64 = 640;
const SEGMENTS: u32 = 15;

/// Returns the bytes that both devices get for each byte of random 4 KiB writes of `clients`
/// clients, with all notes of the cleaner.
fn bytes_a_byte(clients: u64) -> f64 {
    let found = Rc::new(Cell::new(0.0));
    let out = found.clone();
    run(move |rig| {
        let found = out.clone();
        async move {
            let written: Rc<Cell<u64>> = Rc::default();
            let tapped = |leaf| Tapped {
                written: written.clone(),
                ..Tapped::new(leaf)
            };
            let areas = rig.areas(SEGMENTS, tapped);
            let config = Config {
                max_lag: Nanos::from_secs(3600),
                clean_after: Nanos::ZERO,
                ..config(1)
            };
            let log = rig.open_before(rig.leaf(0), config, areas, None);
            let log = log.await.unwrap();
            log.begin().await.unwrap();
            let before = written.get();
            let all = (0..clients).map(|client| {
                let (rig, log) = (rig.clone(), log.clone());
                async move {
                    for round in (client..BLOCKS).step_by(clients as usize) {
                        let at = Lba(round * 37 % BLOCKS * 8);
                        log.write(at, rig.data(1, round as u8).await, Fua::No)
                            .await
                            .unwrap();
                    }
                }
            });
            join_all(all).await;
            log.drain().await.unwrap();
            log.close().await;
            for round in 0..BLOCKS {
                rig.expect(&rig.leaf(0), round * 37 % BLOCKS, 1, round as u8)
                    .await;
            }
            let asked = (BLOCKS * BLOCK_BYTES as u64) as f64;
            found.set((written.get() - before) as f64 / asked);
        }
    });
    found.get()
}

/// The design's goals are 4.1 at depth 1 and 2.3 at depth 32.
#[test]
fn headers_are_shared_by_writes_that_wait() {
    let all: Vec<f64> = [1, 4, 8, 16, 32, 64].map(bytes_a_byte).into();
    println!("bytes on both devices a byte of 4 KiB writes, depth 1 to 64: {all:.2?}");
    assert!(all[0] <= 4.1, "depth 1: {}", all[0]);
    assert!(all[4] <= 2.3, "depth 32: {}", all[4]);
    assert!(all.windows(2).all(|w| w[1] <= w[0]), "{all:?}");
}

/// Both writes of a record come back from it at the next opening, in the order of arrival, though
/// one of them was forced.
#[test]
fn writes_that_share_a_record_come_back_from_it() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        let (rig, log) = (&rig, &log);
        let write = async |block: u64, blocks: usize, byte: u8, fua: Fua| {
            let data = rig.data(blocks, byte).await;
            log.write(Lba(block * 8), data, fua).await.unwrap();
        };
        // The first is in flight alone. The others gather, up to the forced one.
        let begin = rig.now();
        join_all([
            write(10, 1, 1, Fua::No),
            write(30, 2, 2, Fua::No),
            write(20, 1, 3, Fua::Yes),
            write(12, 3, 4, Fua::No),
        ])
        .await;
        let took = rig.now() - begin;
        assert!(took <= Nanos::from_micros(500), "{took:?}");
        log.close().await;
        let again = rig.open(2, rig.both()).await.unwrap();
        for (block, blocks, byte) in [(10, 1, 1), (11, 1, 0), (30, 2, 2), (20, 1, 3), (12, 3, 4)] {
            rig.expect(&again, block, blocks, byte).await;
        }
        again.drain().await.unwrap();
        for (block, blocks, byte) in [(10, 1, 1), (11, 1, 0), (30, 2, 2), (20, 1, 3), (12, 3, 4)] {
            rig.expect(&rig.leaf(0), block, blocks, byte).await;
        }
        again.close().await;
    });
}
