//! libCacheSim's oracleGeneral: packed little-endian records of 24 bytes,
//! `{u32 seconds, u64 object, u32 size, i64 next_access}`, without a header.
//!
//! An object is a block: its number times the size is the offset when writing
//! (one object for each 4 KiB block), and the object number is taken as a 4 KiB
//! block number when reading. In published traces of disks an object is the sector of 512
//! bytes where a request begins, and the size is the request's; sizes are rounded up
//! to sectors. The format has no operation: all are reads. The
//! next access is written as -1, "unknown", which readers recompute.

use super::{TextLine, length, sector_bytes};
use crate::{RecordOp, TraceRecord};
use block::{Nanos, SECTOR_BYTES};

pub(crate) const RECORD_BYTES: usize = 24;

/// The bytes of one object.
pub(crate) const OBJECT_BYTES: u64 = 4096;

/// The kind of a file's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Objects {
    Blocks,
    Sectors,
}

/// The objects of a file that begins with `start`; `None` if their sizes fit neither.
pub(crate) fn objects(start: &[u8]) -> Option<Objects> {
    let sizes = || start.chunks_exact(RECORD_BYTES).map(size);
    if sizes().all(|size| size == OBJECT_BYTES) {
        return Some(Objects::Blocks);
    }
    let whole = sizes().all(|size| size > 0 && size.is_multiple_of(SECTOR_BYTES));
    whole.then_some(Objects::Sectors)
}

/// Parses a record; objects are blocks.
pub(crate) fn parse_blocks(raw: &[u8]) -> Result<TextLine, String> {
    let object = object(raw);
    let offset_bytes = object.checked_mul(OBJECT_BYTES).ok_or_else(|| {
        format!("object {object} is no 4 KiB block number: is this a trace of a disk?")
    })?;
    request(raw, offset_bytes, size(raw))
}

/// Parses a record; objects are sectors.
pub(crate) fn parse_sectors(raw: &[u8]) -> Result<TextLine, String> {
    let offset_bytes = sector_bytes(object(raw), "object")?;
    request(raw, offset_bytes, size(raw).next_multiple_of(SECTOR_BYTES))
}

fn object(raw: &[u8]) -> u64 {
    u64::from_le_bytes(raw[4..12].try_into().expect("eight bytes"))
}

fn size(raw: &[u8]) -> u64 {
    u32::from_le_bytes(raw[12..16].try_into().expect("four bytes")).into()
}

fn request(raw: &[u8], offset_bytes: u64, len_bytes: u64) -> Result<TextLine, String> {
    let seconds = u32::from_le_bytes(raw[..4].try_into().expect("four bytes"));
    Ok(TextLine::Record(TraceRecord {
        time: Nanos(u64::from(seconds) * 1_000_000_000),
        op: RecordOp::Read,
        offset_bytes,
        len_bytes: length(len_bytes)?,
        volume: 0,
        forced: false,
    }))
}

pub(crate) fn print(time: Nanos, block: u64) -> [u8; RECORD_BYTES] {
    let mut raw = [0; RECORD_BYTES];
    let seconds = u32::try_from(time.0 / 1_000_000_000).unwrap_or(u32::MAX);
    raw[0..4].copy_from_slice(&seconds.to_le_bytes());
    raw[4..12].copy_from_slice(&block.to_le_bytes());
    raw[12..16].copy_from_slice(&(OBJECT_BYTES as u32).to_le_bytes());
    raw[16..24].copy_from_slice(&(-1i64).to_le_bytes());
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(object: u64, size: u32) -> [u8; RECORD_BYTES] {
        let mut raw = print(Nanos::from_millis(7_500), object);
        raw[12..16].copy_from_slice(&size.to_le_bytes());
        raw
    }

    fn parsed(line: Result<TextLine, String>) -> (u64, u64, u32) {
        let Ok(TextLine::Record(record)) = line else {
            panic!("{line:?}");
        };
        (record.time.0, record.offset_bytes, record.len_bytes)
    }

    #[test]
    fn blocks_and_sectors_are_distinguished_by_their_sizes() {
        let blocks = parsed(parse_blocks(&record(99, 4096)));
        assert_eq!(blocks, (7_000_000_000, 99 * 4096, 4096));
        let sectors = parsed(parse_sectors(&record(99, 1000)));
        assert_eq!(sectors, (7_000_000_000, 99 * 512, 1024));
        for parse in [parse_blocks, parse_sectors] {
            assert!(parse(&[255; RECORD_BYTES]).is_err());
        }
        let of = |sizes: [u32; 2]| objects(&sizes.map(|size| record(8, size)).concat());
        assert_eq!(of([4096, 4096]), Some(Objects::Blocks));
        assert_eq!(of([4096, 32_768]), Some(Objects::Sectors));
        assert_eq!(of([4096, 700]), None);
        assert_eq!(objects(&[]), Some(Objects::Blocks));
    }
}
