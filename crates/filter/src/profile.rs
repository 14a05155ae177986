//! A device whose reads and writes are profiled: how large a cache of it should
//! be, and which parts of it are hot.
//!
//! Costs some dozen instructions for each line that a request touches (the
//! example `profiled` counts them) and at most a mebibyte. No request reads the
//! clock: [`Profiled::tick`] tells the time.

use block::{
    Buf, Content, Device, Extent, Fua, Geometry, IoResult, Lba, Nanos, SECTOR_BYTES, Shared,
};
use policy::Op;
use policy::profile::{Profile, Profiler, blocks, part_bytes};
use policy::regions::Regions;
use std::cell::RefCell;
use std::rc::Rc;

/// Each of the profiler's four samples follows one line in so many: fewer of a
/// large volume, for which they do, more of a small one.
const ONE_IN: (u64, u64) = (4, 16);
/// Lines of a volume for each step between these.
const LINES_PER_STEP: u64 = 1024;

/// The device `D`, profiled; clones are the same device.
pub struct Profiled<D> {
    inner: D,
    state: Rc<RefCell<State>>,
}

struct State {
    profiler: Profiler,
    regions: Regions,
    /// Sectors of a line, as a power of two.
    line: u32,
    /// Sectors of a part of a line that is told apart, as a power of two.
    part: u32,
}

impl<D: Clone> Clone for Profiled<D> {
    fn clone(&self) -> Self {
        Profiled {
            inner: self.inner.clone(),
            state: self.state.clone(),
        }
    }
}

impl<D: Device> Profiled<D> {
    /// Profiles `inner` in lines of `line_bytes`, a power of two from 4 KiB on.
    pub fn new(inner: D, line_bytes: u32, now: Nanos) -> Profiled<D> {
        let line_sectors = u64::from(line_bytes) / SECTOR_BYTES;
        let lines = inner.geometry().sectors.0.div_ceil(line_sectors);
        let one_in = (lines / LINES_PER_STEP).clamp(ONE_IN.0, ONE_IN.1) as u32;
        let part_sectors = part_bytes(u64::from(line_bytes)) / SECTOR_BYTES;
        let mut state = State {
            profiler: Profiler::new(u64::from(line_bytes), one_in),
            regions: Regions::new(lines),
            line: line_sectors.ilog2(),
            part: part_sectors.ilog2(),
        };
        state.tick(now);
        Profiled {
            inner,
            state: Rc::new(RefCell::new(state)),
        }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Tells the time, such as once a second.
    pub fn tick(&self, now: Nanos) {
        self.state.borrow_mut().tick(now);
    }

    /// What is known of the requests by now.
    pub fn profile(&self) -> Profile {
        self.state.borrow().profiler.profile()
    }

    /// Which parts are hot.
    pub fn regions(&self) -> Regions {
        self.state.borrow().regions.clone()
    }

    /// Memory held, in bytes.
    pub fn state_bytes(&self) -> usize {
        let state = self.state.borrow();
        state.profiler.state_bytes() + state.regions.state_bytes()
    }
}

impl State {
    fn tick(&mut self, now: Nanos) {
        self.profiler.tick(now);
        self.regions.tick(now);
    }

    #[inline]
    fn access(&mut self, at: Lba, bytes: usize, op: Op) {
        if bytes == 0 {
            return;
        }
        // A request beyond all addresses is refused below.
        let Some(last) = at.0.checked_add((bytes as u64 - 1) / SECTOR_BYTES) else {
            return;
        };
        for line in at.0 >> self.line..=last >> self.line {
            let start = line << self.line;
            let first = (at.0.max(start) - start) >> self.part;
            let end = (last.min(start + ((1 << self.line) - 1)) - start) >> self.part;
            self.profiler.access(line, blocks(first, end), op);
            self.regions.access(line, op);
        }
    }
}

impl<D: Device> Device for Profiled<D> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        self.state.borrow_mut().access(at, buf.len(), Op::Read);
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, data: Shared, fua: Fua) -> impl Future<Output = IoResult> {
        self.state.borrow_mut().access(at, data.len(), Op::Write);
        self.inner.write(at, data, fua)
    }

    fn zero(&self, extent: Extent) -> impl Future<Output = IoResult> {
        self.inner.zero(extent)
    }

    fn flush(&self) -> impl Future<Output = IoResult> {
        self.inner.flush()
    }

    fn discard(&self, extent: Extent) -> impl Future<Output = IoResult> {
        self.inner.discard(extent)
    }

    fn extents(
        &self,
        extent: Extent,
        out: &mut Vec<(Extent, Content)>,
    ) -> impl Future<Output = IoResult> {
        self.inner.extents(extent, out)
    }
}
