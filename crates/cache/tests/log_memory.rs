//! What a block that a log owes costs in memory, counted by the allocator.

use block::{
    BoxDevice, Buf, Content, Device, Env, Executor, Extent, Fua, Geometry, IoResult, Lba, Nanos,
    Pool, Sectors, Shared, TimerKey,
};
use cache::log::{Area, Cleaning, Config, Members, WriteBack};
use layout::Uuid;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: forwards every call unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.set(LIVE_BYTES.get() + layout.size() as i64);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - layout.size() as i64);
        // SAFETY: as above; `at` came from `System.alloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A stopped clock, and no tasks: nothing here has to go on by itself.
struct Still;

impl Executor for Still {
    fn spawn(&self, _: Pin<Box<dyn Future<Output = ()>>>) {
        panic!("a task is begun")
    }
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    fn set_timer(&self, _: Nanos, _: Waker) -> TimerKey {
        TimerKey(0)
    }
    fn cancel_timer(&self, _: TimerKey) {}
}

/// Reads as zeroes, and keeps nothing.
struct Zeroes(Geometry);

impl Device for Zeroes {
    fn geometry(&self) -> &Geometry {
        &self.0
    }
    async fn read(&self, _: Lba, mut buf: Buf) -> (Buf, IoResult) {
        buf.fill(0);
        (buf, Ok(()))
    }
    async fn write(&self, _: Lba, _: Shared, _: Fua) -> IoResult {
        Ok(())
    }
    async fn zero(&self, _: Extent) -> IoResult {
        Ok(())
    }
    async fn flush(&self) -> IoResult {
        Ok(())
    }
    async fn discard(&self, _: Extent) -> IoResult {
        Ok(())
    }
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        out.push((extent, Content::Zero));
        Ok(())
    }
}

fn zeroes(mib: u64) -> Zeroes {
    Zeroes(Geometry::new("zeroes", Sectors::from_mib(mib), Sectors(8)))
}

struct Unharmed;

impl Members for Unharmed {
    fn lose(&self, member: u16) -> Pin<Box<dyn Future<Output = IoResult> + '_>> {
        panic!("member {member} is lost")
    }
    fn forsake_journal(&self) -> Pin<Box<dyn Future<Output = IoResult> + '_>> {
        panic!("there is none")
    }
    fn owe_nothing(&self) -> Pin<Box<dyn Future<Output = IoResult> + '_>> {
        panic!("a copy is lost")
    }
}

fn finish<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    for _ in 0..1_000_000 {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
    panic!("it waits for something")
}

/// Blocks of the volume, of which 256 are a MiB: 64 GiB.
const VOLUME: u64 = 16 << 20;
/// MiB of each device of the log. Each write takes two blocks of it.
const SEGMENTS: u32 = 16 << 10;
const WRITES: u64 = 1_000_000;

/// A log that carries nothing out.
fn log(pool: &Pool) -> WriteBack<Zeroes> {
    let area = |member: u16, domain: &str| {
        Some(Area {
            device: zeroes(u64::from(SEGMENTS)),
            base: Lba(0),
            segments: SEGMENTS,
            member,
            domain: domain.into(),
            trusted: true,
        })
    };
    let config = Config {
        pool: Uuid(1),
        log: 1,
        volume: 1,
        incarnation: 1,
        epoch: Nanos::ZERO,
        dirty_max: 1 << 40,
        max_lag: Nanos::from_secs(600),
        clean_after: Nanos::from_secs(1),
        cleaning: Cleaning::Ordered,
        stages: Rc::default(),
    };
    let origin = BoxDevice::new(zeroes(VOLUME / 256));
    let env = Env::new(Rc::new(Still), pool.clone());
    let areas = [area(0, "pcie0"), area(1, "pcie1")];
    let log = WriteBack::open(config, env, Rc::new(Unharmed), areas, None, origin);
    finish(log).unwrap()
}

/// Bytes that are live for each block that is owed, once all of `blocks` were written.
fn bytes_a_block(blocks: impl Iterator<Item = u64>) -> f64 {
    let pool = Pool::new(16 << 20);
    let log = log(&pool);
    let before = LIVE_BYTES.get();
    for block in blocks {
        let data = pool.try_get(4096).unwrap().share();
        finish(log.write(Lba(block * 8), data, Fua::No)).unwrap();
    }
    let live = LIVE_BYTES.get() - before;
    let owed = log.status().dirty_bytes / 4096;
    assert!(owed > WRITES * 9 / 10, "{owed}");
    live as f64 / owed as f64
}

/// A permutation of blocks: an odd factor is coprime to their number.
fn scattered(number: u64) -> u64 {
    let mut x = number;
    x = x.wrapping_mul(0x9e37_79b9) % VOLUME;
    x ^= x >> 12;
    x.wrapping_mul(0x85eb_ca6b) % VOLUME
}

#[test]
fn a_block_that_is_owed_costs_at_most_32_bytes() {
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
