//! The devices of a pool are filled and read side by side.

use crate::common::{Rig, Setup, run};
use block::{Nanos, Sectors};
use cache::Counter;
use drives::catalogue::ssd::X25_E;
use futures_util::future::join_all;
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, When};
use std::cell::Cell;
use std::rc::Rc;

/// Lines of the hot set, of 128 sectors: all fit on one device.
const LINES: u64 = 1600;
const LINE: u64 = 128;
/// Clients at a time.
const CLIENTS: u64 = 64;

fn pool(devices: usize) -> Setup {
    Setup {
        origin: Sectors::from_mib(128),
        pool: vec![Sectors::from_mib(128); devices],
        ..Setup::default()
    }
}

/// The first sector of the `n`-th line that is read: in no order that is a stream.
fn place(n: u64) -> u64 {
    n * 7919 % LINES * LINE
}

/// Reads the hot set, many lines at a time, until all of the set is in the pool.
async fn warm_up(rig: &Rig) {
    for _ in 0..100 {
        for first in (0..LINES).step_by(CLIENTS as usize) {
            let some = first..(first + CLIENTS).min(LINES);
            join_all(some.map(|n| rig.expect(place(n), LINE, 0))).await;
        }
        rig.cache.settle().await;
        if rig.cache.valid_blocks() == LINES * LINE / 8 {
            return;
        }
    }
    panic!("{} valid blocks", rig.cache.valid_blocks());
}

/// The share of the first `lines` lines that are hits once a device is gone.
async fn hits_without(rig: &Rig, device: usize, lines: u64) -> f64 {
    rig.cache.settle().await;
    rig.cache.remove_device(rig.devices[device]).await.unwrap();
    let before = rig.count(Counter::ReadsHit);
    for n in 0..lines {
        rig.expect(place(n), 8, 0).await;
    }
    (rig.count(Counter::ReadsHit) - before) as f64 / lines as f64
}

#[test]
fn lines_are_spread_by_size_from_the_first_on_and_half_outlive_a_device() {
    for lines in [4, 40, 400] {
        let mut setup = pool(2);
        setup.pool.push(Sectors::from_mib(256));
        run(setup, move |rig| async move {
            for n in 0..lines {
                rig.expect(place(n), 8, 0).await;
            }
            let share = hits_without(&rig, 2, lines).await;
            assert!((0.48..=0.52).contains(&share), "{share} of {lines}");
        });
    }
}

/// Blocks promoted a second while the hot set comes in, and hits a second afterwards.
fn rates(devices: usize) -> (f64, f64) {
    let rates = Rc::new(Cell::default());
    let measured = rates.clone();
    let setup = Setup {
        drive: Some(X25_E),
        ..pool(devices)
    };
    run(setup, move |rig| {
        let measured = measured.clone();
        async move {
            let seconds = |time: Nanos| time.0 as f64 / 1e9;
            let (_, filling) = rig.timed(warm_up(&rig)).await;
            let promoted = rig.count(Counter::BlocksPromoted) as f64;
            let client = async |client: u64| {
                for n in 0..200 {
                    rig.expect(place(client * 31 + n) + n % 16 * 8, 8, 0).await;
                }
            };
            let before = rig.count(Counter::ReadsHit);
            let (_, hitting) = rig.timed(join_all((0..CLIENTS).map(client))).await;
            let hits = (rig.count(Counter::ReadsHit) - before) as f64;
            measured.set((promoted / seconds(filling), hits / seconds(hitting)));
        }
    });
    rates.get()
}

#[test]
fn two_drives_are_filled_and_read_almost_twice_as_fast_as_one() {
    let (one, two) = (rates(1), rates(2));
    let (filled, read) = (two.0 / one.0, two.1 / one.1);
    assert!(filled >= 1.8, "promoted: {filled:.2} times one");
    assert!(read >= 1.9, "hits: {read:.2} times one");
}

#[test]
fn a_slow_device_gets_less_and_a_counter_says_so() {
    let mut setup = pool(2);
    setup.plan = |_, pool| {
        let mut plan = FaultPlan::default();
        plan.rules.push(FaultRule::new(
            pool[0],
            OpFilter::Writes,
            When::Always,
            FaultEffect::Delay(Nanos::from_millis(2)),
        ));
        plan
    };
    run(
        setup,
        |rig| async move { first_device_gets_less(&rig).await },
    );
}

#[test]
fn a_worn_device_gets_less_likewise() {
    run(pool(2), |rig| async move {
        rig.cache.set_worn(rig.devices[0], 0.9);
        first_device_gets_less(&rig).await;
    });
}

async fn first_device_gets_less(rig: &Rig) {
    for n in 0..LINES {
        rig.expect(place(n), LINE, 0).await;
        rig.cache.settle().await;
    }
    assert!(rig.count(Counter::LinesPassedOn) > LINES / 4);
    let share = hits_without(rig, 0, LINES).await;
    assert!((0.75..0.95).contains(&share), "{share}");
}
