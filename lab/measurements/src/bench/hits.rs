//! Cost of a hit of the cache engine: 4 KiB reads of resident blocks, on a driver that completes at
//! once. Of the volume by a task, and at its gate as frontends read.

use super::nop::{Nop, drive, instructions};
use super::{BenchRow, Goal, alone, paired};
use block::{
    AskedRead, Boundary, BoxDevice, Device, Gate, IoResult, Lba, ReadTaker, Sectors, SharedBuf,
    TargetId,
};
use cache::{Cache, CacheMode, Config, Counter, NewPoolDevice, Volume, VolumeConfig};
use futures_channel::oneshot;
use shard::{Local, LocatingGate};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Lines that are read, 64 KiB each.
const LINES: u64 = 1024;
const LINE_SECTORS: u64 = 128;
/// A pool of a usual size: a policy's work beside looking up depends on the size.
const POOL: Sectors = Sectors::from_mib(26 << 10);
/// The policies that are compared, the default first.
pub const POLICIES: [&str; 2] = ["auto", "lru"];

/// A cache of one pool device, with the volume's first lines resident.
pub(super) async fn warm<P: Device>(
    local: &Local<Nop>,
    leaf: P,
    policy: &str,
) -> (Cache<P>, Volume<P>) {
    let policy = policy::registry::build(policy, 0, 1).expect("registered");
    let config = Config {
        sequential_bytes: None,
        ..Config::default()
    };
    let cache = Cache::new(config, policy, local.env()).expect("sound");
    let mut device = NewPoolDevice::whole(leaf, "controller");
    device.extent.len = POOL;
    cache.add_device(device).expect("room for lines");
    let config = VolumeConfig {
        name: "volume".into(),
        sectors: None,
        mode: CacheMode::WriteThrough,
    };
    let origin = local.disk(TargetId(1)).expect("nop is a disk");
    let volume = cache.add_volume(config, BoxDevice::new(origin));
    let volume = volume.expect("sound");
    for line in 0..LINES {
        let buf = local.env().pool.get(65536).await;
        let (_, result) = volume.read(Lba(line * LINE_SECTORS), buf).await;
        result.expect("nop never fails");
        cache.settle().await;
    }
    (cache, volume)
}

/// Place of the `i`th read of a resident block.
pub(super) fn place(i: u64) -> Lba {
    Lba(i * 4099 % (LINES * 16) * 8)
}

/// Reads 4 KiB `ops` times from a pool under `policy`, `depth` at a time.
pub fn reads(ops: u64, depth: u64, policy: &str) {
    let policy = policy.to_owned();
    drive(move |local| async move {
        let leaf = local.disk(TargetId(0)).expect("nop is a disk");
        let (cache, volume) = warm(&local, leaf, &policy).await;
        let mut tasks = Vec::new();
        for task in 0..depth {
            let (volume, pool) = (volume.clone(), local.env().pool);
            let (done, ended) = oneshot::channel();
            local.env().spawn.spawn(async move {
                let mut buf = pool.get(4096).await;
                for i in 0..ops / depth {
                    let (back, result) = volume.read(place(task * 7919 + i), buf).await;
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
        let hits = cache.counters().get(Counter::ReadsHit);
        assert_eq!(hits, ops / depth * depth, "every read is a hit");
    });
}

/// A frontend at a constant depth: each answer begins the next read.
struct GateReader<G> {
    gate: G,
    /// Reads that have not begun.
    left: Cell<u64>,
    unanswered: Cell<u64>,
    done: RefCell<Option<oneshot::Sender<()>>>,
}

impl<G: Boundary> GateReader<G> {
    fn begin(self: Rc<Self>) {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            let read = AskedRead::of(place(left).byte(), 4096);
            assert!(self.gate.begin_read(read, self.clone()), "it is a hit");
        }
    }
}

impl<G: Boundary> ReadTaker for GateReader<G> {
    fn take_read(self: Rc<Self>, _: &AskedRead, result: IoResult<SharedBuf>) {
        result.expect("nop never fails");
        self.unanswered.set(self.unanswered.get() - 1);
        if self.unanswered.get() == 0
            && let Some(done) = self.done.take()
        {
            // The shard outlives its tasks.
            let _ = done.send(());
        }
        self.begin();
    }
}

/// Reads 4 KiB `ops` times at a gate, as a frontend does, `depth` at a time.
pub fn at_gate(ops: u64, depth: u64) {
    drive(move |local| async move {
        let leaf = local.disk(TargetId(0)).expect("nop is a disk");
        let (cache, volume) = warm(&local, leaf, POLICIES[0]).await;
        // The driver writes to no buffer: all have to have the disk's content.
        local.env().pool.take(4096).fill(0);
        let (done, ended) = oneshot::channel();
        let reader = Rc::new(GateReader {
            gate: LocatingGate::new(Gate::new(volume, local.env()), &local),
            left: Cell::new(ops),
            unanswered: Cell::new(ops),
            done: RefCell::new(Some(done)),
        });
        (0..depth).for_each(|_| reader.clone().begin());
        ended.await.expect("the reader lasts");
        let hits = cache.counters().get(Counter::ReadsHit);
        assert_eq!(hits, ops, "every read is a hit");
    });
}

/// Computes the checksum of 4 KiB `ops` times.
pub fn checksums(ops: u64) {
    let block = vec![0u8; 4096];
    for _ in 0..ops {
        black_box(crc_fast::crc32_iscsi(black_box(&block)));
    }
}

/// Measures a checksum of 4 KiB, in turn beside the crate that uses the SSE4.2 instruction for the
/// same checksum.
fn checksum_beside_sse42() -> BenchRow {
    const BATCH: u32 = 100_000;
    let block = vec![0u8; 4096];
    let time_ns = |checksum: fn(&[u8]) -> u32| {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(checksum(black_box(&block)));
        }
        start.elapsed().as_nanos() as f64 / f64::from(BATCH)
    };
    let pairs: Vec<_> = (0..9)
        .map(|_| (time_ns(crc_fast::crc32_iscsi), time_ns(crc32c::crc32c)))
        .collect();
    let name = "checksum of 4 KiB: time";
    paired(name, "ns", "crc32c 0.6, SSE4.2", None, &pairs)
}

/// Instructions of a hit without its checksum: of the volume beyond the executor's, and at its gate
/// with the executor's. `hits` and `nop` are the programs of those names.
pub fn rows(hits: &Path, nop: &Path) -> io::Result<Vec<BenchRow>> {
    let checksum = instructions(hits, &["checksum"])?;
    let mut rows = vec![alone(
        "checksum of 4 KiB: instructions, without AVX-512",
        "instructions",
        None,
        &[checksum],
    )];
    rows.push(checksum_beside_sse42());
    for depth in ["1", "32"] {
        let executor = instructions(nop, &[depth])?;
        for policy in POLICIES {
            let engine = instructions(hits, &[depth, policy])? - executor - checksum;
            rows.push(alone(
                format!(
                    "cache engine under {policy}, depth {depth}: instructions of a 4 KiB hit \
                     without its checksum"
                ),
                "instructions",
                Some(Goal::AtMost(600.0)),
                &[engine],
            ));
        }
        let whole = instructions(hits, &["gate", depth])? - checksum;
        let name =
            format!("hit at a gate, depth {depth}: instructions of 4 KiB without its checksum");
        rows.push(alone(name, "instructions", None, &[whole]));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_read_at_a_gate_is_a_hit() {
        for depth in [1, 32] {
            super::at_gate(500, depth);
        }
    }
}
