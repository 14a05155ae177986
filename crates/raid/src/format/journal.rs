//! A record of the RAID 5 journal: what is about to be written to one stripe.
//!
//! A record lies on the member that holds the stripe's parity. It is a header
//! of 4096 bytes, the same header once more if its slot has room for that, then
//! the bytes of its runs one after the other.

use super::{BLOCK_BYTES, Fields, NUMBER_MAX, Uuid, checksum, put};
use crate::levels::MEMBERS_MAX;
use block::{SECTOR_BYTES, Sectors};

const MAGIC: &[u8; 8] = b"hotsetJR";
const AT_CHECKSUM: usize = 8;
const AT_RUNS: usize = 128;
const RUN_BYTES: usize = 16;
const AT_SUMS: usize = AT_RUNS + MEMBERS_MAX * RUN_BYTES;
const _: () = assert!(AT_SUMS + MEMBERS_MAX * 4 <= BLOCK_BYTES);

/// The sectors that one record may take, of stripes of chunks of `chunk` on so many
/// members.
pub(crate) fn slot_sectors(members: usize, chunk: Sectors) -> Sectors {
    Sectors(BLOCK_BYTES as u64 / SECTOR_BYTES + members as u64 * chunk.0)
}

/// Bytes for one member's chunk of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Run {
    /// The member's role.
    pub member: usize,
    /// Where in its chunk.
    pub from: Sectors,
    /// How long.
    pub len: Sectors,
}

/// What is about to happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// These runs, whose bytes follow, are written; to be done again after a
    /// crash.
    Redo {
        /// The runs, parity's among them.
        runs: Vec<Run>,
        /// The checksum of their bytes.
        sum: u32,
    },
    /// The whole stripe is written; these are the checksums of its new chunks,
    /// by role.
    Whole(Vec<u32>),
    /// Nothing; the record only carries the tail.
    Retire,
    /// Nothing: the write that the record had announced has failed, and the stripe
    /// stays as that left it, whatever older records announce.
    Revoked,
}

/// A record's header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// The array.
    pub array: Uuid,
    /// Its number on this member, counted from 1.
    pub number: u64,
    /// Records before this one are done with.
    pub tail: u64,
    /// Records before this one were all durable when this one was written.
    pub durable: u64,
    /// How often its header is there: once or twice.
    pub headers: u8,
    /// The stripe.
    pub stripe: u64,
    /// What is about to happen to it.
    pub entry: Entry,
}

