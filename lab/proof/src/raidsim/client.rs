//! A client: one operation after another through the array's gate, each checked
//! against the model.

use super::life::ArrayLife;
use super::report::Class;
use super::trouble::ArrayTrouble;
use crate::stamp::{self, ANYTHING, ZERO};
use block::{Boundary, Fua, IoError, IoErrorKind, Nanos, Pool, SECTOR_BYTES};
use raid::Level;
use sim::SimRng;
use std::ops::Range;
use std::rc::Rc;

/// Client `number` does its operations of this life.
pub(crate) async fn work(life: Rc<ArrayLife>, number: u64) {
    let mut rng = SimRng::fork(life.scenario.seed, 1000 + life.number * 100 + number);
    let mut discarding = SimRng::fork(life.scenario.seed, 7000 + life.number * 100 + number);
    for _ in 0..life.scenario.operations {
        if life.is_over() {
            return;
        }
        let sectors = place(&mut rng, &life);
        life.report.borrow_mut().operations += 1;
        if life.scenario.discards && discarding.chance(0.1) {
            discard(&life, sectors).await;
        } else if rng.below(100) < life.scenario.flushes {
            flush(&life).await;
        } else {
            match rng.below(100) {
                0..38 => read(&life, sectors).await,
                38..92 => write(&life, sectors, Fua::No).await,
                92..96 => write(&life, sectors, Fua::Yes).await,
                _ => zero(&life, sectors).await,
            }
        }
        if rng.chance(0.3) {
            let rest = rng.below(life.scenario.rest.0);
            life.env.timer.sleep(Nanos(rest)).await;
        }
    }
}

/// Memory that a request holds, given back at its end.
struct Charge<'a>(&'a ArrayLife, usize);

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.0.charged.set(self.0.charged.get() - self.1);
    }
}

/// Waits until a request may hold the memory that it needs. Clients hold half of the memory at
/// most, and all of that half where memory is short.
async fn charge<'a>(life: &'a ArrayLife, sectors: &Range<u64>) -> Charge<'a> {
    let need = Pool::footprint(bytes(&blocks(life, sectors)) as usize);
    let most = life.env.pool.total_bytes() / 2;
    if life.charged.get() + need > most {
        life.meet(Class::MemoryFull);
    }
    while life.charged.get() + need > most {
        life.env.timer.sleep(Nanos::from_micros(50)).await;
    }
    life.charged.set(life.charged.get() + need);
    Charge(life, need)
}

/// The sectors of the next operation: mostly near the front, so that clients meet.
fn place(rng: &mut SimRng, life: &ArrayLife) -> Range<u64> {
    let total = life.sectors;
    let width = life.width;
    let len = match rng.below(10) {
        0..4 => rng.between(1, 8),
        4..6 => life.scenario.chunk.0,
        6..8 => width,
        8 => width * rng.between(1, 3),
        _ => rng.between(1, 200),
    }
    .min(total);
    let range = if rng.chance(0.6) {
        total / 4 + 1
    } else {
        total
    };
    let unit = match rng.below(3) {
        0 => 1,
        1 => 8,
        _ => width,
    };
    let start = (rng.below(range) / unit * unit).min(total - len);
    start..start + len
}

fn bytes(sectors: &Range<u64>) -> u64 {
    (sectors.end - sectors.start) * SECTOR_BYTES
}

pub(crate) async fn read(life: &ArrayLife, sectors: Range<u64>) {
    let _charge = charge(life, &sectors).await;
    let id = life.model.borrow_mut().read(sectors.clone());
    let around = blocks(life, &sectors);
    let suspect = life.model.borrow().is_suspect(&around);
    let (before, lost) = (life.before(), life.may_be_lost(&around));
    let at = sectors.start * SECTOR_BYTES;
    let answer = life.gate.read(at, bytes(&sectors) as usize).await;
    match answer {
        Ok(data) => {
            let right = life.model.borrow_mut().was_read(id, Some(&data));
            if let Err(what) = right {
                life.violate(format!("read of {sectors:?}: {what}"));
            }
        }
        Err(error) => {
            let _ = life.model.borrow_mut().was_read(id, None);
            let media = error.kind() == IoErrorKind::Media;
            if media && (suspect || life.tolerant) {
                life.meet(Class::Unreadable);
            } else if media && (lost || life.may_be_lost(&around)) {
                life.meet(Class::RefusedLost);
            } else if !life.was_refused(&before) && !life.fallen.get() {
                life.violate(format!("read of {sectors:?} fails: {error}"));
            }
        }
    }
}

