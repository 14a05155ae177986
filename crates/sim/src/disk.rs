//! A simulated disk: the effect of operations, with the faults that strike.
//!
//! An operation takes effect when it completes; a read meanwhile sees the old or
//! the new bytes of a write in flight, block by block.
//!
//! Not here: the times at which operations complete (`world` asks the service time), the
//! volatile cache (`contents`).

use crate::contents::{Contents, Survival, survive_partly};
use crate::fault::{ActiveRule, Class, Domain, Strike, elsewhere};
use crate::flight::{Flight, FlightId, Flights};
use crate::ledger::Ledger;
use crate::medium::Medium;
use crate::operation::extent_of;
use crate::pages::{Pages, Piece};
use crate::rng::Rng;
use crate::service::{Service, Span};
use crate::verb::Verb;
use block::{
    Buf, Extent, Fua, Geometry, IoResult, Kind, Lba, Nanos, Op, Payload, SECTOR_BYTES, Sectors,
    TargetId,
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
    pub service: Service,
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
        let span = Span {
            min: Nanos::from_micros(50),
            max: Nanos::from_micros(150),
        };
        DiskSpec {
            geometry,
            service: Service::uniform(span),
            keep: Keep::Bytes,
            domain: Domain(0),
            cache_pages_max: 4096,
        }
    }
}

pub(crate) struct Disk {
    pub target: TargetId,
    pub geometry: Geometry,
    pub service: Service,
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
    /// The next flush fails, for writes were lost.
    pub lost_writes: bool,
    /// Count of writes submitted while another over the same sectors was in flight.
    pub overlaps: u64,
}

impl Disk {
    pub fn new(target: TargetId, spec: DiskSpec) -> Disk {
        let contents = match spec.keep {
            Keep::Bytes => {
                let contents = Contents::new(spec.geometry.block, spec.cache_pages_max);
                Some(Medium::new(contents))
            }
            Keep::Nothing => None,
        };
        Disk::with(target, spec.geometry, spec.service, spec.domain, contents)
    }

