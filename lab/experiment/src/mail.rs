//! A mail store: databases, their logs, and a scan that checks every page in the background.
//! Threads of a database read pages at random places and change some of them.
//!
//! A transaction reads a page; one that changes the page writes it again and, where it waits for
//! its commit, appends to the log of its database. The scan reads on at a rate of its own. The
//! transactions' I/O are the reads and writes of pages.
//!
//! Invariants: reads of a database that transactions wait for <= its threads; one write of a
//! log is in flight.
//!
//! Left out: the database's memory, the tree above the pages, and checkpoints: a changed page is
//! written at once, and no transaction waits for that write.

use crate::measured::{LoadMeasured, LoadMeter, Times};
use crate::queries::QueryReads;
use crate::rig::Volume;
use crate::turnstile::Turnstile;
use crate::visitors::think;
use block::{Env, IoResult, Nanos};
use sim::SimRng;
use std::cell::Cell;
use std::ops::AddAssign;
use std::rc::Rc;

/// Purposes of random streams: one a thread, from here on.
const THREADS: u64 = 2_000_000;
/// The most databases of a store.
pub const DATABASES_MAX: usize = 5;
/// A log begins again after so many bytes.
const LOG_BYTES: u64 = 1 << 30;

/// A store, and its load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MailShape {
    /// Databases, each followed by its log; `DATABASES_MAX` at most.
    pub databases: u32,
    /// Distance from the start of one database to the next.
    pub apart_bytes: u64,
    /// The size of one.
    pub database_bytes: u64,
    /// A page.
    pub page_bytes: u64,
    /// Threads of a database.
    pub threads: u32,
    /// Mean pause of a thread between two pages.
    pub pause: Nanos,
    /// The share of pages read that are changed.
    pub changed: f64,
    /// The share of changes that wait for their commit.
    pub committed: f64,
    /// Bytes that such a commit appends to the log.
    pub commit_bytes: u64,
    /// A read of the scan.
    pub scan_bytes: u64,
    /// Bytes a second that the scan of a database reads.
    pub scan_bytes_per_second: u64,
    /// The host's and the guest's time for a request.
    pub path: Nanos,
}

impl MailShape {
    fn database(&self, number: u32) -> u64 {
        u64::from(number) * self.apart_bytes
    }

    fn log(&self, number: u32) -> u64 {
        self.database(number) + self.database_bytes
    }
}

/// Requests of one interval, or of all.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MailServed {
    /// Pages read for transactions.
    pub reads: ByDatabase,
    /// Pages written.
    pub writes: ByDatabase,
    /// Writes of logs.
    pub commits: ByDatabase,
    /// Reads of scans.
    pub scans: ByDatabase,
}

/// Requests of each database.
pub type ByDatabase = [QueryReads; DATABASES_MAX];

/// Requests of all databases.
pub fn of_all(each: &ByDatabase) -> QueryReads {
    let mut sum = QueryReads::default();
    each.iter().for_each(|requests| sum += *requests);
    sum
}

impl MailServed {
    /// Pages read and written.
    pub fn pages(&self) -> QueryReads {
        let mut sum = of_all(&self.reads);
        sum += of_all(&self.writes);
        sum
    }
}

impl AddAssign for MailServed {
    fn add_assign(&mut self, other: MailServed) {
        for (sums, more) in [
            (&mut self.reads, other.reads),
            (&mut self.writes, other.writes),
            (&mut self.commits, other.commits),
            (&mut self.scans, other.scans),
        ] {
            let both = sums.iter_mut().zip(more);
            both.for_each(|(sum, requests)| *sum += requests);
        }
    }
}

struct MailStore {
    meter: LoadMeter<MailServed>,
    shape: MailShape,
    logs: Vec<(Turnstile, Cell<u64>)>,
}

/// Runs the store.
pub async fn run(
    env: &Env,
    seed: u64,
    shape: MailShape,
    volume: Volume,
    times: Times,
) -> IoResult<LoadMeasured<MailServed>> {
    let largest = shape.page_bytes.max(shape.commit_bytes);
    let log = |_| (Turnstile::new(1), Cell::new(0));
    let store = Rc::new(MailStore {
        meter: LoadMeter::new(env, volume, times, largest, shape.path),
        shape,
        logs: (0..shape.databases).map(log).collect(),
    });
    for database in 0..shape.databases {
        env.spawn.spawn(scan(store.clone(), database));
        for thread in 0..shape.threads {
            let number = database * shape.threads + thread;
            let rng = SimRng::fork(seed, THREADS + u64::from(number));
            env.spawn.spawn(work(store.clone(), database, rng));
        }
    }
    store.meter.ended().await
}

