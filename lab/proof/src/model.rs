//! The reference of a volume: the bytes that it may return, over losses of power.
//!
//! For each sector the reference keeps the values that the last acknowledged write left and the
//! values that may be durable. The reference knows no caches, lines or devices, and shares no code
//! with the engine.
//!
//! - A read returns the last acknowledged write.
//! - A write that failed, or was cut off, may have landed or not. A read decides that for good. A
//!   write that may land later may land until the daemon ends.
//! - When the origin loses power, each sector goes back to its durable value or to any write since
//!   then.
//! - A flush makes the writes durable that were acknowledged before the flush began. A write with
//!   forced unit access is durable when acknowledged.
//! - An origin that forgets while the daemon runs does the same unseen. Until a client's flush has
//!   failed for that loss, either value may be read, and no flush may succeed. From then on, as
//!   after an invalidation when others have changed the origin, reads return the origin's bytes.

mod sector;
mod space;

pub use space::Space;

use crate::stamp::{self, ANYTHING, Value};
use sector::{EndedWrite, ModelSector};
use std::ops::Range;

struct ModelRead {
    id: u64,
    sectors: Range<u64>,
    seen: Vec<SectorChoices>,
}

/// The values that a read may return from one sector.
struct SectorChoices {
    allowed: Vec<Value>,
    /// No write was in flight to the sector, and the sector did not change, during the read.
    quiet: bool,
}

impl SectorChoices {
    fn may_be(&mut self, values: &[Value]) {
        self.allowed.extend(values);
        self.quiet = false;
    }
}

/// A volume's reference.
pub struct VolumeModel {
    space: Space,
    sectors: Vec<ModelSector>,
    reads: Vec<ModelRead>,
    next: u64,
    /// Writes that have ended.
    ended: u64,
    /// Losses of the origin, and how many of them were reported.
    losses: u64,
    reported: u64,
    /// Writes that had ended at the last loss.
    lost_to: u64,
}

/// A flush that has begun.
#[derive(Clone, Copy)]
pub struct ModelFlushMark {
    ended: u64,
    losses: u64,
    reported: u64,
}

/// The values of each sector at a moment when nothing was in flight.
#[derive(Clone)]
pub struct Saved(Vec<Vec<Value>>);

impl VolumeModel {
    /// A volume of zeroes.
    pub fn new(space: Space) -> VolumeModel {
        VolumeModel {
            sectors: vec![ModelSector::zeroes(); (space.windows * space.each) as usize],
            space,
            reads: Vec::new(),
            next: 1,
            ended: 0,
            losses: 0,
            reported: 0,
            lost_to: 0,
        }
    }

    /// A value that was never written.
    pub fn version(&mut self) -> Value {
        self.next += 1;
        self.next
    }

    fn of(&mut self, sectors: &Range<u64>) -> &mut [ModelSector] {
        let first = self.space.index(sectors.start);
        &mut self.sectors[first..first + (sectors.end - sectors.start) as usize]
    }

    /// A change of `sectors` to `value` begins.
    pub fn begin(&mut self, sectors: &Range<u64>, value: Value) {
        for read in &mut self.reads {
            let from = sectors.start.max(read.sectors.start);
            for at in from..sectors.end.min(read.sectors.end) {
                read.seen[(at - read.sectors.start) as usize].may_be(&[value]);
            }
        }
        let losses = self.losses;
        for sector in self.of(sectors) {
            sector.pending.push((value, losses));
        }
    }

    /// Ends a change; `durable` if the change is durable.
    pub fn end(&mut self, sectors: &Range<u64>, value: Value, done: bool, durable: bool) {
        self.ended += 1;
        let ended = EndedWrite {
            number: self.ended,
            acknowledged: done,
            crossed: false,
            value,
        };
        let (losses, reported) = (self.losses, self.reported);
        for sector in self.of(sectors) {
            let meanwhile = sector.ends(value) != losses;
            if done && meanwhile && !durable {
                // The acknowledgement may have been in flight when the origin forgot.
                sector.unsettled = losses > reported;
                sector.tail.push(EndedWrite {
                    acknowledged: losses > reported,
                    crossed: true,
                    ..ended
                });
                sector.may_be(vec![value]);
                continue;
            }
            if done {
                sector.now.clear();
                sector.unsettled = false;
            }
            sector.now.push(value);
            if done && durable {
                sector.base.clear();
                sector.base.push(value);
                sector.tail.clear();
            } else {
                sector.tail.push(ended);
            }
        }
    }

    /// Ends a change that no client waits for any more, or that failed and may land yet.
    pub fn abandon(&mut self, sectors: &Range<u64>, value: Value) {
        for sector in self.of(sectors) {
            sector.ends(value);
            sector.loose.push(value);
        }
    }

