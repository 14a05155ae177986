//! Clients that write while a part is away: no client gets an error, and all writes are at the
//! origin in the end.

use super::WAIT_MAX;
use super::rig::{DEPTH, ORIGIN, Rig, Setup, run};
use block::{Device, Fua, Lba, Nanos};
use futures_util::future::{join, join_all};
use sim::SimRng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use writelog::Cleaning;

const AWAY_FROM: Nanos = Nanos::from_secs(30);
const AWAY_TO: Nanos = Nanos::from_secs(90);
const RUN: Nanos = Nanos::from_secs(240);

/// Fault at `AWAY_FROM`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The origin fails everything until `AWAY_TO`, and has lost its unflushed writes.
    OriginFails,
    /// The same, but the origin does not report the loss: a canary.
    OriginLies,
    /// The origin answers nothing until `AWAY_TO`.
    OriginHangs,
    /// A device of the log is unplugged.
    LogUnplugged,
}

#[derive(Clone, Copy)]
struct Load {
    /// Pause of each client after a write.
    think: Nanos,
    segments: u32,
    max_lag: Nanos,
}

/// Observations of the clients: the beginning and the latency of each write.
#[derive(Default)]
struct Seen {
    writes: RefCell<Vec<(Nanos, Nanos)>>,
    errors: RefCell<Vec<String>>,
    /// Newest value of each block.
    newest: RefCell<BTreeMap<u64, u64>>,
    /// Devices of the log that were reported lost.
    lost: RefCell<Vec<u16>>,
}

impl Seen {
    /// Returns the writes a second that began in the span, and the latency of half, of 99 % and of
    /// all of them at most.
    fn between(&self, from: Nanos, to: Nanos) -> (u64, [Nanos; 3]) {
        let writes = self.writes.borrow();
        let within = writes
            .iter()
            .filter(|(begun, _)| (from..to).contains(begun));
        let mut took: Vec<_> = within.map(|(_, took)| *took).collect();
        took.sort_unstable();
        let rate = took.len() as u64 * 1_000_000_000 / (to - from).0;
        let at = |percent| {
            let last = took.len().saturating_sub(1);
            took.get(last * percent / 100)
                .copied()
                .unwrap_or(Nanos::ZERO)
        };
        (rate, [at(50), at(99), at(100)])
    }
}

/// Each client has its own blocks, so that no write overtakes another client's.
async fn write(rig: &Rig, load: Load, client: u64, seen: &Seen) {
    let (env, mut rng) = (rig.local.env(), SimRng::fork(17, client));
    let mut number = client;
    while rig.now() < RUN {
        let block = rng.below(ORIGIN.0 / 8 / DEPTH) * DEPTH + client;
        number += DEPTH;
        let mut data = env.pool.get(4096).await;
        data.fill(0);
        data[..8].copy_from_slice(&number.to_le_bytes());
        let begun = rig.now();
        match rig.log.write(Lba(block * 8), data.share(), Fua::No).await {
            Ok(()) => {
                seen.newest.borrow_mut().insert(block, number);
            }
            Err(error) => seen.errors.borrow_mut().push(error.to_string()),
        }
        seen.writes.borrow_mut().push((begun, rig.now() - begun));
        env.timer.sleep(load.think).await;
    }
}

async fn strike(rig: &Rig, fault: Fault) {
    let timer = rig.local.env().timer;
    timer.sleep(AWAY_FROM - rig.now()).await;
    let [origin, log, ..] = rig.disks;
    match fault {
        Fault::OriginFails => {
            // The origin reports the loss at its next flush.
            rig.control.forget(origin);
            rig.control.kill(origin);
        }
        Fault::OriginLies => rig.control.kill(origin),
        Fault::OriginHangs => rig.control.hang(origin),
        Fault::LogUnplugged => rig.control.kill(log),
    }
    timer.sleep(AWAY_TO - AWAY_FROM).await;
    match fault {
        Fault::OriginFails | Fault::OriginLies => rig.control.revive(origin),
        Fault::OriginHangs => rig.control.release(origin),
        Fault::LogUnplugged => {}
    }
}