impl Record {
    /// Writes the header into `block`, of 4096 bytes.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        put(block, 0, MAGIC);
        put(block, 16, &self.array.0);
        put(block, 32, &self.number.to_le_bytes());
        put(block, 40, &self.tail.to_le_bytes());
        put(block, 48, &self.stripe.to_le_bytes());
        block[58] = self.headers - 1;
        put(block, 64, &self.durable.to_le_bytes());
        match &self.entry {
            Entry::Redo { runs, sum } => {
                (block[56], block[57]) = (1, runs.len() as u8);
                put(block, 60, &sum.to_le_bytes());
                for (i, run) in runs.iter().enumerate() {
                    let at = AT_RUNS + i * RUN_BYTES;
                    put(block, at, &(run.member as u32).to_le_bytes());
                    put(block, at + 4, &(run.from.0 as u32).to_le_bytes());
                    put(block, at + 8, &(run.len.0 as u32).to_le_bytes());
                }
            }
            Entry::Whole(sums) => {
                (block[56], block[57]) = (2, sums.len() as u8);
                for (i, sum) in sums.iter().enumerate() {
                    put(block, AT_SUMS + i * 4, &sum.to_le_bytes());
                }
            }
            Entry::Retire => block[56] = 3,
            Entry::Revoked => block[56] = 4,
        }
        let sum = checksum(block, AT_CHECKSUM);
        put(block, AT_CHECKSUM, &sum.to_le_bytes());
    }

    /// Reads a header of `array`, whose stripes are chunks of `chunk` on
    /// `members` members; `None` if `block` holds none.
    pub(crate) fn decode(
        block: &[u8],
        array: Uuid,
        members: usize,
        chunk: Sectors,
    ) -> Option<Record> {
        let fields = Fields(block.get(..BLOCK_BYTES)?);
        let sound = block[..8] == *MAGIC
            && fields.u32(AT_CHECKSUM) == checksum(&block[..BLOCK_BYTES], AT_CHECKSUM)
            && fields.uuid(16) == array;
        let count = usize::from(fields.u8(57));
        let (number, tail, durable) = (fields.u64(32), fields.u64(40), fields.u64(64));
        let possible = number < NUMBER_MAX && tail <= number && durable <= number;
        if !sound || count > members || !possible || fields.u8(58) > 1 {
            return None;
        }
        let run = |i: usize| {
            let at = AT_RUNS + i * RUN_BYTES;
            let run = Run {
                member: fields.u32(at) as usize,
                from: Sectors(u64::from(fields.u32(at + 4))),
                len: Sectors(u64::from(fields.u32(at + 8))),
            };
            let inside = run.from.0 + run.len.0 <= chunk.0 && run.len.0 > 0;
            (run.member < members && inside).then_some(run)
        };
        let entry = match fields.u8(56) {
            1 if count > 0 => Entry::Redo {
                runs: (0..count).map(run).collect::<Option<_>>()?,
                sum: fields.u32(60),
            },
            2 if count == members => {
                Entry::Whole((0..count).map(|i| fields.u32(AT_SUMS + i * 4)).collect())
            }
            3 => Entry::Retire,
            4 => Entry::Revoked,
            _ => return None,
        };
        Some(Record {
            array,
            number,
            tail,
            durable,
            headers: fields.u8(58) + 1,
            stripe: fields.u64(48),
            entry,
        })
    }

    /// The bytes before those of its runs.
    pub(crate) fn head_bytes(&self) -> usize {
        usize::from(self.headers) * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_changed_bytes_seen() {
        let run = |member, from| Run {
            member,
            from: Sectors(from),
            len: Sectors(8),
        };
        let entries = [
            Entry::Redo {
                runs: vec![run(0, 0), run(2, 120)],
                sum: 7,
            },
            Entry::Whole(vec![1, 2, 3]),
            Entry::Retire,
            Entry::Revoked,
        ];
        for entry in entries {
            let record = Record {
                array: Uuid([5; 16]),
                number: 12,
                tail: 9,
                durable: 11,
                headers: 2,
                stripe: 1 << 40,
                entry,
            };
            let mut block = vec![0xff; BLOCK_BYTES];
            record.encode(&mut block);
            let read = |block: &[u8]| Record::decode(block, record.array, 3, Sectors(128));
            assert_eq!(read(&block), Some(record.clone()));
            assert_eq!(Record::decode(&block, Uuid([6; 16]), 3, Sectors(128)), None);
            for at in 0..BLOCK_BYTES {
                block[at] ^= 0x10;
                assert_eq!(read(&block), None, "byte {at}");
                block[at] ^= 0x10;
            }
        }
        let record = Record {
            array: Uuid([5; 16]),
            number: 1,
            tail: 1,
            durable: 0,
            headers: 1,
            stripe: 0,
            entry: Entry::Redo {
                runs: vec![run(1, 124)],
                sum: 0,
            },
        };
        let mut block = vec![0; BLOCK_BYTES];
        record.encode(&mut block);
        assert_eq!(Record::decode(&block, record.array, 3, Sectors(128)), None);
    }

    #[test]
    fn a_whole_stripe_has_a_checksum_for_each_member() {
        for (sums, is_possible) in [(2, false), (3, true), (4, false)] {
            let record = Record {
                array: Uuid([5; 16]),
                number: 1,
                tail: 1,
                durable: 0,
                headers: 1,
                stripe: 0,
                entry: Entry::Whole(vec![7; sums]),
            };
            let mut block = vec![0; BLOCK_BYTES];
            record.encode(&mut block);
            let read = Record::decode(&block, record.array, 3, Sectors(128));
            assert_eq!(read, is_possible.then_some(record), "{sums}");
        }
    }

    /// A checksum says nothing of what the numbers mean.
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
            let run = Run {
                len: Sectors(8),
                ..Run::default()
            };
            let record = Record {
                array: Uuid([5; 16]),
                number,
                tail,
                durable: tail,
                headers: 1,
                stripe: 0,
                entry: Entry::Redo {
                    runs: vec![run; runs],
                    sum: 0,
                },
            };
            let mut block = vec![0; BLOCK_BYTES];
            record.encode(&mut block);
            let read = Record::decode(&block, record.array, 3, Sectors(128));
            assert_eq!(
                read,
                is_possible.then_some(record),
                "{number} {tail} {runs}"
            );
        }
    }
}
