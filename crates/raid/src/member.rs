//! A member: a device with its health, its load and the position of its head.
//!
//! Not here: its state in the array (`core`), the choice of a leg (`balance`), time limits
//! (`turn`).

use crate::change::ExtentChange;
use crate::core::ArrayCore;
use crate::turn::{DEPTH, Within};
use block::{
    BoxDevice, Buf, Device, Env, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Nanos,
    SECTOR_BYTES, Sectors, Semaphore, SharedBuf,
};
use futures_util::future::join;
use layout::Uuid;
use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Number of times that a device may have forgotten acknowledged writes that no flush had covered.
pub type Losses = Rc<dyn Fn() -> u64>;

/// A device that is to be, or is found to be, a member.
#[derive(Clone)]
pub struct MemberCandidate {
    /// The device.
    pub device: BoxDevice,
    /// Failure domain of the device.
    pub domain: Arc<str>,
    /// Number of times that the device may have forgotten writes.
    pub losses: Losses,
}

impl MemberCandidate {
    /// Makes a candidate of a device that forgets nothing while it answers.
    pub fn new(device: BoxDevice, domain: impl Into<Arc<str>>) -> MemberCandidate {
        MemberCandidate {
            device,
            domain: domain.into(),
            losses: Rc::new(|| 0),
        }
    }
}

/// Counts of a member's operations and errors.
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
    /// Sectors that could not be read and were rewritten from other members.
    pub repaired: u64,
}

/// Bounds of the sectors zeroed at once: as many as a member zeroes in an eighth of its time limit.
const ZERO_STEP: RangeInclusive<Sectors> = Sectors::from_mib(1)..=Sectors::from_mib(64);
/// Sectors zeroed at once, at first.
const ZERO_STEP_FIRST: Sectors = Sectors::from_mib(4);

/// The pause before the retry of a write that the medium refused.
const REWRITE_PAUSE: Nanos = Nanos::from_millis(50);

pub(crate) struct ArrayMember {
    pub device: BoxDevice,
    pub domain: Arc<str>,
    pub name: Arc<str>,
    pub uuid: Uuid,
    pub counts: Cell<MemberCounts>,
    /// The array of the member, once it belongs to one.
    pub array: RefCell<Weak<ArrayCore>>,
    /// Operations in flight.
    pub in_flight: Cell<u32>,
    /// Those of them that are waited for beyond their time limit.
    pub overdue: Cell<u32>,
    /// Bytes of the reads in flight.
    pub reading_bytes: Cell<u64>,
    /// End of the last read.
    pub head: Cell<Lba>,
    /// Moving average of the time of reads.
    pub read_time: Cell<Nanos>,
    /// The device that is to replace this one, and gets all changes too.
    pub successor: RefCell<Option<Rc<ArrayMember>>>,
    /// The member is back and has got no write of the map since: its map is that of its loss.
    pub lacks_map: Cell<bool>,
    /// The copy of the superblock that is older, torn or unreadable: the next write goes there.
    pub worse_copy: Cell<usize>,
    pub turns: Semaphore,
    pub timeout: Option<Nanos>,
    pub env: Env,
    data_at: Sectors,
    /// Sectors that are zeroed at once.
    zero_step: Cell<Sectors>,
    /// Bytes that no flush has covered.
    unflushed: Cell<u64>,
    losses: Losses,
    /// The number of losses before the last flush that succeeded.
    losses_met: Cell<u64>,
}

/// True if the device itself is lost, rather than some of its sectors.
pub(crate) fn is_loss(error: &IoError) -> bool {
    matches!(
        error.kind(),
        IoErrorKind::Gone | IoErrorKind::Timeout | IoErrorKind::Stream
    )
}

