//! Decisions that show only when several things happen at once: about checkpoints, bits, and data
//! that was lost while a request waited.

use crate::common::{Bench, options, run};
use crate::faulty::{Op, slow, switched};
use block::{Device, Extent, IoErrorKind, Lba, Sectors};
use futures_util::future::join;
use raid::{Array, Level, Options, examine};
use std::cell::Cell;
use std::rc::Rc;

/// Beginning of the data on a member, without and with a journal.
const DATA_AT: [u64; 2] = [2048, 4096];

/// Makes an array of the first disks, full of 1.
async fn make(bench: &Bench, level: Level, members: usize) {
    let roles: Vec<_> = (0..members).collect();
    let array = bench.create(level, &roles, &[]).await.unwrap();
    let sectors = array.geometry().sectors.0;
    for at in (0..sectors).step_by(64) {
        bench.write(&array, at, 64, 1).await.unwrap();
    }
    bench.end(array).await;
}

async fn holds_all(bench: &Bench, array: &Array, byte: u8) -> bool {
    let sectors = array.geometry().sectors.0;
    let mut all = true;
    for at in (0..sectors).step_by(64) {
        all &= bench.holds(array, at, 64, byte).await;
    }
    all
}

/// Counts the regions that the map on a disk marks.
async fn marked(bench: &Bench, disk: usize) -> u32 {
    let device = bench.candidate(disk).device;
    let buf = bench.env.pool.get(4096).await;
    let (buf, result) = device.read(Lba(16), buf).await;
    result.unwrap();
    let bits = buf.chunks(512).flat_map(|sector| &sector[32..]);
    bits.map(|byte| byte.count_ones()).sum()
}

/// The checkpoint of a rebuild does not hold for another device that takes the role then.
#[test]
fn another_device_that_takes_a_role_is_filled_from_its_start() {
    run(1, 1, &[8; 4], async |bench| {
        make(&bench, Level::Raid1, 2).await;
        let slowly = Options {
            rebuild_floor: 1 << 20,
            ..options()
        };
        let all = bench.candidates(&[0, 1]);
        let array = bench.assemble_with(all, slowly).await.unwrap();
        array.fail(1).await.unwrap();
        array
            .add(bench.candidate(2), bench.uuid(), true)
            .await
            .unwrap();
        let checkpoint = async || {
            let found = examine(&bench.env, &bench.candidate(0).device).await;
            found.unwrap().expect("a superblock").table[1].checkpoint
        };
        while checkpoint().await < Sectors(4096) {
            assert!(bench.holds(&array, 0, 8, 1).await);
            bench.sleep(5).await;
        }
        array.fail(1).await.unwrap();
        array
            .add(bench.candidate(3), bench.uuid(), true)
            .await
            .unwrap();
        bench.settled(&array).await;
        assert_eq!(array.report().members[1].device.as_deref(), Some("disk-3"));
        array.fail(0).await.unwrap();
        assert!(holds_all(&bench, &array, 1).await);
    });
}

/// The flush that is to cover the writes loses a member: the bits are the data that it has missed.
#[test]
fn bits_stay_if_the_flush_before_they_are_cleared_loses_a_member() {
    run(2, 1, &[8; 2], async |bench| {
        make(&bench, Level::Raid1, 2).await;
        let (other, fails) = switched(&bench, 1, |op| op == Op::Flush);
        let all = vec![bench.candidate(0), other];
        let array = bench.assemble_with(all, options()).await.unwrap();
        bench.settled(&array).await;
        bench.sleep(2000).await;
        assert_eq!(marked(&bench, 0).await, 0);
        bench.write(&array, 0, 64, 2).await.unwrap();
        // The next time that bits are cleared, that of the write is too young.
        bench.sleep(200).await;
        fails.set(true);
        bench.sleep(2000).await;
        assert!(array.report().members[1].state.is_failed());
        assert_eq!(marked(&bench, 0).await, 1);
    });
}

/// A region stays marked while a write to it is in flight, however long that takes.
#[test]
fn a_bit_stays_while_its_write_is_under_way() {
    run(3, 1, &[8; 2], async |bench| {
        make(&bench, Level::Raid1, 2).await;
        let held = Rc::new(Cell::new(true));
        let (there, hold) = (Extent::new(Lba(DATA_AT[0]), Sectors(64)), held.clone());
        let waits = move |op| matches!(op, Op::Write(of) if of.overlaps(there)) && hold.get();
        let all = vec![bench.candidate(0), slow(&bench, 1, waits, |_| false)];
        let array = bench.assemble_with(all, options()).await.unwrap();
        bench.settled(&array).await;
        let look = async {
            bench.sleep(5000).await;
            let marked = marked(&bench, 0).await;
            held.set(false);
            marked
        };
        let (written, marked) = join(bench.write(&array, 0, 64, 2), look).await;
        written.unwrap();
        assert_eq!(marked, 1);
    });
}

/// A missing member's data of a stripe is lost by a write that another refuses. A read that began
/// before, and waited for the write, does not return data computed from the others then.
#[test]
fn a_read_that_waited_while_its_sectors_were_lost_is_refused() {
    run(4, 1, &[8; 3], async |bench| {
        make(&bench, Level::Raid5, 3).await;
        let held = Rc::new(Cell::new(false));
        // The first stripe has its data on the first two members.
        let there = Extent::new(Lba(DATA_AT[1]), Sectors(8));
        let is_there = move |op: &Op| matches!(op, Op::Write(of) if of.overlaps(there));
        let (hold, armed) = (held.clone(), Rc::new(Cell::new(false)));
        let arm = armed.clone();
        let waits = move |op| is_there(&op) && hold.get();
        let fails = move |op| is_there(&op) && armed.get();
        let all = vec![
            bench.candidate(0),
            slow(&bench, 1, waits, fails),
            bench.candidate(2),
        ];
        let array = bench.assemble_with(all, options()).await.unwrap();
        bench.settled(&array).await;
        array.fail(0).await.unwrap();
        held.set(true);
        arm.set(true);
        let read = async {
            bench.sleep(100).await;
            let reading = bench.read(&array, 0, 8);
            let release = async {
                bench.sleep(100).await;
                held.set(false);
            };
            join(reading, release).await.0
        };
        let (written, read) = join(bench.write(&array, 64, 8, 2), read).await;
        written.unwrap_err();
        assert_eq!(read.map(drop).unwrap_err().kind(), IoErrorKind::Media);
    });
}
