//! Transactions of a brokerage: users who ask for one after the other, a database with the last
//! used pages in memory, and a log.
//!
//! The ten transactions have the shares of TPC-E ("TPC Benchmark E", clause 6.2.2.1). Each touches
//! so many pages of the database, one after the other; one that changes pages waits for its commit
//! in the log. The changed pages are written after that, without a wait. Half of the pages are
//! drawn from all of the database, half from its newest part.
//!
//! Invariants: transactions in flight <= users; one write of the log is in flight, and covers the
//! commits that came before its start.
//!
//! Left out: locks, processors, checkpoints, and the upper levels of indexes, which are
//! always in memory.

use crate::measured::{LoadMeasured, LoadMeter, Times};
use crate::queries::QueryReads;
use crate::rig::Volume;
use crate::turnstile::Turnstile;
use block::{Env, IoResult, Nanos};
use futures_util::future::join_all;
use policy::{HashIndex, LineKey, Lru, Policy, PolicyRequest, Unpinned};
use sim::SimRng;
use std::cell::{Cell, RefCell};
use std::ops::AddAssign;
use std::rc::Rc;

/// Purposes of random streams: warming the memory, and one a user from here on.
const WARM: u64 = 16;
const USERS: u64 = 3_000_000;
/// Keys the index of pages.
const INDEX: u64 = 2;
/// One of so many pages of the database is in its newest part, and the share of touches there.
const NEWEST_PART: u64 = 20;
const NEWEST_SHARE: f64 = 0.5;
/// A page is on the next disk after so many, so that all disks are alike.
const PIECE_PAGES: u64 = 8_192;

/// A transaction: its name, its share of a thousand, the pages that it touches, and the changed
/// ones among these.
pub struct TransactionKind {
    /// The benchmark's name of the transaction.
    pub name: &'static str,
    /// Share of a thousand transactions.
    pub share: u64,
    touched: f64,
    changed: f64,
}

const fn kind(name: &'static str, share: u64, touched: f64, changed: f64) -> TransactionKind {
    TransactionKind {
        name,
        share,
        touched,
        changed,
    }
}

impl TransactionKind {
    /// True if the transaction changes pages.
    pub fn changes(&self) -> bool {
        self.changed > 0.0
    }
}

/// All transactions.
pub const KINDS: [TransactionKind; 10] = [
    kind("broker-volume", 49, 10.0, 0.0),
    kind("customer-position", 130, 20.0, 0.0),
    kind("market-feed", 10, 40.0, 20.0),
    kind("market-watch", 180, 20.0, 0.0),
    kind("security-detail", 140, 15.0, 0.0),
    kind("trade-lookup", 80, 40.0, 0.0),
    kind("trade-order", 101, 15.0, 4.0),
    kind("trade-result", 100, 20.0, 8.0),
    kind("trade-status", 190, 15.0, 0.0),
    kind("trade-update", 20, 40.0, 10.0),
];

/// A database, and its users.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OltpShape {
    /// Users, each with one transaction after the other.
    pub users: u32,
    /// A page.
    pub page_bytes: u64,
    /// Pages of the database.
    pub pages: u64,
    /// Data disks; then the log.
    pub disks: u64,
    /// Distance from the start of one disk to the next, and to the log.
    pub apart_bytes: u64,
    /// The size of the log.
    pub log_bytes: u64,
    /// Pages that the memory holds.
    pub memory_pages: u32,
    /// Factor on the touched and changed pages of [`KINDS`].
    pub scale: f64,
    /// The share of reads that bring the next page along.
    pub ahead: f64,
    /// Bytes that a commit appends to the log.
    pub commit_bytes: u64,
}

impl OltpShape {
    /// Place of a page: pieces of the database go around the disks.
    fn place(&self, page: u64) -> u64 {
        let piece = page / PIECE_PAGES;
        let on_disk = piece / self.disks * PIECE_PAGES + page % PIECE_PAGES;
        piece % self.disks * self.apart_bytes + on_disk * self.page_bytes
    }

    fn draw(&self, rng: &mut SimRng) -> u64 {
        match rng.chance(NEWEST_SHARE) {
            true => self.pages - 1 - rng.below(self.pages / NEWEST_PART),
            false => rng.below(self.pages),
        }
    }
}

/// Requests of one interval, or of all.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TransactionsServed {
    /// Transactions that have ended, by [`KINDS`].
    pub transactions: [u64; KINDS.len()],
    /// Pages that were touched.
    pub touched: u64,
    /// Pages read.
    pub reads: QueryReads,
    /// Pages written.
    pub writes: QueryReads,
    /// Writes of the log.
    pub commits: QueryReads,
}

impl TransactionsServed {
    /// Transactions of all kinds.
    pub fn ended(&self) -> u64 {
        self.transactions.iter().sum()
    }

    /// Reads and writes of the data disks.
    pub fn data(&self) -> QueryReads {
        let mut sum = self.reads;
        sum += self.writes;
        sum
    }
}

