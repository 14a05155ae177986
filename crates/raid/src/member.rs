//! A member: a device with its health, its load and the position of its head; the depth of its
//! queue, and its time limit; and the choice of the member that serves a read.
//!
//! Invariants:
//!     in flight on the device and waited for ≤ DEPTH; the rest waits in order of arrival
//!     an operation's time runs             ⟸ the device has been asked
//!     a device is taken (back), or an array is assembled of it ⟹ no earlier change of it can
//!         still land (`late_ended`, `ended_on`)
//!
//! A read that continues a leg's last one stays on that leg: its head is there, and its read-ahead.
//! A stream that asks for more at once than one leg should have in flight leaves the leg. Its runs
//! on each leg are so long that a disk gains by skipping the reads of the other one. Other reads go
//! to the leg with the shorter queue; with equal queues, on rotating members, to the leg with the
//! nearest head. A leg that takes [`SLOW`] times as long as the quickest is spared. A probe now and
//! then notices its recovery.
//!
//! Not here: its state in the array, its eviction (`members`).

#[cfg(test)]
mod tests;

use crate::levels::Leg;
use crate::members::ArrayMembers;
use block::{
    BoxDevice, Buf, Deadline, Device, Env, Extent, Fua, Fut, IoError, IoErrorKind, IoResult, Lba,
    Nanos, Permit, SECTOR_BYTES, Sectors, Semaphore, SharedBuf,
};
use futures_util::future::join;
use layout::Uuid;
use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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
/// Most operations in flight on a device: enough for any drive, and for a dozen below a nested
/// array, and no more than a slow one completes in a second or so.
pub(crate) const DEPTH: usize = 128;
/// Least bytes a second of a sound device; larger operations take longer.
const RATE_MIN: u64 = 16 << 20;
/// Factor by which a leg may be slower than the quickest.
const SLOW: u64 = 4;
/// Differences of less than this do not count.
const SLOW_MIN: Nanos = Nanos::from_millis(2);
/// Of this many reads, one goes to a slow leg.
const PROBE: u64 = 64;
/// A stream stays on its leg while that has at most so many requests more than another in flight.
const STREAM_LEAD: u32 = 8;
/// The same in bytes, of rotating members. A stream that passes back and forth makes runs of twice
/// this: of several turns of one disk, or of a turn or so of each of seven behind a leg.
const STREAM_LEAD_BYTES: u64 = 4 << 20;
/// Most bytes that a device may hold without a flush, if their number is unknown.
const UNFLUSHED_MAX: u64 = 1 << 30;

/// A change of an extent.
#[derive(Clone)]
pub(crate) enum ExtentChange {
    Data(SharedBuf, Fua),
    Zero,
    Discard,
}