    /// A flush begins.
    pub fn begin_flush(&self) -> ModelFlushMark {
        ModelFlushMark {
            ended: self.ended,
            losses: self.losses,
            reported: self.reported,
        }
    }

    /// The flush of `mark` was acknowledged.
    pub fn end_flush(&mut self, mark: ModelFlushMark) {
        for sector in &mut self.sectors {
            let covered = |ended: &EndedWrite| ended.acknowledged && ended.number <= mark.ended;
            if let Some(last) = sector.tail.iter().rposition(covered) {
                sector.base.clear();
                sector.base.push(sector.tail[last].value);
                sector.tail.drain(..=last);
                if sector.tail.is_empty() && std::mem::take(&mut sector.unsettled) {
                    sector.now.clone_from(&sector.base);
                }
            }
        }
    }

    /// True if the origin had a loss to report to a client when a flush failed.
    pub fn may_fail(&self, mark: ModelFlushMark) -> bool {
        self.losses > mark.reported
    }

    /// True if fewer losses were reported to clients than `losses`, which an administrator has had.
    pub fn knows_less(&self, losses: u64) -> bool {
        self.reported < losses
    }

    /// Losses of the origin, as far as they may be reported.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Compares the bytes that are durable on the origin from sector `start`, in one window. The
    /// error names the sector that lacks a write which an acknowledged flush, or forced write,
    /// covered.
    pub fn holds_durably(&mut self, start: u64, bytes: &[u8]) -> Result<(), String> {
        let sectors = start..start + bytes.len() as u64 / 512;
        for ((at, sector), bytes) in (start..)
            .zip(self.of(&sectors))
            .zip(bytes.chunks_exact(512))
        {
            let tail = sector.tail.iter().map(|ended| &ended.value);
            let pending = sector.pending.iter().map(|(v, _)| v);
            let later = pending.chain(&sector.loose).chain(tail);
            let held = stamp::read(bytes, at);
            let is_held = |v: &Value| *v == ANYTHING || Some(*v) == held;
            if !sector.base.iter().chain(later).any(is_held) {
                return Err(format!(
                    "sector {at} durably holds {}",
                    stamp::describe(held, &sector.base)
                ));
            }
        }
        Ok(())
    }

    /// The origin loses the writes that are not durable, and goes on.
    pub fn forget(&mut self) {
        self.losses += 1;
        self.lost_to = self.ended;
        for sector in self.sectors.iter_mut().filter(|s| !s.tail.is_empty()) {
            sector.unsettled = true;
            let tail = sector.tail.iter().map(|ended| ended.value);
            let possible: Vec<_> = sector.base.iter().copied().chain(tail).collect();
            sector.may_be(possible);
        }
        self.suspect_reads();
    }

    /// A client's flush has failed for a loss of the origin, so the client knows of the loss.
    /// Returns true if that loss is sure to be the last one: the origin's bytes are to be given to
    /// [`VolumeModel::settle`] then. A flush of an origin that was `away` fails once more.
    pub fn report_loss(&mut self, mark: ModelFlushMark, away: bool) -> bool {
        self.reported = self.losses;
        let unsure = self.losses > mark.losses && self.losses > mark.reported + 1;
        // A write that is acknowledged later may have been lost too.
        let in_flight = self.sectors.iter().any(|s| !s.pending.is_empty());
        self.losses += u64::from(unsure || away || in_flight);
        let lost_to = self.lost_to;
        for sector in &mut self.sectors {
            sector.take_loss(lost_to);
        }
        !unsure
    }

    /// One flush may fail though nothing was forgotten.
    pub fn allow_loss(&mut self) {
        self.losses += 1;
    }

    /// The values of a quiesced volume.
    pub fn save(&self) -> Saved {
        let held = |s: &ModelSector| s.now.iter().chain(&s.loose).copied().collect();
        Saved(self.sectors.iter().map(held).collect())
    }

    /// Others have durably restored the origin to `saved`.
    pub fn restore(&mut self, saved: &Saved) {
        for (sector, held) in self.sectors.iter_mut().zip(&saved.0) {
            sector.tail.clear();
            sector.base.clone_from(held);
            sector.unsettled = true;
            sector.may_be(held.clone());
        }
        self.suspect_reads();
    }

    /// Others have durably put `value` on sectors that no client can reach now.
    pub fn overwrite(&mut self, sectors: &Range<u64>, value: Value) {
        for sector in self.of(sectors) {
            sector.now = vec![value];
            sector.base = vec![value];
            sector.tail.clear();
        }
    }