impl ArrayMember {
    pub fn new(
        candidate: MemberCandidate,
        uuid: Uuid,
        data_at: Sectors,
        timeout: Option<Nanos>,
        env: Env,
    ) -> ArrayMember {
        ArrayMember {
            name: candidate.device.geometry().name.clone(),
            device: candidate.device,
            domain: candidate.domain,
            uuid,
            counts: Cell::default(),
            array: RefCell::default(),
            in_flight: Cell::new(0),
            overdue: Cell::new(0),
            reading_bytes: Cell::new(0),
            head: Cell::new(Lba::ZERO),
            read_time: Cell::new(Nanos::ZERO),
            successor: RefCell::default(),
            lacks_map: Cell::new(false),
            worse_copy: Cell::new(0),
            turns: Semaphore::new(DEPTH),
            timeout,
            env,
            data_at,
            zero_step: Cell::new(ZERO_STEP_FIRST),
            unflushed: Cell::new(0),
            losses_met: Cell::new((candidate.losses)()),
            losses: candidate.losses,
        }
    }

    pub fn count(&self, change: impl FnOnce(&mut MemberCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// True if its array has evicted the member.
    pub fn is_left(&self) -> bool {
        let array = self.array.borrow().upgrade();
        array.is_some_and(|array| array.is_left(self))
    }

    /// Runs `work`, which moves `bytes`, for as long as the array waits for a member.
    fn within<F: Future + Unpin>(&self, bytes: u64, work: F) -> Within<'_, F> {
        Within::new(self, bytes, work)
    }

    /// Reads data. After a timeout the device keeps the given buffer.
    pub async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let (len, began) = (buf.len(), self.env.timer.now());
        self.head.set(at + Sectors((len / 512) as u64));
        let bytes = len as u64;
        self.reading_bytes.set(self.reading_bytes.get() + bytes);
        let _done = OnDrop(|| self.reading_bytes.set(self.reading_bytes.get() - bytes));
        let (buf, result) = match self
            .within(bytes, self.device.read(at + self.data_at, buf))
            .await
        {
            Ok(answer) => answer,
            Err(late) => (self.env.pool.take(len), Err(late)),
        };
        let result = result.and_then(|()| self.check_losses());
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

    /// Evicts a member that may have forgotten writes before its data is used, unless no other
    /// member has that data. The data is also refused if a flush found the loss during the read.
    fn check_losses(&self) -> IoResult {
        self.check_here()?;
        if (self.losses)() == self.losses_met.get() {
            return Ok(());
        }
        let what = "its connection was lost, and it may have forgotten writes";
        let error = self.device.geometry().error(IoErrorKind::Gone, what);
        let array = self.array.borrow().upgrade();
        match array.is_some_and(|array| array.evict(self, &error)) {
            true => Err(error),
            false => Ok(()),
        }
    }

    /// Applies a change to the sectors `at`, here and on the successor.
    pub async fn change(&self, at: Extent, change: ExtentChange) -> IoResult {
        let Some(successor) = self.successor.borrow().clone() else {
            return self.change_alone(at, change).await;
        };
        let both = join(
            self.change_alone(at, change.clone()),
            successor.change_alone(at, change),
        );
        let (result, copied) = Box::pin(both).await;
        if copied.is_err() {
            self.disinherit(&successor);
        }
        result
    }

    /// Drops a successor that has missed a change.
    fn disinherit(&self, successor: &Rc<ArrayMember>) {
        let mut now = self.successor.borrow_mut();
        if now.as_ref().is_some_and(|now| Rc::ptr_eq(now, successor)) {
            *now = None;
        }
    }

    async fn change_alone(&self, at: Extent, change: ExtentChange) -> IoResult {
        let there = Extent::new(at.start + self.data_at, at.len);
        let bytes = at.len.bytes();
        let result = match change {
            ExtentChange::Data(data, fua) => self.put(there.start, data, fua).await,
            ExtentChange::Zero => Box::pin(self.zero(there)).await,
            ExtentChange::Discard => {
                let work = self.device.discard(there);
                return self.within(bytes, work).await.and_then(|result| result);
            }
        };
        self.unflushed.set(self.unflushed.get() + bytes);
        self.count(|c| match result {
            Ok(()) => c.writes += 1,
            Err(_) => c.write_errors += 1,
        });
        result
    }

    /// Refuses changes to an evicted member: earlier operations may still land.
    fn check_here(&self) -> IoResult {
        match self.is_left() {
            true => Err(self
                .device
                .geometry()
                .error(IoErrorKind::Gone, "it was lost")),
            false => Ok(()),
        }
    }

    /// Writes to the sectors from `at` of the device, again if the medium refuses: the device may
    /// find other sectors for them.
    async fn put(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.check_here()?;
        let bytes = data.len() as u64;
        let work = self.device.write(at, data.clone(), fua);
        let result = self.within(bytes, work).await.and_then(|result| result);
        match result {
            Err(error) if error.kind() == IoErrorKind::Media => {
                Box::pin(self.put_again(at, data, fua, error)).await
            }
            result => result,
        }
    }

    async fn put_again(&self, at: Lba, data: SharedBuf, fua: Fua, error: IoError) -> IoResult {
        let array = self.array.borrow().upgrade();
        let rewrites = array.map_or(0, |array| array.options.rewrites);
        let mut result = Err(error);
        for _ in 0..rewrites {
            if result.is_ok() || self.is_left() {
                break;
            }
            self.count(|c| c.write_errors += 1);
            self.env.timer.sleep(REWRITE_PAUSE).await;
            if self.is_left() {
                break;
            }
            let work = self.device.write(at, data.clone(), fua);
            let again = self.within(data.len() as u64, work).await;
            result = again.and_then(|result| result);
        }
        result
    }

    /// Zeroes the sectors `at` of the device, as many at once as the device does in time.
    async fn zero(&self, at: Extent) -> IoResult {
        let (least, most) = ZERO_STEP.into_inner();
        let mut start = at.start;
        while start < at.end() {
            self.check_here()?;
            let step = self.zero_step.get();
            let part = Extent::new(start, step.min(at.end() - start));
            let began = self.env.timer.now();
            let work = self.device.zero(part);
            self.within(part.len.bytes(), work)
                .await
                .and_then(|result| result)?;
            let took = self.env.timer.now() - began;
            if let Some(timeout) = self.timeout {
                let wanted = match took.0.saturating_mul(8) {
                    long if long > timeout.0 => Sectors(step.0 / 2),
                    short if short.saturating_mul(2) < timeout.0 && part.len == step => {
                        Sectors(step.0 * 2)
                    }
                    _ => step,
                };
                self.zero_step.set(wanted.clamp(least, most));
            }
            start = part.end();
        }
        Ok(())
    }

    /// Writes data.
    pub async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let sectors = Sectors(data.len() as u64 / SECTOR_BYTES);
        let change = ExtentChange::Data(data, fua);
        self.change(Extent::new(at, sectors), change).await
    }

