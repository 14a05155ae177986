//! The contract of every [`Host`]: shards that wake each other, and end.

use super::{SuiteCase, check};
use crate::{Driver, Host, Nanos, ShardId, ShardTurn, TurnProgress, Unpark};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

/// Turns that go round the shards.
const ROUNDS: u64 = 200;

/// Runs `shards` shards (two or more) that pass a turn round by unparking each
/// other, and returns when the host says that all are done.
///
/// Panics with the seed at the first breach; a lost wake-up never returns.
pub fn host<H: Host>(host: &mut H, shards: u32, seed: u64) {
    assert!(shards >= 2, "the suite needs two shards, not {shards}");
    let ring = Arc::new(SuiteRing {
        shards,
        round: AtomicU64::new(0),
        latest: AtomicU64::new(0),
        unparkers: Mutex::new((0..shards).map(|_| None).collect()),
        booted: AtomicU32::new(0),
        ended: AtomicU32::new(0),
        seed,
    });
    let shared = ring.clone();
    let ran = host.run(shards, move |id, driver: H::Driver| {
        let case = SuiteCase::new("host", seed);
        let mut unparkers = shared.unparkers.lock().expect("no panic under this lock");
        let slot = unparkers.get_mut(id.0 as usize);
        let first = slot.is_some_and(|slot| slot.replace(driver.unparker()).is_none());
        drop(unparkers);
        check!(case, first, "{id:?} of {shards} boots, or boots again");
        shared.booted.fetch_add(1, AcqRel);
        Box::new(RingMember {
            ring: shared.clone(),
            id,
            driver,
        })
    });
    let case = SuiteCase::new("host", ring.seed);
    check!(case, ran.is_ok(), "the shards ran, not {ran:?}");
    let ended = ring.ended.load(Acquire);
    check!(case, ended == shards, "{ended} of {shards} shards ended");
}

struct SuiteRing {
    shards: u32,
    /// The shard in turn: the one with this number, modulo their count.
    round: AtomicU64,
    /// The latest time any shard has seen.
    latest: AtomicU64,
    unparkers: Mutex<Vec<Option<Arc<dyn Unpark>>>>,
    booted: AtomicU32,
    ended: AtomicU32,
    seed: u64,
}

struct RingMember<D> {
    ring: Arc<SuiteRing>,
    id: ShardId,
    driver: D,
}

impl<D: Driver> ShardTurn for RingMember<D> {
    fn run_once(&mut self) -> TurnProgress {
        let ring = &self.ring;
        let case = SuiteCase::new("host", ring.seed);
        if ring.booted.load(Acquire) < ring.shards {
            return TurnProgress::Idle(self.driver.now() + Nanos::from_millis(1));
        }
        let round = ring.round.load(Acquire);
        if round >= ROUNDS {
            ring.ended.fetch_add(1, AcqRel);
            return TurnProgress::Done;
        }
        if round % u64::from(ring.shards) != u64::from(self.id.0) {
            return TurnProgress::Idle(Nanos::MAX);
        }
        let (before, now) = (ring.latest.load(Acquire), self.driver.now().0);
        check!(
            case,
            now >= before,
            "{:?} is at {now} ns after another was at {before} ns",
            self.id
        );
        ring.latest.store(now, Release);
        ring.round.store(round + 1, Release);
        let unparkers = ring.unparkers.lock().expect("no panic under this lock");
        if round + 1 == ROUNDS {
            unparkers.iter().flatten().for_each(|u| u.unpark());
        } else {
            let next = (round + 1) % u64::from(ring.shards);
            let next = unparkers[next as usize].as_ref();
            next.expect("every shard has booted").unpark();
        }
        TurnProgress::Ready
    }

    fn park(&mut self, deadline: Nanos) {
        let mut done = Vec::new();
        self.driver.park(deadline, &mut done);
        let case = SuiteCase::new("host", self.ring.seed);
        check!(
            case,
            done.is_empty(),
            "{:?} gets {done:?} and submitted nothing",
            self.id
        );
    }
}
