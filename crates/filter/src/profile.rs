//! Profiles the requests of a device: the best size of a cache, the hot regions, and the pattern of
//! writes and flushes.
//!
//! Cost: some dozen instructions for each line that a request touches (the example `profiled`
//! counts them) and at most a mebibyte. No request reads the clock: [`Profiling::tick`] passes the
//! time.

use crate::access::{AccessVerb, RawAccess};
use crate::watch::RequestObserver;
use block::{Extent, Fua, Nanos, SECTOR_BYTES, Sectors};
use policy::PolicyOp;
use policy::profile::{Profile, Profiler, blocks, part_bytes};
use policy::regions::PolicyRegions;
use policy::written::{WriteGatherer, WrittenFigures};
use std::cell::RefCell;

/// Rate of each of the profiler's four samples, one line in so many: sparse for a large volume, for
/// which that suffices, dense for a small one.
const ONE_IN: (u64, u64) = (4, 16);
/// Lines of a volume for each step between these.
const LINES_PER_STEP: u64 = 1024;

/// The profile of a device's requests.
pub struct Profiling(RefCell<ProfileState>);

struct ProfileState {
    profiler: Profiler,
    regions: PolicyRegions,
    writes: WriteGatherer,
    /// Returns true for a request of a stream, which no cache keeps.
    is_streamed: Option<Box<dyn Fn(Extent) -> bool>>,
    /// Sectors of a line, as a power of two.
    line: u32,
    /// Sectors of a part of a line that is distinguished, as a power of two.
    part: u32,
}

impl Profiling {
    /// Profiles a device of `sectors`, in lines of `line_bytes`, a power of two from 4 KiB on.
    pub fn new(sectors: Sectors, line_bytes: u32, now: Nanos) -> Profiling {
        let line_sectors = u64::from(line_bytes) / SECTOR_BYTES;
        let lines = sectors.0.div_ceil(line_sectors);
        let one_in = (lines / LINES_PER_STEP).clamp(ONE_IN.0, ONE_IN.1) as u32;
        let part_sectors = part_bytes(u64::from(line_bytes)) / SECTOR_BYTES;
        let mut state = ProfileState {
            profiler: Profiler::new(u64::from(line_bytes), one_in),
            regions: PolicyRegions::new(lines),
            writes: WriteGatherer::default(),
            is_streamed: None,
            line: line_sectors.ilog2(),
            part: part_sectors.ilog2(),
        };
        state.tick(now);
        Profiling(RefCell::new(state))
    }

    /// Leaves requests out that are part of a stream, which no cache keeps, of any size.
    pub fn leave_out(&self, is_streamed: impl Fn(Extent) -> bool + 'static) {
        self.0.borrow_mut().is_streamed = Some(Box::new(is_streamed));
    }

    /// Counts reads of `extent`, one right after the other.
    pub fn reads(&self, extent: Extent, times: u32) {
        self.0.borrow_mut().access(extent, PolicyOp::Read, times);
    }

    /// Passes the time, such as once a second.
    pub fn tick(&self, now: Nanos) {
        self.0.borrow_mut().tick(now);
    }

    /// Returns the profile of the requests by now.
    pub fn profile(&self) -> Profile {
        self.0.borrow().profiler.profile()
    }

    /// Returns the pattern of writes and flushes by now.
    pub fn written(&self) -> WrittenFigures {
        self.0.borrow().writes.written()
    }

    /// Returns the hot regions.
    pub fn regions(&self) -> PolicyRegions {
        self.0.borrow().regions.clone()
    }

    /// Returns the memory held, in bytes.
    pub fn state_bytes(&self) -> usize {
        let state = self.0.borrow();
        let written = state.writes.state_bytes();
        state.profiler.state_bytes() + state.regions.state_bytes() + written
    }
}

impl ProfileState {
    fn tick(&mut self, now: Nanos) {
        self.profiler.tick(now);
        self.regions.tick(now);
        self.writes.tick(now);
    }

    #[inline]
    fn access(&mut self, extent: Extent, op: PolicyOp, times: u32) {
        if extent.len.0 == 0 || times == 0 {
            return;
        }
        // A request beyond all addresses is refused below.
        let Some(last) = extent.start.0.checked_add(extent.len.0 - 1) else {
            return;
        };
        let is_streamed = self.is_streamed.as_ref();
        let is_streamed = is_streamed.is_some_and(|is_streamed| is_streamed(extent));
        for line in extent.start.0 >> self.line..=last >> self.line {
            let start = line << self.line;
            let first = (extent.start.0.max(start) - start) >> self.part;
            let end = (last.min(start + ((1 << self.line) - 1)) - start) >> self.part;
            if !is_streamed {
                let blocks = blocks(first, end);
                self.profiler.access(line, blocks, op);
                if times > 1 {
                    self.profiler.read_again(blocks, u64::from(times - 1));
                }
            }
            self.regions.accesses(line, op, times);
        }
    }
}

impl RequestObserver for Profiling {
    #[inline]
    fn begin(&self, _: Nanos, access: &RawAccess) {
        let mut state = self.0.borrow_mut();
        match access.verb {
            AccessVerb::Read => state.access(access.extent, PolicyOp::Read, 1),
            AccessVerb::Write => {
                state.access(access.extent, PolicyOp::Write, 1);
                let bytes = access.extent.len.0.saturating_mul(SECTOR_BYTES);
                state.writes.write(bytes, access.fua == Fua::Yes);
            }
            AccessVerb::Flush => state.writes.flush(),
            AccessVerb::Zero | AccessVerb::Discard | AccessVerb::Extents => {}
        }
    }
}
