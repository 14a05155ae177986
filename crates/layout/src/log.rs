//! The log: changes of the map since its last checkpoint.
//!
//! A ring of blocks, each with the next sequence number. A record has the new content of a
//! slot: the line if that is new, the whole mask of valid
//! blocks, and the checksums of those that became valid since the slot's last
//! record. Replayed in order over a checkpoint no newer than its first record
//! but one, the records give the map.
//!
//! ```text
//! slot u32 | flags u8 | key u64 if flag 1 | valid mask | mask of checksums | CRC32C ...
//! ```

use crate::map::{Mask, get_mask, mask_bytes, mask_fits, put_mask};
use crate::page::{BODY_BYTES, PageError, PageHeader, kind, open, seal};
use crate::{BLOCK_BYTES, Uuid};

const KIND: u32 = kind(*b"HSLG");
/// The record names the line that the slot holds from now on.
const FLAG_KEY: u8 = 1;

const fn change_bytes_max(line_blocks: u32) -> usize {
    4 + 1 + 8 + 2 * mask_bytes(line_blocks) + 4 * line_blocks as usize
}
const _: () = assert!(change_bytes_max(256) <= BODY_BYTES);

/// The content of a slot from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotChange {
    /// The slot, counted on its device.
    pub slot: u32,
    /// The line, if another than before. Its other checksums are unknown.
    pub key: Option<u64>,
    /// The blocks that are valid.
    pub valid: Mask,
    /// The blocks with a checksum in the record.
    pub changed: Mask,
    /// Checksums of these blocks, in order.
    pub crcs: Vec<u32>,
}

impl SlotChange {
    /// Bytes of its record.
    pub fn bytes(&self, line_blocks: u32) -> usize {
        let key = if self.key.is_some() { 8 } else { 0 };
        4 + 1 + key + 2 * mask_bytes(line_blocks) + 4 * self.crcs.len()
    }
}

/// A block of the log being written.
pub struct LogBlock<'a> {
    out: &'a mut [u8],
    used: u32,
    line_blocks: u32,
}

impl<'a> LogBlock<'a> {
    /// An empty one, in a buffer of one block.
    pub fn new(out: &'a mut [u8], line_blocks: u32) -> LogBlock<'a> {
        assert!(out.len() == BLOCK_BYTES);
        LogBlock {
            out,
            used: 0,
            line_blocks,
        }
    }

    /// Adds a record; false if there is no room.
    pub fn push(&mut self, change: &SlotChange) -> bool {
        let bytes = change.bytes(self.line_blocks);
        let used = self.used as usize;
        if used + bytes > BODY_BYTES {
            return false;
        }
        let mask = mask_bytes(self.line_blocks);
        let out = &mut self.out[PageHeader::BYTES + used..][..bytes];
        out[..4].copy_from_slice(&change.slot.to_le_bytes());
        out[4] = if change.key.is_some() { FLAG_KEY } else { 0 };
        let mut at = 5;
        if let Some(key) = change.key {
            out[at..at + 8].copy_from_slice(&key.to_le_bytes());
            at += 8;
        }
        put_mask(&change.valid, &mut out[at..at + mask]);
        put_mask(&change.changed, &mut out[at + mask..at + 2 * mask]);
        let crcs = out[at + 2 * mask..].chunks_exact_mut(4);
        for (out, crc) in crcs.zip(&change.crcs) {
            out.copy_from_slice(&crc.to_le_bytes());
        }
        self.used += bytes as u32;
        true
    }

    /// True if the block holds no record.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Completes the block.
    pub fn seal(self, device: Uuid, sequence: u64, incarnation: u32) {
        let used = self.used as usize;
        seal(self.out, KIND, device, sequence, used, incarnation);
    }
}

/// The records of a block of the log.
pub struct LogReader<'a> {
    rest: &'a [u8],
    line_blocks: u32,
    incarnation: u32,
}

impl<'a> LogReader<'a> {
    /// Opens the block that is to have number `sequence`.
    pub fn open(
        block: &'a [u8],
        device: Uuid,
        line_blocks: u32,
        sequence: u64,
    ) -> Result<LogReader<'a>, PageError> {
        let (header, rest) = open(block, KIND, device)?;
        if header.number != sequence {
            return Err(PageError::Misplaced);
        }
        Ok(LogReader {
            rest,
            line_blocks,
            incarnation: header.generation,
        })
    }

    /// The incarnation of the pool that wrote the block. A block of an earlier incarnation than the
    /// block before is a remnant of a crash.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], PageError> {
        let (head, tail) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(PageError::Nonsense)?;
        self.rest = tail;
        Ok(head)
    }

    fn read(&mut self) -> Result<SlotChange, PageError> {
        let four = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let slot = four(self.take(4)?);
        let key = match self.take(1)?[0] {
            0 => None,
            FLAG_KEY => {
                let bytes = self.take(8)?.try_into().expect("eight bytes");
                Some(u64::from_le_bytes(bytes))
            }
            _ => return Err(PageError::Nonsense),
        };
        let mask = mask_bytes(self.line_blocks);
        let valid = get_mask(self.take(mask)?);
        let changed = get_mask(self.take(mask)?);
        if !mask_fits(&valid, self.line_blocks) || !mask_fits(&changed, self.line_blocks) {
            return Err(PageError::Nonsense);
        }
        let count: u32 = changed.iter().map(|word| word.count_ones()).sum();
        let crcs = self.take(4 * count as usize)?.chunks_exact(4);
        Ok(SlotChange {
            slot,
            key,
            valid,
            changed,
            crcs: crcs.map(four).collect(),
        })
    }
}

impl Iterator for LogReader<'_> {
    type Item = Result<SlotChange, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let change = self.read();
        if change.is_err() {
            self.rest = &[];
        }
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_is_longer_than_the_longest() {
        let change = SlotChange {
            slot: 1,
            key: Some(2),
            valid: Mask::default(),
            changed: Mask::default(),
            crcs: vec![0; 256],
        };
        assert_eq!(change.bytes(256), change_bytes_max(256));
    }
}
