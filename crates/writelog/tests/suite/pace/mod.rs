//! Write-back on modelled drives: writes go at the SSDs' speed until the log is half full, and
//! from then on at the disk's, without a pause.

mod flushes;
mod outages;
mod rig;

use block::{Device, Fua, Lba, Nanos};
use futures_util::future::{join, join_all};
use rig::{DEPTH, Rig, Setup, anywhere, run};
use sim::SimRng;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use writelog::Cleaning;

const RUN: Nanos = Nanos::from_secs(120);
/// Longest delay of a write by pacing, and the write itself.
const WAIT_MAX: Nanos = Nanos::from_millis(1020);

/// Beginning and latency of writes.
type Writes = Rc<RefCell<Vec<(Nanos, Nanos)>>>;

async fn write_at_random(rig: Rig, client: u64, writes: Writes) {
    let mut rng = SimRng::fork(7, client);
    while rig.now() < RUN {
        let begun = rig.now();
        rig.write(anywhere(&mut rng)).await.unwrap();
        writes.borrow_mut().push((begun, rig.now() - begun));
    }
}

fn longest<'a>(writes: impl IntoIterator<Item = &'a (Nanos, Nanos)>) -> Nanos {
    let took = writes.into_iter().map(|(_, took)| *took);
    took.max().expect("there are some")
}

/// Returns the writes a second of as many clients to the devices of the log alone, each to both,
/// one after the other as a log does.
fn bare_writes() -> u64 {
    let count = Rc::new(Cell::new(0));
    let all = count.clone();
    run(Setup::new(Cleaning::Ordered, 68), move |rig| {
        let (next, count) = (Rc::new(Cell::new(0)), count.clone());
        let end = Nanos::from_secs(1);
        async move {
            let clients = (0..DEPTH).map(|_| {
                let (rig, next, count) = (rig.clone(), next.clone(), count.clone());
                async move {
                    let [first, second] = [rig.leaf(1), rig.leaf(2)];
                    while rig.now() < end {
                        let at = Lba(next.replace(next.get() + 8) % (64 << 11));
                        let data = rig.local.env().pool.get(4096).await.share();
                        let writes = join(
                            first.write(at, data.clone(), Fua::No),
                            second.write(at, data, Fua::No),
                        );
                        let (first, second) = writes.await;
                        first.and(second).unwrap();
                        count.set(count.get() + 1);
                    }
                }
            });
            join_all(clients).await;
        }
    });
    all.get()
}

/// Writes a second, and the longest latency, for the writers of a log.
struct Paced {
    /// Until the log is half full.
    free: (u64, Nanos),
    /// In the second half of the run.
    settled: (u64, Nanos),
    /// Longest latency of the run.
    longest: Nanos,
}

fn random_writes(cleaning: Cleaning, segments: u32) -> Paced {
    let writes = Writes::default();
    let all = writes.clone();
    run(Setup::new(cleaning, segments), move |rig| {
        let client = |client| write_at_random(rig.clone(), client, all.clone());
        let clients: Vec<_> = (0..DEPTH).map(client).collect();
        async move {
            join_all(clients).await;
        }
    });
    let writes = writes.take();
    // Four segments are the cleaner's. A record of one block takes two blocks.
    let free = &writes[..(segments as usize - 4) / 2 * 127];
    let (begun, took) = free[free.len() - 1];
    let later = Nanos(RUN.0 / 2);
    let settled: Vec<_> = writes.iter().filter(|(begun, _)| *begun >= later).collect();
    let paced = Paced {
        free: (
            free.len() as u64 * 1_000_000_000 / (begun + took - free[0].0).0,
            longest(free),
        ),
        settled: (settled.len() as u64 / 60, longest(settled)),
        longest: longest(&writes),
    };
    println!(
        "{cleaning:?}, {segments} MiB: below a half {:?}, settled {:?}, the longest of all {:?}",
        paced.free, paced.settled, paced.longest
    );
    paced
}

#[test]
fn random_writes_slow_down_to_the_disk_s_rate_without_a_pause() {
    for cleaning in Cleaning::ALL {
        let Paced { free, settled, .. } = random_writes(cleaning, 68);
        assert!(
            free.1 < Nanos::from_millis(20),
            "{cleaning:?}, below a half: {free:?}"
        );
        assert!(
            (200..800).contains(&settled.0),
            "{cleaning:?}: {settled:?} to a disk"
        );
        // If writes were stopped until a segment is free, the longest would take 545 ms.
        assert!(
            settled.1 < Nanos::from_millis(150),
            "{cleaning:?}, the longest: {settled:?}"
        );
    }
}

