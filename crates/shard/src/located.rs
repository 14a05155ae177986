//! Located reads, carried out on this shard.
//!
//! Invariants:
//!     bytes are returned ⟹ each block has its checksum, and was the device's until the read ended
//!     a disk does not answer within the limit ⟹ the read is given up
//!
//! Not here: the look-up, and the report of the end (`remote`).

use crate::local::Local;
use crate::perform::Perform;
use block::{
    Boundary, Buf, Content, Device, Driver, DriverOp, Env, Extent, FlushErrors, Fua, Generations,
    Geometry, IoResult, LocatedEnd, LocatedFate, LocatedRead, LocatedRequest, Nanos, Payload,
    SECTOR_BYTES, Sectors, SharedBuf, Signal, Timer,
};
use futures_util::future::join_all;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// The looks at a read within its time limit. One more ends the wait: the first may come at once.
const LOOKS: u32 = 8;

/// The reads in flight, and the looks at them. A look counts when its timer has ended, so that a
/// pause of the process counts as one look.
struct ReadWatch {
    reads: RefCell<Slab<WatchedRead>>,
    look: Cell<u32>,
    /// Time between looks: of the disk with the shortest limit so far.
    period: Cell<Nanos>,
    begun: Signal,
    over: Signal,
    is_over: Cell<bool>,
}

struct WatchedRead {
    /// The look at which the read is late.
    late_at: u32,
    is_late: bool,
    waker: Option<Waker>,
}

/// A read in flight, until dropped.
struct Watched<'a> {
    watch: &'a ReadWatch,
    key: usize,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.watch.reads.borrow_mut().remove(self.key);
    }
}

