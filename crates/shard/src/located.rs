//! Reads that the device's shard has located, carried out on this shard.
//!
//! Invariants:
//!     bytes are returned ⟹ each block has its checksum, and no write to its slot was about to begin
//!     before the read ended
//!     a disk does not answer within the limit ⟹ the read is given up
//!
//! Successes are reported to the device's shard, some at a time.

use crate::disk::ShardDisk;
use crate::local::Local;
use block::{
    Deadline, Device, Driver, Env, Generations, LOCATED_BLOCK_BYTES, LocatedEnd, LocatedRead,
    Nanos, SECTOR_BYTES, Sectors, SharedBuf, Signal,
};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Successes that are reported together.
const REPORT_ENDS: usize = 64;
/// The longest time that a success waits for its report.
const REPORT_DELAY: Nanos = Nanos::from_millis(100);

/// A success, with the number of its gate.
pub struct CountedEnd {
    pub(crate) gate: u32,
    pub(crate) end: LocatedEnd,
}

/// The successes that are not reported yet.
#[derive(Default)]
struct UnreportedEnds {
    ends: RefCell<Vec<CountedEnd>>,
    signal: Signal,
    is_over: Cell<bool>,
}

/// The reader of one lane.
pub(crate) struct LocatedReader<D: Driver> {
    local: Local<D>,
    env: Env,
    /// The disks used so far, by number.
    disks: RefCell<Vec<Option<Rc<ShardDisk<D>>>>>,
    unreported: Rc<UnreportedEnds>,
    report: Box<dyn Fn(Vec<CountedEnd>)>,
}

impl<D: Driver> Drop for LocatedReader<D> {
    fn drop(&mut self) {
        self.unreported.is_over.set(true);
        self.unreported.signal.notify();
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
            disks: RefCell::default(),
            unreported: Rc::default(),
            report: Box::new(report),
        });
        let reporting = report_ends(Rc::downgrade(&reader), reader.unreported.clone());
        reader.env.spawn.spawn(reporting);
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
        let disk = self.disk(read)?;
        let begun = self.now();
        let buf = self.env.pool.take(read.bytes());
        let deadline = Deadline::new(&self.env.timer, generations.limit());
        let (buf, result) = deadline.bound(disk.read(read.at, buf)).await?;
        if result.is_err() {
            // Another disk may have the number by now.
            self.disks.borrow_mut()[read.target.0 as usize] = None;
            return None;
        }
        let blocks = buf.chunks_exact(LOCATED_BLOCK_BYTES);
        let is_sound = blocks
            .zip(&read.checksums)
            .all(|(block, checksum)| crc_fast::crc32_iscsi(block) == *checksum);
        if !is_sound || !generations.is_present(read.generation?) {
            return None;
        }
        let (gate, asked) = client;
        let now = self.now();
        let end = LocatedEnd {
            member: read.member,
            disk_sectors: Sectors(read.bytes() as u64 / SECTOR_BYTES),
            disk_time: now.since(begun),
            sectors: Sectors(len as u64 / SECTOR_BYTES),
            time: now.since(asked),
        };
        self.count(CountedEnd { gate, end });
        let (data, skip) = (buf.share(), read.skip as usize);
        Some(match data.len() == len {
            true => data,
            false => data.slice(skip..skip + len),
        })
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

/// Reports successes that are too few for a report of their own, until the reader is gone.
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
