//! A simulated disk: the effect of operations, with the faults that strike.
//!
//! An operation takes effect when it completes; a read meanwhile sees the old or
//! the new bytes of a write in flight, block by block.
//!
//! Not here: the times at which operations complete (`world` asks the service time), the
//! volatile cache (`contents`).

use crate::contents::{DiskContents, Survival, survive_partly};
use crate::fault::{ActiveRule, Domain, FaultClass, FaultStrike, elsewhere};
use crate::flight::{FlightId, SimOperation, SimOperations};
use crate::ledger::BufferLedger;
use crate::medium::Medium;
use crate::operation::extent_of;
use crate::pages::{PageMap, PagePiece};
use crate::rng::SimRng;
use crate::service::{ServiceSpan, ServiceTime};
use crate::verb::SimVerb;
use block::{
    Buf, DriverOp, Extent, Fua, Geometry, IoErrorKind, IoResult, Lba, Nanos, Payload, SECTOR_BYTES,
    Sectors, TargetId,
};
use rangemap::RangeSet;

/// Contents of a disk: kept or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// The disk keeps its bytes, sparsely.
    Bytes,
    /// The disk reads as zeroes after any write: for runs too large for memory.
    Nothing,
}

/// A disk to be.
#[derive(Clone, Debug)]
pub struct DiskSpec {
    /// Shape of the disk. A disk that is not `volatile` makes every write durable.
    pub geometry: Geometry,
    /// Service time of operations.
    pub service: ServiceTime,
    /// Contents: kept or not.
    pub keep: Keep,
    /// Power domain of the disk.
    pub domain: Domain,
    /// Number of 4 KiB pages that the volatile cache holds before the oldest become durable.
    pub cache_pages_max: usize,
}

impl DiskSpec {
    /// A disk that keeps bytes, with a volatile cache of 16 MiB and operations of
    /// 50 to 150 microseconds.
    pub fn new(geometry: Geometry) -> DiskSpec {
        let span = ServiceSpan {
            min: Nanos::from_micros(50),
            max: Nanos::from_micros(150),
        };
        DiskSpec {
            geometry,
            service: ServiceTime::uniform(span),
            keep: Keep::Bytes,
            domain: Domain(0),
            cache_pages_max: 4096,
        }
    }
}

pub(crate) struct SimDisk {
    pub target: TargetId,
    pub geometry: Geometry,
    pub service: ServiceTime,
    pub domain: Domain,
    pub contents: Option<Medium>,
    pub rules: Vec<ActiveRule>,
    /// Sectors that cannot be read.
    pub latent: RangeSet<u64>,
    pub powered: bool,
    pub plugged: bool,
    /// Writes in flight, kept only for disks with contents.
    pub writing: Vec<FlightId>,
    /// Operations that wait for a release.
    pub stuck: Vec<FlightId>,
    /// Every operation waits for a release.
    pub hung: bool,
    /// Another host has the disk: changes by this target are refused.
    pub reserved_elsewhere: bool,
    /// The next flush fails, for writes were lost.
    pub lost_writes: bool,
    /// Count of writes submitted while another over the same sectors was in flight.
    pub overlaps: u64,
}

impl SimDisk {
    pub fn new(target: TargetId, spec: DiskSpec) -> SimDisk {
        let contents = match spec.keep {
            Keep::Bytes => {
                let contents = DiskContents::new(spec.geometry.block, spec.cache_pages_max);
                Some(Medium::new(contents))
            }
            Keep::Nothing => None,
        };
        SimDisk::with(target, spec.geometry, spec.service, spec.domain, contents)
    }

    /// The disk after it is plugged in again, under another target.
    pub fn again(&self, target: TargetId) -> SimDisk {
        let contents = self.contents.clone();
        SimDisk::with(
            target,
            self.geometry.clone(),
            self.service,
            self.domain,
            contents,
        )
    }

    fn with(
        target: TargetId,
        geometry: Geometry,
        service: ServiceTime,
        domain: Domain,
        contents: Option<Medium>,
    ) -> SimDisk {
        SimDisk {
            target,
            geometry,
            service,
            domain,
            contents,
            rules: Vec::new(),
            latent: RangeSet::new(),
            powered: true,
            plugged: true,
            writing: Vec::new(),
            stuck: Vec::new(),
            hung: false,
            reserved_elsewhere: false,
            lost_writes: false,
            overlaps: 0,
        }
    }

