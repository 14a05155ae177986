//! Reads that the device's shard has located, carried out on this shard.
//!
//! Invariants:
//!     bytes are returned ⟹ each block has its checksum, and no write to its slot was about to begin
//!     before the read ended
//!     a disk does not answer within the limit ⟹ the read is given up
//!
//! Ends are reported to the device's shard, some at a time.

use crate::disk::ShardDisk;
use crate::local::Local;
use block::{
    Buf, Device, Driver, Env, Generations, LocatedEnd, LocatedRead, Nanos, SECTOR_BYTES, Sectors,
    SharedBuf, Signal, Timer,
};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

/// The looks at a read within its time limit. One more ends the wait: the first may come at once.
const LOOKS: u32 = 8;
/// Ends that are reported together.
const REPORT_ENDS: usize = 64;
/// The longest time that an end waits for its report.
const REPORT_DELAY: Nanos = Nanos::from_millis(100);

/// An end, with the number of its gate.
pub struct CountedEnd {
    pub(crate) gate: u32,
    pub(crate) end: LocatedEnd,
}

/// The ends that are not reported yet.
#[derive(Default)]
struct UnreportedEnds {
    ends: RefCell<Vec<CountedEnd>>,
    signal: Signal,
    is_over: Cell<bool>,
}

/// The reads in flight, and the looks at them. A look counts when its timer has ended, so that a
/// pause of the process counts as one look.
struct ReadWatch {
    reads: RefCell<Slab<WatchedRead>>,
    look: Cell<u32>,
    /// Time between looks: of the disk with the shortest limit so far.
    period: Cell<Nanos>,
    signal: Signal,
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
    fn begin(&self, limit: Nanos) -> Watched<'_> {
        let period = self
            .period
            .get()
            .min(Nanos(limit.0 / u64::from(LOOKS)))
            .max(Nanos(1));
        self.period.set(period);
        let looks = limit.0.div_ceil(period.0).min(u64::from(u32::MAX / 2)) as u32;
        let mut reads = self.reads.borrow_mut();
        if reads.is_empty() {
            self.signal.notify();
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
    /// The output of `work`, or `None` once the read is late.
    async fn bound<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let read = &mut self.watch.reads.borrow_mut()[self.key];
            match &mut read.waker {
                Some(known) => known.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            match read.is_late {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }
}

/// The reader of one lane.
pub(crate) struct LocatedReader<D: Driver> {
    local: Local<D>,
    env: Env,
    watch: Rc<ReadWatch>,
    /// The disks used so far, by number.
    disks: RefCell<Vec<Option<Rc<ShardDisk<D>>>>>,
    unreported: Rc<UnreportedEnds>,
    report: Box<dyn Fn(Vec<CountedEnd>)>,
}

impl<D: Driver> Drop for LocatedReader<D> {
    fn drop(&mut self) {
        self.unreported.is_over.set(true);
        self.unreported.signal.notify();
        self.watch.is_over.set(true);
        self.watch.signal.notify();
    }
}

impl<D: Driver> LocatedReader<D> {
    pub(crate) fn begin(
        local: &Local<D>,
        report: impl Fn(Vec<CountedEnd>) + 'static,
    ) -> Rc<LocatedReader<D>> {
        let reader = Rc::new(LocatedReader {
            local: local.clone(),
            env: local.env(),
            watch: Rc::new(ReadWatch {
                reads: RefCell::default(),
                look: Cell::new(0),
                period: Cell::new(Nanos(u64::MAX)),
                signal: Signal::default(),
                is_over: Cell::new(false),
            }),
            disks: RefCell::default(),
            unreported: Rc::default(),
            report: Box::new(report),
        });
        let reporting = report_ends(Rc::downgrade(&reader), reader.unreported.clone());
        reader.env.spawn.spawn(reporting);
        let watching = watch_reads(reader.watch.clone(), reader.env.timer.clone());
        reader.env.spawn.spawn(watching);
        reader
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.env.timer.now()
    }

    /// The `len` bytes of `read`, which the gate of `client` located for a request that began at
    /// that time. `None` if the bytes are to be read there.
    pub(crate) async fn read(
        &self,
        read: &LocatedRead,
        len: usize,
        generations: &Generations,
        client: (u32, Nanos),
    ) -> Option<SharedBuf> {
        let begun = self.now();
        let data = self.accepted(read, generations).await;
        let (gate, asked) = client;
        let now = self.now();
        let end = LocatedEnd {
            is_accepted: data.is_some(),
            member: read.member,
            disk_sectors: Sectors(read.bytes() as u64 / SECTOR_BYTES),
            disk_time: now.since(begun),
            sectors: Sectors(len as u64 / SECTOR_BYTES),
            time: now.since(asked),
        };
        self.count(CountedEnd { gate, end });
        let (data, skip) = (data?.share(), read.skip as usize);
        Some(match data.len() == len {
            true => data,
            false => data.slice(skip..skip + len),
        })
    }

    /// The blocks of `read`, if they are the device's at the look-up.
    async fn accepted(&self, read: &LocatedRead, generations: &Generations) -> Option<Buf> {
        let disk = self.disk(read)?;
        let buf = self.env.pool.take(read.bytes());
        let watched = self.watch.begin(generations.limit());
        let (buf, result) = watched.bound(disk.read(read.at, buf)).await?;
        if result.is_err() {
            // Another disk may have the number by now.
            self.disks.borrow_mut()[read.target.0 as usize] = None;
            return None;
        }
        let is_sound = read.checksums.are_of(&buf, crc_fast::crc32_iscsi);
        (is_sound && generations.is_present(read.generation?)).then_some(buf)
    }

    fn disk(&self, read: &LocatedRead) -> Option<Rc<ShardDisk<D>>> {
        let mut disks = self.disks.borrow_mut();
        let number = read.target.0 as usize;
        if disks.len() <= number {
            disks.resize_with(number + 1, || None);
        }
        if disks[number].is_none() {
            let disk = self.local.disk(read.target).ok()?;
            disks[number] = Some(Rc::new(disk));
        }
        disks[number].clone()
    }

    fn count(&self, end: CountedEnd) {
        let mut ends = self.unreported.ends.borrow_mut();
        ends.push(end);
        match ends.len() {
            1 => self.unreported.signal.notify(),
            REPORT_ENDS => (self.report)(std::mem::take(&mut *ends)),
            _ => {}
        }
    }
}

/// Looks at the reads in flight, while there are some.
async fn watch_reads(watch: Rc<ReadWatch>, timer: Timer) {
    loop {
        let is_due = || watch.is_over.get() || !watch.reads.borrow().is_empty();
        watch.signal.until(is_due).await;
        if watch.is_over.get() {
            return;
        }
        timer.sleep(watch.period.get()).await;
        watch.look();
    }
}

/// Reports ends that are too few for a report of their own, until the reader is gone.
async fn report_ends<D: Driver>(reader: Weak<LocatedReader<D>>, unreported: Rc<UnreportedEnds>) {
    loop {
        let is_due = || unreported.is_over.get() || !unreported.ends.borrow().is_empty();
        unreported.signal.until(is_due).await;
        let Some(timer) = reader.upgrade().map(|reader| reader.env.timer.clone()) else {
            return;
        };
        timer.sleep(REPORT_DELAY).await;
        let ends = unreported.ends.take();
        if let Some(reader) = reader.upgrade().filter(|_| !ends.is_empty()) {
            (reader.report)(ends);
        }
    }
}
