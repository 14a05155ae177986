//! CloudPhysics vscsi (Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC construction with
//! SHARDS", FAST 2015), as libCacheSim publishes and reads it: packed little-endian records, in
//! two versions, without a header.
//!
//! ```text
//! 1: u32 serial, u32 len, u32 segments, u16 command, u16 version, u64 sector, u64 us
//! 2: u16 command, u16 version, u32 serial, u32 len, u32 segments, u64 sector, u64 us, u64 response
//! ```
//!
//! The version is the upper byte of its field. Commands are those of SCSI; all but reads and
//! writes are passed over. Lengths are bytes, sectors of 512 bytes.

use super::{TextLine, sector_bytes};
use crate::{RecordOp, TraceRecord};
use block::Nanos;

pub(crate) const BYTES_1: usize = 32;
pub(crate) const BYTES_2: usize = 40;

/// Places of the length, the command and the version in a record; the rest is in the same place.
type Layout = (usize, usize, usize);
const LAYOUT_1: Layout = (4, 12, 14);
const LAYOUT_2: Layout = (8, 0, 2);

pub(crate) fn parse_1(raw: &[u8]) -> Result<TextLine, String> {
    parse(raw, LAYOUT_1, 1)
}

pub(crate) fn parse_2(raw: &[u8]) -> Result<TextLine, String> {
    parse(raw, LAYOUT_2, 2)
}

/// True if the records at the beginning of a file are of version 1.
pub(crate) fn is_1(start: &[u8]) -> bool {
    start.chunks_exact(BYTES_1).all(|raw| parse_1(raw).is_ok())
}

/// The same of version 2.
pub(crate) fn is_2(start: &[u8]) -> bool {
    start.chunks_exact(BYTES_2).all(|raw| parse_2(raw).is_ok())
}

fn parse(raw: &[u8], (len, command, version): Layout, wanted: u8) -> Result<TextLine, String> {
    let short = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
    let word = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes"));
    let found = short(version) >> 8;
    if found != u16::from(wanted) {
        return Err(format!("the version is {found}, not {wanted}"));
    }
    let op = match short(command) {
        0x08 | 0x28 | 0xa8 | 0x88 => RecordOp::Read,
        0x0a | 0x2a | 0xaa | 0x8a => RecordOp::Write,
        0..=0xff => return Ok(TextLine::Other),
        other => return Err(format!("no SCSI command: {other:#x}")),
    };
    let micros = long(24);
    let time = micros
        .checked_mul(1000)
        .ok_or_else(|| format!("no time in microseconds: {micros}"))?;
    Ok(TextLine::Record(TraceRecord {
        time: Nanos(time),
        op,
        offset_bytes: sector_bytes(long(16), "sector")?,
        len_bytes: word(len),
        volume: 0,
        forced: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    /// Serial, length, command, sector and microseconds in both versions.
    fn both(serial: u32, len: u32, command: u16, sector: u64, us: u64) -> (Vec<u8>, Vec<u8>) {
        let (serial, segments, len) = (serial.to_le_bytes(), 1u32.to_le_bytes(), len.to_le_bytes());
        let (sector, us) = (sector.to_le_bytes(), us.to_le_bytes());
        let command = command.to_le_bytes();
        let one = [
            &serial[..],
            &len,
            &segments,
            &command,
            &[9, 1],
            &sector,
            &us,
        ]
        .concat();
        let response = 700u64.to_le_bytes();
        let two = [
            &command[..],
            &[0, 2],
            &serial,
            &len,
            &segments,
            &sector,
            &us,
            &response,
        ];
        (one, two.concat())
    }

    #[test]
    fn both_versions_are_read() {
        let read = both(1, 4096, 0x28, 42_932_745, 5_633_898_611_441);
        let write = both(2, 512, 0x8a, 8, 5_633_898_611_442);
        let inquiry = both(3, 36, 0x12, 0, 5_633_898_611_443);
        let join = |each: [&Vec<u8>; 3]| each.map(|raw| &raw[..]).concat();
        let one = join([&read.0, &write.0, &inquiry.0]);
        let two = join([&read.1, &write.1, &inquiry.1]);
        assert_eq!(Format::sniff(&one), [Format::Vscsi1]);
        assert_eq!(Format::sniff(&two), [Format::Vscsi2]);
        assert_eq!(
            Format::sniff(&one[..BYTES_1]),
            [],
            "one record proves nothing"
        );
        assert_eq!(parse_1(&read.0), parse_2(&read.1));
        assert_eq!(parse_1(&inquiry.0), Ok(TextLine::Other));
        let Ok(TextLine::Record(record)) = parse_2(&write.1) else {
            panic!("not parsed");
        };
        assert_eq!((record.op, record.offset_bytes), (RecordOp::Write, 4096));
        assert_eq!(record.time.0, 5_633_898_611_442_000);
        assert!(parse_1(&read.1[..BYTES_1]).is_err());
    }
}
