//! The answers that a disk may give: an independent model of one device with many clients at once,
//! and with power cuts.
//!
//! Every write carries a number, stamped into each sector of the write. For each sector the oracle
//! keeps the writes that may have reached the sector, as intervals of a logical clock. A read may
//! return exactly these:
//!     a write that began before the read ended, unless another acknowledged
//!     write lies wholly between the two, or an earlier read already saw past the write
//!
//! After a power cut: a write that no durable write wholly follows. Sectors are judged one by one.
//! So torn and reordered writes are allowed where a disk may tear and reorder them, and nowhere
//! else.
//!
//! Not here: any code of the layers under test, and anything about time.

use std::ops::Range;

/// The number of the write that a sector holds; 0 is zeroes.
pub type Stamp = u64;

/// Bytes in a sector.
pub const SECTOR: usize = 512;

/// Fills `sector`-sized bytes with a stamp.
pub fn stamp(bytes: &mut [u8], first_sector: u64, stamp: Stamp) {
    for (sector, chunk) in (first_sector..).zip(bytes.chunks_exact_mut(SECTOR)) {
        for pair in chunk.chunks_exact_mut(16) {
            pair[..8].copy_from_slice(&stamp.to_le_bytes());
            pair[8..].copy_from_slice(&(if stamp == 0 { 0 } else { sector }).to_le_bytes());
        }
    }
}

/// The stamp of one sector's bytes; an error for bytes without a stamp, or with another sector's.
pub fn unstamp(bytes: &[u8], sector: u64) -> Result<Stamp, String> {
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
    let stamp = word(0);
    let place = if stamp == 0 { 0 } else { sector };
    for pair in 0..bytes.len() / 16 {
        let (s, p) = (word(pair * 2), word(pair * 2 + 1));
        if (s, p) != (stamp, place) {
            return Err(format!(
                "sector {sector} holds write {s} of sector {p} at word {pair}, after write {stamp}"
            ));
        }
    }
    Ok(stamp)
}

#[derive(Clone, Debug)]
struct OracleWrite {
    number: u64,
    /// The stamp of a sector that holds this write: the write's number, or 0.
    stamp: Stamp,
    begin: u64,
    /// No part of the write lands on the disk after this.
    end: u64,
    acknowledged: bool,
    durable: bool,
    /// The write survived a power cut as one of several possibilities.
    recovered: bool,
}

#[derive(Clone, Default)]
struct OracleSector {
    writes: Vec<OracleWrite>,
    /// Reads: their begins and ends, and the number of the write that each saw.
    reads: Vec<(u64, u64, u64)>,
}

/// A write in progress.
#[derive(Clone, Debug)]
pub struct Ticket {
    number: u64,
    sectors: Range<u64>,
}

/// The end of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteEnd {
    /// Acknowledged.
    Done,
    /// Acknowledged as durable.
    Durable,
    /// Failed or abandoned: the write took effect by now, or as if by now, or never.
    Unknown,
    /// The answer was lost: the write may take effect at any later time.
    Lost,
}

/// The oracle of one device.
pub struct Oracle {
    sectors: Vec<OracleSector>,
    clock: u64,
}

