//! The round trip of a call from one shard to another and back.

use super::{BenchRow, paired};
use block::{Host, IoResult, ShardId};
use futures_channel::oneshot;
use shard::{Config, Mesh, Shard};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use uring::{Options, Uring};

const CALLS: u64 = 20_000;

/// Ends the holding shard when taken and dropped.
type Stop = Cell<Option<oneshot::Sender<()>>>;

/// Nanoseconds a call, one at a time, both shards asleep in between.
pub fn ours() -> IoResult<f64> {
    let nanos = Arc::new(AtomicU64::new(0));
    let (mesh, took) = (Mesh::new(2), nanos.clone());
    Uring::new(Options::default())?.run(2, move |id, driver| {
        let nanos = nanos.clone();
        Shard::boot(
            id,
            driver,
            mesh.clone(),
            Config::default(),
            move |local| async move {
                let (stop, stopped) = oneshot::channel();
                local.put(Rc::new(Stop::new(Some(stop))));
                if id == ShardId(1) {
                    // Ends when the other shard says so.
                    let _ = stopped.await;
                    return;
                }
                let start = local.env().timer.now();
                for _ in 0..CALLS {
                    let answer = local.call(ShardId(1), |_| async { 1u64 }).await;
                    answer.expect("the other shard waits for its stop");
                }
                nanos.store((local.env().timer.now() - start).0, Relaxed);
                local.mesh().post(ShardId(1), |local| {
                    drop(local.get::<Stop>().and_then(|stop| stop.take()));
                });
            },
        )
    })?;
    Ok(took.load(Relaxed) as f64 / CALLS as f64)
}

/// Nanoseconds a round trip between two threads over standard channels.
pub fn channels() -> f64 {
    let (to, inbox) = mpsc::channel::<u64>();
    let (back, answers) = mpsc::channel::<u64>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for value in inbox {
                if back.send(value).is_err() {
                    return;
                }
            }
        });
        let start = Instant::now();
        for i in 0..CALLS {
            to.send(i).expect("the thread lives");
            answers.recv().expect("the thread answers");
        }
        let nanos = start.elapsed().as_nanos() as f64 / CALLS as f64;
        drop(to);
        nanos
    })
}

/// The round trip beside standard channels.
pub fn rows(runs: usize) -> IoResult<Vec<BenchRow>> {
    let mut pairs = Vec::new();
    for _ in 0..runs {
        pairs.push((ours()?, channels()));
    }
    let name = "shard-to-shard round trip, both asleep in between";
    Ok(vec![paired(
        name,
        "ns",
        "std::sync::mpsc between two threads",
        None,
        &pairs,
    )])
}
