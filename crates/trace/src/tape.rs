//! Records between their producer and their writer, in
//! bounded memory: encoded as in the binary format, piece by piece.
//!
//! Invariant: the pieces taken, joined, are the records that were not
//! dropped, in order.

use crate::TraceRecord;
use crate::format::binary::{self, LastRecord};

/// Longest encoding of a record: four numbers of ten bytes.
const RECORD_BYTES_MAX: usize = 40;

/// A buffer of records; when full, drops and counts further ones.
pub struct RecordTape {
    last: LastRecord,
    bytes: Vec<u8>,
    bytes_max: usize,
    dropped: u64,
}

impl RecordTape {
    /// Holds `bytes_max` bytes of records, six or so each; allocates them now.
    pub fn new(bytes_max: usize) -> RecordTape {
        RecordTape {
            last: LastRecord::default(),
            bytes: Vec::with_capacity(bytes_max.max(RECORD_BYTES_MAX)),
            bytes_max: bytes_max.max(RECORD_BYTES_MAX),
            dropped: 0,
        }
    }

    /// Appends `record`, or drops and counts the record.
    #[inline]
    pub fn push(&mut self, record: &TraceRecord) {
        if self.bytes.len() + RECORD_BYTES_MAX > self.bytes_max {
            self.dropped += 1;
            return;
        }
        binary::encode(&mut self.last, record, &mut self.bytes);
    }

    /// Takes the records since the last call, encoded.
    pub fn take(&mut self) -> Vec<u8> {
        let piece = self.bytes.clone();
        self.bytes.clear();
        piece
    }

    /// Records dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Reads the pieces of one [`RecordTape`].
#[derive(Default)]
pub struct TapeReader {
    last: LastRecord,
}

impl TapeReader {
    /// The records of the next piece; `Err` if the bytes are no piece.
    pub fn records(&mut self, mut piece: &[u8]) -> std::io::Result<Vec<TraceRecord>> {
        let mut records = Vec::new();
        while let Some(record) = binary::decode(&mut self.last, &mut piece)? {
            records.push(record);
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordOp;
    use block::Nanos;

    fn record(i: u64) -> TraceRecord {
        TraceRecord {
            time: Nanos(i * 1000),
            op: if i.is_multiple_of(3) {
                RecordOp::Write
            } else {
                RecordOp::Read
            },
            offset_bytes: i * 7919 % 1000 * 4096,
            len_bytes: 4096,
            volume: 0,
            forced: i.is_multiple_of(6),
        }
    }

    #[test]
    fn what_is_taken_is_what_was_pushed() {
        let (mut tape, mut reader) = (RecordTape::new(1 << 16), TapeReader::default());
        let mut seen = Vec::new();
        for i in 0..1000 {
            tape.push(&record(i));
            if i % 100 == 99 {
                seen.extend(reader.records(&tape.take()).unwrap());
            }
        }
        assert_eq!(tape.dropped(), 0);
        assert_eq!(seen, (0..1000).map(record).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_tape_drops_and_counts_and_goes_on() {
        let (mut tape, mut reader) = (RecordTape::new(100), TapeReader::default());
        (0..1000).for_each(|i| tape.push(&record(i)));
        let first = reader.records(&tape.take()).unwrap();
        assert!(!first.is_empty() && first.len() < 20);
        assert_eq!(first.len() as u64 + tape.dropped(), 1000);
        tape.push(&record(1000));
        assert_eq!(reader.records(&tape.take()).unwrap(), [record(1000)]);
        assert!(reader.records(&[0x80]).is_err(), "a piece cut off");
    }
}