async fn work(store: Rc<MailStore>, database: u32, mut rng: SimRng) {
    let (shape, meter) = (store.shape, &store.meter);
    while meter.goes_on() {
        meter.env.timer.sleep(think(&mut rng, shape.pause)).await;
        let page = rng.below(shape.database_bytes / shape.page_bytes);
        let at = shape.database(database) + page * shape.page_bytes;
        let (own, bytes) = (database as usize, shape.page_bytes);
        meter.read(|s| &mut s.reads[own], at, bytes).await;
        if rng.chance(shape.changed) {
            let writer = store.clone();
            meter.env.spawn.spawn(async move {
                let bytes = writer.shape.page_bytes;
                writer.meter.write(|s| &mut s.writes[own], at, bytes).await;
            });
            if rng.chance(shape.committed) {
                store.commit(database).await;
            }
        }
    }
}

async fn scan(store: Rc<MailStore>, database: u32) {
    let (shape, meter) = (store.shape, &store.meter);
    let every = shape.scan_bytes as f64 * 1e9 / shape.scan_bytes_per_second as f64;
    let end = shape.database_bytes / shape.scan_bytes * shape.scan_bytes;
    let mut at = 0;
    while meter.goes_on() {
        let due = meter.env.timer.now() + Nanos(every as u64);
        let place = shape.database(database) + at;
        let own = database as usize;
        meter
            .read(|s| &mut s.scans[own], place, shape.scan_bytes)
            .await;
        at = (at + shape.scan_bytes) % end;
        meter.env.timer.until(due).await;
    }
}

impl MailStore {
    async fn commit(&self, database: u32) {
        let (turn, end) = &self.logs[database as usize];
        let turn = turn.pass().await;
        let bytes = self.shape.commit_bytes;
        let at = self.shape.log(database) + end.replace((end.get() + bytes) % LOG_BYTES);
        let own = database as usize;
        self.meter.write(|s| &mut s.commits[own], at, bytes).await;
        drop(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::on_disk;

    const DISK: Nanos = Nanos::from_micros(900);
    const SHAPE: MailShape = MailShape {
        databases: 3,
        apart_bytes: 4 << 30,
        database_bytes: 1 << 30,
        page_bytes: 32 << 10,
        threads: 4,
        pause: Nanos::from_millis(5),
        changed: 0.5,
        committed: 0.4,
        commit_bytes: 8 << 10,
        scan_bytes: 256 << 10,
        scan_bytes_per_second: 4 << 20,
        path: Nanos::from_micros(100),
    };

    fn measured(shape: MailShape) -> LoadMeasured<MailServed> {
        on_disk(DISK, async move |gate, env| {
            let times = Times {
                warm_up: Nanos::from_secs(2),
                span: Nanos::from_secs(60),
                interval: Nanos::from_secs(10),
            };
            run(&env, 1, shape, gate, times).await.unwrap()
        })
    }

    /// Checks a disk that serves any number at once. A thread's cycle is its pause, a read, and for
    /// the share that commits a write of the log, and its wait for those of other threads.
    fn near(found: &LoadMeasured<MailServed>, shape: MailShape) -> bool {
        let (sum, s) = found.whole();
        let io = 0.001;
        let commits = shape.changed * shape.committed;
        let cycle = shape.pause.0 as f64 / 1e9 + io + commits * io;
        let threads = f64::from(shape.databases * shape.threads);
        let reads = threads / cycle;
        // Of the other threads of a database so many have a commit in flight.
        let waits = (f64::from(shape.threads) - 1.0) * commits * io / cycle * 0.5 * io * commits;
        let reads = reads * cycle / (cycle + waits);
        let close = |ours: f64, exact: f64| (ours / exact - 1.0).abs() < 0.02;
        let [read, written, committed, scanned] =
            [sum.reads, sum.writes, sum.commits, sum.scans].map(|each| of_all(&each));
        close(read.reads as f64 / s, reads)
            && close(written.reads as f64 / s, reads * shape.changed)
            && (committed.reads as f64 / s / (reads * commits) - 1.0).abs() < 0.04
            && close(scanned.bytes as f64 / s, 3.0 * (4 << 20) as f64)
            // A page that is still being written is waited for.
            && (read.mean_ms() - 1.0).abs() < 1e-4
    }

    #[test]
    fn a_store_on_a_disk_of_fixed_time_has_the_rates_of_its_cycle() {
        let found = measured(SHAPE);
        assert!(near(&found, SHAPE), "{:?}", found.whole());
    }

    #[test]
    fn canary_a_parameter_that_is_wrong_is_seen() {
        let wrong = [
            MailShape {
                threads: 5,
                ..SHAPE
            },
            MailShape {
                changed: 0.53,
                ..SHAPE
            },
            MailShape {
                committed: 0.5,
                ..SHAPE
            },
            MailShape {
                pause: Nanos::from_micros(5_300),
                ..SHAPE
            },
            MailShape {
                scan_bytes_per_second: 5 << 20,
                ..SHAPE
            },
            MailShape {
                path: Nanos::from_micros(120),
                ..SHAPE
            },
        ];
        for wrong in wrong {
            assert!(!near(&measured(wrong), SHAPE), "{wrong:?}");
        }
    }
}
