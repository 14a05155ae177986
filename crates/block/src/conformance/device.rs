//! The contract of every [`Device`] while power stays on.

use super::bytes::{ByteModel, describe, stamp};
use super::join::{Boxed, abandon, join, join_all};
use super::places::Places;
use super::{SuiteCase, check};
use crate::{
    Buf, Content, Device, Env, Extent, Fua, Geometry, IoErrorKind, IoResult, Lba, Nanos,
    SECTOR_BYTES, Sectors,
};
use std::cell::{Cell, RefCell};

/// Requests of the mixed case.
const STEPS: u64 = 300;
/// Requests in flight at once.
const DEPTH: u64 = 32;
/// The time in which buffers of abandoned requests must come home.
const SETTLE: Nanos = Nanos::from_secs(10);
/// The limit of a case, far over the time that any needs, slow disks included.
const TIMEOUT: Nanos = Nanos::from_secs(300);

/// Runs the suite; panics with the seed at the first breach.
///
/// The device needs at least 2 MiB. Its bytes are overwritten.
pub async fn device<D: Device>(device: &D, env: &Env, seed: u64) {
    let suite = DeviceSuite::new(device, env, seed);
    suite.shape();
    suite.in_time(suite.ends()).await;
    suite.in_time(suite.mixed()).await;
    suite.in_time(suite.parts()).await;
    suite.in_time(suite.laziness()).await;
    suite.in_time(suite.invalid()).await;
    suite.in_time(suite.disjoint()).await;
    suite.in_time(suite.races()).await;
    suite.in_time(suite.abandoned()).await;
    suite.in_time(suite.verify_all()).await;
}

struct DeviceSuite<'a, D> {
    device: &'a D,
    env: &'a Env,
    case: SuiteCase,
    block: u64,
    sectors: u64,
    places: Places,
    model: RefCell<ByteModel>,
    version: Cell<u64>,
}

impl<'a, D: Device> DeviceSuite<'a, D> {
    fn new(device: &'a D, env: &'a Env, seed: u64) -> Self {
        let geometry = device.geometry();
        DeviceSuite {
            device,
            env,
            case: SuiteCase::new("device", seed),
            block: geometry.block.0,
            sectors: geometry.sectors.0,
            places: Places::new(geometry, &env.pool, seed),
            model: RefCell::default(),
            version: Cell::new(seed << 20),
        }
    }

    async fn in_time(&self, case: impl Future<Output = ()>) {
        let ended = self.env.timer.timeout(TIMEOUT, case).await;
        check!(self.case, ended.is_some(), "it never ends");
    }

    fn shape(&self) {
        self.case.enter("geometry");
        let Geometry { block, sectors, .. } = self.device.geometry();
        check!(self.case, matches!(block.0, 1 | 8), "a block of {block:?}");
        check!(
            self.case,
            sectors.0.is_multiple_of(block.0),
            "{sectors:?} in blocks of {block:?}"
        );
        check!(
            self.case,
            sectors.bytes() >= 2 << 20,
            "the suite needs 2 MiB, not {sectors:?}"
        );
    }

    /// The first and the last block, each alone, then a run up to the end.
    async fn ends(&self) {
        self.case.enter("ends of the device");
        let run = self.block * 16;
        for (start, len) in [
            (0, self.block),
            (self.sectors - self.block, self.block),
            (self.sectors - run, run),
        ] {
            let extent = Extent::new(Lba(start), Sectors(len));
            self.write(extent, Fua::No).await;
            self.read(extent).await;
        }
        self.verify_all().await;
    }

    /// One request after another at many sizes and places.
    async fn mixed(&self) {
        self.case.enter("mixed requests");
        for _ in 0..STEPS {
            let extent = self.places.somewhere();
            match self.places.below(16) {
                0..=6 => self.write(extent, Fua::No).await,
                7 => self.write(extent, Fua::Yes).await,
                8..=11 => self.read(extent).await,
                12 => self.zero(extent).await,
                13 => self.discard(extent).await,
                14 => self.extents(extent).await,
                _ => self.expect_ok("flush", self.device.flush().await),
            }
        }
        let large = Extent::new(Lba::ZERO, Sectors(self.sectors.min(10 << 11)));
        self.zero(large).await;
        self.extents(self.device.geometry().extent()).await;
        self.verify_all().await;
    }

