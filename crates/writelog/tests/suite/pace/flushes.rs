//! Pages that are written and flushed again and again.

use super::RUN;
use super::rig::{DEPTH, JournalOn, ORIGIN, Rig, Setup, run};
use block::{Device, Fua, Lba, Nanos};
use sim::SimRng;
use std::cell::Cell;
use std::rc::Rc;
use writelog::Cleaning;

/// Number of pages.
const HOT: u64 = 256;
/// Time at the end of a run in which writes are counted.
const COUNTED: Nanos = Nanos::from_secs(20);
/// MiB of each device of the log.
const SEGMENTS: u32 = 260;

/// Writes a page and flushes, again and again. Counts the flushes that end in the counted time.
async fn sync_hot_pages(rig: &Rig, to: &impl Device, client: u64, until: Nanos, count: &Cell<u64>) {
    let mut rng = SimRng::fork(11, client);
    while rig.now() < until {
        let data = rig.local.env().pool.get(4096).await.share();
        // Pages of a database, each in an extent of its own.
        let page = Lba(rng.below(HOT) * (ORIGIN.0 / HOT));
        to.write(page, data, Fua::No).await.unwrap();
        to.flush().await.unwrap();
        if rig.now() >= until - COUNTED {
            count.set(count.get() + 1);
        }
    }
}

/// Returns the flushed writes a second of hot pages at the end of a run. Without a log they go to
/// the origin directly.
fn syncs(setup: Option<Setup>, until: Nanos) -> u64 {
    let all = Rc::new(Cell::new(0));
    let count = all.clone();
    let rig = setup.unwrap_or(Setup::new(Cleaning::Ordered, SEGMENTS));
    run(rig, move |rig| {
        let count = count.clone();
        async move {
            let clients = (0..DEPTH).map(|client| {
                let (rig, count) = (rig.clone(), count.clone());
                async move {
                    match setup {
                        Some(_) => sync_hot_pages(&rig, &rig.log, client, until, &count).await,
                        None => sync_hot_pages(&rig, &rig.leaf(0), client, until, &count).await,
                    }
                }
            });
            // Tasks of their own, so that no client is woken by the signal of another.
            let env = rig.local.env();
            clients.for_each(|client| env.spawn.spawn(client));
            env.timer.sleep(until + Nanos::from_secs(1)).await;
        }
    });
    all.get() * 1_000_000_000 / COUNTED.0
}

fn with(cleaning: Cleaning) -> Setup {
    Setup::new(cleaning, SEGMENTS)
}

#[test]
fn flushes_of_hot_pages_are_absorbed_where_windows_are_carried() {
    let through = syncs(None, RUN);
    let ordered = syncs(Some(with(Cleaning::Ordered)), RUN);
    let half = Nanos(RUN.0 / 2);
    let coalesced = syncs(Some(with(Cleaning::Coalesced)), half);
    let journaled = syncs(Some(with(Cleaning::Journaled)), half);
    let behind = Setup {
        journal: JournalOn::Origins,
        ..with(Cleaning::Journaled)
    };
    let behind = syncs(Some(behind), half);
    println!(
        "write-through {through}, ordered {ordered}, coalesced {coalesced}, journaled {journaled} by a disk of its own and \
         {behind} by a part of the origin's, a second"
    );
    for absorbed in [coalesced, journaled, behind] {
        assert!(absorbed >= 10 * through, "{absorbed} and {through}");
    }
    for journaled in [journaled, behind] {
        assert!(
            journaled * 10 >= coalesced * 9,
            "{journaled} and {coalesced}"
        );
    }
    // The disk gets intervals of a few pages, one after the other. With one page each, the rate
    // would be a fifth.
    assert!(
        (through / 2..through).contains(&ordered),
        "{ordered} and {through}"
    );
}
