//! A member: a device with what is known of its health and where it stands.
//!
//! Not here: whether it is in the array (`state`), which leg serves (`balance`).

use crate::core::Core;
use crate::format::Uuid;
use crate::replicated::Change;
use block::{
    BoxDevice, Buf, Device, Env, Extent, Fua, IoError, IoResult, Kind, Lba, Nanos, SECTOR_BYTES,
    Sectors, Shared, Sleep,
};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Weak;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A device that is to be, or is found to be, a member.
#[derive(Clone)]
pub struct Candidate {
    /// The device.
    pub device: BoxDevice,
    /// What it hangs on and fails with: its failure domain.
    pub domain: Arc<str>,
}

/// What a member did and suffered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemberCounts {
    /// Reads that succeeded.
    pub reads: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Sectors that could not be read and were written again from elsewhere.
    pub repaired: u64,
}

pub(crate) struct Member {
    pub device: BoxDevice,
    pub domain: Arc<str>,
    pub name: Arc<str>,
    pub uuid: Uuid,
    pub counts: Cell<MemberCounts>,
    /// What it is a member of, once it is.
    pub array: RefCell<Weak<Core>>,
    /// Operations in flight.
    pub in_flight: Cell<u32>,
    /// Bytes of the reads among them.
    pub reading_bytes: Cell<u64>,
    /// Where its last read ended.
    pub head: Cell<Lba>,
    /// The moving average of its reads.
    pub read_time: Cell<Nanos>,
    /// The copy of its superblock that it refused, which may be torn.
    pub torn: Cell<Option<Sectors>>,
    data_at: Sectors,
    patience: Option<Nanos>,
    env: Env,
}

/// Whether the device itself is lost, rather than some of its sectors.
pub(crate) fn is_loss(error: &IoError) -> bool {
    matches!(error.kind(), Kind::Gone | Kind::Timeout | Kind::Stream)
}

impl Member {
    pub fn new(
        candidate: Candidate,
        uuid: Uuid,
        data_at: Sectors,
        patience: Option<Nanos>,
        env: Env,
    ) -> Member {
        Member {
            name: candidate.device.geometry().name.clone(),
            device: candidate.device,
            domain: candidate.domain,
            uuid,
            counts: Cell::default(),
            array: RefCell::default(),
            in_flight: Cell::new(0),
            reading_bytes: Cell::new(0),
            head: Cell::new(Lba::ZERO),
            read_time: Cell::new(Nanos::ZERO),
            torn: Cell::new(None),
            data_at,
            patience,
            env,
        }
    }

    pub fn count(&self, change: impl FnOnce(&mut MemberCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// `work`, for as long as the array waits for a member.
    fn within<F: Future + Unpin>(&self, work: F) -> Within<'_, F> {
        self.in_flight.set(self.in_flight.get() + 1);
        Within {
            member: self,
            work,
            limit: self.patience.map(|span| self.env.timer.sleep(span)),
        }
    }

    /// Reads data. After a timeout the device keeps the buffer it was given.
    pub async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let (len, began) = (buf.len(), self.env.timer.now());
        self.head.set(at + Sectors((len / 512) as u64));
        let bytes = len as u64;
        self.reading_bytes.set(self.reading_bytes.get() + bytes);
        let _done = Done(|| self.reading_bytes.set(self.reading_bytes.get() - bytes));
        let (buf, result) = match self.within(self.device.read(at + self.data_at, buf)).await {
            Ok(answer) => answer,
            Err(late) => (self.env.pool.get(len).await, Err(late)),
        };
        let took = self.env.timer.now() - began;
        let average = self.read_time.get().0;
        self.read_time
            .set(Nanos(average - average / 8 + took.0 / 8));
        self.count(|c| match result {
            Ok(()) => c.reads += 1,
            Err(_) => c.read_errors += 1,
        });
        (buf, result)
    }

    /// Does what a change asks of the sectors `at`.
    pub async fn change(&self, at: Extent, change: Change) -> IoResult {
        let at = Extent::new(at.start + self.data_at, at.len);
        let counts = !matches!(change, Change::Discard);
        let work = match change {
            Change::Data(data, fua) => self.device.write(at.start, data, fua),
            Change::Zero => self.device.zero(at),
            Change::Discard => self.device.discard(at),
        };
        let result = self.within(work).await.and_then(|result| result);
        if counts {
            self.count(|c| match result {
                Ok(()) => c.writes += 1,
                Err(_) => c.write_errors += 1,
            });
        }
        result
    }

    /// Writes data.
    pub async fn write(&self, at: Lba, data: Shared, fua: Fua) -> IoResult {
        let sectors = Sectors(data.len() as u64 / SECTOR_BYTES);
        let change = Change::Data(data, fua);
        self.change(Extent::new(at, sectors), change).await
    }

    /// Makes what was acknowledged durable.
    pub async fn flush(&self) -> IoResult {
        let result = self.within(self.device.flush()).await.and_then(|r| r);
        if result.is_err() {
            self.count(|c| c.write_errors += 1);
        }
        result
    }

    /// Reads a block of metadata at `at` of the device.
    pub async fn read_meta(&self, at: Sectors, buf: Buf) -> (Buf, IoResult) {
        let len = buf.len();
        match self.within(self.device.read(Lba(at.0), buf)).await {
            Ok(answer) => answer,
            Err(late) => (self.env.pool.get(len).await, Err(late)),
        }
    }

    /// Writes metadata at `at` of the device, durable at once.
    pub async fn write_meta(&self, at: Sectors, data: Shared) -> IoResult {
        let write = self.device.write(Lba(at.0), data, Fua::Yes);
        let result = self.within(write).await.and_then(|result| result);
        if result.is_err() {
            self.count(|c| c.write_errors += 1);
        }
        result
    }
}

/// See [`Member::within`]; written out, for each request moves it.
struct Within<'a, F> {
    member: &'a Member,
    work: F,
    limit: Option<Sleep>,
}

impl<F: Future + Unpin> Future for Within<'_, F> {
    type Output = IoResult<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<F::Output>> {
        if let Poll::Ready(answer) = Pin::new(&mut self.work).poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        let member = self.member;
        let (Some(limit), Some(patience)) = (&mut self.limit, member.patience) else {
            return Poll::Pending;
        };
        while Pin::new(&mut *limit).poll(cx).is_ready() {
            let geometry = member.device.geometry();
            let error = geometry.error(Kind::Timeout, "no answer in time");
            let array = member.array.borrow().upgrade();
            if array.is_none_or(|array| array.leave(member, &error)) {
                return Poll::Ready(Err(error));
            }
            // Another may be in sync by then.
            *limit = member.env.timer.sleep(patience.max(Nanos(1)));
        }
        Poll::Pending
    }
}

impl<F> Drop for Within<'_, F> {
    fn drop(&mut self) {
        let in_flight = &self.member.in_flight;
        in_flight.set(in_flight.get() - 1);
    }
}

/// Does something when it goes, however the future that holds it ends.
struct Done<F: FnMut()>(F);

impl<F: FnMut()> Drop for Done<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
