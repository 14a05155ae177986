//! The memory of a dirty block of a log.

use super::{Still, Zeroes, finish, zeroes};
use block::{BoxDevice, Device, Env, Fua, Lba, Nanos, Pool};
use layout::Uuid;
use std::pin::Pin;
use std::rc::Rc;
use testbed::counting::live_bytes;
use writelog::{
    Cleaning, Config, CopyArea, LogStanding, Members, NotRecorded, Scrutiny, WriteBack,
};

struct Unharmed;

impl Members for Unharmed {
    fn record(
        &self,
        _: LogStanding,
    ) -> Pin<Box<dyn Future<Output = Result<(), NotRecorded>> + '_>> {
        panic!("it is not begun")
    }
}

/// Blocks of the volume, of which 256 are a MiB: 64 GiB.
const VOLUME: u64 = 16 << 20;
/// MiB of each device of the log. Each write takes two of its blocks.
const SEGMENTS: u32 = 16 << 10;
const WRITES: u64 = 1_000_000;

/// Answers at once, so that nothing has to go on by itself.
fn prompt(gib: u64) -> Zeroes {
    Zeroes {
        waits: false,
        ..zeroes(gib)
    }
}

/// A log that carries nothing out.
fn log(still: &Rc<Still>, pool: &Pool) -> WriteBack<Zeroes> {
    let area = |member: u16, domain: &str| {
        Some(CopyArea {
            device: prompt(u64::from(SEGMENTS) >> 10),
            base: Lba(0),
            segments: SEGMENTS,
            member,
            domain: domain.into(),
            trusted: true,
            holes: Vec::new(),
        })
    };
    let config = Config {
        log: Uuid(1),
        incarnation: 1,
        epoch: Nanos::ZERO,
        dirty_max: 1 << 40,
        max_lag: Nanos::from_secs(600),
        clean_after: Nanos::from_secs(1),
        cleaning: Cleaning::Ordered,
        may_be_dirty: true,
        scrutiny: Scrutiny::Usual,
        asked: false,
        stages: Rc::default(),
    };
    let origin = BoxDevice::new(prompt(VOLUME >> 18));
    let env = Env::new(still.clone(), pool.clone());
    let areas = [area(0, "pcie0"), area(1, "pcie1")];
    let log = WriteBack::open(config, env, Rc::new(Unharmed), areas, None, origin);
    let log = finish(log).unwrap();
    finish(log.establish()).unwrap();
    log
}

/// Returns the live bytes for each dirty block, once all of `blocks` were written.
fn bytes_a_block(blocks: impl Iterator<Item = u64>) -> f64 {
    let (still, pool) = (Rc::new(Still::default()), Pool::new(16 << 20));
    let log = log(&still, &pool);
    let before = live_bytes();
    for block in blocks {
        let data = pool.try_get(4096).unwrap().share();
        finish(log.write(Lba(block * 8), data, Fua::No)).unwrap();
    }
    let live = live_bytes() - before;
    assert!(still.0.borrow().is_empty(), "a task is begun");
    let dirty = log.status().dirty_bytes / 4096;
    assert!(dirty > WRITES * 9 / 10, "{dirty}");
    live as f64 / dirty as f64
}

/// A permutation of blocks: an odd factor is coprime to their number.
fn scattered(number: u64) -> u64 {
    let mut x = number;
    x = x.wrapping_mul(0x9e37_79b9) % VOLUME;
    x ^= x >> 12;
    x.wrapping_mul(0x85eb_ca6b) % VOLUME
}

#[test]
fn a_dirty_block_costs_at_most_32_bytes() {
    let random = bytes_a_block((0..WRITES).map(scattered));
    println!("written at random: {random:.1} bytes a block");
    assert!(random <= 32.0, "{random}");
}

/// A B-tree that grows at one end leaves its nodes half empty.
#[test]
fn nor_does_it_if_they_are_written_in_order() {
    let ascending = bytes_a_block(0..WRITES);
    let descending = bytes_a_block((0..WRITES).rev());
    println!("in order {ascending:.1} bytes a block, in reverse {descending:.1}");
    assert!(ascending <= 32.0, "{ascending}");
    assert!(descending <= 32.0, "{descending}");
}