pub(crate) struct ArrayMember {
    pub device: BoxDevice,
    pub domain: Arc<str>,
    pub name: Arc<str>,
    pub uuid: Uuid,
    pub counts: Cell<MemberCounts>,
    /// The array of the member, once it belongs to one.
    pub array: RefCell<Weak<ArrayMembers>>,
    /// Operations in flight.
    pub in_flight: Cell<u32>,
    /// Those of them that are waited for beyond their time limit.
    pub overdue: Cell<u32>,
    /// Bytes of the reads in flight.
    reading_bytes: Cell<u64>,
    /// End of the last read.
    head: Cell<Lba>,
    /// Moving average of the time of reads.
    read_time: Cell<Nanos>,
    /// The device that is to replace this one, and gets all changes too.
    pub successor: RefCell<Option<Rc<ArrayMember>>>,
    /// The member is back and has got no write of the map since: its map is that of its loss.
    pub lacks_map: Cell<bool>,
    /// The copy of the superblock that is older, torn or unreadable: the next write goes there.
    pub worse_copy: Cell<usize>,
    turns: Semaphore,
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
    pub fn read(&self, at: Lba, buf: Buf) -> MemberRead<'_> {
        let len = buf.len();
        let bytes = len as u64;
        self.head.set(at + Sectors(bytes / SECTOR_BYTES));
        self.reading_bytes.set(self.reading_bytes.get() + bytes);
        MemberRead {
            len,
            began: self.env.timer.now(),
            within: self.within(bytes, self.device.read(at + self.data_at, buf)),
        }
    }

    /// Accounts for a read that `began` then; returns its result.
    fn has_read(&self, began: Nanos, result: IoResult) -> IoResult {
        let result = result.and_then(|()| self.check_losses());
        let took = self.env.timer.now() - began;
        let average = self.read_time.get().0;
        self.read_time
            .set(Nanos(average - average / 8 + took.0 / 8));
        self.count(|c| match result {
            Ok(()) => c.reads += 1,
            Err(_) => c.read_errors += 1,
        });
        result
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

    /// Waits until no earlier operation on the device can land any more, by a flush, which waits
    /// for that.
    pub async fn late_ended(&self) -> IoResult {
        match self.flush().await {
            // A server that was restarted reports once that it may have forgotten writes.
            Err(error) if error.kind() != IoErrorKind::Timeout => self.flush().await,
            result => result,
        }
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

/// Waits for the same on a device that is to be a member, with a `timeout`. Any answer but a timeout
/// counts: a device that fails flushes shows that to the first commit.
pub(crate) async fn ended_on(env: &Env, device: &BoxDevice, timeout: Nanos) -> IoResult {
    let limit = limit(timeout, UNFLUSHED_MAX);
    let deadline = Deadline::new(&env.timer, limit);
    let flushed = deadline.bound(device.flush()).await;
    match flushed {
        Some(Err(error)) if error.kind() == IoErrorKind::Timeout => Err(error),
        Some(_) => Ok(()),
        None => {
            let what = "no answer in time to a flush, so that what it was asked for before may \
                        still land";
            Err(device.geometry().error(IoErrorKind::Timeout, what))
        }
    }
}

/// A read of a member; see [`ArrayMember::read`].
pub(crate) struct MemberRead<'a> {
    within: Within<'a, Fut<'a, (Buf, IoResult)>>,
    len: usize,
    began: Nanos,
}

impl Future for MemberRead<'_> {
    type Output = (Buf, IoResult);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Buf, IoResult)> {
        let answer = ready!(Pin::new(&mut self.within).poll(cx));
        let member = self.within.member;
        let (buf, result) = match answer {
            Ok(answer) => answer,
            Err(late) => (member.env.pool.take(self.len), Err(late)),
        };
        Poll::Ready((buf, member.has_read(self.began, result)))
    }
}

impl Drop for MemberRead<'_> {
    fn drop(&mut self) {
        let reading = &self.within.member.reading_bytes;
        reading.set(reading.get() - self.len as u64);
    }
}

/// Returns the time limit of a device with this `timeout` to move `bytes`.
pub(crate) fn limit(timeout: Nanos, bytes: u64) -> Nanos {
    let moving = u128::from(bytes) * 1_000_000_000 / u128::from(RATE_MIN);
    timeout + Nanos(u64::try_from(moving).unwrap_or(u64::MAX))
}

/// An operation of a member, for as long as the array waits for it; written out, since each request
/// moves it.
pub(crate) struct Within<'a, F> {
    member: &'a ArrayMember,
    work: F,
    bytes: u64,
    turn: Permit<'a>,
    /// The device is being asked; with a time limit, if there is one.
    asked: bool,
    limit: Option<Deadline>,
    /// The operation is waited for beyond its time limit.
    overdue: bool,
}

