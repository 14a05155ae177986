//! A device in memory that takes its time, sound or with one flaw.

use crate::conformance::rng::SuiteRng;
use crate::{
    Buf, Content, Device, Env, Extent, Fua, Geometry, IoResult, Lba, Nanos, SECTOR_BYTES, Sectors,
    SharedBuf,
};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A write is torn inside sectors, as by the page cache.
const TORN_BYTES: usize = 240;

/// The fault of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    None,
    LosesAWrite,
    MisplacesByOneSector,
    LeaksABuffer,
    GapInExtents,
    CallsDataAHole,
    ClearsBeforeWriting,
    IgnoresBounds,
    IgnoresAlignment,
    ZeroesTooLittle,
    ZeroesAfterAnswering,
    ReturnsAnotherBuffer,
    KeepsWrittenData,
    LandsTwice,
    StartsUnpolled,
}

#[derive(Clone)]
pub(super) struct Memory {
    geometry: Geometry,
    env: Env,
    disk: Rc<Disk>,
}

struct Disk {
    bytes: RefCell<Vec<u8>>,
    rng: RefCell<SuiteRng>,
    writes: Cell<u64>,
    kept: RefCell<Vec<SharedBuf>>,
    flaw: Flaw,
}

impl Memory {
    pub(super) fn new(env: &Env, mib: u64, block: u64, flaw: Flaw) -> Memory {
        let sectors = Sectors::from_mib(mib);
        Memory {
            geometry: Geometry::new("memory", sectors, Sectors(block)),
            env: env.clone(),
            disk: Rc::new(Disk {
                bytes: RefCell::new(vec![0x77; sectors.bytes() as usize]),
                rng: RefCell::new(SuiteRng::new(1)),
                writes: Cell::new(0),
                kept: RefCell::default(),
                flaw,
            }),
        }
    }

    fn flawed(&self, flaw: Flaw) -> bool {
        self.disk.flaw == flaw
    }

