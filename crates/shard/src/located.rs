//! Located reads, carried out on this shard.
//!
//! A read is an entry of a table and no task: the turn that takes in its completion hands the result
//! to its taker.
//!
//! Invariants:
//!     bytes are given ⟹ each block has its checksum, and was the device's until the read ended
//!     a disk does not answer within the limit ⟹ the read is given up
//!     an operation has the waiter `Read(key)` ⟺ the entry `key` is of that operation
//!
//! Not here: the look-up, and the report of the end (`remote`).

use crate::executor::ShardCore;
use crate::local::Local;
use crate::ops::{Output, WaitingReads};
use crate::task::Waiter;
use block::{
    AskedRead, Boundary, Buf, Content, Device, Driver, DriverOp, Executor, Extent, FlushErrors,
    Fua, Generations, Geometry, IoResult, LocatedEnd, LocatedFate, LocatedRead, LocatedRequest,
    Nanos, Payload, Pool, ReadTaker, SECTOR_BYTES, Sectors, SharedBuf, TakenRead, Token,
};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The looks at a read within its time limit. One more ends the wait: the first may come at once.
const LOOKS: u32 = 8;

/// The gate of located reads.
pub(crate) trait LocatedGate {
    /// The generations of the reads.
    fn generations(&self) -> &Generations;

    /// Counts the end of the read of a slot. `is_kept`: the place was not looked up.
    fn count(&self, asked: &AskedRead, end: &LocatedEnd, is_kept: bool);

    /// Reads by the device, which meets the fault, if there is one, and deals with it.
    fn read_otherwise(self: Rc<Self>, asked: AskedRead, taker: Rc<dyn ReadTaker>);
}

/// A request with a known place.
pub(crate) struct LocatedAsk {
    pub(crate) asked: AskedRead,
    pub(crate) begun: Nanos,
    pub(crate) is_kept: bool,
    pub(crate) gate: Rc<dyn LocatedGate>,
    pub(crate) taker: Rc<dyn ReadTaker>,
}

/// The reads in flight, and the looks at them. A look counts when its timer has ended, so that a
/// pause of the process counts as one look.
pub(crate) struct ReadTable {
    reads: RefCell<Slab<SlotRead>>,
    look: Cell<u32>,
    /// Time between looks: of the disk with the shortest limit so far.
    period: Cell<Nanos>,
    /// True while a task looks.
    is_watched: Cell<bool>,
    /// The disks used so far, by number.
    disks: RefCell<Vec<Option<Geometry>>>,
    pool: Pool,
}

/// Carries out the located reads of one shard; clones are the same.
pub(crate) struct LocatedReader<D: Driver> {
    core: Rc<ShardCore<D>>,
    table: Rc<ReadTable>,
}

/// The read of the blocks of one slot.
struct SlotRead {
    operation: Token,
    begun: Nanos,
    /// The look at which the read is late.
    late_at: u32,
    read: LocatedRead,
    share: SlotShare,
}

/// The share of a slot in its request.
enum SlotShare {
    All(LocatedAsk),
    /// The part of this number.
    Part(Rc<PartedRead>, usize),
}

/// The blocks of a slot, unless they were refused, and the end of the read.
type SlotEnd = (Option<Buf>, LocatedEnd);

/// A request of several slots.
struct PartedRead {
    ask: LocatedAsk,
    skip: u32,
    /// The ends of the slots, in order. `None`: in flight.
    ends: RefCell<Vec<Option<SlotEnd>>>,
}

impl<D: Driver> Clone for LocatedReader<D> {
    fn clone(&self) -> LocatedReader<D> {
        LocatedReader {
            core: self.core.clone(),
            table: self.table.clone(),
        }
    }
}

impl ReadTable {
    /// The look at which a read is late that begins now.
    #[inline]
    fn late_at(&self, limit: Nanos) -> u32 {
        let mut period = self.period.get();
        if limit.0 / u64::from(LOOKS) < period.0 {
            period = Nanos((limit.0 / u64::from(LOOKS)).max(1));
            self.period.set(period);
        }
        let looks = (limit.0 / period.0).min(u64::from(u32::MAX / 2)) as u32;
        self.look.get() + looks + 1
    }

