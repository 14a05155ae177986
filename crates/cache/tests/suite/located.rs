//! Hits that are looked up for a reader of the disk.

use crate::common::{Rig, Setup, extent, run};
use block::{
    Boundary, Device, Fua, Gate, LOCATED_BLOCK_BYTES, Lba, LocatedRead, Nanos, SECTOR_BYTES,
    Sectors,
};
use cache::{CacheMode, Config, Counter};
use shard::LocatingGate;

const LINE: u64 = 128;

/// Makes the line at sector 0 resident, with `byte` in each.
async fn resident(rig: &Rig, byte: u8) {
    rig.write(0, LINE, byte).await.unwrap();
    rig.expect(0, LINE, byte).await;
    rig.cache.settle().await;
}

/// True if the bytes of the disk at the place of `read` have its checksums.
async fn is_there(rig: &Rig, read: &LocatedRead) -> bool {
    let disk = rig.local.disk(read.place.target).unwrap();
    let buf = rig.env.pool.get(read.bytes()).await;
    let (buf, result) = disk.read(read.place.at, buf).await;
    result.unwrap();
    read.is_sound(&buf, crc_fast::crc32_iscsi)
}

#[test]
fn a_hit_is_located_and_counted_and_nothing_else_is() {
    run(Setup::default(), async |rig| {
        assert!(rig.volume.locate(extent(0, 8)).is_none(), "a miss");
        resident(&rig, 7).await;
        rig.write(LINE, LINE, 7).await.unwrap();
        let before = rig.count(Counter::ReadsHit);
        for (at, sectors, blocks, skip) in [(0, 8, 1, 0), (8, 120, 15, 0), (3, 2, 1, 1536)] {
            let read = rig.volume.locate(extent(at, sectors)).unwrap();
            assert_eq!((read.blocks, read.skip), (blocks, skip), "{at}+{sectors}");
            assert_eq!(read.place.target, rig.disks[0]);
            assert!(is_there(&rig, &read).await);
        }
        assert_eq!(rig.count(Counter::ReadsHit), before + 3);
        assert_eq!(rig.count(Counter::HitsLocated), 3);
        let two = rig.volume.locate(extent(60, 128)).unwrap();
        assert_eq!((two.blocks, two.skip, two.rest().len()), (9, 2048, 1));
        assert_eq!((two.rest()[0].blocks, two.rest()[0].rest().len()), (8, 0));
        assert!(is_there(&rig, &two).await && is_there(&rig, &two.rest()[0]).await);
        assert_eq!(rig.count(Counter::ReadsHit), before + 4);
        for (at, sectors, why) in [
            (
                2 * LINE - 8,
                16,
                "a line that is not there, behind one that is",
            ),
            (0, 1032, "over 512 KiB"),
            (4 * LINE, 8, "a line that is not there"),
            (rig.volume.geometry().sectors.0, 8, "past the end"),
        ] {
            assert!(rig.volume.locate(extent(at, sectors)).is_none(), "{why}");
        }
        rig.volume.set_mode(CacheMode::PassThrough);
        assert!(rig.volume.locate(extent(0, 8)).is_none(), "the mode");
        rig.volume.set_mode(CacheMode::WriteThrough);
        rig.volume.close().await;
        assert!(rig.volume.locate(extent(0, 8)).is_none(), "closed");
        assert_eq!(rig.count(Counter::HitsLocated), 4);
    });
}

#[test]
fn a_write_to_the_slot_or_the_loss_of_the_device_refuses_reads_in_flight() {
    run(Setup::default(), async |rig| {
        let generations = rig.volume.generations().unwrap();
        resident(&rig, 1).await;
        let generation = || {
            let read = rig.volume.locate(extent(0, 8)).unwrap();
            read.generation
        };
        let first = generation();
        assert!(generations.is_present(first));
        rig.write(8, 8, 2).await.unwrap();
        rig.cache.settle().await;
        assert!(!generations.is_present(first), "a neighbour was rewritten");
        let second = generation();
        rig.cache.remove_device(rig.devices[0]).await.unwrap();
        assert!(!generations.is_present(second), "the device was removed");
        assert!(rig.volume.locate(extent(0, 8)).is_none());
    });
}

