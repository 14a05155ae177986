//! The reference of an array: the bytes that it may return, over losses of power.
//!
//! For each sector there are the values that a read may return now, and the writes that a loss of
//! power may still bring to light. Those are the writes since the last one that a flush, or force
//! unit access, has made durable. After the loss any of them may be there. A value that has been
//! read stays until the next write or loss.
//!
//! Not here: members, levels, journals.

use crate::stamp::{self, ANYTHING, Value, ZERO};
use std::ops::Range;

#[derive(Clone, Copy)]
struct ArrayWrite {
    value: Value,
    /// The moment of its end, if it has ended.
    ended: Option<u64>,
    acked: bool,
}

#[derive(Clone)]
struct ArraySector {
    /// Values that a read may return, but for those being written.
    settled: Vec<Value>,
    /// Values being written.
    pending: Vec<Value>,
    /// Writes that may be there after a loss of power.
    since: Vec<ArrayWrite>,
    /// A write that failed nearby may have cost the sector's data.
    may_be_lost: bool,
    /// The sector was suspect, and has been discarded since. A discard may leave the data
    /// unchanged.
    suspect: bool,
    /// Changes whenever a write begins or ends.
    version: u64,
    /// The version at the last loss of writes without a flush, unless power was lost since.
    lost_at: Option<u64>,
}

impl ArraySector {
    /// Forgets the values that are older than the last write acknowledged before `mark`.
    /// Overlapping writes end in the order in which they take effect.
    fn forget_before(&mut self, mark: u64) {
        let covered = self
            .since
            .iter()
            .filter(|w| w.acked)
            .filter_map(|w| w.ended);
        let last = covered.filter(|ended| *ended < mark).max();
        self.since.retain(|w| {
            w.ended
                .is_none_or(|ended| last.is_none_or(|last| ended >= last))
        });
    }
}

#[derive(Clone)]
struct ArrayRead {
    id: u64,
    sectors: Range<u64>,
    /// The values that may be returned, and the version at the beginning.
    seen: Vec<(Vec<Value>, u64)>,
}

/// An array's reference model. A copy is another history, which parts from this one.
#[derive(Clone)]
pub struct ArrayModel {
    sectors: Vec<ArraySector>,
    reads: Vec<ArrayRead>,
    clock: u64,
}

impl ArrayModel {
    /// An array of zeroes, durable.
    pub fn new(sectors: u64) -> ArrayModel {
        let sector = ArraySector {
            settled: vec![ZERO],
            pending: Vec::new(),
            since: vec![ArrayWrite {
                value: ZERO,
                ended: Some(0),
                acked: true,
            }],
            may_be_lost: false,
            suspect: false,
            version: 0,
            lost_at: None,
        };
        ArrayModel {
            sectors: vec![sector; sectors as usize],
            reads: Vec::new(),
            clock: 1,
        }
    }