impl AddAssign for TransactionsServed {
    fn add_assign(&mut self, other: TransactionsServed) {
        for (sum, ended) in self.transactions.iter_mut().zip(other.transactions) {
            *sum += ended;
        }
        self.touched += other.touched;
        self.reads += other.reads;
        self.writes += other.writes;
        self.commits += other.commits;
    }
}

struct Database {
    meter: LoadMeter<TransactionsServed>,
    shape: OltpShape,
    memory: RefCell<Lru<HashIndex>>,
    log: Turnstile,
    log_end: Cell<u64>,
    /// Commits asked for, and those of them that are durable.
    asked: Cell<u64>,
    durable: Cell<u64>,
}

/// Runs the transactions.
pub async fn run(
    env: &Env,
    seed: u64,
    shape: OltpShape,
    volume: Volume,
    times: Times,
) -> IoResult<LoadMeasured<TransactionsServed>> {
    let largest = shape.page_bytes.max(shape.commit_bytes);
    let database = Rc::new(Database {
        meter: LoadMeter::new(env, volume, times, largest, Nanos::ZERO),
        shape,
        memory: RefCell::new(warm(seed, &shape)),
        log: Turnstile::new(1),
        log_end: Cell::new(0),
        asked: Cell::new(0),
        durable: Cell::new(0),
    });
    for user in 0..shape.users {
        let rng = SimRng::fork(seed, USERS + u64::from(user));
        env.spawn.spawn(work(database.clone(), rng));
    }
    database.meter.ended().await
}

/// The memory after long use.
fn warm(seed: u64, shape: &OltpShape) -> Lru<HashIndex> {
    let mut rng = SimRng::fork(seed, WARM);
    let mut memory = Lru::new(INDEX, shape.memory_pages);
    for _ in 0..3 * u64::from(shape.memory_pages) {
        touch(&mut memory, shape.draw(&mut rng));
    }
    memory
}

/// Tests for a page in memory, and puts it there.
fn touch(memory: &mut Lru<HashIndex>, page: u64) -> bool {
    let request = PolicyRequest::default();
    let hit = memory.touch(LineKey(page), &request).is_some();
    if !hit {
        memory.insert(LineKey(page), &request, &Unpinned);
    }
    hit
}

/// A number around `mean`: one of its two neighbours.
fn around(rng: &mut SimRng, mean: f64) -> usize {
    mean as usize + usize::from(rng.chance(mean.fract()))
}

async fn work(database: Rc<Database>, mut rng: SimRng) {
    while database.meter.goes_on() {
        let mut drawn = rng.below(1000);
        let number = KINDS.iter().position(|kind| {
            let found = drawn < kind.share;
            drawn = drawn.saturating_sub(kind.share);
            found
        });
        let number = number.expect("the shares are a thousand");
        database.transact(number, &mut rng).await;
    }
}

impl Database {
    async fn transact(self: &Rc<Self>, number: usize, rng: &mut SimRng) {
        let (kind, scale) = (&KINDS[number], self.shape.scale);
        let touched = around(rng, kind.touched * scale);
        let changed = around(rng, kind.changed * scale).min(touched);
        let pages: Vec<u64> = (0..touched).map(|_| self.shape.draw(rng)).collect();
        let mut left = pages.iter();
        while let Some(page) = left.next() {
            let ahead = match rng.chance(self.shape.ahead) {
                true => left.next(),
                false => None,
            };
            join_all([page].into_iter().chain(ahead).map(|page| self.read(*page))).await;
        }
        if changed > 0 {
            self.commit().await;
        }
        for page in &pages[..changed] {
            let (writer, page) = (self.clone(), *page);
            self.meter.env.spawn.spawn(async move {
                let at = writer.shape.place(page);
                let bytes = writer.shape.page_bytes;
                writer.meter.write(|s| &mut s.writes, at, bytes).await;
            });
        }
        self.meter.tally(|point| {
            point.transactions[number] += 1;
            point.touched += touched as u64;
        });
    }

    async fn read(&self, page: u64) {
        if !touch(&mut self.memory.borrow_mut(), page) {
            let at = self.shape.place(page);
            let bytes = self.shape.page_bytes;
            self.meter.read(|s| &mut s.reads, at, bytes).await;
        }
    }