#[test]
fn the_bytes_of_a_located_read_are_those_of_the_look_up_or_are_read_again() {
    run(Setup::default(), async |rig| {
        resident(&rig, 1).await;
        let gate = Gate::new(rig.volume.clone(), rig.env.clone());
        let gate = LocatingGate::new(gate, &rig.local);
        assert_eq!(gate.read(4096, 8192).await.unwrap()[..], [1; 8192]);
        // Between the look-up and the answer of the disk, the block is rewritten.
        let data = rig.buf(8).await;
        let changed = async {
            let mut data = data;
            data.fill(2);
            gate.write(0, data.share(), Fua::No).await.unwrap();
        };
        let (read, ()) = futures_util::future::join(gate.read(0, 4096), changed).await;
        let read = read.unwrap();
        assert!(read[..] == [1; 4096] || read[..] == [2; 4096]);
        assert_eq!(gate.read(0, 4096).await.unwrap()[..], [2; 4096]);
        assert_eq!(rig.count(Counter::HitsLocated), 3);
        let located = gate.gate().locate(100, 300).unwrap();
        assert_eq!(located.skip, 100);
        assert!(located.more.is_none());
        assert_eq!(located.bytes(), LOCATED_BLOCK_BYTES);
    });
}

#[test]
fn a_gate_that_locates_reads_keeps_the_contract() {
    for seed in 0..4 {
        let config = Config {
            line_bytes: 16384,
            ..Config::default()
        };
        let setup = Setup {
            seed,
            config,
            origin: Sectors::from_mib(3),
            ..Setup::default()
        };
        run(setup, move |rig| async move {
            let gate = Gate::new(rig.volume.clone(), rig.env.clone());
            let gate = LocatingGate::new(gate, &rig.local);
            let block = gate.geometry().block.bytes();
            block::conformance::boundary(&gate, block, &rig.env, seed).await;
            rig.cache.settle().await;
            block::conformance::boundary(&gate, block, &rig.env, seed + 9).await;
            assert!(rig.count(Counter::HitsLocated) > 500);
            assert_eq!(rig.count(Counter::HitsRefused), 0);
        });
    }
}

#[test]
fn the_lines_of_one_read_are_one_buffer_in_order() {
    run(Setup::default(), async |rig| {
        for line in 0..4 {
            rig.write(line * LINE, LINE, line as u8).await.unwrap();
        }
        rig.cache.settle().await;
        let gate = Gate::new(rig.volume.clone(), rig.env.clone());
        let gate = LocatingGate::new(gate, &rig.local);
        let line = LINE as usize * SECTOR_BYTES as usize;
        for (offset, len) in [(0, 4 * line), (line - 700, 2 * line + 900), (3, line)] {
            let bytes = gate.read(offset as u64, len).await.unwrap();
            let expected = (offset..offset + len).map(|at| (at / line) as u8);
            assert!(bytes.iter().copied().eq(expected), "{offset}+{len}");
        }
        assert_eq!(rig.count(Counter::HitsLocated), 3);
        assert_eq!(rig.count(Counter::HitsRefused), 0);
        // One line is rewritten on its disk, by nobody's leave: its read is refused, and all with it.
        let place = rig.volume.locate(extent(LINE, 8)).unwrap();
        let disk = rig.local.disk(place.place.target).unwrap();
        let mut buf = rig.buf(8).await;
        buf.fill(9);
        disk.write(place.place.at, buf.share(), Fua::No)
            .await
            .unwrap();
        let bytes = gate.read(0, 4 * line).await.unwrap();
        let expected = (0..4 * line).map(|at| (at / line) as u8);
        assert!(bytes.iter().copied().eq(expected));
        assert_eq!(rig.count(Counter::HitsRefused), 1);
    });
}

#[test]
fn a_disk_that_hangs_is_given_up_and_ejected() {
    run(Setup::default(), async |rig| {
        resident(&rig, 5).await;
        let gate = Gate::new(rig.volume.clone(), rig.env.clone());
        let gate = LocatingGate::new(gate, &rig.local);
        rig.control.hang(rig.disks[0]);
        for block in 0..16 {
            let (bytes, took) = rig.timed(gate.read(block * 4096, 4096)).await;
            assert_eq!(bytes.unwrap()[..], [5; 4096]);
            assert!(took < Nanos::from_millis(500), "{took}");
        }
        assert_eq!(rig.count(Counter::DevicesEjected), 1);
        // Each is late twice: as a located hit, and as a hit of the cache.
        assert_eq!(rig.count(Counter::HitsRefused), 8);
        assert_eq!(rig.count(Counter::HitsLate), 16);
        let (buf, result) = rig.volume.read(Lba(0), rig.buf(8).await).await;
        result.unwrap();
        assert_eq!(buf[..], [5; 4096]);
    });
}