    /// Buffers split for several requests at once, and rejoined.
    async fn parts(&self) {
        self.case.enter("parts of buffers");
        for _ in 0..16 {
            let slots = self.places.slots(3, 8);
            let lens: Vec<u64> = slots.iter().map(|e| e.len.bytes()).collect();
            let total = lens.iter().sum::<u64>() as usize;
            let version = self.next_version();

            let mut whole = self.buf(total).await;
            let mut from = 0;
            for (slot, len) in slots.iter().zip(&lens) {
                let bytes = &mut whole[from..from + *len as usize];
                stamp(bytes, slot.start, version);
                self.model.borrow_mut().write(slot.start, bytes);
                from += *len as usize;
            }
            let whole = whole.share();
            let mut from = 0;
            let writes = slots.iter().zip(&lens).map(|(slot, len)| {
                let part = whole.slice(from..from + *len as usize);
                from += *len as usize;
                self.device.write(slot.start, part, Fua::No)
            });
            for result in join_all(writes.collect::<Vec<_>>()).await {
                self.expect_ok("write of a part", result);
            }
            let Ok(mut whole) = whole.unshare() else {
                self.case
                    .fail(format_args!("a write keeps its data after it completed"))
            };

            whole.fill(0xa5);
            let (first, rest) = whole.split_at(lens[0] as usize);
            let (second, third) = rest.split_at(lens[1] as usize);
            let reads = slots.iter().zip([first, second, third]);
            let results = join_all(reads.map(|(slot, part)| self.read_into(*slot, part))).await;
            let mut results = results.into_iter();
            let mut whole = results.next().expect("three reads");
            for part in results {
                whole = match Buf::rejoin(whole, part) {
                    Ok(whole) => whole,
                    Err(_) => self.case.fail(format_args!("parts read do not rejoin")),
                };
            }
        }
    }

    /// A future does nothing until it is polled.
    async fn laziness(&self) {
        self.case.enter("futures never polled");
        let extent = Extent::new(Lba(self.block * 3), Sectors(self.block * 4));
        self.write(extent, Fua::No).await;
        let data = self.stamped(extent, self.next_version()).await.share();
        drop(self.device.write(extent.start, data, Fua::Yes));
        drop(self.device.zero(extent));
        drop(self.device.discard(extent));
        self.env.timer.sleep(Nanos::from_millis(1)).await;
        self.read(extent).await;
    }

    /// Bad requests fail with `Invalid` and change nothing.
    async fn invalid(&self) {
        self.case.enter("invalid requests");
        let (end, block) = (self.sectors, self.block);
        let guarded = [
            Extent::new(Lba::ZERO, Sectors(block * 4)),
            Extent::new(Lba(end - block * 4), Sectors(block * 4)),
        ];
        for extent in guarded {
            self.write(extent, Fua::No).await;
        }
        let mut bad = vec![
            (end, block),
            (end - block, block * 2),
            (end + block * 1024, block),
            (u64::MAX - block + 1, block),
            (0, 0),
            (end, 0),
        ];
        if block > 1 {
            bad.extend([(1, block), (0, 1), (block, block + 1), (end - 1, 1)]);
        }
        for (start, len) in bad {
            let extent = Extent::new(Lba(start), Sectors(len));
            self.refuses(extent).await;
        }
        for bytes in [1, 511, 513] {
            let buf = self.buf(bytes).await;
            let at = Lba(block);
            let (buf, result) = self.device.read(at, buf).await;
            self.expect_invalid(&format!("a read of {bytes} bytes"), result);
            let result = self.device.write(at, buf.share(), Fua::No).await;
            self.expect_invalid(&format!("a write of {bytes} bytes"), result);
        }
        for extent in guarded {
            self.read(extent).await;
        }
    }

