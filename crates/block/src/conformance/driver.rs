//! The contract of every [`Driver`], tried without an executor.

use super::bytes::{ByteModel, stamp};
use super::join::join_all;
use super::probe::{Probe, Script};
use super::rng::SuiteRng;
use super::{SuiteCase, check, pipes};
use crate::{
    Address, BUF_BYTES_MAX, Buf, Driver, DriverOp, Extent, Fua, IoErrorKind, IoResult, Lba, Nanos,
    Payload, SECTOR_BYTES, Sectors, ShardTurn, SharedBuf, TargetId, TurnProgress,
};
use std::cell::RefCell;
use std::rc::Rc;

/// The targets that the driver under test serves.
#[derive(Clone, Debug)]
pub struct DriverRig {
    /// A disk of at least 2 MiB, which is overwritten.
    pub disk: TargetId,
    /// A listener, which is closed in the end, and its address. Without one, streams are left out.
    pub listener: Option<(TargetId, Address)>,
}

/// The suite, for a host to run as its only shard; [`run`] is the plainest host.
///
/// Panics with the seed at the first breach. The pool needs at least 4 MiB.
pub fn driver<D: Driver>(driver: D, rig: DriverRig, seed: u64) -> impl ShardTurn + use<D> {
    let probe = Probe::new(driver, SuiteCase::new("driver", seed));
    Script::new(probe, move |probe| script(probe, rig, seed))
}

/// Drives one shard to its end on the calling thread.
pub fn run(mut turn: impl ShardTurn) {
    loop {
        match turn.run_once() {
            TurnProgress::Done => return,
            TurnProgress::Ready => turn.park(Nanos::ZERO),
            TurnProgress::Idle(deadline) => turn.park(deadline),
        }
    }
}

async fn script<D: Driver>(probe: Rc<Probe<D>>, rig: DriverRig, seed: u64) {
    let suite = SuiteDisk::new(probe.clone(), rig.disk, seed);
    suite.shape(&rig);
    suite.clock().await;
    suite.wakes().await;
    suite.one_by_one().await;
    suite.many_at_once().await;
    suite.invalid().await;
    suite.wrong_targets(&rig).await;
    suite.verify_all().await;
    if let Some((listener, address)) = rig.listener {
        pipes::all(&probe, listener, address, seed).await;
    }
    probe.case.enter("the end");
    check!(
        probe.case,
        probe.in_flight() == 0,
        "{} operations never completed",
        probe.in_flight()
    );
    probe.sleep_until(probe.now() + Nanos::from_millis(5)).await;
    let pool = probe.with(|d| d.pool().clone());
    check!(
        probe.case,
        pool.free_bytes() == pool.total_bytes(),
        "{} of {} bytes of buffers came back to the pool",
        pool.free_bytes(),
        pool.total_bytes()
    );
}

struct SuiteDisk<D> {
    probe: Rc<Probe<D>>,
    disk: TargetId,
    block: u64,
    sectors: u64,
    seed: u64,
    rng: RefCell<SuiteRng>,
    model: RefCell<ByteModel>,
}

impl<D: Driver> SuiteDisk<D> {
    fn new(probe: Rc<Probe<D>>, disk: TargetId, seed: u64) -> Self {
        probe.case.enter("geometry");
        let Some(geometry) = probe.with(|d| d.geometry(disk)) else {
            probe
                .case
                .fail(format_args!("no geometry for the disk {disk:?}"));
        };
        SuiteDisk {
            block: geometry.block.0,
            sectors: geometry.sectors.0,
            probe,
            disk,
            seed,
            rng: RefCell::new(SuiteRng::new(seed)),
            model: RefCell::default(),
        }
    }

    fn shape(&self, rig: &DriverRig) {
        let case = &self.probe.case;
        check!(
            case,
            matches!(self.block, 1 | 8),
            "a block of {} sectors",
            self.block
        );
        check!(
            case,
            self.sectors >= 2 << 11 && self.sectors.is_multiple_of(self.block),
            "{} sectors in blocks of {}",
            self.sectors,
            self.block
        );
        let listener = rig.listener.as_ref().map(|(target, _)| *target);
        for target in listener.into_iter().chain([TargetId::NONE]) {
            let geometry = self.probe.with(|d| d.geometry(target));
            check!(case, geometry.is_none(), "{target:?} has {geometry:?}");
        }
    }

