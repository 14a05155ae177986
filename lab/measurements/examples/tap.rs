//! Cost of recording for a request: reads of a device that answers at once. The device is `bare`,
//! has a tap that is `off`, or one that is `on`. Callgrind counts the difference of two numbers of
//! reads: `valgrind --tool=callgrind target/release/examples/tap on 100000`.

use block::{
    Buf, Content, Device, Extent, Fua, Geometry, IoResult, Lba, Nanos, Sectors, ShardId, SharedBuf,
};
use filter::{Begin, ObservedDevice, RawAccess, Tap};
use shard::{Config, Mesh, Shard};
use sim::{SimHost, SimWorld};
use trace::{RecordOp, RecordTape, TraceRecord};

/// Answers at once.
struct Nop(Geometry);

impl Device for Nop {
    fn geometry(&self) -> &Geometry {
        &self.0
    }
    async fn read(&self, _: Lba, buf: Buf) -> (Buf, IoResult) {
        (buf, Ok(()))
    }
    async fn write(&self, _: Lba, _: SharedBuf, _: Fua) -> IoResult {
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
    async fn extents(&self, _: Extent, _: &mut Vec<(Extent, Content)>) -> IoResult {
        Ok(())
    }
}

/// A sink like the daemon's recording, emptied when full.
struct Sink(RecordTape);

impl Begin for Sink {
    fn begin(&mut self, now: Nanos, access: &RawAccess) {
        self.0.push(&TraceRecord {
            time: now,
            op: RecordOp::Read,
            offset_bytes: access.extent.start.byte(),
            len_bytes: access.extent.len.bytes() as u32,
            ..TraceRecord::default()
        });
    }
}

async fn read_all(device: &impl Device, mut buf: Buf, reads: u64) {
    for i in 0..reads {
        let at = Lba(i * 7919 % (1 << 20) * 8);
        let (back, result) = device.read(at, buf).await;
        result.expect("it answers");
        buf = back;
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mode = args.next().expect("bare, off or on");
    let reads: u64 = args.next().and_then(|n| n.parse().ok()).expect("a number");
    let mut sim = SimHost::new(SimWorld::new(1));
    let outcome = sim.drive(1, |_, driver| {
        let mode = mode.clone();
        let boot = move |local: shard::Local<_>| async move {
            let env = local.env();
            let nop = Nop(Geometry::new("nop", Sectors::from_mib(1 << 20), Sectors(8)));
            let buf = env.pool.get(4096).await;
            if mode == "bare" {
                return read_all(&nop, buf, reads).await;
            }
            let tapped = ObservedDevice::new(nop, Tap::default(), env.timer.clone());
            if mode == "on" {
                assert!(tapped.watch().put(Sink(RecordTape::new(64 << 20))));
            }
            read_all(&tapped, buf, reads).await;
        };
        Shard::boot(ShardId(0), driver, Mesh::new(1), Config::default(), boot)
    });
    println!("{outcome:?}");
}