    /// Waits until a write of the log that has begun after this has ended.
    async fn commit(&self) {
        let mine = self.asked.get() + 1;
        self.asked.set(mine);
        let turn = self.log.pass().await;
        if self.durable.get() < mine {
            let taken = self.asked.get();
            let bytes = self.shape.commit_bytes;
            let end = self.log_end.get();
            self.log_end.set((end + bytes) % self.shape.log_bytes);
            let at = self.shape.disks * self.shape.apart_bytes + end;
            self.meter.write(|s| &mut s.commits, at, bytes).await;
            self.durable.set(taken);
        }
        drop(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::on_disk;

    const DISK: Nanos = Nanos::from_millis(2);
    const SHAPE: OltpShape = OltpShape {
        users: 20,
        page_bytes: 8 << 10,
        pages: 600_000,
        disks: 3,
        apart_bytes: 2 << 30,
        log_bytes: 1 << 30,
        memory_pages: 0,
        scale: 1.0,
        ahead: 0.0,
        commit_bytes: 8 << 10,
    };

    fn measured(shape: OltpShape) -> LoadMeasured<TransactionsServed> {
        on_disk(DISK, async move |gate, env| {
            let times = Times {
                warm_up: Nanos::from_secs(2),
                span: Nanos::from_secs(60),
                interval: Nanos::from_secs(10),
            };
            run(&env, 1, shape, gate, times).await.unwrap()
        })
    }

    fn mean(of: impl Fn(&TransactionKind) -> f64) -> f64 {
        KINDS.iter().map(|k| k.share as f64 / 1e3 * of(k)).sum()
    }

    /// The share of touches that memory answers, by an approximation (Che, Tung and Wang,
    /// 2002) that shares nothing with the list.
    fn hits(shape: &OltpShape) -> f64 {
        let newest = (shape.pages / NEWEST_PART) as f64;
        let rest = shape.pages as f64 - newest;
        let per_page = [
            (
                newest,
                NEWEST_SHARE / newest + (1.0 - NEWEST_SHARE) / shape.pages as f64,
            ),
            (rest, (1.0 - NEWEST_SHARE) / shape.pages as f64),
        ];
        let (mut low, mut high) = (0.0, 1e12);
        for _ in 0..200 {
            let age = (low + high) / 2.0;
            let held: f64 = per_page
                .iter()
                .map(|(n, p)| n * (1.0 - libm::exp(-p * age)))
                .sum();
            match held < f64::from(shape.memory_pages) {
                true => low = age,
                false => high = age,
            }
        }
        per_page
            .iter()
            .map(|(n, p)| n * p * (1.0 - libm::exp(-p * low)))
            .sum()
    }

    /// Checks shares, touches, hits, and the rate of users that wait only for the disk.
    fn near(found: &LoadMeasured<TransactionsServed>, shape: &OltpShape) -> bool {
        let (sum, s) = found.whole();
        let ended = sum.ended() as f64;
        let close = |ours: f64, exact: f64, most: f64| (ours / exact - 1.0).abs() < most;
        let shares = KINDS.iter().zip(sum.transactions);
        let touches = mean(|k| k.touched) * shape.scale;
        let missed = 1.0
            - if shape.memory_pages > 0 {
                hits(shape)
            } else {
                0.0
            };
        // A commit begins after the write under way: one and a half of them on average.
        let commits = mean(|k| f64::from(k.changed > 0.0)) * 1.5;
        let cycle = (touches * missed / (1.0 + shape.ahead) + commits) * DISK.0 as f64 / 1e9;
        shares
            .clone()
            .all(|(k, n)| close(n as f64, k.share as f64 / 1e3 * ended, 0.2))
            && close(sum.touched as f64, touches * ended, 0.02)
            && close(sum.reads.reads as f64, touches * missed * ended, 0.02)
            && close(
                sum.writes.reads as f64,
                mean(|k| k.changed) * shape.scale * ended,
                0.05,
            )
            && close(ended / s, f64::from(shape.users) / cycle, 0.03)
    }

    #[test]
    fn transactions_have_their_shares_and_the_rate_of_their_reads() {
        assert_eq!(KINDS.iter().map(|kind| kind.share).sum::<u64>(), 1000);
        let remembers = OltpShape {
            memory_pages: 60_000,
            ..SHAPE
        };
        for shape in [SHAPE, remembers] {
            let found = measured(shape);
            assert!(near(&found, &shape), "{:?} {}", found.whole(), hits(&shape));
        }
    }

    #[test]
    fn canary_a_parameter_that_is_wrong_is_seen() {
        let wrong = [
            OltpShape { users: 21, ..SHAPE },
            OltpShape {
                scale: 1.06,
                ..SHAPE
            },
            OltpShape {
                memory_pages: 60_000,
                ..SHAPE
            },
            OltpShape {
                ahead: 0.1,
                ..SHAPE
            },
        ];
        for wrong in wrong {
            assert!(!near(&measured(wrong), &SHAPE), "{wrong:?}");
        }
    }

    #[test]
    fn no_two_pages_share_a_place_and_all_are_on_their_disks() {
        let mut places: Vec<u64> = (0..SHAPE.pages).map(|page| SHAPE.place(page)).collect();
        places.sort_unstable();
        assert!(
            places
                .windows(2)
                .all(|pair| pair[0] + SHAPE.page_bytes <= pair[1])
        );
        assert!(*places.last().unwrap() < SHAPE.disks * SHAPE.apart_bytes);
    }
}
