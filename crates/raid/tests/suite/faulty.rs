//! Disks that fail some of their operations.

use crate::common::Bench;
use block::{
    BoxDevice, Buf, Device, Extent, Fua, IoError, IoErrorKind, IoResult, Layer, Lba, Nanos,
    Sectors, SharedBuf, Timer,
};
use raid::MemberCandidate;
use std::cell::Cell;
use std::rc::Rc;

/// An operation of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Read(Extent),
    Write(Extent),
    Flush,
}

impl Op {
    /// True for a read of `extent`.
    pub fn reads(self, extent: Extent) -> bool {
        matches!(self, Op::Read(of) if of.overlaps(extent))
    }

    pub fn changes(self) -> bool {
        !matches!(self, Op::Read(_))
    }
}

type Fails = Rc<dyn Fn(Op) -> bool>;

struct Faulty {
    disk: BoxDevice,
    fails: Fails,
    /// The operations that are held back, and a clock to look for their end.
    waits: Option<(Fails, Timer)>,
}

impl Faulty {
    async fn check(&self, op: Op) -> IoResult {
        if let Some((waits, timer)) = &self.waits {
            while waits(op) {
                timer.sleep(Nanos::from_millis(1)).await;
            }
        }
        match (self.fails)(op) {
            true => Err(self.error()),
            false => Ok(()),
        }
    }

    fn error(&self) -> IoError {
        self.disk.geometry().error(IoErrorKind::Media, "it fails")
    }
}

impl Layer for Faulty {
    type Below = BoxDevice;

    fn below(&self) -> &BoxDevice {
        &self.disk
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let extent = Extent::new(at, Sectors(buf.len() as u64 / 512));
        match self.check(Op::Read(extent)).await {
            Ok(()) => self.disk.read(at, buf).await,
            failed => (buf, failed),
        }
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let extent = Extent::new(at, Sectors(data.len() as u64 / 512));
        self.check(Op::Write(extent)).await?;
        self.disk.write(at, data, fua).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.check(Op::Write(extent)).await?;
        self.disk.zero(extent).await
    }

    async fn flush(&self) -> IoResult {
        self.check(Op::Flush).await?;
        self.disk.flush().await
    }
}

/// Returns disk `index`, which fails the operations of `fails`.
pub fn faulty(
    bench: &Bench,
    index: usize,
    fails: impl Fn(Op) -> bool + 'static,
) -> MemberCandidate {
    let mut candidate = bench.candidate(index);
    candidate.device = BoxDevice::new(Faulty {
        disk: candidate.device,
        fails: Rc::new(fails),
        waits: None,
    });
    candidate
}

/// Returns disk `index`, which holds back the operations of `waits` for as long as that returns
/// true, and then fails those of `fails`.
pub fn slow(
    bench: &Bench,
    index: usize,
    waits: impl Fn(Op) -> bool + 'static,
    fails: impl Fn(Op) -> bool + 'static,
) -> MemberCandidate {
    let mut candidate = bench.candidate(index);
    candidate.device = BoxDevice::new(Faulty {
        disk: candidate.device,
        fails: Rc::new(fails),
        waits: Some((Rc::new(waits), bench.env.timer.clone())),
    });
    candidate
}

/// Returns such a disk that fails operations while the switch is on.
pub fn switched(
    bench: &Bench,
    index: usize,
    fails: impl Fn(Op) -> bool + 'static,
) -> (MemberCandidate, Rc<Cell<bool>>) {
    let switch = Rc::new(Cell::new(false));
    let on = switch.clone();
    (
        faulty(bench, index, move |op| on.get() && fails(op)),
        switch,
    )
}