impl Oracle {
    /// A device of `sectors` sectors that reads as zeroes.
    pub fn new(sectors: u64) -> Oracle {
        let zero = OracleWrite {
            number: 0,
            stamp: 0,
            begin: 0,
            end: 0,
            acknowledged: true,
            durable: true,
            recovered: false,
        };
        let sector = OracleSector {
            writes: vec![zero],
            reads: Vec::new(),
        };
        Oracle {
            sectors: vec![sector; sectors as usize],
            clock: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write of `sectors`, numbered by the caller, is about to be sent. [`stamp`] is to fill the
    /// write with the returned stamp: 0 for zeroes.
    pub fn begin_write(&mut self, sectors: Range<u64>, number: u64, zero: bool) -> (Ticket, Stamp) {
        let begin = self.tick();
        let stamp = if zero { 0 } else { number };
        for sector in sectors.clone() {
            self.sectors[sector as usize].writes.push(OracleWrite {
                number,
                stamp,
                begin,
                end: u64::MAX,
                acknowledged: false,
                durable: false,
                recovered: false,
            });
        }
        (Ticket { number, sectors }, stamp)
    }

    /// The answer to a write has come, or will never come.
    pub fn end_write(&mut self, ticket: Ticket, end: WriteEnd) {
        let now = self.tick();
        for sector in ticket.sectors {
            let writes = &mut self.sectors[sector as usize].writes;
            let write = writes.iter_mut().find(|w| w.number == ticket.number);
            let write = write.expect("a write in progress is kept");
            if end != WriteEnd::Lost {
                write.end = now;
            }
            write.acknowledged = matches!(end, WriteEnd::Done | WriteEnd::Durable);
            write.durable = end == WriteEnd::Durable;
        }
    }

    /// A flush is about to be sent.
    pub fn begin_flush(&mut self) -> u64 {
        self.tick()
    }

    /// The flush that began at `begin` was acknowledged.
    pub fn end_flush(&mut self, begin: u64) {
        for sector in &mut self.sectors {
            for write in &mut sector.writes {
                write.durable |= write.acknowledged && write.end < begin;
            }
        }
    }

    /// A read is about to be sent.
    pub fn begin_read(&mut self) -> u64 {
        self.tick()
    }

    /// The read that began at `begin` returned `bytes` from `first` on.
    pub fn end_read(&mut self, begin: u64, first: u64, bytes: &[u8]) -> Result<(), String> {
        let now = self.tick();
        for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            let seen = unstamp(bytes, sector)?;
            self.sectors[sector as usize]
                .observe(begin, now, seen)
                .map_err(|why| format!("sector {sector} read as write {seen}: {why}"))?;
        }
        Ok(())
    }

    /// The power was cut: writes that are not durable may be lost, in any combination.
    pub fn power_cut(&mut self) {
        let now = self.tick();
        for sector in &mut self.sectors {
            let durable: Vec<u64> = sector
                .writes
                .iter()
                .filter(|w| w.durable)
                .map(|w| w.begin)
                .collect();
            let mut kept = std::mem::take(&mut sector.writes);
            kept.retain(|w| !durable.iter().any(|&begin| begin > w.end));
            let sole = kept.len() == 1;
            for write in &mut kept {
                *write = OracleWrite {
                    begin: 0,
                    end: now,
                    acknowledged: true,
                    durable: sole,
                    recovered: !sole,
                    ..*write
                };
            }
            sector.writes = kept;
            sector.reads.clear();
        }
    }
}

impl OracleSector {
    fn observe(&mut self, begin: u64, end: u64, seen: Stamp) -> Result<(), String> {
        let mut why = "no such write was ever made here".to_string();
        let allowed = |w: &OracleWrite, why: &mut String| {
            if let Some(later) = self
                .writes
                .iter()
                .find(|l| l.acknowledged && l.begin > w.end && l.end < begin)
            {
                *why = format!("write {} was acknowledged after it", later.number);
                return false;
            }
            let past = self.reads.iter().find(|(read_begin, read_end, number)| {
                *read_end < begin && w.end < *read_begin && *number != w.number
            });
            if let Some((_, _, number)) = past {
                *why = format!("a read had already returned write {number}");
                return false;
            }
            true
        };
        // Several writes of zeroes look the same; any one that is allowed will do.
        let fits: Vec<usize> = (0..self.writes.len())
            .filter(|&i| self.writes[i].stamp == seen && self.writes[i].begin < end)
            .filter(|&i| allowed(&self.writes[i], &mut why))
            .collect();
        let Some(&last) = fits.last() else {
            return Err(why);
        };
        if fits.len() > 1 {
            return Ok(());
        }
        let number = self.writes[last].number;
        if self.writes[last].recovered {
            // Recovery settles each sector before serving.
            self.writes.retain(|w| !w.recovered || w.number == number);
        }
        self.reads.push((begin, end, number));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(oracle: &mut Oracle, seen: Stamp) -> Result<(), String> {
        let begin = oracle.begin_read();
        let mut bytes = vec![0; SECTOR];
        stamp(&mut bytes, 3, seen);
        oracle.end_read(begin, 3, &bytes)
    }

    fn write(oracle: &mut Oracle, end: WriteEnd) -> Stamp {
        let number = oracle.clock + 1;
        let (ticket, stamp) = oracle.begin_write(3..4, number, false);
        oracle.end_write(ticket, end);
        stamp
    }

    #[test]
    fn a_replaced_write_is_not_read() {
        let mut oracle = Oracle::new(8);
        let a = write(&mut oracle, WriteEnd::Done);
        let b = write(&mut oracle, WriteEnd::Done);
        assert!(read(&mut oracle, a).is_err());
        assert!(read(&mut oracle, 0).is_err());
        assert!(read(&mut oracle, b + 1).is_err());
        assert!(read(&mut oracle, b).is_ok());
    }

    #[test]
    fn overlapping_writes_settle_on_what_was_read_first() {
        for first in [0, 1] {
            let mut oracle = Oracle::new(8);
            let (t1, a) = oracle.begin_write(3..4, 1, false);
            let (t2, b) = oracle.begin_write(3..4, 2, false);
            oracle.end_write(t1, WriteEnd::Done);
            oracle.end_write(t2, WriteEnd::Done);
            let pair = if first == 0 { [a, b] } else { [b, a] };
            assert!(read(&mut oracle, pair[0]).is_ok());
            assert!(read(&mut oracle, pair[1]).is_err());
            assert!(read(&mut oracle, pair[0]).is_ok());
        }
    }

    #[test]
    fn a_power_cut_takes_only_what_is_not_durable() {
        let mut oracle = Oracle::new(8);
        let a = write(&mut oracle, WriteEnd::Durable);
        let b = write(&mut oracle, WriteEnd::Done);
        oracle.power_cut();
        assert!(read(&mut oracle, 0).is_err(), "a durable write is kept");
        assert!(
            read(&mut oracle, a).is_ok(),
            "an unflushed write may be lost"
        );
        assert!(read(&mut oracle, b).is_err(), "but not come back");
        oracle.power_cut();
        assert!(read(&mut oracle, b).is_err(), "even after the next cut");
        assert!(read(&mut oracle, a).is_ok());
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it() {
        let mut oracle = Oracle::new(8);
        let a = write(&mut oracle, WriteEnd::Done);
        let flush = oracle.begin_flush();
        let b = write(&mut oracle, WriteEnd::Done);
        oracle.end_flush(flush);
        oracle.power_cut();
        assert!(read(&mut oracle, 0).is_err());
        assert!(read(&mut oracle, b).is_ok());
        assert!(read(&mut oracle, a).is_err());
    }

    #[test]
    fn an_abandoned_write_may_be_seen_until_it_is_replaced() {
        let mut oracle = Oracle::new(8);
        let a = write(&mut oracle, WriteEnd::Unknown);
        assert!(read(&mut oracle, 0).is_ok());
        let b = write(&mut oracle, WriteEnd::Done);
        assert!(read(&mut oracle, a).is_err());
        assert!(read(&mut oracle, b).is_ok());
    }

    #[test]
    fn bytes_of_another_sector_or_write_are_caught() {
        let mut bytes = vec![0; SECTOR];
        stamp(&mut bytes, 4, 9);
        assert!(unstamp(&bytes, 3).is_err());
        assert_eq!(unstamp(&bytes, 4), Ok(9));
        bytes[500] ^= 1;
        assert!(unstamp(&bytes, 4).is_err());
        let (mut oracle, begin) = (Oracle::new(8), 1);
        let (ticket, _) = oracle.begin_write(3..4, 1, true);
        oracle.end_write(ticket, WriteEnd::Done);
        assert!(oracle.end_read(begin, 3, &[0; SECTOR]).is_ok());
    }
}