    /// From now on only the content of the origin may be read: these bytes from sector `start`, in
    /// one window. The error names a sector whose bytes are not allowed.
    pub fn settle(&mut self, start: u64, bytes: &[u8]) -> Result<(), String> {
        let sectors = start..start + bytes.len() as u64 / 512;
        for ((at, sector), bytes) in (start..)
            .zip(self.of(&sectors))
            .zip(bytes.chunks_exact(512))
        {
            if !std::mem::take(&mut sector.unsettled) {
                continue;
            }
            let tail = sector.tail.iter().map(|ended| ended.value);
            sector.now = sector.base.iter().copied().chain(tail).collect();
            let value = stamp::read(bytes, at);
            if sector.pending.is_empty() && sector.loose.is_empty() {
                sector.check(at, value)?;
            }
        }
        Ok(())
    }

    /// True if no abandoned write may land in `sectors`, and all losses have been reported.
    pub fn is_certain(&mut self, sectors: &Range<u64>) -> bool {
        let sectors = self.of(sectors);
        sectors.iter().all(|s| s.loose.is_empty() && !s.unsettled)
    }

    /// Reads in progress may return any value that an unsettled sector may hold now.
    fn suspect_reads(&mut self) {
        let mut reads = std::mem::take(&mut self.reads);
        for read in &mut reads {
            for (seen, sector) in read.seen.iter_mut().zip(self.of(&read.sectors)) {
                if sector.unsettled {
                    seen.may_be(&sector.now);
                }
            }
        }
        self.reads = reads;
    }

    /// The daemon has stopped at any point. With `origin_lost`, the origin has lost its power too.
    pub fn cut(&mut self, origin_lost: bool) {
        self.reads.clear();
        let (is_lost, lost_to) = (self.losses > self.reported, self.lost_to);
        self.reported = self.losses;
        let number = self.ended;
        for sector in &mut self.sectors {
            if is_lost {
                sector.take_loss(lost_to);
            }
            if std::mem::take(&mut sector.unsettled) {
                let tail = sector.tail.iter().map(|ended| ended.value);
                sector.now = sector.base.iter().copied().chain(tail).collect();
            }
            let pending = sector.pending.drain(..).map(|(value, _)| value);
            for value in pending.chain(sector.loose.drain(..)) {
                sector.now.push(value);
                sector.tail.push(EndedWrite {
                    number,
                    acknowledged: false,
                    crossed: false,
                    value,
                });
            }
            if origin_lost {
                sector.base.extend(sector.tail.drain(..).map(|e| e.value));
                sector.now.clone_from(&sector.base);
            }
        }
    }

    /// Compares the origin's own bytes from sector `start`, in one window, when nothing is in
    /// flight. The error names the sector whose bytes are not allowed.
    pub fn origin_holds(&mut self, start: u64, bytes: &[u8]) -> Result<(), String> {
        let sectors = start..start + bytes.len() as u64 / 512;
        for ((at, sector), bytes) in (start..)
            .zip(self.of(&sectors))
            .zip(bytes.chunks_exact(512))
        {
            sector.check(at, stamp::read(bytes, at))?;
        }
        Ok(())
    }

    /// A read of `sectors` begins.
    pub fn begin_read(&mut self, sectors: &Range<u64>) -> u64 {
        self.next += 1;
        let seen = |sector: &mut ModelSector| {
            let pending = sector.pending.iter().map(|(v, _)| *v);
            let coming: Vec<_> = pending.chain(sector.loose.iter().copied()).collect();
            SectorChoices {
                quiet: coming.is_empty(),
                allowed: [&sector.now[..], &coming[..]].concat(),
            }
        };
        let seen = self.of(sectors).iter_mut().map(seen).collect();
        self.reads.push(ModelRead {
            id: self.next,
            sectors: sectors.clone(),
            seen,
        });
        self.next
    }

    /// Ends a read, with these bytes unless the read failed.
    pub fn end_read(&mut self, id: u64, bytes: Option<&[u8]>) -> Result<(), String> {
        let at = self.reads.iter().position(|r| r.id == id);
        let read = self.reads.swap_remove(at.expect("it began"));
        let Some(bytes) = bytes else { return Ok(()) };
        let sectors = read.sectors.zip(&read.seen);
        for ((at, seen), bytes) in sectors.zip(bytes.chunks_exact(512)) {
            let value = stamp::read(bytes, at);
            let is_held = |v: &Value| *v == ANYTHING || Some(*v) == value;
            if !seen.allowed.iter().any(is_held) {
                let held = stamp::describe(value, &seen.allowed);
                return Err(format!("sector {at} holds {held}"));
            }
            if seen.quiet {
                self.of(&(at..at + 1))[0].see(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