    /// Runs `work` after a while, with or without a waiter.
    fn begin<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = T> {
        let slot = Rc::new(RefCell::new((None::<T>, None::<Waker>)));
        let (timer, delay) = (self.env.timer.clone(), self.disk.rng.borrow_mut().below(90));
        let (filled, leaks) = (slot.clone(), self.flawed(Flaw::LeaksABuffer));
        self.env.spawn.spawn(async move {
            timer.sleep(Nanos::from_micros(10 + delay)).await;
            let value = work.await;
            if leaks && Rc::strong_count(&filled) == 1 {
                return std::mem::forget(value);
            }
            let mut slot = filled.borrow_mut();
            slot.0 = Some(value);
            if let Some(waker) = slot.1.take() {
                waker.wake();
            }
        });
        poll_fn(move |cx| {
            let mut slot = slot.borrow_mut();
            match slot.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    slot.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    }

    fn transfer(&self, at: Lba, bytes: usize) -> IoResult<Range<usize>> {
        let start = at.0.wrapping_mul(SECTOR_BYTES) as usize;
        let fits = start
            .checked_add(bytes)
            .is_some_and(|end| end <= self.disk.bytes.borrow().len());
        let lenient = match self.disk.flaw {
            Flaw::IgnoresBounds => at.0.is_multiple_of(self.geometry.block.0) && bytes > 0,
            Flaw::IgnoresAlignment => fits && bytes > 0,
            _ => false,
        };
        if !lenient {
            self.geometry.transfer(at, bytes)?;
        }
        let end = self.disk.bytes.borrow().len();
        Ok(start.min(end)..start.saturating_add(bytes).min(end))
    }

    fn put(&self, range: Range<usize>, data: SharedBuf) -> impl Future<Output = ()> + use<> {
        let mut start = range.start;
        let writes = self.disk.writes.replace(self.disk.writes.get() + 1);
        if self.flawed(Flaw::MisplacesByOneSector) && writes % 50 == 49 {
            start = start.saturating_sub(512);
        }
        if self.flawed(Flaw::KeepsWrittenData) && data.len() <= 4096 {
            self.disk.kept.borrow_mut().push(data.clone());
        }
        let lost = self.flawed(Flaw::LosesAWrite) && writes % 50 == 49;
        let (disk, timer) = (self.disk.clone(), self.env.timer.clone());
        async move {
            let data = &data[..range.len().min(data.len())];
            for (i, piece) in data.chunks(TORN_BYTES).enumerate() {
                let at = start + i * TORN_BYTES;
                if disk.flaw == Flaw::ClearsBeforeWriting {
                    disk.bytes.borrow_mut()[at..at + piece.len()].fill(0);
                    timer.sleep(Nanos(500)).await;
                }
                if !lost {
                    disk.bytes.borrow_mut()[at..at + piece.len()].copy_from_slice(piece);
                }
                timer.sleep(Nanos(500)).await;
            }
        }
    }

    fn wipe(&self, extent: Extent, byte: u8) -> IoResult<impl Future<Output = ()> + use<>> {
        let bytes = extent.len.0.saturating_mul(SECTOR_BYTES) as usize;
        let mut range = self.transfer(extent.start, bytes)?;
        if self.flawed(Flaw::ZeroesTooLittle) && range.len() > 4096 {
            range.end -= 512;
        }
        let disk = self.disk.clone();
        Ok(async move { disk.bytes.borrow_mut()[range].fill(byte) })
    }
}

impl Device for Memory {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Lba, mut buf: Buf) -> (Buf, IoResult) {
        let range = match self.transfer(at, buf.len()) {
            Ok(range) => range,
            Err(error) => return (buf, Err(error)),
        };
        if self.flawed(Flaw::ReturnsAnotherBuffer)
            && let Some(other) = self.env.pool.try_get(buf.len())
        {
            buf = other;
        }
        let disk = self.disk.clone();
        let work = self.begin(async move {
            buf[..range.len()].copy_from_slice(&disk.bytes.borrow()[range]);
            buf
        });
        (work.await, Ok(()))
    }

    fn write(&self, at: Lba, data: SharedBuf, _fua: Fua) -> impl Future<Output = IoResult> {
        let begin = move || {
            let range = self.transfer(at, data.len())?;
            if self.flawed(Flaw::LandsTwice) {
                let (again, timer) = (self.put(range.clone(), data.clone()), &self.env.timer);
                let later = timer.sleep(Nanos::from_millis(1));
                drop(self.begin(async move {
                    later.await;
                    again.await;
                }));
            }
            Ok(self.begin(self.put(range, data)))
        };
        let (early, late) = match self.flawed(Flaw::StartsUnpolled) {
            true => (Some(begin()), None),
            false => (None, Some(begin)),
        };
        async move {
            let begun = early.or_else(|| late.map(|begin| begin()));
            begun.expect("early or late")?.await;
            Ok(())
        }
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let work = self.wipe(extent, 0)?;
        let done = self.begin(work);
        if !self.flawed(Flaw::ZeroesAfterAnswering) {
            done.await;
        }
        Ok(())
    }

    async fn flush(&self) -> IoResult {
        self.begin(async {}).await;
        Ok(())
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let work = self.wipe(extent, 0xd1)?;
        self.begin(work).await;
        Ok(())
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.transfer(
            extent.start,
            extent.len.0.saturating_mul(SECTOR_BYTES) as usize,
        )?;
        let bytes = self.disk.bytes.borrow();
        let block = self.geometry.block;
        let (mut at, first) = (extent.start, out.len());
        while at < extent.end() {
            let range = at.byte() as usize..(at + block).byte() as usize;
            let data = bytes.get(range).is_some_and(|b| b.iter().any(|&b| b != 0));
            let hole = !data || self.flawed(Flaw::CallsDataAHole);
            let content = if hole { Content::Hole } else { Content::Data };
            let gap = self.flawed(Flaw::GapInExtents) && at > extent.start;
            match out[first..].last_mut() {
                Some((run, c)) if *c == content && run.end() == at => run.len += block,
                _ if gap && content == Content::Hole => {}
                _ => out.push((Extent::new(at, block), content)),
            }
            at = at + block;
        }
        Ok(())
    }
}
