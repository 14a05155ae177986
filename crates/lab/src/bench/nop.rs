//! What the executor itself costs: operations on a driver that completes at
//! once.

use block::{
    Completion, Device, Driver, Geometry, Lba, Nanos, Op, Pool, Progress, Sectors, ShardId,
    TargetId, Token, Unpark,
};
use shard::{Config, Mesh, Shard};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Completes every operation at the next park.
struct Nop {
    pool: Pool,
    due: Vec<Completion>,
}

struct Never;

impl Unpark for Never {
    fn unpark(&self) {}
}

impl Driver for Nop {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    fn pool(&self) -> &Pool {
        &self.pool
    }
    fn submit(&mut self, token: Token, _: TargetId, op: Op) {
        self.due.push(Completion {
            token,
            result: Ok(0),
            payload: op.into_payload(),
        });
    }
    fn park(&mut self, _: Nanos, done: &mut Vec<Completion>) {
        done.append(&mut self.due);
    }
    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(Never)
    }
    fn geometry(&self, _: TargetId) -> Option<Geometry> {
        Some(Geometry::new("nop", Sectors(1 << 30), Sectors(1)))
    }
    fn close(&mut self, _: TargetId) {}
}

/// Performs `ops` reads of 4 KiB by `depth` tasks; the wall time it took.
pub fn reads(ops: u64, depth: u64) -> Duration {
    let driver = Nop {
        pool: Pool::new(16 << 20),
        due: Vec::new(),
    };
    let main = move |local: shard::Local<Nop>| async move {
        let disk = Rc::new(local.disk(TargetId(0)).expect("nop is a disk"));
        let mut tasks = Vec::new();
        for task in 0..depth {
            let (disk, pool) = (disk.clone(), local.env().pool);
            let (done, ended) = futures_channel::oneshot::channel();
            local.env().spawn.spawn(async move {
                let mut buf = pool.get(4096).await;
                for i in 0..ops / depth {
                    let at = Lba((task * 7919 + i * 8) % (1 << 29));
                    let (back, result) = disk.read(at, buf).await;
                    result.expect("nop never fails");
                    buf = back;
                }
                // The shard outlives its tasks.
                let _ = done.send(());
            });
            tasks.push(ended);
        }
        for ended in tasks {
            ended.await.expect("the task ends");
        }
    };
    let mut shard = Shard::boot(ShardId(0), driver, Mesh::new(1), Config::default(), main);
    let start = Instant::now();
    while shard.turn() != Progress::Done {
        shard.park(Nanos::MAX);
    }
    start.elapsed()
}
