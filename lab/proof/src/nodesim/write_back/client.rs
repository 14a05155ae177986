//! Clients of a write-back volume, and the reading back of all its sectors.

use super::outside::{SECTORS, WriteBackOutside};
use crate::stamp::{self, ANYTHING, Value, ZERO};
use block::{Boundary, Env, Fua, IoResult, Nanos, SECTOR_BYTES};
use layout::BLOCK_SECTORS;
use sim::SimRng;
use simnode::DirectClient;
use std::ops::Range;
use std::rc::Rc;

pub(super) const CLIENTS: u64 = 3;
/// Sectors of one read when all is read.
const PIECE: u64 = 64;

/// The operations of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mood {
    Mixed,
    /// Nothing but zeroes and discards of whole blocks, and flushes.
    Zeroes,
}

fn bytes(sectors: &Range<u64>) -> u64 {
    (sectors.end - sectors.start) * SECTOR_BYTES
}

/// Sectors of client `number` alone.
fn place(rng: &mut SimRng, number: u64, mood: Mood) -> Range<u64> {
    let part = SECTORS / CLIENTS / 8 * 8;
    let start = number * part + rng.below(part - 24);
    let sectors = start..start + rng.between(1, 24);
    match mood {
        Mood::Mixed => sectors,
        Mood::Zeroes => sectors.start / 8 * 8..sectors.end.next_multiple_of(8),
    }
}

struct ClientWork {
    outside: Rc<WriteBackOutside>,
    env: Env,
    client: Rc<DirectClient>,
}

/// Client `number`, until the life is over.
pub(super) async fn work(
    outside: Rc<WriteBackOutside>,
    env: Env,
    client: Rc<DirectClient>,
    mut rng: SimRng,
    number: u64,
    mood: Mood,
) {
    let work = ClientWork {
        outside,
        env,
        client,
    };
    while !work.outside.is_over() {
        let sectors = place(&mut rng, number, mood);
        match (rng.below(10), mood) {
            (0..6, Mood::Mixed) => {
                let fua = if rng.chance(0.1) { Fua::Yes } else { Fua::No };
                work.write(sectors, fua).await;
            }
            (6, Mood::Mixed) | (0..4, Mood::Zeroes) => work.clear(sectors, ZERO).await,
            (4..7, Mood::Zeroes) => work.clear(sectors, ANYTHING).await,
            (7, _) => work.flush().await,
            (8, _) => work.read(sectors).await,
            _ => {
                let span = Nanos(rng.between(1_000, 30_000_000));
                work.env.timer.sleep(span).await;
            }
        }
        work.outside.report.borrow_mut().operations += 1;
    }
}

impl ClientWork {
    async fn write(&self, sectors: Range<u64>, fua: Fua) {
        let version = self.outside.version.get() + 1;
        self.outside.version.set(version);
        let mut buf = self.env.pool.get(bytes(&sectors) as usize).await;
        stamp::stamp(&mut buf, sectors.start, version);
        let at = sectors.start * SECTOR_BYTES;
        let write = self.client.gate().write(at, buf.share(), fua);
        self.change(sectors, version, fua, write).await;
    }

    async fn clear(&self, sectors: Range<u64>, value: Value) {
        let (at, len) = (sectors.start * SECTOR_BYTES, bytes(&sectors));
        match value {
            ZERO => {
                let zero = self.client.gate().zero(at, len);
                self.change(sectors, value, Fua::No, zero).await;
            }
            _ => {
                let discard = self.client.gate().discard(at, len);
                self.change(sectors, value, Fua::No, discard).await;
            }
        }
    }

    async fn change(
        &self,
        sectors: Range<u64>,
        value: Value,
        fua: Fua,
        work: impl Future<Output = IoResult>,
    ) {
        let blocks = sectors.start / BLOCK_SECTORS..sectors.end.div_ceil(BLOCK_SECTORS);
        self.outside.changed.borrow_mut().extend(blocks);
        let range = sectors.start as usize..sectors.end as usize;
        let op = self.outside.history.borrow_mut().begin(range, value);
        match work.await {
            Ok(()) => {
                let now = self.env.timer.now();
                let mut history = self.outside.history.borrow_mut();
                history.answer(op, fua == Fua::Yes, now);
            }
            Err(error) => self.outside.violate(format!("a change failed: {error}")),
        }
    }

    async fn flush(&self) {
        let begun = self.outside.history.borrow_mut().begin_flush();
        match self.client.gate().flush().await {
            Ok(()) => self.outside.history.borrow_mut().end_flush(begun),
            Err(error) => self.outside.violate(format!("a flush failed: {error}")),
        }
    }

    async fn read(&self, sectors: Range<u64>) {
        let at = sectors.start * SECTOR_BYTES;
        match self.client.gate().read(at, bytes(&sectors) as usize).await {
            Ok(read) => check(&self.outside, sectors.start, &read),
            Err(error) => self.outside.violate(format!("a read failed: {error}")),
        }
    }
}

/// Checks that each sector that was read, from `first` on, has an allowed value.
fn check(outside: &WriteBackOutside, first: u64, read: &[u8]) {
    for (sector, bytes) in (first..).zip(read.chunks_exact(SECTOR_BYTES as usize)) {
        let allowed = outside.history.borrow().may_read(sector as usize);
        let value = stamp::read(bytes, sector);
        let sound = allowed.contains(&ANYTHING) || value.is_some_and(|v| allowed.contains(&v));
        if !sound {
            let held = stamp::describe(value, &allowed);
            outside.violate(format!("sector {sector}, read: {held}"));
        }
    }
}

/// Reads back all sectors. Each value must be allowed, and is the sector's value from then on.
pub(super) async fn read_back(outside: &WriteBackOutside, client: &DirectClient) {
    for start in (0..SECTORS).step_by(PIECE as usize) {
        let length = (PIECE * SECTOR_BYTES) as usize;
        match client.gate().read(start * SECTOR_BYTES, length).await {
            Ok(read) => {
                let held = read.chunks_exact(SECTOR_BYTES as usize);
                for (sector, bytes) in (start..).zip(held) {
                    let value = stamp::read(bytes, sector);
                    let history = &mut *outside.history.borrow_mut();
                    if let Err(what) = history.settle(sector as usize, value) {
                        outside.violate(format!("sector {sector}, read back: {what}"));
                    }
                }
            }
            Err(error) => outside.violate(format!("a read failed: {error}")),
        }
    }
}

/// Checks all sectors that can be read.
pub(super) async fn look(outside: &WriteBackOutside, client: &DirectClient) {
    for start in (0..SECTORS).step_by(PIECE as usize) {
        let length = (PIECE * SECTOR_BYTES) as usize;
        if let Ok(read) = client.gate().read(start * SECTOR_BYTES, length).await {
            check(outside, start, &read);
        }
    }
}
