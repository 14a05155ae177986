//! The memory of a hit, a pool and a log, counted by the allocator.

mod log;

use block::{
    BoxDevice, Buf, Content, Device, Env, Executor, Extent, Fua, Geometry, IoResult, Lba, Nanos,
    Pool, Sectors, SharedBuf, TimerKey,
};
use cache::{Cache, Config, Counter, NewPoolDevice, VolumeConfig};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use testbed::counting::{Counting, allocations, live_bytes};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs tasks on demand, with a stopped clock.
#[derive(Default)]
struct Still(RefCell<Vec<Task>>);

impl Executor for Still {
    fn spawn(&self, task: Task) {
        self.0.borrow_mut().push(task);
    }
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    fn set_timer(&self, _: Nanos, _: Waker) -> TimerKey {
        TimerKey(0)
    }
    fn cancel_timer(&self, _: TimerKey) {}
}

impl Still {
    fn run(&self) {
        let tasks = self.0.take();
        for mut task in tasks {
            let mut cx = Context::from_waker(Waker::noop());
            if task.as_mut().poll(&mut cx).is_pending() {
                self.0.borrow_mut().push(task);
            }
        }
    }
}

/// Reads as zeroes, and may make its caller wait, as any disk does.
struct Zeroes {
    geometry: Geometry,
    waits: bool,
}

impl Zeroes {
    /// Once.
    async fn wait(&self) {
        let mut waited = !self.waits;
        poll_fn(|_| match std::mem::replace(&mut waited, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

impl Device for Zeroes {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    async fn read(&self, _: Lba, mut buf: Buf) -> (Buf, IoResult) {
        self.wait().await;
        buf.fill(0);
        (buf, Ok(()))
    }
    async fn write(&self, _: Lba, _: SharedBuf, _: Fua) -> IoResult {
        self.wait().await;
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

fn zeroes(gib: u64) -> Zeroes {
    let sectors = Sectors::from_mib(gib << 10);
    Zeroes {
        geometry: Geometry::new("zeroes", sectors, Sectors(1)),
        waits: true,
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

fn cache(policy: &str, config: Config) -> (Cache<Zeroes>, Rc<Still>, Pool) {
    let (still, pool) = (Rc::new(Still::default()), Pool::new(16 << 20));
    let env = Env::new(still.clone(), pool.clone());
    let policy = policy::registry::build(policy, 0, 1).unwrap();
    (Cache::new(config, policy, env).unwrap(), still, pool)
}

#[test]
fn a_hit_allocates_nothing() {
    for policy in ["lru", "auto"] {
        let (cache, still, pool) = cache(policy, Config::default());
        cache
            .add_device(NewPoolDevice::whole(zeroes(1), "controller"))
            .unwrap();
        let config = VolumeConfig::whole("volume");
        let volume = cache.add_volume(config, BoxDevice::new(zeroes(4))).unwrap();
        let read = |at: u64, bytes: usize| {
            let buf = pool.try_get(bytes).unwrap();
            finish(volume.read(Lba(at), buf)).1.unwrap();
        };
        for line in 0..100 {
            read(line * 256, 65536);
            still.run();
            still.run();
        }
        read(0, 4096);
        let before = allocations();
        for i in 0..10_000u64 {
            let at = i * 37 % 100 * 256;
            read(at, 65536);
            read(at + i % 16 * 8, 4096);
            read(at + i % 127, 512);
        }
        assert_eq!(allocations() - before, 0, "{policy}");
        assert_eq!(cache.counters().get(Counter::ReadsHit), 30_001);
    }
}

#[test]
fn a_pool_costs_at_most_eight_bytes_a_block() {
    for policy in ["lru", "auto"] {
        let (cache, _still, _pool) = cache(policy, Config::default());
        let before = live_bytes();
        cache
            .add_device(NewPoolDevice::whole(zeroes(64), "controller"))
            .unwrap();
        let blocks = (64u64 << 30) / 4096;
        let per_block = (live_bytes() - before) as f64 / blocks as f64;
        println!("{policy}: {per_block:.2} bytes for each 4 KiB at 64 KiB a line");
        assert!(per_block <= 8.0, "{policy}: {per_block}");
        let own = cache.memory_bytes() as f64 / blocks as f64;
        assert!(own <= 33.0 / 8.0, "{own}");
    }
}
