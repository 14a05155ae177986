//! Reads of a cached device that frontends carry out, on a disk of the driver.
//!
//! ```text
//! the asking shard ─(look-up)─> the device's shard
//!        └─ read ─> disk
//! ```
//!
//! The device's shard looks a read up and answers with the disk and the checksums. The asking shard,
//! which may be the same, reads the disk and accepts the bytes, or asks for the bytes themselves.
//! A further shard keeps the places of whole *units*, and reads hits of these without a look-up.
//!
//! Invariants:
//!     a block of a slot stops being the device's ⟹ the slot's generation has changed before
//!     bytes are accepted ⟹ they were the device's from the look-up to the end of the read
//!
//! So the read of accepted bytes runs at its end, wherever and whenever it was looked up.
//!
//! Not here: the checksum's computation, the choice of reads to locate, and the kept units
//! (`shard`).

use crate::buf::SharedBuf;
use crate::error::IoResult;
use crate::signal::Signal;
use crate::units::{Extent, Lba, Nanos, SECTOR_BYTES, Sectors, TargetId};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Most blocks of a located read: 512 KiB.
pub const LOCATED_BLOCKS_MAX: usize = 128;
/// Bytes of a block, which has one checksum.
pub const LOCATED_BLOCK_BYTES: usize = 4096;
/// Sectors of a block.
pub const LOCATED_BLOCK_SECTORS: u64 = LOCATED_BLOCK_BYTES as u64 / SECTOR_BYTES;
/// Most blocks of a unit: 64 KiB.
pub const UNIT_BLOCKS_MAX: u32 = 16;
/// Generations of a device. Slots that are equal modulo this number share one: a change of one
/// refuses reads of the others, which costs another look-up and nothing else.
const GENERATIONS: usize = 16_384;

/// The generations of the slots of a cache, shared by all shards.
pub struct Generations {
    numbers: Box<[AtomicU64]>,
    /// Time limit of a located read.
    limit: Nanos,
    /// Blocks of a unit, a power of two.
    unit_blocks: u32,
}

/// A slot's generation at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Generation {
    index: u32,
    number: u64,
}

impl Generations {
    /// Generations of a cache that waits for a disk as long as `limit`. Its slots have
    /// `slot_blocks` blocks, a power of two.
    pub fn new(limit: Nanos, slot_blocks: u32) -> Generations {
        Generations {
            numbers: (0..GENERATIONS).map(|_| AtomicU64::new(0)).collect(),
            limit,
            unit_blocks: slot_blocks.min(UNIT_BLOCKS_MAX),
        }
    }

    /// Blocks of a unit: a power of two, at most [`UNIT_BLOCKS_MAX`].
    #[inline]
    pub fn unit_blocks(&self) -> u32 {
        self.unit_blocks
    }

    /// Time limit of a located read.
    pub fn limit(&self) -> Nanos {
        self.limit
    }

    /// The generation of `slot` now.
    #[inline]
    pub fn of(&self, slot: u32) -> Generation {
        let index = slot as usize % GENERATIONS;
        Generation {
            index: index as u32,
            number: self.numbers[index].load(SeqCst),
        }
    }

    /// Refuses the located reads of `slot`. Called before a block of the slot stops being the
    /// device's.
    #[inline]
    pub fn change(&self, slot: u32) {
        self.numbers[slot as usize % GENERATIONS].fetch_add(1, SeqCst);
    }

    /// Refuses all located reads. Called before a disk is closed.
    pub fn change_all(&self) {
        for number in &self.numbers {
            number.fetch_add(1, SeqCst);
        }
    }

    /// True if the slot of `seen` has lost no block since.
    #[inline]
    pub fn is_present(&self, seen: Generation) -> bool {
        self.numbers[seen.index as usize].load(SeqCst) == seen.number
    }
}

/// A place on a disk of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskPlace {
    /// The disk.
    pub target: TargetId,
    /// The first sector there.
    pub at: Lba,
}

/// A read of whole blocks: those of one slot, which are together on one disk, and the rest.
#[derive(Clone, Debug)]
pub struct LocatedRead {
    /// The first block on the disk.
    pub place: DiskPlace,
    /// Number of blocks of the slot.
    pub blocks: u32,
    /// Bytes of the blocks before the first that was asked for.
    pub skip: u32,
    /// CRC32C of the first block.
    pub checksum: u32,
    /// The disk's number in its cache.
    pub member: u32,
    /// Generation of the slot at the look-up.
    pub generation: Generation,
    /// Of a read of more than one block.
    pub more: Option<Box<MoreBlocks>>,
}