    /// This history parts from the others: none of its later values occurs in theirs.
    pub fn go_apart(&mut self) {
        self.clock += 1 << 32;
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A value that was never written.
    pub fn version(&mut self) -> Value {
        self.tick()
    }

    fn part(&mut self, sectors: &Range<u64>) -> &mut [ArraySector] {
        &mut self.sectors[sectors.start as usize..sectors.end as usize]
    }

    /// A write of `value` begins.
    pub fn begin(&mut self, sectors: Range<u64>, value: Value) {
        for read in &mut self.reads {
            for at in sectors.start.max(read.sectors.start)..sectors.end.min(read.sectors.end) {
                read.seen[(at - read.sectors.start) as usize].0.push(value);
            }
        }
        let now = self.tick();
        for sector in self.part(&sectors) {
            sector.pending.push(value);
            sector.since.push(ArrayWrite {
                value,
                ended: None,
                acked: false,
            });
            sector.version = now;
        }
    }

    /// Ends a write; `durable` if the write was acknowledged as durable.
    pub fn end(&mut self, sectors: Range<u64>, value: Value, good: bool, durable: bool) {
        let now = self.tick();
        for sector in self.part(&sectors) {
            sector.version = now;
            let at = sector.pending.iter().position(|v| *v == value);
            sector.pending.swap_remove(at.expect("it began"));
            let mut open = sector.since.iter_mut();
            let mine = open.find(|w| w.value == value && w.ended.is_none());
            let mine = mine.expect("it began");
            (mine.ended, mine.acked) = (Some(now), good);
            if good {
                let discarded = value == ANYTHING;
                sector.may_be_lost &= discarded;
                sector.suspect |= sector.settled.len() > 1;
                sector.suspect &= discarded;
                sector.settled.clear();
                sector.settled.push(value);
            } else {
                sector.settled.push(value);
            }
            if durable && good {
                sector.forget_before(now + 1);
            }
        }
    }

    /// A flush begins. Returns the mark to be given to [`ArrayModel::flushed`].
    pub fn flush(&mut self) -> u64 {
        self.tick()
    }

    /// A flush that began at `mark` has succeeded.
    pub fn flushed(&mut self, mark: u64) {
        for sector in &mut self.sectors {
            sector.forget_before(mark);
        }
    }

    /// The data of `sectors` may no longer be readable.
    pub fn may_lose(&mut self, sectors: Range<u64>) {
        let now = self.tick();
        for sector in self.part(&sectors) {
            (sector.may_be_lost, sector.version) = (true, now);
        }
    }

    /// The sectors for which `lost` is true may hold any bytes, in each stripe of `stripe` sectors
    /// with a write that was not durable. Their data followed from the unfinished writes, which are
    /// unknown.
    pub fn guess(&mut self, stripe: u64, lost: impl Fn(u64) -> bool) {
        let now = self.tick();
        let written = ArrayWrite {
            value: ANYTHING,
            ended: Some(now),
            acked: false,
        };
        for (number, sectors) in (0..).zip(self.sectors.chunks_mut(stripe as usize)) {
            if sectors.iter().all(|sector| sector.since.len() < 2) {
                continue;
            }
            let here = (number * stripe..).zip(sectors).filter(|(at, _)| lost(*at));
            for (_, sector) in here {
                sector.settled.push(ANYTHING);
                sector.since.push(written);
                sector.version = now;
            }
        }
    }

    /// The power is gone, with the writes in flight. These may have cost the stripes of `stripe`
    /// sectors that they were in; with 0, no other sectors.
    pub fn cut(&mut self, stripe: u64) {
        self.reads.clear();
        if stripe > 0 {
            for sectors in self.sectors.chunks_mut(stripe as usize) {
                let written = sectors.iter().any(|sector| !sector.pending.is_empty());
                sectors.iter_mut().for_each(|s| s.may_be_lost |= written);
            }
        }
        let now = self.tick();
        for sector in &mut self.sectors {
            sector.pending.clear();
            sector.lost_at = None;
            sector.settled = sector.since.iter().map(|w| w.value).collect();
            // No later flush can decide which of the values is there.
            for written in &mut sector.since {
                (written.ended, written.acked) = (Some(now), false);
            }
        }
    }

    /// Writes that are not durable may be gone; operations in flight go on.
    #[cfg(feature = "nodes")]
    pub fn lose_unflushed(&mut self) {
        let now = self.tick();
        for sector in &mut self.sectors {
            // A second loss with no write between has nothing to add.
            if sector.lost_at == Some(sector.version) {
                continue;
            }
            let ended = sector.since.iter().filter(|w| w.ended.is_some());
            let mut values: Vec<Value> = ended.map(|w| w.value).collect();
            values.sort_unstable();
            values.dedup();
            // No later flush can decide which of the values is there, so each counts once.
            sector.since.retain(|w| w.ended.is_none());
            sector.since.extend(values.iter().map(|value| ArrayWrite {
                value: *value,
                ended: Some(now),
                acked: false,
            }));
            values.extend(&sector.settled);
            values.sort_unstable();
            values.dedup();
            if values.len() > 1 {
                (sector.settled, sector.version) = (values, now);
            }
            sector.lost_at = Some(sector.version);
        }
        for read in &mut self.reads {
            for at in read.sectors.clone() {
                let settled = &self.sectors[at as usize].settled;
                let seen = &mut read.seen[(at - read.sectors.start) as usize].0;
                seen.extend(settled);
            }
        }
    }

    fn any(&self, sectors: &Range<u64>, is: impl Fn(&ArraySector) -> bool) -> bool {
        let sectors = &self.sectors[sectors.start as usize..sectors.end as usize];
        sectors.iter().any(is)
    }

    /// True if some of `sectors` may be lost to a write that failed nearby.
    pub fn may_be_lost(&self, sectors: &Range<u64>) -> bool {
        self.any(sectors, |sector| sector.may_be_lost)
    }

    /// True if some of `sectors` are being written.
    pub fn is_written(&self, sectors: &Range<u64>) -> bool {
        self.any(sectors, |sector| !sector.pending.is_empty())
    }

    /// True if the data of some of `sectors` is unknown.
    pub fn is_suspect(&self, sectors: &Range<u64>) -> bool {
        let unsettled = |s: &ArraySector| s.settled.len() + s.pending.len() > 1;
        self.any(sectors, |s| s.suspect || unsettled(s))
    }

    /// A read begins.
    pub fn read(&mut self, sectors: Range<u64>) -> u64 {
        let id = self.tick();
        let seen = self.part(&sectors).iter().map(|sector| {
            let allowed = [&sector.settled[..], &sector.pending[..]].concat();
            (allowed, sector.version)
        });
        let seen = seen.collect();
        self.reads.push(ArrayRead { id, sectors, seen });
        id
    }

    /// Ends a read. The error names the sector whose bytes are not allowed.
    pub fn was_read(&mut self, id: u64, bytes: Option<&[u8]>) -> Result<(), String> {
        let at = self.reads.iter().position(|read| read.id == id);
        let read = self.reads.swap_remove(at.expect("it began"));
        let Some(bytes) = bytes else { return Ok(()) };
        let now = self.tick();
        for ((at, (allowed, version)), bytes) in
            read.sectors.zip(read.seen).zip(bytes.chunks_exact(512))
        {
            // After a discard, until the next write, two reads may even differ.
            if allowed.contains(&ANYTHING) {
                continue;
            }
            let value = stamp::read(bytes, at);
            let Some(value) = value.filter(|value| allowed.contains(value)) else {
                return Err(format!(
                    "sector {at} holds {} where {allowed:?} is allowed",
                    value.map_or("bytes that nobody wrote".into(), |v| format!("version {v}")),
                ));
            };
            let sector = &mut self.sectors[at as usize];
            // A sector that a quiet read returned is no longer suspect.
            let quiet = sector.version == version && sector.pending.is_empty();
            sector.may_be_lost &= !quiet;
            if quiet && sector.settled.len() > 1 {
                sector.settled = vec![value];
                sector.version = now;
                sector.since.push(ArrayWrite {
                    value,
                    ended: Some(now),
                    acked: true,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(version: Value) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        if version != ZERO {
            stamp::stamp(&mut bytes, 0, version);
        }
        bytes
    }

    fn check(model: &mut ArrayModel, version: Value) -> bool {
        let id = model.read(0..1);
        model.was_read(id, Some(&bytes(version))).is_ok()
    }

    #[test]
    fn what_was_discarded_reads_as_anything_until_it_is_written() {
        let mut model = ArrayModel::new(1);
        write(&mut model, 7, true);
        write(&mut model, ANYTHING, false);
        assert!(check(&mut model, 7) && check(&mut model, ZERO) && check(&mut model, 99));
        write(&mut model, 8, true);
        assert!(check(&mut model, 8) && !check(&mut model, 7));
    }

    #[test]
    fn a_copy_is_another_history() {
        let mut model = ArrayModel::new(1);
        write(&mut model, 7, true);
        let mut other = model.clone();
        other.cut(0);
        write(&mut model, 8, true);
        assert!(check(&mut other, 7) && !check(&mut other, 8));
    }

    fn write(model: &mut ArrayModel, value: Value, durable: bool) {
        model.begin(0..1, value);
        model.end(0..1, value, true, durable);
    }

    #[test]
    fn a_loss_of_power_brings_back_what_was_not_flushed_and_no_older() {
        for (flushed, old) in [(false, true), (true, false)] {
            let mut model = ArrayModel::new(1);
            write(&mut model, 7, false);
            let mark = model.flush();
            if flushed {
                model.flushed(mark);
            }
            write(&mut model, 8, false);
            assert!(!check(&mut model, 7) && check(&mut model, 8));
            model.cut(0);
            assert_eq!(check(&mut model, ZERO), old);
        }
        let mut model = ArrayModel::new(1);
        write(&mut model, 7, true);
        model.cut(0);
        assert!(!check(&mut model, ZERO) && check(&mut model, 7));
    }

    #[cfg(feature = "nodes")]
    #[test]
    fn what_was_not_flushed_may_be_gone_while_writes_go_on() {
        let mut model = ArrayModel::new(1);
        write(&mut model, 7, true);
        write(&mut model, 8, false);
        model.begin(0..1, 9);
        model.lose_unflushed();
        assert!(check(&mut model, 7) && check(&mut model, 8) && check(&mut model, 9));
        model.end(0..1, 9, true, true);
        model.lose_unflushed();
        assert!(check(&mut model, 9) && !check(&mut model, 7) && !check(&mut model, 8));
    }

    #[test]
    fn what_followed_from_what_nobody_knows_may_be_anything_until_it_is_written() {
        let mut model = ArrayModel::new(4);
        write(&mut model, 7, true);
        model.begin(1..2, 9);
        model.cut(0);
        model.guess(2, |at| at == 0);
        model.cut(0);
        assert!(check(&mut model, 99));
        assert!(!model.is_suspect(&(2..4)), "nothing was written there");
        write(&mut model, 8, true);
        model.cut(0);
        assert!(check(&mut model, 8) && !check(&mut model, 99));
    }

    #[test]
    fn what_was_read_once_stays() {
        let mut model = ArrayModel::new(1);
        model.begin(0..1, 7);
        model.cut(0);
        assert!(model.is_suspect(&(0..1)));
        assert!(check(&mut model, 7) && !check(&mut model, ZERO));
        model.cut(0);
        assert!(check(&mut model, ZERO), "it was not flushed");
        let mark = model.flush();
        model.flushed(mark);
        model.cut(0);
        assert!(!check(&mut model, 7));
    }

    #[test]
    fn a_write_that_fails_may_cost_its_stripe_until_that_is_read_or_written() {
        let mut model = ArrayModel::new(8);
        model.may_lose(0..4);
        assert!(model.may_be_lost(&(3..8)) && !model.may_be_lost(&(4..8)));
        write(&mut model, 7, true);
        assert!(!model.may_be_lost(&(0..1)));
        model.begin(5..6, 9);
        model.cut(4);
        assert!(model.may_be_lost(&(7..8)) && !model.may_be_lost(&(0..1)));
        let id = model.read(7..8);
        let mut zeroes = bytes(ZERO);
        zeroes.fill(0);
        model.was_read(id, Some(&zeroes)).unwrap();
        assert!(!model.may_be_lost(&(7..8)) && model.may_be_lost(&(6..7)));
    }
}