    /// Takes out a read that is late at this look.
    fn take_late(&self) -> Option<SlotRead> {
        let mut reads = self.reads.borrow_mut();
        let is_late = |read: &SlotRead| read.late_at <= self.look.get();
        let (key, _) = reads.iter().find(|(_, read)| is_late(read))?;
        Some(reads.remove(key))
    }

    #[inline]
    fn end_slot(
        &self,
        read: &LocatedRead,
        (begun, now): (Nanos, Nanos),
        share: SlotShare,
        answer: Result<Buf, LocatedFate>,
    ) {
        let end = LocatedEnd {
            fate: *answer.as_ref().err().unwrap_or(&LocatedFate::Accepted),
            member: read.member,
            sectors: Sectors(read.bytes() as u64 / SECTOR_BYTES),
            time: now.since(begun),
            request: None,
        };
        match share {
            SlotShare::All(ask) => {
                ask.count(end, answer.is_ok().then_some(now));
                ask.take(answer.ok(), read.skip);
            }
            SlotShare::Part(parted, number) => {
                let mut ends = parted.ends.borrow_mut();
                ends[number] = Some((answer.ok(), end));
                if ends.iter().all(Option::is_some) {
                    drop(ends);
                    parted.end(now, &self.pool);
                }
            }
        }
    }
}

impl WaitingReads for ReadTable {
    #[inline]
    fn completed(&self, key: u32, now: Nanos, output: Output) {
        let slot = self.reads.borrow_mut().remove(key as usize);
        let SlotRead {
            begun, read, share, ..
        } = slot;
        let answer = match output {
            (Ok(_), Payload::Buf(buf)) => {
                let is_sound = read.is_sound(&buf, crc_fast::crc32_iscsi);
                let generations = share.ask().gate.generations();
                match is_sound && generations.is_present(read.generation) {
                    true => Ok(buf),
                    false => Err(LocatedFate::Refused),
                }
            }
            (Err(_), _) => {
                // Another disk may have the number by now.
                self.disks.borrow_mut()[read.place.target.0 as usize] = None;
                Err(LocatedFate::Refused)
            }
            (_, other) => panic!("a read gave back {other:?}"),
        };
        self.end_slot(&read, (begun, now), share, answer);
    }

    fn clear(&self) {
        drop(self.reads.take());
    }
}

impl<D: Driver> LocatedReader<D> {
    /// The reader of the shard of `local`.
    pub(crate) fn of(local: &Local<D>) -> LocatedReader<D> {
        let core = local.0.clone();
        let table = local.get::<ReadTable>().unwrap_or_else(|| {
            let table = Rc::new(ReadTable {
                reads: RefCell::default(),
                look: Cell::new(0),
                period: Cell::new(Nanos(u64::MAX)),
                is_watched: Cell::new(false),
                disks: RefCell::default(),
                pool: core.pool.clone(),
            });
            local.put(table.clone());
            core.reads.get_or_init(|| table.clone());
            table
        });
        LocatedReader { core, table }
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.core.now()
    }