    async fn refuses(&self, extent: Extent) {
        let bytes = extent.len.bytes() as usize;
        let (mut buf, _rest) = self.buf(bytes.max(1)).await.split_at(bytes);
        buf.fill(0xee);
        let at = buf.as_ptr();
        let (buf, result) = self.device.read(extent.start, buf).await;
        self.expect_invalid(&format!("a read of {extent:?}"), result);
        check!(
            self.case,
            (buf.as_ptr(), buf.len()) == (at, bytes),
            "a refused read of {extent:?} returns another buffer"
        );
        let result = self.device.write(extent.start, buf.share(), Fua::No).await;
        self.expect_invalid(&format!("a write to {extent:?}"), result);
        let result = self.device.zero(extent).await;
        self.expect_invalid(&format!("a zero of {extent:?}"), result);
        let result = self.device.discard(extent).await;
        self.expect_invalid(&format!("a discard of {extent:?}"), result);
        let mut out = Vec::new();
        let result = self.device.extents(extent, &mut out).await;
        self.expect_invalid(&format!("extents of {extent:?}"), result);
        check!(self.case, out.is_empty(), "refused extents append {out:?}");
    }

    /// Many requests in flight, none of which overlap.
    async fn disjoint(&self) {
        self.case.enter("disjoint requests at once");
        for _ in 0..8 {
            let work = self.places.slots(DEPTH, 16).into_iter().map(|slot| {
                let work: Boxed<'_, ()> = match self.places.below(8) {
                    0..=3 => Box::pin(self.write(slot, Fua::No)),
                    4 => Box::pin(self.zero(slot)),
                    5 => Box::pin(self.discard(slot)),
                    6 => Box::pin(self.extents(slot)),
                    _ => Box::pin(self.read(slot)),
                };
                work
            });
            let flush = async { self.expect_ok("flush", self.device.flush().await) };
            join(join_all(work.collect::<Vec<_>>()), flush).await;
        }
        self.verify_all().await;
    }

    /// A read that overlaps a write sees each byte old or new.
    async fn races(&self) {
        self.case.enter("reads racing a write");
        for _ in 0..32 {
            let extent = self.places.slots(1, 32)[0];
            let (old, new) = (self.next_version(), self.next_version());
            let first = self.stamped(extent, old).await.share();
            let result = self.device.write(extent.start, first, Fua::No).await;
            self.expect_ok("write", result);
            let data = self.stamped(extent, new).await.share();
            self.model.borrow_mut().write(extent.start, &data);
            let write = self.device.write(extent.start, data, Fua::No);
            let reads: Vec<_> = (0..4)
                .map(|_| self.read_old_or_new(self.places.within(extent), old, new))
                .collect();
            let (result, _) = join(write, join_all(reads)).await;
            self.expect_ok("write", result);
            self.read(extent).await;
        }
    }

    async fn read_old_or_new(&self, extent: Extent, old: u64, new: u64) {
        let buf = self.buf(extent.len.bytes() as usize).await;
        let buf = self.read_raw(extent, buf).await;
        let (mut before, mut after) = ([0; SECTOR_BYTES as usize], [0; SECTOR_BYTES as usize]);
        for (lba, found) in (extent.start.0..).zip(buf.chunks(SECTOR_BYTES as usize)) {
            stamp(&mut before, Lba(lba), old);
            stamp(&mut after, Lba(lba), new);
            let either = before.iter().zip(&after);
            let matches = found.iter().zip(either).all(|(b, (o, n))| b == o || b == n);
            let found = describe(found);
            check!(
                self.case,
                matches,
                "sector {lba} holds {found}, neither version {old} nor {new}"
            );
        }
    }

    /// Dropped futures: buffers come home, and nothing lands later.
    async fn abandoned(&self) {
        self.case.enter("abandoned requests");
        let free = self.env.pool.free_bytes();
        for _ in 0..8 {
            let slots = self.places.slots(8, 16);
            for &slot in &slots {
                self.write(slot, Fua::No).await;
            }
            let old = self.version.get() - slots.len() as u64;
            let new = self.next_version();
            for &slot in &slots {
                if self.places.below(4) == 0 {
                    let buf = self.buf(slot.len.bytes() as usize).await;
                    abandon(self.device.read(slot.start, buf)).await;
                } else {
                    let data = self.stamped(slot, new).await.share();
                    abandon(self.device.write(slot.start, data, Fua::No)).await;
                }
            }
            self.settle(free).await;
            for (slot, old) in slots.into_iter().zip(old + 1..) {
                self.read_old_or_new(slot, old, new).await;
                self.write(slot, Fua::No).await;
                self.read(slot).await;
            }
        }
        self.settle(free).await;
    }

    async fn settle(&self, free: usize) {
        let Env { pool, timer, .. } = self.env;
        let deadline = timer.now() + SETTLE;
        while pool.free_bytes() < free {
            let missing = free - pool.free_bytes();
            check!(
                self.case,
                timer.now() < deadline,
                "{missing} bytes of buffers never came back to the pool"
            );
            timer.sleep(Nanos::from_micros(200)).await;
        }
    }

    async fn verify_all(&self) {
        let runs = self.model.borrow().runs(self.places.run_max());
        for (start, len) in runs {
            self.read(Extent::new(Lba(start), Sectors(len))).await;
        }
    }

    async fn write(&self, extent: Extent, fua: Fua) {
        let data = self.stamped(extent, self.next_version()).await.share();
        let copy = data.to_vec();
        let result = self.device.write(extent.start, data, fua).await;
        self.expect_ok("write", result);
        self.model.borrow_mut().write(extent.start, &copy);
    }

    async fn read(&self, extent: Extent) {
        let mut buf = self.buf(extent.len.bytes() as usize).await;
        buf.fill(0xa5);
        self.read_into(extent, buf).await;
    }

    /// Reads and compares; gives the buffer back.
    async fn read_into(&self, extent: Extent, buf: Buf) -> Buf {
        let buf = self.read_raw(extent, buf).await;
        if let Err(difference) = self.model.borrow().verify(extent.start, &buf) {
            self.case
                .fail(format_args!("after a read of {extent:?}: {difference}"));
        }
        buf
    }

    async fn read_raw(&self, extent: Extent, buf: Buf) -> Buf {
        let given = (buf.as_ptr(), buf.len());
        let (buf, result) = self.device.read(extent.start, buf).await;
        self.expect_ok("read", result);
        check!(
            self.case,
            (buf.as_ptr(), buf.len()) == given,
            "a read of {extent:?} returns another buffer"
        );
        buf
    }

    async fn zero(&self, extent: Extent) {
        self.expect_ok("zero", self.device.zero(extent).await);
        self.model.borrow_mut().zero(extent);
    }

    async fn discard(&self, extent: Extent) {
        self.expect_ok("discard", self.device.discard(extent).await);
        self.model.borrow_mut().forget(extent);
    }

    async fn extents(&self, extent: Extent) {
        let before = (Extent::default(), Content::Hole);
        let mut out = vec![before];
        let result = self.device.extents(extent, &mut out).await;
        self.expect_ok("extents", result);
        check!(self.case, out[0] == before, "extents overwrite the vector");
        let mut next = extent.start;
        for &(run, content) in &out[1..] {
            check!(
                self.case,
                run.start == next && !run.is_empty() && run.end() <= extent.end(),
                "extents of {extent:?} give {run:?} where {next:?} is due"
            );
            next = run.end();
            if let Err(difference) = self.model.borrow().verify_content(run, content) {
                self.case.fail(format_args!("{difference}"));
            }
        }
        check!(
            self.case,
            next == extent.end(),
            "extents of {extent:?} end at {next:?}"
        );
    }

    fn expect_ok(&self, what: &str, result: IoResult) {
        if let Err(error) = result {
            self.case.fail(format_args!("{what} fails: {error}"));
        }
    }

    fn expect_invalid(&self, what: &str, result: IoResult) {
        match result {
            Ok(()) => self.case.fail(format_args!("{what} succeeds")),
            Err(error) => check!(
                self.case,
                error.kind() == IoErrorKind::Invalid,
                "{what} fails with {:?} ({error}), not Invalid",
                error.kind()
            ),
        }
    }

    fn next_version(&self) -> u64 {
        self.version.set(self.version.get() + 1);
        self.version.get()
    }

    async fn buf(&self, bytes: usize) -> Buf {
        self.env.pool.get(bytes).await
    }

    async fn stamped(&self, extent: Extent, version: u64) -> Buf {
        let mut buf = self.buf(extent.len.bytes() as usize).await;
        stamp(&mut buf, extent.start, version);
        buf
    }
}
