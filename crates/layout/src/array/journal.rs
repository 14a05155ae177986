//! A record of the RAID 5 journal: the next write to one stripe.
//!
//! A record lies on the member that holds the stripe's parity: a header of 4096 bytes, the same
//! header once more if its slot has room for that, then the bytes of its runs one after the other.

use super::{MEMBERS_MAX, NUMBER_MAX, has_checksum, padded, set_checksum};
use crate::record::record;
use crate::{BLOCK_BYTES, BLOCK_SECTORS, Uuid};
use block::Sectors;

const MAGIC: [u8; 8] = *b"hotsetJR";

record! {
    /// The first fields of a record's header; the rest is 0.
    HeaderRow, 768 {
        0 magic: [u8; 8], "`hotsetJR`";
        8 crc: u32, "checksum of the header block";
        12 reserved: u32, "0";
        16 array: [u8; 16], "UUID of the array";
        32 number: u64, "number, from 1; some may be left out";
        40 tail: u64, "tail: records with lower numbers are done with";
        48 stripe: u64, "stripe";
        56 kind: u8, "1 redo, 2 whole stripe, 3 retire, 4 the stripe stays as it is";
        57 count: u8, "runs, or checksums";
        58 copied: u8, "1 if the header is there twice";
        59 reserved2: u8, "0";
        60 sum: u32, "redo: checksum of the bytes that follow the headers";
        64 durable: u64, "records with lower numbers were durable when this one was written";
        72 reserved3: [u8; 56], "0";
        128 runs: [RunRow; MEMBERS_MAX], "redo: runs: 32 of 16 bytes";
        640 sums: [u32; MEMBERS_MAX], "whole stripe: checksum of the new chunk of each role";
    }
}

record! {
    /// A run of a record.
    RunRow, 16 {
        0 role: u32, "role";
        4 from: u32, "first sector in the chunk";
        8 sectors: u32, "sectors";
        12 reserved: u32, "0";
    }
}

const CRC_AT: usize = HeaderRow::ROWS[1].offset as usize;

/// The sectors that one record may take, of stripes of chunks of `chunk` on so many
/// members.
pub fn slot_sectors(members: usize, chunk: Sectors) -> Sectors {
    Sectors(BLOCK_SECTORS + members as u64 * chunk.0)
}

/// Bytes for one member's chunk of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChunkRun {
    /// The member's role.
    pub member: u32,
    /// Offset in the member's chunk.
    pub from: Sectors,
    /// The length.
    pub len: Sectors,
}

impl ChunkRun {
    /// The member's role.
    pub fn role(&self) -> usize {
        self.member as usize
    }
}

/// The kind of the write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalEntry {
    /// The bytes that follow are written to these runs; to be done again after a crash.
    Redo {
        /// The runs, parity's among them.
        runs: Vec<ChunkRun>,
        /// The checksum of their bytes.
        sum: u32,
    },
    /// The whole stripe is written; these are the checksums of its new chunks,
    /// by role.
    Whole(Vec<u32>),
    /// No write; the record only carries the tail.
    Retire,
    /// No write: the write that the record had announced has failed. The stripe stays as the
    /// failure left it, whatever older records announce.
    Revoked,
}

/// A record's header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalRecord {
    /// The array.
    pub array: Uuid,
    /// The record's number on this member, counted from 1.
    pub number: u64,
    /// Records before this one are done with.
    pub tail: u64,
    /// Records before this one were all durable when this one was written.
    pub durable: u64,
    /// The copies of its header: one or two.
    pub headers: u8,
    /// The stripe.
    pub stripe: u64,
    /// The write to the stripe.
    pub entry: JournalEntry,
}

impl JournalRecord {
    /// Writes the header into `block`, of 4096 bytes.
    pub fn encode(&self, block: &mut [u8]) {
        let run = |run: &ChunkRun| RunRow {
            role: run.member,
            from: run.from.0 as u32,
            sectors: run.len.0 as u32,
            reserved: 0,
        };
        let none = HeaderRow::ZERO;
        let entry = match &self.entry {
            JournalEntry::Redo { runs, sum } => HeaderRow {
                kind: 1,
                count: runs.len() as u8,
                sum: *sum,
                runs: padded(runs.iter().map(run)),
                ..none
            },
            JournalEntry::Whole(sums) => HeaderRow {
                kind: 2,
                count: sums.len() as u8,
                sums: padded(sums.iter().copied()),
                ..none
            },
            JournalEntry::Retire => HeaderRow { kind: 3, ..none },
            JournalEntry::Revoked => HeaderRow { kind: 4, ..none },
        };
        let row = HeaderRow {
            magic: MAGIC,
            array: self.array.to_bytes(),
            number: self.number,
            tail: self.tail,
            stripe: self.stripe,
            copied: self.headers - 1,
            durable: self.durable,
            ..entry
        };
        block.fill(0);
        row.encode(block);
        set_checksum(block, CRC_AT);
    }

