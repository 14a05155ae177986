//! Reads of a cached device that frontends carry out, on a disk of the driver.
//!
//! ```text
//! the asking shard ─(look-up)─> the device's shard
//!        └─ read ─> disk
//! ```
//!
//! The device's shard looks a read up and answers with the disk and the checksums. The asking shard,
//! which may be the same, reads the disk and accepts the bytes, or asks for the bytes themselves.
//!
//! Invariants:
//!     a located block of the disk is about to be written ⟹ its generation has changed before
//!     bytes are accepted ⟹ they are the device's at the look-up
//!
//! So accepted bytes are those of a read that ran at the look-up: a later change of the device is
//! acknowledged after the read began.
//!
//! Not here: the checksum's computation, and the choice of reads to locate.

use crate::units::{Lba, Nanos, Sectors, TargetId};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Most blocks of a located read: 512 KiB.
pub const LOCATED_BLOCKS_MAX: usize = 128;
/// Bytes of a block, which has one checksum.
pub const LOCATED_BLOCK_BYTES: usize = 4096;
/// Generations of a device. Slots that are equal modulo this number share one: a write to one
/// refuses reads of the others in flight, which costs another look-up and nothing else.
const GENERATIONS: usize = 4096;

/// The generations of the slots of a cache, shared by all shards.
pub struct Generations {
    numbers: Box<[AtomicU32]>,
    /// Time limit of a located read.
    limit: Nanos,
}

/// A slot's generation at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Generation {
    index: u32,
    number: u32,
}

impl Generations {
    /// Generations of a cache that waits for a disk as long as `limit`.
    pub fn new(limit: Nanos) -> Generations {
        Generations {
            numbers: (0..GENERATIONS).map(|_| AtomicU32::new(0)).collect(),
            limit,
        }
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

    /// Refuses the located reads of `slot` in flight. Called before the slot is written.
    #[inline]
    pub fn change(&self, slot: u32) {
        self.numbers[slot as usize % GENERATIONS].fetch_add(1, SeqCst);
    }

    /// Refuses all located reads in flight. Called before a disk is closed.
    pub fn change_all(&self) {
        for number in &self.numbers {
            number.fetch_add(1, SeqCst);
        }
    }

    /// True if the slot of `seen` was not about to be written since.
    #[inline]
    pub fn is_present(&self, seen: Generation) -> bool {
        self.numbers[seen.index as usize].load(SeqCst) == seen.number
    }
}

/// The checksums of the blocks of a read.
#[derive(Clone, Debug)]
pub enum Checksums {
    /// Of the only block.
    One(u32),
    /// Of each block, in order.
    Each(Box<[u32]>),
}

impl Checksums {
    /// True if `checksum` gives the same for each of `blocks`.
    #[inline]
    pub fn are_of(&self, blocks: &[u8], checksum: impl Fn(&[u8]) -> u32) -> bool {
        match self {
            Checksums::One(one) => checksum(blocks) == *one,
            Checksums::Each(each) => blocks
                .chunks_exact(LOCATED_BLOCK_BYTES)
                .zip(each)
                .all(|(block, expected)| checksum(block) == *expected),
        }
    }
}

/// A read of whole blocks: those of one slot, which are together on one disk, and the rest.
#[derive(Clone, Debug)]
pub struct LocatedRead {
    /// The disk.
    pub target: TargetId,
    /// The first block on the disk.
    pub at: Lba,
    /// Number of blocks of the slot.
    pub blocks: u32,
    /// Bytes of the blocks before the first that was asked for.
    pub skip: u32,
    /// CRC32C of each block.
    pub checksums: Checksums,
    /// Generation of the slot at the look-up.
    pub generation: Option<Generation>,
    /// The disk's number in its cache.
    pub member: u32,
    /// The blocks that follow, of one slot each.
    pub rest: Vec<LocatedRead>,
}

impl LocatedRead {
    /// A read on a disk of the driver; its cache adds the rest.
    pub fn on(target: TargetId, at: Lba) -> LocatedRead {
        LocatedRead {
            target,
            at,
            blocks: 0,
            skip: 0,
            checksums: Checksums::One(0),
            generation: None,
            member: 0,
            rest: Vec::new(),
        }
    }

    /// Bytes of the blocks of the slot.
    pub fn bytes(&self) -> usize {
        self.blocks as usize * LOCATED_BLOCK_BYTES
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_about_to_be_written_has_another_generation() {
        let generations = Generations::new(Nanos::from_millis(1));
        let (one, other) = (generations.of(1), generations.of(2));
        generations.change(1);
        assert!(!generations.is_present(one) && generations.is_present(other));
        assert!(generations.is_present(generations.of(1)));
        generations.change_all();
        assert!(!generations.is_present(other));
    }

    #[test]
    fn each_block_is_compared_with_its_own_checksum() {
        let sum = |block: &[u8]| block.iter().map(|byte| u32::from(*byte)).sum();
        let mut blocks = vec![1; 2 * LOCATED_BLOCK_BYTES];
        let each = Checksums::Each([4096, 4096].into());
        assert!(each.are_of(&blocks, sum));
        blocks[LOCATED_BLOCK_BYTES] = 2;
        assert!(!each.are_of(&blocks, sum));
        assert!(Checksums::One(4096).are_of(&blocks[..LOCATED_BLOCK_BYTES], sum));
    }
}