/// A smaller log is full before the cleaner's rate is known, and writes are stopped once.
#[test]
fn random_writes_go_at_the_ssds_speed_until_a_half_and_none_is_stopped_then() {
    let bare = bare_writes();
    println!("the SSDs alone: {bare} a second");
    for cleaning in Cleaning::ALL {
        let Paced { free, longest, .. } = random_writes(cleaning, 260);
        // Each write waits for the record before its own, and has a part of its header.
        assert!(
            free.0 * 2 >= bare && free.1 < Nanos::from_millis(20),
            "{cleaning:?}, below a half: {free:?} of {bare}"
        );
        assert!(
            longest < Nanos::from_millis(150),
            "{cleaning:?}, the longest of all: {longest:?}"
        );
    }
}

/// Returns the random reads from the disk in ten seconds by `readers` readers, after `burst` writes
/// that the disk lacks.
fn reads_after(burst: u64, readers: u64, max_lag: Nanos) -> u64 {
    let reads = Rc::new(Cell::new(0));
    let count = reads.clone();
    let setup = Setup {
        max_lag,
        ..Setup::new(Cleaning::Ordered, 68)
    };
    run(setup, move |rig| {
        let count = count.clone();
        async move {
            let env = rig.local.env();
            rig.make_dirty(burst).await;
            env.timer.sleep(Nanos::from_secs(2)).await;
            let end = rig.now() + Nanos::from_secs(10);
            let read = |reader| {
                let (rig, env, count) = (&rig, &env, &count);
                async move {
                    let mut rng = SimRng::fork(10, reader);
                    while rig.now() < end {
                        let buf = env.pool.get(4096).await;
                        rig.log.read(anywhere(&mut rng), buf).await.1.unwrap();
                        count.set(count.get() + 1);
                    }
                }
            };
            join_all((0..readers).map(read)).await;
            let dirty = rig.log.status().dirty_bytes;
            assert!(burst == 0 || dirty > 0, "nothing is left to clean");
        }
    });
    reads.get()
}

#[test]
fn reads_from_the_origin_keep_most_of_their_rate_while_the_log_is_cleaned() {
    let mut left = Vec::new();
    for (readers, lag_s) in [(1, 600), (4, 600), (1, 30), (4, 30)] {
        let max_lag = Nanos::from_secs(lag_s);
        let alone = reads_after(0, readers, max_lag);
        let beside = reads_after(3000, readers, max_lag);
        println!("{readers} readers, max_lag {lag_s} s: {beside} of {alone}");
        left.push(beside * 100 / alone);
    }
    // A cleaner that never rests leaves one reader 49 %.
    assert!(left[..2].iter().all(|left| *left >= 80), "{left:?}");
}

/// Writes at random until `over`.
async fn write_until(rig: Rig, client: u64, over: Rc<Cell<bool>>) {
    let mut rng = SimRng::fork(13, client);
    while !over.get() && rig.now() < RUN {
        rig.write(anywhere(&mut rng)).await.unwrap();
    }
}

/// Returns the time until a log with much dirty data is empty beside writing clients, and the
/// estimate of that time after a while.
fn retired(cleaning: Cleaning) -> (Nanos, Nanos) {
    let took = Rc::new(Cell::new((Nanos::ZERO, Nanos::ZERO)));
    let taken = took.clone();
    run(Setup::new(cleaning, 260), move |rig| {
        let (env, taken, over) = (rig.local.env(), taken.clone(), Rc::new(Cell::new(false)));
        async move {
            rig.make_dirty(14_000).await;
            let clients: Vec<_> = (0..DEPTH)
                .map(|client| write_until(rig.clone(), client, over.clone()))
                .collect();
            let log = rig.log.clone();
            let drained = async {
                let begun = env.timer.now();
                log.retire(true);
                env.timer.sleep(Nanos::from_secs(5)).await;
                let left = log.status().empty_in.expect("it was measured");
                let said = env.timer.now() - begun + left;
                log.drain_to(Nanos::from_millis(500)).await.unwrap();
                // The node lets clients wait for the rest.
                over.set(true);
                log.drain().await.unwrap();
                taken.set((env.timer.now() - begun, said));
            };
            join(join_all(clients), drained).await;
        }
    });
    took.get()
}

#[test]
fn a_log_that_is_given_up_is_empty_when_it_was_said_though_clients_write() {
    for cleaning in Cleaning::ALL {
        let (took, said) = retired(cleaning);
        println!("{cleaning:?}: {took:?}, said {said:?}");
        assert!(took < Nanos(RUN.0 / 2), "{cleaning:?}: {took:?}");
        let apart = took.0.abs_diff(said.0);
        assert!(apart * 5 <= took.0, "{cleaning:?}: {took:?}, said {said:?}");
    }
}