    /// Spawns a task of the shard.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.core.spawn(Box::pin(task));
    }

    /// Begins a read, of which `ask.taker` gets the end.
    #[inline]
    pub(crate) fn begin(&self, mut read: LocatedRead, ask: LocatedAsk) {
        if read.rest().is_empty() {
            let buf = self.table.pool.take(read.bytes());
            return self.begin_slot(read, buf, SlotShare::All(ask));
        }
        let rest = read
            .more
            .as_mut()
            .map(|more| std::mem::take(&mut more.rest));
        let rest = rest.unwrap_or_default();
        let parted = Rc::new(PartedRead {
            ask,
            skip: read.skip,
            ends: RefCell::new((0..=rest.len()).map(|_| None).collect()),
        });
        let slots: Vec<_> = std::iter::once(read).chain(rest).collect();
        let mut left = self
            .table
            .pool
            .take(slots.iter().map(LocatedRead::bytes).sum());
        for (number, slot) in slots.into_iter().enumerate() {
            let (buf, tail) = left.split_at(slot.bytes());
            left = tail;
            self.begin_slot(slot, buf, SlotShare::Part(parted.clone(), number));
        }
    }

    /// Begins to read the blocks of one slot into `buf`.
    #[inline]
    fn begin_slot(&self, read: LocatedRead, buf: Buf, share: SlotShare) {
        let (table, place, begun) = (&self.table, read.place, self.now());
        if !self.is_on_disk(&read) {
            let answer = Err(LocatedFate::Refused);
            return table.end_slot(&read, (begun, begun), share, answer);
        }
        let late_at = table.late_at(share.ask().gate.generations().limit());
        let mut reads = table.reads.borrow_mut();
        let entry = reads.vacant_entry();
        let waiter = Waiter::Read(entry.key() as u32);
        let op = DriverOp::Read(place.at, buf);
        entry.insert(SlotRead {
            operation: self.core.ops.start(place.target, op, waiter),
            begun,
            late_at,
            read,
            share,
        });
        drop(reads);
        if !table.is_watched.get() {
            self.watch_reads();
        }
    }

    /// True if the blocks of one slot are on a disk of this shard.
    #[inline]
    fn is_on_disk(&self, read: &LocatedRead) -> bool {
        let (place, number) = (read.place, read.place.target.0 as usize);
        let fits = |disk: &Geometry| disk.transfer(place.at, read.bytes()).is_ok();
        if let Some(Some(disk)) = self.table.disks.borrow().get(number)
            && fits(disk)
        {
            return true;
        }
        // Another disk may have the number by now.
        let Ok(disk) = Local(self.core.clone()).disk(place.target) else {
            return false;
        };
        let mut disks = self.table.disks.borrow_mut();
        if disks.len() <= number {
            disks.resize_with(number + 1, || None);
        }
        fits(disks[number].insert(disk.geometry().clone()))
    }

    /// Looks at the reads in flight, as long as there are some.
    #[cold]
    fn watch_reads(&self) {
        self.table.is_watched.set(true);
        let (reader, timer) = (self.clone(), Local(self.core.clone()).env().timer);
        self.spawn(async move {
            let table = &reader.table;
            while !table.reads.borrow().is_empty() {
                timer.sleep(table.period.get()).await;
                table.look.set(table.look.get() + 1);
                while let Some(slot) = table.take_late() {
                    reader.core.ops.abandon(slot.operation);
                    let (times, answer) = ((slot.begun, timer.now()), Err(LocatedFate::Late));
                    table.end_slot(&slot.read, times, slot.share, answer);
                }
            }
            table.is_watched.set(false);
        });
    }

    /// The bytes of a read, located for `ask`.
    pub(crate) async fn read(
        &self,
        read: LocatedRead,
        ask: impl FnOnce(Rc<dyn ReadTaker>) -> LocatedAsk,
    ) -> IoResult<SharedBuf> {
        let taken = Rc::new(TakenRead::default());
        self.begin(read, ask(taken.clone()));
        taken.result().await
    }
}

impl SlotShare {
    #[inline]
    fn ask(&self) -> &LocatedAsk {
        match self {
            SlotShare::All(ask) => ask,
            SlotShare::Part(parted, _) => &parted.ask,
        }
    }
}

impl LocatedAsk {
    /// Counts the end of a slot, which at `ended` has ended the request.
    #[inline]
    fn count(&self, mut end: LocatedEnd, ended: Option<Nanos>) {
        end.request = ended.map(|now| LocatedRequest {
            sectors: Sectors(u64::from(self.asked.len) / SECTOR_BYTES),
            time: now.since(self.begun),
        });
        self.gate.count(&self.asked, &end, self.is_kept);
    }

    /// Gives the bytes asked for, `skip` bytes into `blocks`, to the taker.
    #[inline]
    fn take(&self, blocks: Option<Buf>, skip: u32) {
        let (gate, taker) = (&self.gate, self.taker.clone());
        let Some(blocks) = blocks else {
            return gate.clone().read_otherwise(self.asked, taker);
        };
        let (data, skip, len) = (blocks.share(), skip as usize, self.asked.len as usize);
        let data = match data.len() == len {
            true => data,
            false => data.slice(skip..skip + len),
        };
        taker.take_read(&self.asked, Ok(data));
    }
}