    /// Makes acknowledged writes durable, here and on the successor.
    pub async fn flush(&self) -> IoResult {
        let Some(successor) = self.successor.borrow().clone() else {
            return self.flush_alone().await;
        };
        let both = join(self.flush_alone(), successor.flush_alone());
        let (result, copied) = Box::pin(both).await;
        if copied.is_err() {
            self.disinherit(&successor);
        }
        result
    }

    async fn flush_alone(&self) -> IoResult {
        let (bytes, losses) = (self.unflushed.get(), (self.losses)());
        let result = self.within(bytes, self.device.flush()).await;
        let result = result.and_then(|result| result);
        match result {
            Ok(()) => {
                let left = self.unflushed.get().saturating_sub(bytes);
                self.unflushed.set(left);
                self.losses_met.set(losses);
            }
            Err(_) => self.count(|c| c.write_errors += 1),
        }
        result
    }

    /// Reads a block of metadata at `at` of the device.
    pub async fn read_meta(&self, at: Sectors, buf: Buf) -> (Buf, IoResult) {
        let len = buf.len();
        let read = self.device.read(Lba(at.0), buf);
        match self.within(len as u64, read).await {
            Ok(answer) => answer,
            Err(late) => (self.env.pool.take(len), Err(late)),
        }
    }

    /// Writes metadata at `at` of the device, durable at once.
    pub async fn write_meta(&self, at: Sectors, data: SharedBuf) -> IoResult {
        let result = self.put(Lba(at.0), data, Fua::Yes).await;
        if result.is_err() {
            self.count(|c| c.write_errors += 1);
        }
        result
    }
}

/// Calls a function when dropped, however the future that holds it ends.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