    /// A past deadline polls; a later one is slept until.
    async fn clock(&self) {
        let probe = &self.probe;
        probe.case.enter("clock and deadlines");
        probe.park_once(Nanos::ZERO).await;
        for ms in [0, 1, 3] {
            probe
                .sleep_until(probe.now() + Nanos::from_millis(ms))
                .await;
        }
    }

    /// An unpark before a park ends that park, however many there were.
    async fn wakes(&self) {
        let probe = &self.probe;
        probe.case.enter("unpark before park");
        let unparker = probe.with(|d| d.unparker());
        for times in [1, 2, 5] {
            for _ in 0..times {
                unparker.unpark();
            }
            let deadline = probe.now() + Nanos::from_secs(20);
            probe.park_once(deadline).await;
            let now = probe.now();
            check!(
                probe.case,
                now < deadline,
                "a park after an unpark slept until its deadline"
            );
        }
        probe.sleep_until(probe.now() + Nanos::from_millis(2)).await;
    }

    /// One operation of each kind after another, from one block to the most.
    async fn one_by_one(&self) {
        self.probe.case.enter("one operation at a time");
        let half = self.probe.with(|d| d.pool().total_bytes()) / 2;
        let most = (BUF_BYTES_MAX.min(half) as u64 / SECTOR_BYTES).min(self.sectors / 2);
        let mut len = self.block;
        while len <= most {
            let last = (self.sectors - len) / self.block;
            for start in [0, self.below(last + 1), last] {
                let extent = Extent::new(Lba(start * self.block), Sectors(len));
                let fua = if self.below(4) == 0 {
                    Fua::Yes
                } else {
                    Fua::No
                };
                self.write(extent, fua).await;
                self.ok("flush", DriverOp::Flush).await;
                self.read(extent).await;
                match self.below(3) {
                    0 => {
                        self.ok("zero", DriverOp::Zero(extent)).await;
                        self.model.borrow_mut().zero(extent);
                        self.read(extent).await;
                    }
                    1 => {
                        self.ok("discard", DriverOp::Discard(extent)).await;
                        self.model.borrow_mut().forget(extent);
                    }
                    _ => {}
                }
            }
            len *= 4;
        }
    }

    /// More in flight than any queue is deep; every one completes.
    async fn many_at_once(&self) {
        self.probe.case.enter("many operations at once");
        let count = (self.sectors / self.block / 2).min(400);
        for round in 0..4 {
            let extents: Vec<_> = (0..count)
                .map(|i| Extent::new(Lba(i * 2 * self.block), Sectors(self.block)))
                .collect();
            let work = extents.iter().enumerate().map(|(i, &extent)| async move {
                match (i as u64 + round + self.below(2)) % 4 {
                    0 | 1 => self.write(extent, Fua::No).await,
                    2 => self.read(extent).await,
                    _ => self.ok("flush", DriverOp::Flush).await,
                }
            });
            join_all(work.collect::<Vec<_>>()).await;
        }
    }

    /// Off the end or off the blocks: `Invalid`, and nothing changes.
    async fn invalid(&self) {
        self.probe.case.enter("invalid operations");
        let (end, block) = (self.sectors, self.block);
        for start in [0, end - block * 4] {
            let extent = Extent::new(Lba(start), Sectors(block * 4));
            self.write(extent, Fua::No).await;
        }
        let mut bad = vec![
            (end, block),
            (end - block, block * 2),
            (u64::MAX - block + 1, block),
            (0, 0),
        ];
        if block > 1 {
            bad.extend([(1, block), (0, 1), (block, block + 1)]);
        }
        for (start, len) in bad {
            let extent = Extent::new(Lba(start), Sectors(len));
            let bytes = extent.len.bytes() as usize;
            let buf = || self.buf(bytes.max(1)).split_at(bytes).0;
            let mut junk = buf();
            junk.fill(0xee);
            self.refused(DriverOp::Read(extent.start, buf())).await;
            self.refused(DriverOp::Write(extent.start, junk.share(), Fua::No))
                .await;
            self.refused(DriverOp::Zero(extent)).await;
            self.refused(DriverOp::Discard(extent)).await;
        }
        for bytes in [1, 511, 513] {
            self.refused(DriverOp::Read(Lba::ZERO, self.buf(bytes)))
                .await;
            let mut junk = self.buf(bytes);
            junk.fill(0xee);
            self.refused(DriverOp::Write(Lba::ZERO, junk.share(), Fua::No))
                .await;
        }
    }

