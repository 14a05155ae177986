//! `profiled OPS LINES|none`: 4 KiB reads at random of a device that answers at
//! once, profiled or not; run under an instruction counter.

use block::{
    Buf, Content, Device, Extent, Fua, Geometry, IoResult, Lba, Nanos, Pool, Sectors, SharedBuf,
};
use filter::{AccessVerb, Profiling, RawAccess, RequestObserver as _};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A device that succeeds at once and does nothing.
#[derive(Clone)]
struct Null(Geometry);

impl Device for Null {
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

fn main() {
    let mut args = std::env::args().skip(1);
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    let ops = number(args.next()).unwrap_or(1_000_000);
    let lines = number(args.next());
    let null = Null(Geometry::new("null", Sectors(1 << 32), Sectors(8)));
    let sectors = null.geometry().sectors;
    let profiling = lines.map(|_| Profiling::new(sectors, 65536, Nanos::ZERO));
    read(&null, profiling.as_ref(), ops, lines);
}

fn read(device: &Null, profiling: Option<&Profiling>, ops: u64, lines: Option<u64>) {
    let pool = Pool::new(1 << 20);
    let mut buf = pool.try_get(4096).expect("the pool has room");
    let mut x = 88_172_645_463_325_252u64;
    for _ in 0..ops {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let at = (x >> 20) % (lines.unwrap_or(1000) * 16) * 8;
        if let Some(profiling) = profiling {
            let access = RawAccess::transfer(AccessVerb::Read, Lba(at), buf.len(), Fua::No);
            profiling.begin(Nanos::ZERO, &access);
        }
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready((back, result)) = pin!(device.read(Lba(at), buf)).poll(&mut context) else {
            unreachable!("the device answers at once");
        };
        result.expect("nothing fails");
        buf = back;
    }
}