    /// Reads a header of `array`, which has stripes of `chunk` on each of `members` members; `None`
    /// if `block` holds none.
    pub fn decode(
        block: &[u8],
        array: Uuid,
        members: usize,
        chunk: Sectors,
    ) -> Option<JournalRecord> {
        let block = block.get(..BLOCK_BYTES)?;
        let row = HeaderRow::decode(block);
        let sound =
            row.magic == MAGIC && has_checksum(block, CRC_AT) && row.array == array.to_bytes();
        let count = usize::from(row.count);
        let possible =
            row.number < NUMBER_MAX && row.tail <= row.number && row.durable <= row.number;
        if !sound || count > members || !possible || row.copied > 1 {
            return None;
        }
        let run = |run: &RunRow| {
            let run = ChunkRun {
                member: run.role,
                from: Sectors(u64::from(run.from)),
                len: Sectors(u64::from(run.sectors)),
            };
            let inside = run.from.0 + run.len.0 <= chunk.0 && run.len.0 > 0;
            (run.role() < members && inside).then_some(run)
        };
        let entry = match row.kind {
            1 if count > 0 => JournalEntry::Redo {
                runs: row.runs[..count].iter().map(run).collect::<Option<_>>()?,
                sum: row.sum,
            },
            2 if count == members => JournalEntry::Whole(row.sums[..count].to_vec()),
            3 => JournalEntry::Retire,
            4 => JournalEntry::Revoked,
            _ => return None,
        };
        Some(JournalRecord {
            array,
            number: row.number,
            tail: row.tail,
            durable: row.durable,
            headers: row.copied + 1,
            stripe: row.stripe,
            entry,
        })
    }

    /// The bytes before those of its runs.
    pub fn head_bytes(&self) -> usize {
        usize::from(self.headers) * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_changed_bytes_seen() {
        let run = |member, from| ChunkRun {
            member,
            from: Sectors(from),
            len: Sectors(8),
        };
        let entries = [
            JournalEntry::Redo {
                runs: vec![run(0, 0), run(2, 120)],
                sum: 7,
            },
            JournalEntry::Whole(vec![1, 2, 3]),
            JournalEntry::Retire,
            JournalEntry::Revoked,
        ];
        for entry in entries {
            let record = JournalRecord {
                array: Uuid(5),
                number: 12,
                tail: 9,
                durable: 11,
                headers: 2,
                stripe: 1 << 40,
                entry,
            };
            let mut block = vec![0xff; BLOCK_BYTES];
            record.encode(&mut block);
            let read = |block: &[u8]| JournalRecord::decode(block, record.array, 3, Sectors(128));
            assert_eq!(read(&block), Some(record.clone()));
            assert_eq!(
                JournalRecord::decode(&block, Uuid(6), 3, Sectors(128)),
                None
            );
            for at in 0..BLOCK_BYTES {
                block[at] ^= 0x10;
                assert_eq!(read(&block), None, "byte {at}");
                block[at] ^= 0x10;
            }
        }
        let record = JournalRecord {
            array: Uuid(5),
            number: 1,
            tail: 1,
            durable: 0,
            headers: 1,
            stripe: 0,
            entry: JournalEntry::Redo {
                runs: vec![run(1, 124)],
                sum: 0,
            },
        };
        let mut block = vec![0; BLOCK_BYTES];
        record.encode(&mut block);
        assert_eq!(
            JournalRecord::decode(&block, record.array, 3, Sectors(128)),
            None
        );
    }

    #[test]
    fn a_whole_stripe_has_a_checksum_for_each_member() {
        for (sums, is_possible) in [(2, false), (3, true), (4, false)] {
            let record = JournalRecord {
                array: Uuid(5),
                number: 1,
                tail: 1,
                durable: 0,
                headers: 1,
                stripe: 0,
                entry: JournalEntry::Whole(vec![7; sums]),
            };
            let mut block = vec![0; BLOCK_BYTES];
            record.encode(&mut block);
            let read = JournalRecord::decode(&block, record.array, 3, Sectors(128));
            assert_eq!(read, is_possible.then_some(record), "{sums}");
        }
    }

    /// A checksum does not show that the numbers make sense.
    #[test]
    fn numbers_that_cannot_be_are_refused() {
        for (number, tail, runs, is_possible) in [
            (NUMBER_MAX - 1, NUMBER_MAX - 1, 1, true),
            (NUMBER_MAX, 1, 1, false),
            (5, 5, 3, true),
            (5, 6, 1, false),
            (5, 5, 0, false),
            (5, 5, 4, false),
        ] {
            let run = ChunkRun {
                len: Sectors(8),
                ..ChunkRun::default()
            };
            let record = JournalRecord {
                array: Uuid(5),
                number,
                tail,
                durable: tail,
                headers: 1,
                stripe: 0,
                entry: JournalEntry::Redo {
                    runs: vec![run; runs],
                    sum: 0,
                },
            };
            let mut block = vec![0; BLOCK_BYTES];
            record.encode(&mut block);
            let read = JournalRecord::decode(&block, record.array, 3, Sectors(128));
            assert_eq!(
                read,
                is_possible.then_some(record),
                "{number} {tail} {runs}"
            );
        }
    }
}