    async fn refused(&self, op: DriverOp) {
        let what = format!("{op:?}");
        let (result, _) = self.probe.submit(self.disk, op).await;
        let kind = result.as_ref().err().map(|error| error.kind());
        check!(
            self.probe.case,
            kind == Some(IoErrorKind::Invalid),
            "{what} ends with {result:?}, not with an Invalid error"
        );
    }

    /// Unknown targets, and operations on the wrong kind of target.
    async fn wrong_targets(&self, rig: &DriverRig) {
        self.probe.case.enter("wrong targets");
        let unknown = TargetId(u32::MAX - 7);
        let bytes = (self.block * SECTOR_BYTES) as usize;
        let extent = Extent::new(Lba::ZERO, Sectors(self.block));
        let shared = || self.buf(bytes).share();
        let listener = rig.listener.as_ref().map(|(target, _)| *target);
        for target in [unknown, TargetId::NONE].into_iter().chain(listener) {
            let ops = [
                DriverOp::Read(extent.start, self.buf(bytes)),
                DriverOp::Write(extent.start, shared(), Fua::No),
                DriverOp::Zero(extent),
                DriverOp::Flush,
                DriverOp::Discard(extent),
            ];
            for op in ops {
                self.fails(target, op).await;
            }
        }
        for target in [unknown, TargetId::NONE, self.disk] {
            self.fails(target, DriverOp::Accept).await;
            self.fails(target, DriverOp::Recv(self.buf(bytes))).await;
            self.fails(target, DriverOp::Send(vec![shared(), shared()]))
                .await;
        }
    }

    async fn fails(&self, target: TargetId, op: DriverOp) {
        let what = format!("{op:?} on {target:?}");
        let (result, _) = self.probe.submit(target, op).await;
        check!(self.probe.case, result.is_err(), "{what} succeeds");
    }

    async fn ok(&self, what: &str, op: DriverOp) {
        let (result, _) = self.probe.submit(self.disk, op).await;
        self.expect_zero(what, result);
    }

    async fn write(&self, extent: Extent, fua: Fua) {
        let mut buf = self.buf(extent.len.bytes() as usize);
        stamp(&mut buf, extent.start, self.seed ^ self.below(1 << 32));
        self.model.borrow_mut().write(extent.start, &buf);
        let data: SharedBuf = buf.share();
        self.ok("write", DriverOp::Write(extent.start, data, fua))
            .await;
    }

    async fn read(&self, extent: Extent) {
        let mut buf = self.buf(extent.len.bytes() as usize);
        buf.fill(0xa5);
        let op = DriverOp::Read(extent.start, buf);
        let (result, payload) = self.probe.submit(self.disk, op).await;
        self.expect_zero("read", result);
        let Payload::Buf(buf) = payload else {
            unreachable!("the probe checks payloads")
        };
        if let Err(difference) = self.model.borrow().verify(extent.start, &buf) {
            self.probe
                .case
                .fail(format_args!("after a read of {extent:?}: {difference}"));
        }
    }

    async fn verify_all(&self) {
        let runs = self.model.borrow().runs(256);
        for (start, len) in runs {
            self.read(Extent::new(Lba(start), Sectors(len))).await;
        }
    }

    fn expect_zero(&self, what: &str, result: IoResult<u64>) {
        check!(
            self.probe.case,
            matches!(result, Ok(0)),
            "a {what} ends with {result:?}, not with 0"
        );
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    fn buf(&self, bytes: usize) -> Buf {
        let buf = self.probe.with(|d| d.pool().try_get(bytes));
        buf.expect("the suite keeps within half of a pool of 4 MiB")
    }
}