impl ReadWatch {
    #[inline]
    fn begin(&self, limit: Nanos) -> Watched<'_> {
        let mut period = self.period.get();
        if limit.0 / u64::from(LOOKS) < period.0 {
            period = Nanos((limit.0 / u64::from(LOOKS)).max(1));
            self.period.set(period);
        }
        let looks = (limit.0 / period.0).min(u64::from(u32::MAX / 2)) as u32;
        let mut reads = self.reads.borrow_mut();
        if reads.is_empty() {
            self.begun.notify();
        }
        let key = reads.insert(WatchedRead {
            late_at: self.look.get() + looks + 1,
            is_late: false,
            waker: None,
        });
        Watched { watch: self, key }
    }

    fn look(&self) {
        let look = self.look.get() + 1;
        self.look.set(look);
        for (_, read) in self.reads.borrow_mut().iter_mut() {
            if read.late_at <= look {
                read.is_late = true;
                read.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Watched<'_> {
    /// True once the read is late; until then the task of `cx` is woken when it becomes so.
    #[inline]
    fn is_late(&self, cx: &mut Context<'_>) -> bool {
        let read = &mut self.watch.reads.borrow_mut()[self.key];
        match &mut read.waker {
            Some(known) => known.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        read.is_late
    }
}

/// Looks at the reads in flight, while there are some, until the reader is gone.
async fn watch_reads(watch: Rc<ReadWatch>, timer: Timer) {
    let is_over = || watch.is_over.get();
    loop {
        let is_due = || is_over() || !watch.reads.borrow().is_empty();
        watch.begun.until(is_due).await;
        let over = watch.over.until(is_over);
        if timer.timeout(watch.period.get(), over).await.is_some() {
            return;
        }
        watch.look();
    }
}

/// Carries out the located reads of one shard, until its last gate is gone.
pub(crate) struct LocatedReader<D: Driver> {
    local: Local<D>,
    env: Env,
    watch: Rc<ReadWatch>,
    /// The disks used so far, by number.
    disks: RefCell<Vec<Option<Geometry>>>,
}

impl<D: Driver> Drop for LocatedReader<D> {
    fn drop(&mut self) {
        self.watch.is_over.set(true);
        self.watch.begun.notify();
        self.watch.over.notify();
    }
}

/// The reader of a shard, while there is one.
struct PresentReader<D: Driver>(Weak<LocatedReader<D>>);

impl<D: Driver> LocatedReader<D> {
    /// The reader of the shard of `local`.
    pub(crate) fn of(local: &Local<D>) -> Rc<LocatedReader<D>> {
        let present = local.get::<PresentReader<D>>();
        if let Some(reader) = present.and_then(|present| present.0.upgrade()) {
            return reader;
        }
        let env = local.env();
        let watch = Rc::new(ReadWatch {
            reads: RefCell::default(),
            look: Cell::new(0),
            period: Cell::new(Nanos(u64::MAX)),
            begun: Signal::default(),
            over: Signal::default(),
            is_over: Cell::new(false),
        });
        env.spawn
            .spawn(watch_reads(watch.clone(), env.timer.clone()));
        let reader = Rc::new(LocatedReader {
            local: local.clone(),
            env,
            watch,
            disks: RefCell::default(),
        });
        local.put(Rc::new(PresentReader(Rc::downgrade(&reader))));
        reader
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.env.timer.now()
    }

    /// The `len` bytes of `read`, located for a request that began at `asked`. `None` if the device
    /// is to be asked for the bytes. `report` takes the end for each slot.
    #[inline]
    pub(crate) async fn read(
        &self,
        read: &LocatedRead,
        len: usize,
        generations: &Generations,
        (asked, mut report): (Nanos, impl FnMut(LocatedEnd)),
    ) -> Option<SharedBuf> {
        let request = || LocatedRequest {
            sectors: Sectors(len as u64 / SECTOR_BYTES),
            time: self.now().since(asked),
        };
        let buf = if read.rest.is_empty() {
            let buf = self.env.pool.take(read.bytes());
            let (buf, mut end) = self.begin(read, buf, generations).await;
            end.request = buf.as_ref().map(|_| request());
            report(end);
            buf?
        } else {
            let slots = Box::pin(self.slots(read, generations)).await;
            let is_whole = slots.iter().all(|(buf, _)| buf.is_some());
            let mut bufs = Vec::with_capacity(slots.len());
            for (buf, mut end) in slots {
                end.request = (is_whole && bufs.is_empty()).then(request);
                report(end);
                bufs.extend(buf);
            }
            is_whole.then(|| Buf::join(bufs, &self.env.pool))?
        };
        let (data, skip) = (buf.share(), read.skip as usize);
        Some(match data.len() == len {
            true => data,
            false => data.slice(skip..skip + len),
        })
    }

    /// Reads all slots of `read` at once, into one buffer.
    async fn slots(
        &self,
        read: &LocatedRead,
        generations: &Generations,
    ) -> Vec<(Option<Buf>, LocatedEnd)> {
        let slots = || std::iter::once(read).chain(&read.rest);
        let mut rest = self.env.pool.take(slots().map(LocatedRead::bytes).sum());
        let mut reads = Vec::with_capacity(1 + read.rest.len());
        for slot in slots() {
            let (buf, tail) = rest.split_at(slot.bytes());
            rest = tail;
            reads.push(self.begin(slot, buf, generations));
        }
        let done = join_all(reads).await;
        // The tail that is left is empty, and a neighbour of nothing.
        drop(rest);
        done
    }

    /// Begins to read the blocks of one slot into `buf`.
    #[inline]
    fn begin<'a>(
        &'a self,
        read: &'a LocatedRead,
        buf: Buf,
        generations: &'a Generations,
    ) -> SlotReading<'a, D> {
        let (core, place) = (&self.local.0, read.place);
        let is_on_disk = self.is_on_disk(read);
        let work = is_on_disk.then(|| core.perform(place.target, DriverOp::Read(place.at, buf)));
        SlotReading {
            reader: self,
            read,
            generations,
            begun: self.now(),
            watched: self.watch.begin(generations.limit()),
            work,
        }
    }

    /// True if the blocks of one slot are on a disk of this shard.
    #[inline]
    fn is_on_disk(&self, read: &LocatedRead) -> bool {
        let (place, number) = (read.place, read.place.target.0 as usize);
        let fits = |disk: &Geometry| disk.transfer(place.at, read.bytes()).is_ok();
        if let Some(Some(disk)) = self.disks.borrow().get(number) {
            return fits(disk);
        }
        let Ok(disk) = self.local.disk(place.target) else {
            return false;
        };
        let mut disks = self.disks.borrow_mut();
        if disks.len() <= number {
            disks.resize_with(number + 1, || None);
        }
        fits(disks[number].insert(disk.geometry().clone()))
    }
}

/// The read of the blocks of one slot: one future down to the driver's queue, for it is on the path
/// of every hit. Gives the buffer if the blocks are accepted.
struct SlotReading<'a, D: Driver> {
    reader: &'a LocatedReader<D>,
    read: &'a LocatedRead,
    generations: &'a Generations,
    begun: Nanos,
    watched: Watched<'a>,
    /// `None` if there is no such disk.
    work: Option<Perform<'a, D>>,
}