    /// True if the disk answers.
    pub fn is_up(&self) -> bool {
        self.powered && self.plugged
    }

    /// The sectors of `op`, checked.
    #[inline]
    pub fn check(&self, op: &DriverOp) -> IoResult<Extent> {
        let geometry = &self.geometry;
        let is_change = matches!(
            op,
            DriverOp::Write(..) | DriverOp::Zero(_) | DriverOp::Discard(_)
        );
        if is_change && self.reserved_elsewhere {
            return Err(geometry.error(IoErrorKind::Reserved, "is reserved by another host"));
        }
        let checked = |extent: Extent| geometry.check(extent).map(|()| extent);
        match op {
            DriverOp::Read(at, buf) => geometry.transfer(*at, buf.len()),
            DriverOp::Write(at, data, _) => geometry.transfer(*at, data.len()),
            DriverOp::Zero(extent) | DriverOp::Discard(extent) => checked(*extent),
            DriverOp::Flush => Ok(geometry.extent()),
            _ => Err(geometry.error(IoErrorKind::Invalid, "a stream operation on a disk")),
        }
    }

    /// The fault plan's strike on an operation that begins now.
    #[inline]
    pub fn judge(
        &mut self,
        verb: SimVerb,
        op: &DriverOp,
        extent: Extent,
        rng: &mut SimRng,
    ) -> FaultStrike {
        let mut strike = FaultStrike::NONE;
        let fua = matches!(op, DriverOp::Write(_, _, Fua::Yes));
        for rule in &mut self.rules {
            rule.judge(verb, fua, extent, rng, &mut strike);
        }
        strike
    }

    /// Notes a write that begins, and counts an overlap with another in flight.
    pub fn begin_write(&mut self, id: FlightId, extent: Extent, flights: &SimOperations) {
        if self.contents.is_none() {
            return;
        }
        let overlaps = |other: &FlightId| {
            let flight = flights.get(*other);
            flight.is_some_and(|f| extent_of(&f.op).overlaps(extent))
        };
        self.overlaps += u64::from(self.writing.iter().any(overlaps));
        self.writing.push(id);
    }

    /// Notes the end of an operation, if it was a write.
    #[inline]
    pub fn end_write(&mut self, id: FlightId) {
        if let Some(index) = self.writing.iter().position(|w| *w == id) {
            self.writing.swap_remove(index);
        }
    }

    /// Carries out an operation that completes now.
    #[inline]
    pub fn perform(
        &mut self,
        flight: SimOperation,
        flights: &SimOperations,
        ledger: &mut BufferLedger,
    ) -> (IoResult<u64>, Payload) {
        let strike = flight.strike;
        if strike == FaultStrike::NONE && self.contents.is_none() && self.latent.is_empty() {
            return match flight.op {
                DriverOp::Read(_, mut buf) => {
                    buf.fill(0);
                    (Ok(0), Payload::Buf(buf))
                }
                _ => (Ok(0), Payload::None),
            };
        }
        match flight.op {
            DriverOp::Read(at, mut buf) => {
                let result = self.read(at, &mut buf, strike, flights, ledger);
                (result.map(|()| 0), Payload::Buf(buf))
            }
            DriverOp::Write(at, data, fua) => {
                let extent = Extent::new(at, Sectors(data.len() as u64 / SECTOR_BYTES));
                let result = self.write(extent, Some(&data), fua, strike, ledger);
                (result.map(|()| 0), Payload::None)
            }
            DriverOp::Zero(extent) => {
                let result = self.write(extent, None, Fua::No, strike, ledger);
                (result.map(|()| 0), Payload::None)
            }
            DriverOp::Discard(extent) => {
                let result = self.discard(extent, strike, ledger);
                (result.map(|()| 0), Payload::None)
            }
            _ => {
                let result = self.flush(flight.covers, strike, ledger);
                (result.map(|()| 0), Payload::None)
            }
        }
    }

