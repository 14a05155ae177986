//! libCacheSim's oracleGeneral: packed little-endian records of 24 bytes,
//! `{u32 seconds, u64 object, u32 size, i64 next_access}`, without a header.
//!
//! An object is a block: its number times the size is the offset when writing
//! (one object for each 4 KiB block), and the object number is taken as a 4 KiB
//! block number when reading. The format has no operation: all are reads. The
//! next access is written as -1, "unknown", which readers recompute.

use super::length;
use crate::{Op, Record};
use block::Nanos;

pub(crate) const RECORD_BYTES: usize = 24;

/// The bytes of one object.
pub(crate) const OBJECT_BYTES: u64 = 4096;

pub(crate) fn parse(raw: &[u8; RECORD_BYTES]) -> Result<Record, String> {
    let word = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().expect("four bytes"));
    let object = u64::from_le_bytes(raw[4..12].try_into().expect("eight bytes"));
    let offset_bytes = object
        .checked_mul(OBJECT_BYTES)
        .ok_or_else(|| format!("object {object} is no 4 KiB block number"))?;
    Ok(Record {
        time: Nanos(u64::from(word(0)) * 1_000_000_000),
        op: Op::Read,
        offset_bytes,
        len_bytes: length(u64::from(word(12)))?,
        volume: 0,
        forced: false,
    })
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

    #[test]
    fn reads_what_it_writes() {
        let record = parse(&print(Nanos::from_millis(7_500), 99)).unwrap();
        assert_eq!(
            (record.time.0, record.offset_bytes),
            (7_000_000_000, 99 * 4096)
        );
        assert!(parse(&[255; RECORD_BYTES]).is_err());
    }
}
