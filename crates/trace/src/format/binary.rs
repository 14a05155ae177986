//! hotset's compressed binary form: eight bytes of magic, then a zstd stream of
//! records, each four LEB128 numbers:
//!
//! ```text
//! time_ns - last            (unsigned)
//! forced << 33 | len_bytes << 1 | write    (unsigned)
//! offset - end of last      (zigzag)
//! volume ^ last volume      (unsigned)
//! ```
//!
//! About six bytes a request before compression. A flush has the end of the record before it as its
//! offset, so that its third number is zero.

use crate::{RecordOp, TraceRecord};
use block::Nanos;
use std::io::{self, Read};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"HOTTRC1\n";

/// Bit of a record's second number: the write is forced.
const FORCED: u64 = 1 << 33;

/// The base of the differences in a record.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LastRecord {
    time: u64,
    end: u64,
    volume: u32,
}

impl LastRecord {
    fn set(&mut self, record: &TraceRecord) {
        self.time = record.time.0;
        self.volume = record.volume;
        if record.is_flush() {
            return;
        }
        self.end = record
            .offset_bytes
            .wrapping_add(u64::from(record.len_bytes));
    }
}

/// Appends `record` to `out`.
pub(crate) fn encode(last: &mut LastRecord, record: &TraceRecord, out: &mut Vec<u8>) {
    let write = u64::from(record.op == RecordOp::Write);
    let forced = if record.forced { FORCED } else { 0 };
    let seek = match record.is_flush() {
        true => 0,
        false => record.offset_bytes.wrapping_sub(last.end) as i64,
    };
    put(out, record.time.0.wrapping_sub(last.time));
    put(out, forced | u64::from(record.len_bytes) << 1 | write);
    put(out, ((seek << 1) ^ (seek >> 63)) as u64);
    put(out, u64::from(record.volume ^ last.volume));
    last.set(record);
}

/// The next record; `None` at a clean end.
pub(crate) fn decode(
    last: &mut LastRecord,
    from: &mut impl Read,
) -> io::Result<Option<TraceRecord>> {
    let Some(ticks) = get(from, true)? else {
        return Ok(None);
    };
    let mut more = || get(from, false).map(|v| v.expect("an end here is an error"));
    let (shape, zigzag, volume) = (more()?, more()?, more()?);
    let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let seek = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
    let mut record = TraceRecord {
        time: Nanos(last.time.wrapping_add(ticks)),
        op: if shape & 1 == 1 {
            RecordOp::Write
        } else {
            RecordOp::Read
        },
        offset_bytes: last.end.wrapping_add(seek as u64),
        len_bytes: u32::try_from((shape & !FORCED) >> 1)
            .map_err(|_| bad("a length beyond 32 bits"))?,
        volume: last.volume ^ u32::try_from(volume).map_err(|_| bad("a volume beyond 32 bits"))?,
        forced: shape & FORCED != 0,
    };
    if record.is_flush() {
        record.offset_bytes = 0;
    }
    last.set(&record);
    Ok(Some(record))
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// One number; `None` only if `may_end` and the stream ends before the number.
fn get(from: &mut impl Read, may_end: bool) -> io::Result<Option<u64>> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let mut byte = [0u8];
        if from.read(&mut byte)? == 0 {
            if may_end && shift == 0 {
                return Ok(None);
            }
            let what = "the file is cut off within a record";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        if shift == 63 && byte[0] > 1 {
            break;
        }
        value |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(Some(value));
        }
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "a number longer than 64 bits",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of `docs/trace-format.md`.
    #[test]
    fn the_bytes_are_those_of_the_definition() {
        let records = [
            TraceRecord {
                time: Nanos(1000),
                op: RecordOp::Write,
                offset_bytes: 8192,
                len_bytes: 4096,
                ..TraceRecord::default()
            },
            TraceRecord {
                time: Nanos(1005),
                op: RecordOp::Read,
                offset_bytes: 12_288,
                len_bytes: 4096,
                ..TraceRecord::default()
            },
            TraceRecord::flush(Nanos(1005), 0),
        ];
        let (mut last, mut bytes) = (LastRecord::default(), Vec::new());
        for record in &records {
            encode(&mut last, record, &mut bytes);
        }
        let write = [0xe8, 0x07, 0x81, 0x40, 0x80, 0x80, 0x01, 0x00];
        let read = [0x05, 0x80, 0x40, 0x00, 0x00];
        let flush = [0x00, 0x81, 0x80, 0x80, 0x80, 0x20, 0x00, 0x00];
        assert_eq!(bytes, [&write[..], &read, &flush].concat());
        let (mut last, mut bytes) = (LastRecord::default(), &bytes[..]);
        for record in records {
            assert_eq!(decode(&mut last, &mut bytes).unwrap(), Some(record));
        }
        assert_eq!(decode(&mut last, &mut bytes).unwrap(), None);
    }
}
