//! A superblock in two copies, so that no cut, rot or bad sector takes both.
//!
//! Invariants:
//!     the newer of two that are whole holds
//!     a copy that is noise, or cannot be read, hides nothing that the other says
//!     a first copy with known foreign content makes the pair foreign: the second is a remnant
//!
//! Not here: reading and writing them. A writer of both writes the worse copy first, so that a
//! cut leaves one.

use crate::SuperblockError;
use crate::signature::UNKNOWN;

/// A record that is written twice.
pub trait Paired: Sized {
    /// Reads one from its block.
    fn decode(block: &[u8]) -> Result<Self, SuperblockError>;
    /// Writes the record to a block.
    fn encode(&self, out: &mut [u8]);
    /// Counts its changes.
    fn sequence(&self) -> u64;
}

/// The state of two blocks, as far as readable.
pub struct BlockPair<T> {
    /// The one that holds. If neither does: the state of the better one.
    pub newest: Result<T, SuperblockError>,
    /// The first copy is the older, or none: a writer writes it first.
    pub first_is_worse: bool,
}

impl<T: Paired> BlockPair<T> {
    /// The state of both blocks.
    pub fn of(blocks: [Option<&[u8]>; 2]) -> BlockPair<T> {
        let read = |block: Option<&[u8]>| match block {
            Some(block) => T::decode(block),
            None => Err(SuperblockError::Damaged("it cannot be read")),
        };
        let [first, second] = blocks.map(read);
        let sequences = [&first, &second].map(|one| one.as_ref().ok().map(Paired::sequence));
        BlockPair {
            newest: newest(first, second),
            first_is_worse: sequences[0] < sequences[1],
        }
    }

    /// Any whole copy, though the device may be foreign by now.
    pub fn legible(blocks: [Option<&[u8]>; 2]) -> Option<T> {
        let blocks = blocks.into_iter().flatten();
        let whole = blocks.filter_map(|block| T::decode(block).ok());
        whole.max_by_key(Paired::sequence)
    }
}

fn newest<T: Paired>(
    first: Result<T, SuperblockError>,
    second: Result<T, SuperblockError>,
) -> Result<T, SuperblockError> {
    use SuperblockError::{Blank, Foreign, Version};
    match (first, second) {
        (Err(Version(v)), _) | (_, Err(Version(v))) => Err(Version(v)),
        (Err(Foreign(what)), Ok(one)) => match what == UNKNOWN {
            true => Ok(one),
            false => Err(Foreign(what)),
        },
        (Err(Foreign(what)), _) => Err(Foreign(what)),
        (Ok(a), Ok(b)) => Ok(if a.sequence() >= b.sequence() { a } else { b }),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        // A cut in the very first write.
        (Err(Blank), Err(_)) | (Err(_), Err(Blank)) => Err(Blank),
        (Err(error), Err(_)) => Err(error),
    }
}