    fn read(
        &mut self,
        at: Lba,
        buf: &mut Buf,
        strike: FaultStrike,
        flights: &SimOperations,
        ledger: &mut BufferLedger,
    ) -> IoResult {
        let extent = Extent::new(at, Sectors(buf.len() as u64 / SECTOR_BYTES));
        self.fail(strike, extent, ledger)?;
        let range = extent.start.0..extent.end().0;
        if let Some(bad) = self.latent.overlapping(range).next() {
            let len = Sectors(bad.end - bad.start);
            let bad = Extent::new(Lba(bad.start), len).intersect(extent);
            ledger.strike(FaultClass::LatentSector, self.target, bad.start.0);
            let error = self
                .geometry
                .error(IoErrorKind::Media, "an unreadable sector");
            return Err(error.at(bad));
        }
        let Some(contents) = &self.contents else {
            buf.fill(0);
            return Ok(());
        };
        contents.get().read(at, buf);
        for other in self.writing.iter().filter_map(|id| flights.get(*id)) {
            self.mix_in(extent, buf, &other.op, &mut ledger.rng);
        }
        if strike.flip {
            let bit = ledger.rng.below(buf.len() as u64 * 8);
            buf[(bit / 8) as usize] ^= 1 << (bit % 8);
            ledger.strike(
                FaultClass::BitFlip,
                self.target,
                at.0 + bit / 8 / SECTOR_BYTES,
            );
        }
        Ok(())
    }

    /// Mixes a write in flight into a read: of the blocks about to change, the read sees some
    /// already changed.
    fn mix_in(&self, extent: Extent, buf: &mut [u8], write: &DriverOp, rng: &mut SimRng) {
        let both = extent_of(write).intersect(extent);
        let block = self.geometry.block;
        for start in (both.start.0..both.end().0).step_by(block.0 as usize) {
            if rng.below(2) == 0 {
                continue;
            }
            let bytes = block.bytes() as usize;
            let to = Lba(start - extent.start.0).byte() as usize;
            let out = &mut buf[to..to + bytes];
            match write {
                DriverOp::Write(at, data, _) => {
                    let from = Lba(start - at.0).byte() as usize;
                    out.copy_from_slice(&data[from..from + bytes]);
                }
                _ => out.fill(0),
            }
        }
    }

    fn write(
        &mut self,
        extent: Extent,
        data: Option<&[u8]>,
        fua: Fua,
        strike: FaultStrike,
        ledger: &mut BufferLedger,
    ) -> IoResult {
        if let Err(error) = self.fail(strike, extent, ledger) {
            if strike.ruin {
                self.latent.insert(extent.start.0..extent.end().0);
            } else if error.kind().data_may_have_changed() {
                let mut pieces = self.pieces(extent, data);
                survive_partly(&mut pieces, self.geometry.block, true, &mut ledger.rng);
                self.store(pieces, false);
            }
            return Err(error);
        }
        if strike.drop {
            ledger.strike(FaultClass::Dropped, self.target, extent.start.0);
            return Ok(());
        }
        let mut to = extent;
        if strike.misdirect {
            let (whole, block) = (self.geometry.extent(), self.geometry.block.0);
            to.start = elsewhere(extent, whole, block, &mut ledger.rng);
            ledger.strike(FaultClass::Misdirected, self.target, to.start.0);
        }
        self.heal(to);
        let mut pieces = self.pieces(to, data);
        if strike.flip && !pieces.is_empty() {
            self.flip(&mut pieces, ledger);
        }
        let lies = strike.ignore_flush && fua == Fua::Yes;
        if lies {
            ledger.strike(FaultClass::FlushIgnored, self.target, extent.start.0);
        }
        let durable = fua == Fua::Yes && !lies;
        self.store(pieces, durable);
        Ok(())
    }

    fn discard(
        &mut self,
        extent: Extent,
        strike: FaultStrike,
        ledger: &mut BufferLedger,
    ) -> IoResult {
        self.fail(strike, extent, ledger)?;
        // The bytes may read as any value from now on: here as zeroes, or as before.
        if ledger.rng.below(2) == 0 {
            self.heal(extent);
            let pieces = self.pieces(extent, None);
            self.store(pieces, false);
        }
        Ok(())
    }

    fn flush(&mut self, covers: u64, strike: FaultStrike, ledger: &mut BufferLedger) -> IoResult {
        self.fail(strike, self.geometry.extent(), ledger)?;
        if strike.ignore_flush {
            ledger.strike(FaultClass::FlushIgnored, self.target, 0);
        } else if std::mem::take(&mut self.lost_writes) {
            ledger.strike(FaultClass::LossReported, self.target, 0);
            let what = "writes that were acknowledged are lost";
            return Err(self.geometry.error(IoErrorKind::Gone, what));
        } else if let Some(contents) = &self.contents {
            contents.get_mut().flush(covers);
        }
        Ok(())
    }