async fn write(life: &ArrayLife, sectors: Range<u64>, fua: Fua) {
    let _charge = charge(life, &sectors).await;
    let version = life.model.borrow_mut().version();
    let mut buf = life.env.pool.get(bytes(&sectors) as usize).await;
    stamp::stamp(&mut buf, sectors.start, version);
    let at = sectors.start * SECTOR_BYTES;
    let excused = is_excused(life, &sectors);
    let before = life.before();
    life.begin(&sectors, version);
    let result = life.gate.write(at, buf.share(), fua).await;
    life.end(&sectors, version, result.is_ok(), fua == Fua::Yes);
    judge(life, "write", &sectors, result.err(), excused, &before);
}

async fn zero(life: &ArrayLife, sectors: Range<u64>) {
    let excused = is_excused(life, &sectors);
    let before = life.before();
    life.begin(&sectors, ZERO);
    let at = sectors.start * SECTOR_BYTES;
    let result = life.gate.zero(at, bytes(&sectors)).await;
    life.end(&sectors, ZERO, result.is_ok(), false);
    judge(life, "zero", &sectors, result.err(), excused, &before);
}

/// Discards whole blocks alone: a gate leaves the rest unchanged.
async fn discard(life: &ArrayLife, sectors: Range<u64>) {
    let block = life.scenario.block.0;
    let (start, end) = (
        sectors.start.next_multiple_of(block),
        sectors.end / block * block,
    );
    if start >= end {
        return;
    }
    let sectors = start..end;
    let before = life.before();
    life.begin(&sectors, ANYTHING);
    let at = sectors.start * SECTOR_BYTES;
    let result = life.gate.discard(at, bytes(&sectors)).await;
    life.end(&sectors, ANYTHING, result.is_ok(), false);
    if result.is_ok() {
        life.meet(Class::Discard);
    }
    // A hint may be refused. A refused discard is no error where it changed nothing.
    let error = result
        .err()
        .filter(|error| error.kind() != IoErrorKind::Unsupported);
    judge(life, "discard", &sectors, error, true, &before);
}

/// Writes durably. Returns true if the write was acknowledged.
pub(super) async fn write_durably(life: &ArrayLife, sectors: Range<u64>) -> bool {
    let acked = life.acked.get();
    write(life, sectors, Fua::Yes).await;
    life.acked.get() > acked
}

pub(super) async fn flush(life: &ArrayLife) {
    let (before, mark) = (life.before(), life.model.borrow_mut().flush());
    match life.gate.flush().await {
        Ok(()) => life.model.borrow_mut().flushed(mark),
        Err(error) => judge(life, "flush", &(0..0), Some(error), false, &before),
    }
}

/// The blocks that `sectors` lie in. A gate rewrites a whole block with a part of the block, and
/// lost data is lost with its block.
fn blocks(life: &ArrayLife, sectors: &Range<u64>) -> Range<u64> {
    let block = life.scenario.block.0;
    sectors.start / block * block..sectors.end.next_multiple_of(block).min(life.sectors)
}

/// True if a write may meet sectors that cannot be read: a gate reads the rest of the blocks that
/// the write merges into, and RAID 5 reads the data that parity is computed from.
fn is_excused(life: &ArrayLife, sectors: &Range<u64>) -> bool {
    let around = blocks(life, sectors);
    let unknown = life.model.borrow().is_suspect(&around) || life.may_be_lost(&around);
    let merges = life.scenario.block.0 > 1 && unknown;
    let stripes = life.stripes(sectors);
    let spoilt =
        life.scenario.trouble == ArrayTrouble::Spoils && life.model.borrow().is_suspect(&stripes);
    let computes = life.scenario.level == Level::Raid5 && (life.tolerant || spoilt);
    merges || computes || (life.tolerant && life.scenario.block.0 > 1)
}

/// An error without an explanation is a violation.
fn judge(
    life: &ArrayLife,
    verb: &str,
    sectors: &Range<u64>,
    error: Option<IoError>,
    excused: bool,
    before: &(u64, Vec<bool>),
) {
    let Some(error) = error.filter(|_| !life.fallen.get()) else {
        return;
    };
    let refused = life.was_refused(before);
    if refused {
        life.lose_stripes(sectors);
    }
    let merges = life.scenario.block.0 > 1 && life.may_be_lost(&blocks(life, sectors));
    if !(error.kind() == IoErrorKind::Media && (excused || refused || merges)) {
        life.violate(format!("{verb} of {sectors:?} fails: {error}"));
    }
}