/// The blocks of a read after the first.
#[derive(Clone, Debug, Default)]
pub struct MoreBlocks {
    /// CRC32C of each further block of the slot.
    pub checksums: Vec<u32>,
    /// The blocks that follow, of one slot each.
    pub rest: Vec<LocatedRead>,
}

impl LocatedRead {
    /// Bytes of the blocks of the slot.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.blocks as usize * LOCATED_BLOCK_BYTES
    }

    /// The blocks that follow, of one slot each.
    #[inline]
    pub fn rest(&self) -> &[LocatedRead] {
        self.more.as_ref().map_or(&[], |more| &more.rest)
    }

    /// True if each of the slot's `blocks` has its checksum, by `checksum`.
    #[inline]
    pub fn is_sound(&self, blocks: &[u8], checksum: impl Fn(&[u8]) -> u32) -> bool {
        let (first, others) = blocks.split_at(LOCATED_BLOCK_BYTES);
        if checksum(first) != self.checksum {
            return false;
        }
        let Some(more) = &self.more else { return true };
        let mut others = others
            .chunks_exact(LOCATED_BLOCK_BYTES)
            .zip(&more.checksums);
        others.all(|(block, expected)| checksum(block) == *expected)
    }
}

impl MoreBlocks {
    /// The further blocks of a slot, if there are any, by their checksums.
    #[inline]
    pub fn of(checksums: impl ExactSizeIterator<Item = u32>) -> Option<Box<MoreBlocks>> {
        let is_any = checksums.len() > 0;
        is_any.then(|| {
            Box::new(MoreBlocks {
                checksums: checksums.collect(),
                rest: Vec::new(),
            })
        })
    }
}

/// The places of the blocks of a unit: blocks of one slot, aligned to their number.
#[derive(Clone, Debug)]
pub struct LocatedUnit {
    /// The unit on the device.
    pub extent: Extent,
    /// The unit's first block on the disk.
    pub place: DiskPlace,
    /// The disk's number in its cache.
    pub member: u32,
    /// Generation of the slot at the look-up.
    pub generation: Generation,
    /// Bit `i` is set if block `i` is the device's.
    pub valid: u16,
    /// CRC32C of each valid block.
    pub checksums: [u32; UNIT_BLOCKS_MAX as usize],
}

impl LocatedUnit {
    /// The read of `blocks` of the unit, if all are valid.
    #[inline]
    pub fn read(&self, blocks: Range<u32>) -> Option<LocatedRead> {
        let count = blocks.end - blocks.start;
        let asked = (u32::MAX >> (32 - count)) << blocks.start;
        if u32::from(self.valid) & asked != asked {
            return None;
        }
        let skipped = u64::from(blocks.start) * LOCATED_BLOCK_SECTORS;
        let (first, end) = (blocks.start as usize, blocks.end as usize);
        let checksum = self.checksums[first];
        Some(LocatedRead {
            place: DiskPlace {
                at: Lba(self.place.at.0 + skipped),
                ..self.place
            },
            blocks: count,
            skip: 0,
            checksum,
            member: self.member,
            generation: self.generation,
            more: MoreBlocks::of(self.checksums[first + 1..end].iter().copied()),
        })
    }
}

/// A read of a frontend, which gets this back with the end.
#[derive(Clone, Copy, Debug)]
pub struct AskedRead {
    /// The first byte.
    pub offset: u64,
    /// Bytes, at least one.
    pub len: u32,
    /// The memory that the frontend counts for the read, in bytes.
    pub charge: u32,
    /// The frontend's name of the read.
    pub ticket: u64,
}

impl AskedRead {
    /// The read of `len` bytes at `offset`, without a name or a charge.
    pub fn of(offset: u64, len: usize) -> AskedRead {
        AskedRead {
            offset,
            len: len as u32,
            charge: 0,
            ticket: 0,
        }
    }
}

/// Takes the ends of the reads of a frontend, while the shard takes in completions.
pub trait ReadTaker {
    /// Takes the bytes of `read`, or its error.
    fn take_read(self: Rc<Self>, read: &AskedRead, result: IoResult<SharedBuf>);
}

/// Takes the result of one read for a task.
#[derive(Default)]
pub struct TakenRead {
    result: RefCell<Option<IoResult<SharedBuf>>>,
    taken: Signal,
}

impl TakenRead {
    /// Waits for the result.
    pub async fn result(&self) -> IoResult<SharedBuf> {
        self.taken.until_some(|| self.result.take()).await
    }
}

impl ReadTaker for TakenRead {
    fn take_read(self: Rc<Self>, _: &AskedRead, result: IoResult<SharedBuf>) {
        self.result.replace(Some(result));
        self.taken.notify();
    }
}