fn clients(cleaning: Cleaning, load: Load, fault: Fault) -> Rc<Seen> {
    let seen = Rc::new(Seen::default());
    let all = seen.clone();
    let setup = Setup {
        max_lag: load.max_lag,
        ..Setup::new(cleaning, load.segments)
    };
    run(setup, move |rig| {
        let seen = all.clone();
        async move {
            let clients = (0..DEPTH).map(|client| write(&rig, load, client, &seen));
            join(join_all(clients), strike(&rig, fault)).await;
            rig.log.drain().await.unwrap();
            rig.log.flush().await.unwrap();
            let origin = rig.leaf(0);
            for (block, number) in seen.newest.take() {
                let buf = rig.local.env().pool.get(4096).await;
                let (buf, read) = origin.read(Lba(block * 8), buf).await;
                read.unwrap();
                let found = u64::from_le_bytes(buf[..8].try_into().unwrap());
                assert_eq!(found, number, "block {block} is not what was written last");
            }
            seen.lost.replace(rig.lost.0.take());
        }
    });
    seen
}

/// Reports the clients' observations before, during and after the outage. Returns the longest
/// latency.
fn report(cleaning: Cleaning, fault: Fault, seen: &Seen) -> Nanos {
    assert_eq!(*seen.errors.borrow(), [""; 0], "{cleaning:?}, {fault:?}");
    let spans = [Nanos::ZERO, AWAY_FROM, AWAY_TO, RUN];
    for (span, what) in spans.windows(2).zip(["before", "meanwhile", "afterwards"]) {
        let (rate, [half, most, longest]) = seen.between(span[0], span[1]);
        println!(
            "{cleaning:?}, {fault:?}, {what}: {rate} writes a second, {half:?}, {most:?}, {longest:?}"
        );
    }
    seen.between(Nanos::ZERO, RUN).1[2]
}

/// 16 clients with 10 writes a second each, which the disk takes; a log with room for the outage.
const EASY: Load = Load {
    think: Nanos::from_millis(100),
    segments: 260,
    max_lag: Nanos::from_secs(600),
};

#[test]
fn writers_do_not_see_an_origin_that_is_away_within_the_limits() {
    for cleaning in Cleaning::ALL {
        for fault in [Fault::OriginFails, Fault::OriginHangs] {
            let longest = report(cleaning, fault, &clients(cleaning, EASY, fault));
            // After a hang the origin's measured rate is low for a while, and paces writes.
            assert!(longest < WAIT_MAX, "{cleaning:?}, {fault:?}: {longest:?}");
        }
    }
}

/// 16 clients that write all the time, and a log that is full soon.
const HEAVY: Load = Load {
    think: Nanos(0),
    segments: 68,
    max_lag: Nanos::from_secs(30),
};

#[test]
fn writers_wait_for_an_origin_that_is_away_past_the_limits_and_get_no_error() {
    for cleaning in Cleaning::ALL {
        for fault in [Fault::OriginFails, Fault::OriginHangs] {
            let seen = clients(cleaning, HEAVY, fault);
            report(cleaning, fault, &seen);
            let settled = Nanos::from_secs(180);
            let (rate, [.., longest]) = seen.between(settled, RUN);
            assert!(
                rate >= 200 && longest < WAIT_MAX,
                "{cleaning:?}, {fault:?}: {rate} a second, {longest:?}"
            );
        }
    }
}

#[test]
#[should_panic(expected = "is not what was written last")]
fn what_an_origin_has_lost_is_found() {
    clients(Cleaning::Coalesced, HEAVY, Fault::OriginLies);
}

#[test]
fn writers_get_no_error_when_a_device_of_the_log_is_unplugged() {
    for cleaning in Cleaning::ALL {
        for load in [EASY, HEAVY] {
            let seen = clients(cleaning, load, Fault::LogUnplugged);
            report(cleaning, Fault::LogUnplugged, &seen);
            assert_eq!(*seen.lost.borrow(), [0]);
            let settled = Nanos::from_secs(120);
            let (_, [.., longest]) = seen.between(settled, RUN);
            assert!(
                longest < WAIT_MAX,
                "{cleaning:?}: {longest:?} at the origin"
            );
        }
    }
}
