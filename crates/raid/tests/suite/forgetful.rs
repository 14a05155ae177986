//! Members with a server that was restarted and forgot writes that no flush had covered, behind a
//! connection that is up again.

use crate::common::{Bench, all_hold, drive, options, refused, run, spoil};
use crate::faulty::{Op, slow};
use block::{Device, Extent, IoErrorKind, Lba, Sectors};
use futures_util::future::{join, join_all};
use raid::{Array, Level, MemberCandidate};
use std::cell::Cell;
use std::rc::Rc;

/// Beginning of the data on a member of RAID 5.
const DATA_AT: u64 = 4096;

/// A server that may be restarted.
struct Server {
    disk: usize,
    restarts: Rc<Cell<u64>>,
}

impl Server {
    fn of(bench: &Bench, disk: usize) -> (Server, MemberCandidate) {
        let restarts = Rc::<Cell<u64>>::default();
        let seen = restarts.clone();
        let candidate = MemberCandidate {
            losses: Rc::new(move || seen.get()),
            ..bench.candidate(disk)
        };
        (Server { disk, restarts }, candidate)
    }

    /// Restarts the server: it is back at once, and the first flush reports that it may have
    /// forgotten writes.
    async fn restart(&self, bench: &Bench) {
        bench.control.forget(bench.disks[self.disk]);
        self.restarts.set(self.restarts.get() + 1);
        bench.sleep(1).await;
    }
}

/// Assembles the array of the first disks, of which the first forgets.
async fn with_server(bench: &Bench, members: usize) -> (Server, Array) {
    let (server, first) = Server::of(bench, 0);
    let mut all = vec![first];
    all.extend((1..members).map(|disk| bench.candidate(disk)));
    let array = bench.assemble_with(all, options()).await.unwrap();
    bench.settled(&array).await;
    (server, array)
}

async fn made(bench: &Bench, level: Level, members: usize) {
    let roles: Vec<_> = (0..members).collect();
    let array = bench.create(level, &roles, &[]).await.unwrap();
    let sectors = array.geometry().sectors.0;
    for at in (0..sectors).step_by(64) {
        let len = 64.min(sectors - at);
        bench.write(&array, at, len, 1).await.unwrap();
    }
    array.close().await.unwrap();
}

/// Forgotten data of a member is never used to compute other data, and never copied to another
/// member: not even where a sector of that cannot be read.
#[test]
fn nothing_is_computed_from_a_member_that_may_have_forgotten_writes() {
    for seed in 0..20 {
        let (mut sim, disks) = run(seed, 1, &[8; 3], async |bench| {
            made(&bench, Level::Raid5, 3).await;
        });
        // In the first stripe roles 0 and 1 hold data; see `levels/raid5`.
        let unreadable = Extent::new(Lba(DATA_AT + 8), Sectors(8));
        spoil(&mut sim, vec![(disks[1], unreadable)]);
        drive(&mut sim, &disks, async |bench| {
            let (server, array) = with_server(&bench, 3).await;
            let chunk = array.shape().chunk().0;
            bench.write(&array, 0, chunk, 2).await.unwrap();
            server.restart(&bench).await;
            match bench.read(&array, chunk, chunk).await {
                Ok(buf) => assert!(buf.iter().all(|byte| *byte == 1), "bytes that nobody wrote"),
                Err(error) => assert_eq!(error.kind(), IoErrorKind::Media, "{error}"),
            }
            assert!(array.report().members[0].state.is_failed());
            assert!(bench.holds(&array, 0, 8, 2).await, "what was acknowledged");
            array.flush().await.unwrap();
            let again = bench.candidate(0);
            array.add(again, bench.uuid(), false).await.unwrap();
            bench.settled(&array).await;
            assert!(bench.holds(&array, 0, 8, 2).await);
            assert!(bench.holds(&array, 16, chunk - 16, 2).await);
            match bench.read(&array, chunk, chunk).await {
                Ok(buf) => assert!(buf.iter().all(|byte| *byte == 1)),
                Err(error) => assert_eq!(error.kind(), IoErrorKind::Media, "{error}"),
            }
        });
    }
}

#[test]
fn a_leg_that_may_have_forgotten_writes_is_left_behind_at_the_next_read() {
    for level in [Level::Raid1, Level::Raid10] {
        for seed in 0..10 {
            run(seed, 1, &[8; 2], async move |bench| {
                made(&bench, level, 2).await;
                let (server, array) = with_server(&bench, 2).await;
                bench.write(&array, 0, 512, 2).await.unwrap();
                server.restart(&bench).await;
                for at in (0..512).step_by(8) {
                    assert!(bench.holds(&array, at, 8, 2).await, "sector {at}");
                }
                assert!(array.report().members[0].state.is_failed());
                array.flush().await.unwrap();
                let again = bench.candidate(0);
                array.add(again, bench.uuid(), false).await.unwrap();
                all_hold(&bench, &array, 512, 2).await;
            });
        }
    }
}

/// The only member serves the data that it has. The next flush reports the possible loss, and the
/// array is to be reassembled.
#[test]
fn the_only_member_serves_until_the_next_flush_fails() {
    run(1, 1, &[8; 2], async |bench| {
        made(&bench, Level::Raid1, 2).await;
        let (server, array) = with_server(&bench, 2).await;
        array.fail(1).await.unwrap();
        bench.write(&array, 0, 64, 2).await.unwrap();
        server.restart(&bench).await;
        bench.read(&array, 0, 64).await.unwrap();
        refused(array.flush().await);
        array.release().await;
        let array = bench.assemble(&[0, 1]).await.unwrap();
        bench.write(&array, 0, 64, 3).await.unwrap();
        array.flush().await.unwrap();
        all_hold(&bench, &array, 64, 3).await;
    });
}

/// A read that was in flight when a flush found the loss does not show the member's right data,
/// whether or not losses are counted.
#[test]
fn what_was_being_read_as_a_flush_found_out_is_not_used() {
    for seed in 0..10 {
        run(seed, 1, &[8; 2], async move |bench| {
            made(&bench, Level::Raid1, 2).await;
            let held = Rc::new(Cell::new(false));
            let holds = held.clone();
            let waits = move |op| holds.get() && matches!(op, Op::Read(_));
            let (server, first) = Server::of(&bench, 0);
            let first = MemberCandidate {
                device: slow(&bench, 0, waits, |_| false).device,
                ..first
            };
            let all = vec![first, bench.candidate(1)];
            let array = bench.assemble_with(all, options()).await.unwrap();
            bench.settled(&array).await;
            bench.write(&array, 0, 64, 2).await.unwrap();
            held.set(true);
            let finds_out = async {
                match seed % 2 {
                    0 => server.restart(&bench).await,
                    _ => bench.control.forget(bench.disks[0]),
                }
                array.flush().await.unwrap();
                held.set(false);
            };
            // The legs take turns.
            let reads = [0, 8].map(|at| bench.holds(&array, at, 8, 2));
            let (right, ()) = join(join_all(reads), finds_out).await;
            assert_eq!(right, [true; 2]);
        });
    }
}