    fn fail(&self, strike: FaultStrike, extent: Extent, ledger: &mut BufferLedger) -> IoResult {
        let Some(kind) = strike.fail else {
            return Ok(());
        };
        ledger.strike(FaultClass::Error, self.target, extent.start.0);
        Err(self.geometry.error(kind, "an injected fault").at(extent))
    }

    fn flip(&self, pieces: &mut [PagePiece], ledger: &mut BufferLedger) {
        let piece = &mut pieces[ledger.rng.below(pieces.len() as u64) as usize];
        let held: Vec<u64> = (0..8).filter(|i| piece.mask & (1 << i) != 0).collect();
        let sector = held[ledger.rng.below(held.len() as u64) as usize];
        let bit = ledger.rng.below(SECTOR_BYTES * 8);
        let bytes = piece.bytes_mut();
        bytes[(sector * SECTOR_BYTES + bit / 8) as usize] ^= 1 << (bit % 8);
        ledger.strike(FaultClass::BitFlip, self.target, piece.page * 8 + sector);
    }

    fn pieces(&self, extent: Extent, data: Option<&[u8]>) -> Vec<PagePiece> {
        match (&self.contents, data) {
            (None, _) => Vec::new(),
            (Some(_), Some(data)) => PageMap::pieces_of_write(extent.start, data),
            (Some(contents), None) => contents.get().pieces_of_zero(extent),
        }
    }

    fn store(&mut self, pieces: Vec<PagePiece>, durable: bool) {
        if let Some(contents) = &self.contents {
            let durable = durable || !self.geometry.volatile;
            contents.get_mut().write(pieces, durable);
        }
    }

    /// Makes written sectors readable.
    fn heal(&mut self, extent: Extent) {
        if !self.latent.is_empty() {
            self.latent.remove(extent.start.0..extent.end().0);
        }
    }

    /// The disk loses its power with these operations in flight.
    pub fn lose_power(
        &mut self,
        flights: &SimOperations,
        survival: Option<Survival>,
        spoiled: f64,
        ledger: &mut BufferLedger,
    ) {
        let writing = std::mem::take(&mut self.writing);
        self.stuck.clear();
        self.hung = false;
        let ops = writing.iter().filter_map(|id| flights.get(*id));
        let landing = ops
            .filter(|f| !f.strike.drop && f.strike.fail.is_none() && !f.strike.misdirect)
            .map(|f| match &f.op {
                DriverOp::Write(at, data, _) => PageMap::pieces_of_write(*at, data),
                other => self.pieces(extent_of(other), None),
            })
            .collect();
        self.settle(landing, survival, spoiled, ledger);
    }

    /// Loses the volatile writes; the disk continues.
    pub fn forget(&mut self, survival: Option<Survival>, ledger: &mut BufferLedger) {
        ledger.strike(FaultClass::Forgotten, self.target, 0);
        if let Some(contents) = &self.contents {
            self.lost_writes |= contents.get().is_volatile();
        }
        self.settle(Vec::new(), survival, 0.0, ledger);
    }

    fn settle(
        &mut self,
        landing: Vec<Vec<PagePiece>>,
        survival: Option<Survival>,
        spoiled: f64,
        ledger: &mut BufferLedger,
    ) {
        let Some(contents) = &self.contents else {
            return;
        };
        let settled = contents.get_mut().cut(landing, survival, &mut ledger.rng);
        for (class, places) in [
            (FaultClass::CutLost, settled.lost),
            (FaultClass::CutTorn, settled.torn),
            (FaultClass::CutReordered, settled.reordered),
        ] {
            for place in places {
                ledger.strike(class, self.target, place.0);
            }
        }
        for at in settled.taken {
            // No number is drawn if no block can be spoiled.
            if spoiled > 0.0 && ledger.rng.chance(spoiled) {
                self.latent.insert(at.0..(at + self.geometry.block).0);
                ledger.strike(FaultClass::CutSpoiled, self.target, at.0);
            }
        }
    }

    /// Gives the disk another shape from now on; its contents stay.
    pub fn reshape(&mut self, sectors: Sectors, block: Sectors) {
        self.geometry.sectors = sectors;
        self.geometry.block = block;
        if let Some(contents) = &self.contents {
            contents.get_mut().set_block(block);
        }
    }
}