impl<D: Driver> SlotReading<'_, D> {
    /// The end of the read, if the disk has answered or is late.
    #[inline]
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Result<Buf, LocatedFate>> {
        let Some(work) = &mut self.work else {
            return Poll::Ready(Err(LocatedFate::Refused));
        };
        let buf = match Pin::new(work).poll(cx) {
            Poll::Ready((Ok(_), Payload::Buf(buf))) => buf,
            Poll::Ready((Err(_), _)) => {
                // Another disk may have the number by now.
                self.reader.disks.borrow_mut()[self.read.place.target.0 as usize] = None;
                return Poll::Ready(Err(LocatedFate::Refused));
            }
            Poll::Ready((_, other)) => panic!("a read gave back {other:?}"),
            Poll::Pending => {
                return match self.watched.is_late(cx) {
                    true => Poll::Ready(Err(LocatedFate::Late)),
                    false => Poll::Pending,
                };
            }
        };
        let is_sound = self.read.checksums.are_of(&buf, crc_fast::crc32_iscsi);
        match is_sound && self.generations.is_present(self.read.generation) {
            true => Poll::Ready(Ok(buf)),
            false => Poll::Ready(Err(LocatedFate::Refused)),
        }
    }
}

impl<D: Driver> Future for SlotReading<'_, D> {
    type Output = (Option<Buf>, LocatedEnd);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.poll_work(cx));
        let end = LocatedEnd {
            fate: *answer.as_ref().err().unwrap_or(&LocatedFate::Accepted),
            member: self.read.member,
            sectors: Sectors(self.read.bytes() as u64 / SECTOR_BYTES),
            time: self.reader.now().since(self.begun),
            request: None,
        };
        Poll::Ready((answer.ok(), end))
    }
}

/// A gate of this shard, whose located reads go straight to the disk. All else goes through the
/// gate.
pub struct LocatingGate<D: Driver, G> {
    gate: G,
    generations: Option<Arc<Generations>>,
    reader: Rc<LocatedReader<D>>,
}

impl<D: Driver, G: Clone> Clone for LocatingGate<D, G> {
    fn clone(&self) -> LocatingGate<D, G> {
        LocatingGate {
            gate: self.gate.clone(),
            generations: self.generations.clone(),
            reader: self.reader.clone(),
        }
    }
}

impl<D: Driver, G: Boundary> LocatingGate<D, G> {
    /// Serves `gate`, of a device on the shard of `local`.
    pub fn new(gate: G, local: &Local<D>) -> LocatingGate<D, G> {
        LocatingGate {
            generations: gate.generations(),
            gate,
            reader: LocatedReader::of(local),
        }
    }

    /// The gate.
    pub fn gate(&self) -> &G {
        &self.gate
    }
}

impl<D: Driver, G: Boundary> Boundary for LocatingGate<D, G> {
    fn geometry(&self) -> &Geometry {
        self.gate.geometry()
    }

    fn flush_errors(&self) -> &Arc<FlushErrors> {
        self.gate.flush_errors()
    }

    #[inline]
    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        if let Some(generations) = &self.generations
            && let Some(read) = self.gate.locate(offset, len)
        {
            let asked = self.reader.now();
            let report = |end| self.gate.located(&end);
            let reading = self.reader.read(&read, len, generations, (asked, report));
            if let Some(data) = reading.await {
                return Ok(data);
            }
        }
        // A read that is not located is rare, or slow.
        Box::pin(self.gate.read(offset, len)).await
    }

    fn write(&self, at: u64, data: SharedBuf, fua: Fua) -> impl Future<Output = IoResult> {
        self.gate.write(at, data, fua)
    }

    fn zero(&self, offset: u64, len: u64) -> impl Future<Output = IoResult> {
        self.gate.zero(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> impl Future<Output = IoResult> {
        self.gate.discard(offset, len)
    }

    fn flush(&self) -> impl Future<Output = IoResult> {
        self.gate.flush()
    }

    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.gate.extents(offset, len, out).await
    }

    fn announce(&self, offset: u64, len: u64) -> impl Future<Output = ()> {
        self.gate.announce(offset, len)
    }
}