/// The fate of a located read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocatedFate {
    /// The bytes were accepted.
    Accepted,
    /// The device is asked for the bytes: they are damaged or rewritten, or the disk failed.
    Refused,
    /// The device is asked for the bytes: the disk did not answer within the limit.
    Late,
}

/// The end of the read of one slot, for the counters of the device's shard.
#[derive(Clone, Copy, Debug)]
pub struct LocatedEnd {
    /// Its fate.
    pub fate: LocatedFate,
    /// The disk's number in its cache.
    pub member: u32,
    /// Sectors read of the disk.
    pub sectors: Sectors,
    /// Time of the disk.
    pub time: Nanos,
    /// The client's request, if this read ends the request.
    pub request: Option<LocatedRequest>,
}

/// A client's request that located reads have served.
#[derive(Clone, Copy, Debug)]
pub struct LocatedRequest {
    /// Its sectors.
    pub sectors: Sectors,
    /// Its time.
    pub time: Nanos,
}

/// Reads, with their times to two digits.
#[derive(Clone, Debug, Default)]
pub struct ReadTimes {
    /// Sectors of all reads.
    pub sectors: Sectors,
    /// Times, each with the number of reads.
    pub times: Vec<(Nanos, u64)>,
}

impl ReadTimes {
    /// Number of reads.
    pub fn count(&self) -> u64 {
        self.times.iter().map(|(_, count)| count).sum()
    }
}

/// A place that was kept and read.
#[derive(Clone, Copy, Debug)]
pub struct KeptTouch {
    /// The part of the last read there, within a unit.
    pub extent: Extent,
    /// Number of reads there.
    pub reads: u32,
}

/// Hits of kept places, which the device has not looked up, for its counters.
#[derive(Clone, Debug, Default)]
pub struct KeptHits {
    /// The clients' requests.
    pub requests: ReadTimes,
    /// Blocks of the requests.
    pub blocks: u64,
    /// The reads of each disk, by the disk's number in its cache.
    pub disks: Vec<(u32, ReadTimes)>,
    /// The places; one may come twice.
    pub touched: Vec<KeptTouch>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_about_to_be_written_has_another_generation() {
        let generations = Generations::new(Nanos::from_millis(1), 16);
        let (one, other) = (generations.of(1), generations.of(2));
        generations.change(1);
        assert!(!generations.is_present(one) && generations.is_present(other));
        assert!(generations.is_present(generations.of(1)));
        generations.change_all();
        assert!(!generations.is_present(other));
    }

    #[test]
    fn a_unit_gives_the_reads_of_its_valid_blocks_alone() {
        let generations = Generations::new(Nanos::from_millis(1), 256);
        assert_eq!(generations.unit_blocks(), 16);
        let unit = LocatedUnit {
            extent: Extent::new(Lba(128), Sectors(128)),
            place: DiskPlace {
                target: TargetId(3),
                at: Lba(1000),
            },
            member: 1,
            generation: generations.of(5),
            valid: 0b1000_0000_0000_1110,
            checksums: std::array::from_fn(|block| block as u32),
        };
        let two = unit.read(2..4).unwrap();
        assert_eq!(
            (two.place.at, two.blocks, two.bytes()),
            (Lba(1016), 2, 8192)
        );
        assert_eq!(
            (two.checksum, &two.more.unwrap().checksums[..]),
            (2, &[3][..])
        );
        let last = unit.read(15..16).unwrap();
        assert!(last.checksum == 15 && last.more.is_none());
        for missing in [0..1, 0..2, 3..5, 14..16, 0..16] {
            assert!(unit.read(missing.clone()).is_none(), "{missing:?}");
        }
    }

    #[test]
    fn each_block_is_compared_with_its_own_checksum() {
        let sum = |block: &[u8]| block.iter().map(|byte| u32::from(*byte)).sum();
        let mut blocks = vec![1; 2 * LOCATED_BLOCK_BYTES];
        let generations = Generations::new(Nanos::from_millis(1), 16);
        let read = |more: &[u32]| LocatedRead {
            place: DiskPlace {
                target: TargetId(0),
                at: Lba(0),
            },
            blocks: 1 + more.len() as u32,
            skip: 0,
            checksum: 4096,
            member: 0,
            generation: generations.of(0),
            more: MoreBlocks::of(more.iter().copied()),
        };
        assert!(read(&[4096]).is_sound(&blocks, sum));
        blocks[LOCATED_BLOCK_BYTES] = 2;
        assert!(!read(&[4096]).is_sound(&blocks, sum));
        assert!(read(&[]).is_sound(&blocks[..LOCATED_BLOCK_BYTES], sum));
        blocks[0] = 2;
        assert!(!read(&[4097]).is_sound(&blocks, sum));
    }
}
