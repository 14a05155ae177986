//! Unresponsive members that the array needs.

use crate::common::{Bench, all_hold, drive, options, run, strike};
use block::{Extent, IoErrorKind, IoResult, Lba, Nanos, Sectors};
use futures_util::future::join;
use raid::{Array, Level, Options};
use sim::{FaultEffect, FaultRule, OpFilter, When};
use std::cell::Cell;
use std::rc::Rc;

const LEVELS: [(Level, usize); 3] = [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)];
/// Time by which every operation that ends at all has ended.
const LIMIT: Nanos = Nanos::from_secs(5);

fn with_timeout() -> Options {
    Options {
        timeout: Some(Nanos::from_millis(10)),
        ..options()
    }
}

/// Makes an array that has lost its first member.
async fn degraded(bench: &Bench, level: Level, members: usize) -> Array {
    let all: Vec<usize> = (0..members).collect();
    let array = bench.create(level, &all, &[]).await.unwrap();
    bench.write(&array, 0, 1024, 1).await.unwrap();
    array.close().await.unwrap();
    let candidates = bench.candidates(&all);
    let array = bench
        .assemble_with(candidates, with_timeout())
        .await
        .unwrap();
    array.fail(0).await.unwrap();
    array
}

/// Returns the role without which an array that has lost the first cannot run.
fn needed(array: &Array) -> usize {
    let roles = 1..array.report().members.len();
    let mut needed = roles.filter(|role| !array.shape().can_run(|r| r != 0 && r != *role));
    needed.next().expect("one that is needed")
}

async fn in_time(bench: &Bench, what: &str, asked: impl Future<Output = IoResult>) {
    let ended = bench.env.timer.timeout(LIMIT, Box::pin(asked)).await;
    let ended = ended.unwrap_or_else(|| panic!("{what} waits for ever"));
    let error = ended.expect_err(what);
    assert_eq!(error.kind(), IoErrorKind::Timeout, "{what}: {error}");
    let text = error.to_string();
    assert!(text.contains("bring it back"), "{what}: {text}");
}

/// One member is lost and another, which is needed, hangs for good. Changes of members fail with an
/// error that names the hanging member; requests wait for it, and succeed once it answers.
#[test]
fn nobody_is_kept_waiting_for_a_member_that_hangs_but_requests() {
    for (level, members) in LEVELS {
        run(1, 1, &[8; 5], async move |bench| {
            let array = degraded(&bench, level, members).await;
            let hung = needed(&array);
            bench.control.hang(bench.disks[hung]);
            let asked = async {
                bench.sleep(50).await;
                let back = bench.candidates(&[0]).remove(0);
                let given = array.add(back, bench.uuid(), false);
                in_time(&bench, "a return", given).await;
                let other = bench.candidates(&[4]).remove(0);
                let replaced = array.replace(0, other, bench.uuid(), true);
                in_time(&bench, "a replacement", replaced).await;
                let message = array.events().0;
                let name = format!("disk-{hung} does not answer");
                let message = message
                    .iter()
                    .filter(|event| event.what.contains(&name))
                    .count();
                assert_eq!(message, 1, "{level:?}: {:?}", array.events().0);
                bench.control.release(bench.disks[hung]);
            };
            let (written, ()) = join(bench.write(&array, 0, 1024, 2), asked).await;
            written.unwrap();
            let back = bench.candidates(&[0]).remove(0);
            array.add(back, bench.uuid(), false).await.unwrap();
            all_hold(&bench, &array, 1024, 2).await;
        });
    }
}

/// A start that hangs in its first superblock is over in time. Only once that has landed does
/// another one trust the member.
#[test]
fn a_start_does_not_wait_for_a_member_that_hangs_and_nothing_of_it_lands_later() {
    for (level, members) in LEVELS {
        let hung = Rc::new(Cell::new(0));
        let noted = hung.clone();
        let (mut sim, disks) = run(1, 1, &[8; 5], async move |bench| {
            let array = degraded(&bench, level, members).await;
            noted.set(needed(&array));
            array.close().await.unwrap();
        });
        let hung = hung.get();
        let stuck = FaultRule {
            disk: disks[hung],
            ops: OpFilter::Writes,
            within: Some(Extent::new(Lba(0), Sectors(16))),
            when: When::Nth(1),
            effect: FaultEffect::Stick(None),
        };
        strike(&mut sim, vec![stuck]);
        drive(&mut sim, &disks, async move |bench| {
            let start = || {
                let candidates = bench.candidates(&(1..members).collect::<Vec<_>>());
                bench.assemble_with(candidates, with_timeout())
            };
            in_time(&bench, "a start", async { start().await.map(drop) }).await;
            // Another start waits for that, or is refused.
            let soon = Nanos::from_millis(5);
            let array = match bench.env.timer.timeout(soon, Box::pin(start())).await {
                Some(Ok(array)) => array,
                _ => {
                    bench.control.release(bench.disks[hung]);
                    start().await.unwrap()
                }
            };
            bench.control.release(bench.disks[hung]);
            bench.sleep(100).await;
            bench.write(&array, 0, 1024, 2).await.unwrap();
            let back = bench.candidates(&[0]).remove(0);
            array.add(back, bench.uuid(), false).await.unwrap();
            all_hold(&bench, &array, 1024, 2).await;
        });
    }
}

/// An array is released although an operation on a member never ends.
#[test]
fn an_array_releases_a_member_that_hangs() {
    for (level, members) in LEVELS {
        run(1, 1, &[8; 5], async move |bench| {
            let array = degraded(&bench, level, members).await;
            bench.control.hang(bench.disks[needed(&array)]);
            let written = Box::pin(bench.write(&array, 0, 1024, 2));
            let given_up = bench
                .env
                .timer
                .timeout(Nanos::from_millis(50), written)
                .await;
            assert!(given_up.is_none(), "{level:?}");
            let release = Box::pin(array.release());
            let ended = bench.env.timer.timeout(LIMIT, release).await;
            assert!(ended.is_some(), "{level:?}");
        });
    }
}