impl<'a, F: Future + Unpin> Within<'a, F> {
    /// Makes an operation of `work` on `member`, which moves `bytes`; it has not been polled yet.
    pub fn new(member: &'a ArrayMember, bytes: u64, work: F) -> Within<'a, F> {
        member.in_flight.set(member.in_flight.get() + 1);
        Within {
            member,
            work,
            bytes,
            turn: member.turns.permit(1),
            asked: false,
            limit: None,
            overdue: false,
        }
    }

    /// Handles the end of the time limit; `Err` if the operation is waited for no more.
    fn give_up(&mut self) -> IoResult {
        let member = self.member;
        let error = member
            .device
            .geometry()
            .error(IoErrorKind::Timeout, "no answer in time");
        let array = member.array.borrow().upgrade();
        let Some(array) = array.filter(|array| !array.evict(member, &error)) else {
            return Err(error);
        };
        if !std::mem::replace(&mut self.overdue, true) {
            array.waits_for(member);
        }
        Ok(())
    }

    /// Becomes ready once the device is to be asked; `Err` if the member was lost meanwhile.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<IoResult> {
        let has_waited = self.turn.is_queued();
        ready!(Pin::new(&mut self.turn).poll(cx));
        let member = self.member;
        if has_waited && member.is_left() {
            let geometry = member.device.geometry();
            return Poll::Ready(Err(geometry.error(IoErrorKind::Gone, "it was lost")));
        }
        let limit = member.timeout.map(|span| limit(span, self.bytes));
        self.limit = limit.map(|span| Deadline::new(&member.env.timer, span));
        self.asked = true;
        Poll::Ready(Ok(()))
    }
}

impl<F: Future + Unpin> Future for Within<'_, F> {
    type Output = IoResult<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<F::Output>> {
        if !self.asked {
            ready!(self.poll_turn(cx))?;
        }
        if let Poll::Ready(answer) = Pin::new(&mut self.work).poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        let Some(timeout) = self.member.timeout else {
            return Poll::Pending;
        };
        while let Some(limit) = &mut self.limit
            && Pin::new(limit).poll(cx).is_ready()
        {
            if let Err(error) = self.give_up() {
                return Poll::Ready(Err(error));
            }
            // Another member may be in sync by then.
            let next = Deadline::new(&self.member.env.timer, timeout.max(Nanos(1)));
            self.limit = Some(next);
        }
        Poll::Pending
    }
}

impl<F> Drop for Within<'_, F> {
    fn drop(&mut self) {
        let (in_flight, overdue) = (&self.member.in_flight, &self.member.overdue);
        in_flight.set(in_flight.get() - 1);
        overdue.set(overdue.get() - u32::from(self.overdue));
    }
}

/// Returns the index of the leg that should serve read number `turn`.
pub(crate) fn choose(legs: &[(Leg, Rc<ArrayMember>)], turn: u64) -> Option<usize> {
    if legs.len() < 2 {
        return (!legs.is_empty()).then_some(0);
    }
    let times = legs.iter().map(|(_, member)| member.read_time.get());
    let quickest = times.min().unwrap_or_default();
    let is_slow = |member: &ArrayMember| {
        let time = member.read_time.get();
        time > SLOW_MIN && time.0 > quickest.0 * SLOW
    };
    let probing = turn.is_multiple_of(PROBE);
    let shortest = legs.iter().map(|(_, m)| m.in_flight.get()).min()?;
    let fit = |member: &ArrayMember| probing || !is_slow(member);
    let least = legs.iter().map(|(_, m)| m.reading_bytes.get()).min()?;
    let leads = |member: &ArrayMember| match member.device.geometry().rotational {
        true => member.reading_bytes.get() > least + STREAM_LEAD_BYTES,
        false => member.in_flight.get() > shortest + STREAM_LEAD,
    };
    let goes_on = |leg: &Leg, member: &ArrayMember| member.head.get() == leg.at && leg.at.0 > 0;
    let streaming = legs
        .iter()
        .position(|(leg, member)| goes_on(leg, member) && fit(member) && !leads(member));
    if streaming.is_some() {
        return streaming;
    }
    let first = (turn % legs.len() as u64) as usize;
    let cost = |index: usize| {
        let (leg, member) = &legs[index];
        let way = match member.device.geometry().rotational {
            true => leg.at.0.abs_diff(member.head.get().0),
            false => 0,
        };
        let spared = is_slow(member) != (probing && is_slow(member));
        (spared, member.in_flight.get(), way)
    };
    // With all alike the legs take turns.
    (0..legs.len())
        .map(|i| (first + i) % legs.len())
        .min_by_key(|index| cost(*index))
}