impl PartedRead {
    /// Ends the request, all slots of which have ended.
    fn end(&self, now: Nanos, pool: &Pool) {
        let ends: Vec<_> = self.ends.take().into_iter().flatten().collect();
        let is_whole = ends.iter().all(|(buf, _)| buf.is_some());
        let mut bufs = Vec::with_capacity(ends.len());
        for (buf, end) in ends {
            let is_first = is_whole && bufs.is_empty();
            self.ask.count(end, is_first.then_some(now));
            bufs.extend(buf);
        }
        let blocks = is_whole.then(|| Buf::join(bufs, pool));
        self.ask.take(blocks, self.skip);
    }
}

/// A gate of this shard, whose located reads go straight to the disk. All else goes through the
/// gate. Clones are the same.
pub struct LocatingGate<D: Driver, G>(Rc<LocatingShared<D, G>>);

struct LocatingShared<D: Driver, G> {
    gate: G,
    generations: Option<Arc<Generations>>,
    reader: LocatedReader<D>,
}

impl<D: Driver, G> Clone for LocatingGate<D, G> {
    fn clone(&self) -> LocatingGate<D, G> {
        LocatingGate(self.0.clone())
    }
}

impl<D: Driver, G: Boundary> LocatingGate<D, G> {
    /// Serves `gate`, of a device on the shard of `local`.
    pub fn new(gate: G, local: &Local<D>) -> LocatingGate<D, G> {
        LocatingGate(Rc::new(LocatingShared {
            generations: gate.generations(),
            gate,
            reader: LocatedReader::of(local),
        }))
    }

    /// The gate.
    pub fn gate(&self) -> &G {
        &self.0.gate
    }

    #[inline]
    fn locate(&self, offset: u64, len: usize) -> Option<LocatedRead> {
        self.0.generations.as_ref()?;
        self.0.gate.locate(offset, len)
    }

    #[inline]
    fn ask(&self, asked: AskedRead, taker: Rc<dyn ReadTaker>) -> LocatedAsk {
        LocatedAsk {
            asked,
            begun: self.0.reader.now(),
            is_kept: false,
            gate: self.0.clone(),
            taker,
        }
    }
}

impl<D: Driver, G: Boundary> LocatedGate for LocatingShared<D, G> {
    #[inline]
    fn generations(&self) -> &Generations {
        self.generations.as_ref().expect("reads are located")
    }

    #[inline]
    fn count(&self, _: &AskedRead, end: &LocatedEnd, _: bool) {
        self.gate.located(end);
    }

    fn read_otherwise(self: Rc<Self>, asked: AskedRead, taker: Rc<dyn ReadTaker>) {
        let reader = self.reader.clone();
        reader.spawn(async move {
            let read = self.gate.read(asked.offset, asked.len as usize);
            taker.take_read(&asked, read.await);
        });
    }
}

impl<D: Driver, G: Boundary> Boundary for LocatingGate<D, G> {
    fn geometry(&self) -> &Geometry {
        self.0.gate.geometry()
    }

    fn flush_errors(&self) -> &Arc<FlushErrors> {
        self.0.gate.flush_errors()
    }

    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        if let Some(read) = self.locate(offset, len) {
            let ask = |taker| self.ask(AskedRead::of(offset, len), taker);
            return self.0.reader.read(read, ask).await;
        }
        // A read that is not located is rare, or slow.
        Box::pin(self.0.gate.read(offset, len)).await
    }

    #[inline]
    fn begin_read(&self, asked: AskedRead, taker: Rc<dyn ReadTaker>) -> bool {
        let Some(read) = self.locate(asked.offset, asked.len as usize) else {
            return false;
        };
        let ask = self.ask(asked, taker);
        self.0.reader.begin(read, ask);
        true
    }

    fn write(&self, at: u64, data: SharedBuf, fua: Fua) -> impl Future<Output = IoResult> {
        self.0.gate.write(at, data, fua)
    }

    fn zero(&self, offset: u64, len: u64) -> impl Future<Output = IoResult> {
        self.0.gate.zero(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> impl Future<Output = IoResult> {
        self.0.gate.discard(offset, len)
    }

    fn flush(&self) -> impl Future<Output = IoResult> {
        self.0.gate.flush()
    }

    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.0.gate.extents(offset, len, out).await
    }

    fn announce(&self, offset: u64, len: u64) -> impl Future<Output = ()> {
        self.0.gate.announce(offset, len)
    }
}