    /// The disk after it is plugged in again, under another target.
    pub fn again(&self, target: TargetId) -> Disk {
        let contents = self.contents.clone();
        Disk::with(
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
        service: Service,
        domain: Domain,
        contents: Option<Medium>,
    ) -> Disk {
        Disk {
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
    pub fn check(&self, op: &Op) -> IoResult<Extent> {
        let geometry = &self.geometry;
        let checked = |extent: Extent| geometry.check(extent).map(|()| extent);
        match op {
            Op::Read(at, buf) => geometry.transfer(*at, buf.len()),
            Op::Write(at, data, _) => geometry.transfer(*at, data.len()),
            Op::Zero(extent) | Op::Discard(extent) => checked(*extent),
            Op::Flush => Ok(geometry.extent()),
            _ => Err(geometry.error(Kind::Invalid, "a stream operation on a disk")),
        }
    }

    /// The fault plan's strike on an operation that begins now.
    #[inline]
    pub fn judge(&mut self, verb: Verb, op: &Op, extent: Extent, rng: &mut Rng) -> Strike {
        let mut strike = Strike::NONE;
        let fua = matches!(op, Op::Write(_, _, Fua::Yes));
        for rule in &mut self.rules {
            rule.judge(verb, fua, extent, rng, &mut strike);
        }
        strike
    }

    /// Notes a write that begins, and counts an overlap with another in flight.
    pub fn begin_write(&mut self, id: FlightId, extent: Extent, flights: &Flights) {
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
        flight: Flight,
        flights: &Flights,
        ledger: &mut Ledger,
    ) -> (IoResult<u64>, Payload) {
        let strike = flight.strike;
        if strike == Strike::NONE && self.contents.is_none() && self.latent.is_empty() {
            return match flight.op {
                Op::Read(_, mut buf) => {
                    buf.fill(0);
                    (Ok(0), Payload::Buf(buf))
                }
                _ => (Ok(0), Payload::None),
            };
        }
        match flight.op {
            Op::Read(at, mut buf) => {
                let result = self.read(at, &mut buf, strike, flights, ledger);
                (result.map(|()| 0), Payload::Buf(buf))
            }
            Op::Write(at, data, fua) => {
                let extent = Extent::new(at, Sectors(data.len() as u64 / SECTOR_BYTES));
                let result = self.write(extent, Some(&data), fua, strike, ledger);
                (result.map(|()| 0), Payload::None)
            }
            Op::Zero(extent) => {
                let result = self.write(extent, None, Fua::No, strike, ledger);
                (result.map(|()| 0), Payload::None)
            }
            Op::Discard(extent) => {
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
        strike: Strike,
        flights: &Flights,
        ledger: &mut Ledger,
    ) -> IoResult {
        let extent = Extent::new(at, Sectors(buf.len() as u64 / SECTOR_BYTES));
        self.fail(strike, extent, ledger)?;
        let range = extent.start.0..extent.end().0;
        if let Some(bad) = self.latent.overlapping(range).next() {
            let len = Sectors(bad.end - bad.start);
            let bad = Extent::new(Lba(bad.start), len).intersect(extent);
            ledger.strike(Class::LatentSector, self.target, bad.start.0);
            let error = self.geometry.error(Kind::Media, "an unreadable sector");
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
            ledger.strike(Class::BitFlip, self.target, at.0 + bit / 8 / SECTOR_BYTES);
        }
        Ok(())
    }

    /// Mixes a write in flight into a read: of the blocks about to change, the read sees some
    /// already changed.
    fn mix_in(&self, extent: Extent, buf: &mut [u8], write: &Op, rng: &mut Rng) {
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
                Op::Write(at, data, _) => {
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
        strike: Strike,
        ledger: &mut Ledger,
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
            ledger.strike(Class::Dropped, self.target, extent.start.0);
            return Ok(());
        }
        let mut to = extent;
        if strike.misdirect {
            let (whole, block) = (self.geometry.extent(), self.geometry.block.0);
            to.start = elsewhere(extent, whole, block, &mut ledger.rng);
            ledger.strike(Class::Misdirected, self.target, to.start.0);
        }
        self.heal(to);
        let mut pieces = self.pieces(to, data);
        if strike.flip && !pieces.is_empty() {
            self.flip(&mut pieces, ledger);
        }
        let lies = strike.ignore_flush && fua == Fua::Yes;
        if lies {
            ledger.strike(Class::FlushIgnored, self.target, extent.start.0);
        }
        let durable = fua == Fua::Yes && !lies;
        self.store(pieces, durable);
        Ok(())
    }

    fn discard(&mut self, extent: Extent, strike: Strike, ledger: &mut Ledger) -> IoResult {
        self.fail(strike, extent, ledger)?;
        // The bytes may read as any value from now on: here as zeroes, or as before.
        if ledger.rng.below(2) == 0 {
            self.heal(extent);
            let pieces = self.pieces(extent, None);
            self.store(pieces, false);
        }
        Ok(())
    }

    fn flush(&mut self, covers: u64, strike: Strike, ledger: &mut Ledger) -> IoResult {
        self.fail(strike, self.geometry.extent(), ledger)?;
        if strike.ignore_flush {
            ledger.strike(Class::FlushIgnored, self.target, 0);
        } else if std::mem::take(&mut self.lost_writes) {
            ledger.strike(Class::LossReported, self.target, 0);
            let what = "writes that were acknowledged are lost";
            return Err(self.geometry.error(Kind::Gone, what));
        } else if let Some(contents) = &self.contents {
            contents.get_mut().flush(covers);
        }
        Ok(())
    }

    fn fail(&self, strike: Strike, extent: Extent, ledger: &mut Ledger) -> IoResult {
        let Some(kind) = strike.fail else {
            return Ok(());
        };
        ledger.strike(Class::Error, self.target, extent.start.0);
        Err(self.geometry.error(kind, "an injected fault").at(extent))
    }

    fn flip(&self, pieces: &mut [Piece], ledger: &mut Ledger) {
        let piece = &mut pieces[ledger.rng.below(pieces.len() as u64) as usize];
        let held: Vec<u64> = (0..8).filter(|i| piece.mask & (1 << i) != 0).collect();
        let sector = held[ledger.rng.below(held.len() as u64) as usize];
        let bit = ledger.rng.below(SECTOR_BYTES * 8);
        let bytes = piece.bytes_mut();
        bytes[(sector * SECTOR_BYTES + bit / 8) as usize] ^= 1 << (bit % 8);
        ledger.strike(Class::BitFlip, self.target, piece.page * 8 + sector);
    }

    fn pieces(&self, extent: Extent, data: Option<&[u8]>) -> Vec<Piece> {
        match (&self.contents, data) {
            (None, _) => Vec::new(),
            (Some(_), Some(data)) => Pages::pieces_of_write(extent.start, data),
            (Some(contents), None) => contents.get().pieces_of_zero(extent),
        }
    }

    fn store(&mut self, pieces: Vec<Piece>, durable: bool) {
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
        flights: &Flights,
        survival: Option<Survival>,
        spoiled: f64,
        ledger: &mut Ledger,
    ) {
        let writing = std::mem::take(&mut self.writing);
        self.stuck.clear();
        self.hung = false;
        let ops = writing.iter().filter_map(|id| flights.get(*id));
        let landing = ops
            .filter(|f| !f.strike.drop && f.strike.fail.is_none() && !f.strike.misdirect)
            .map(|f| match &f.op {
                Op::Write(at, data, _) => Pages::pieces_of_write(*at, data),
                other => self.pieces(extent_of(other), None),
            })
            .collect();
        self.settle(landing, survival, spoiled, ledger);
    }

    /// Loses the volatile writes; the disk continues.
    pub fn forget(&mut self, survival: Option<Survival>, ledger: &mut Ledger) {
        ledger.strike(Class::Forgotten, self.target, 0);
        if let Some(contents) = &self.contents {
            self.lost_writes |= contents.get().is_volatile();
        }
        self.settle(Vec::new(), survival, 0.0, ledger);
    }

    fn settle(
        &mut self,
        landing: Vec<Vec<Piece>>,
        survival: Option<Survival>,
        spoiled: f64,
        ledger: &mut Ledger,
    ) {
        let Some(contents) = &self.contents else {
            return;
        };
        let settled = contents.get_mut().cut(landing, survival, &mut ledger.rng);
        for (class, places) in [
            (Class::CutLost, settled.lost),
            (Class::CutTorn, settled.torn),
            (Class::CutReordered, settled.reordered),
        ] {
            for place in places {
                ledger.strike(class, self.target, place.0);
            }
        }
        for at in settled.taken {
            // No number is drawn if no block can be spoiled.
            if spoiled > 0.0 && ledger.rng.chance(spoiled) {
                self.latent.insert(at.0..(at + self.geometry.block).0);
                ledger.strike(Class::CutSpoiled, self.target, at.0);
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
