//! The line map: for each slot the line in it, and its valid blocks.
//!
//! A checkpoint is a whole map. Its pages are numbered, and each names its checkpoint, so that a
//! page left from an older one is recognised.

use crate::Uuid;
use crate::page::{BODY_BYTES, PageError, PageHeader, kind, open, seal};
use crate::record::record;

const KIND: u32 = kind(*b"HSMP");

/// No second copy.
const NO_COPY: u32 = u32::MAX;

record! {
    /// The fixed part of a slot's entry. After it come the mask of valid blocks
    /// and the mask of dirty blocks, a bit a block, each rounded up to bytes; and
    /// a CRC32C for each block of the line.
    EntryRow, 24 {
        0 key: u64, "the line's number in the low 40 bits, its volume's id above; 0 for an empty slot";
        8 flags: u16, "zero";
        10 heat: u16, "how hot the line is, for policies; 0 if unknown";
        12 copy_slot: u32, "the slot of the second copy of dirty blocks; all ones for none";
        16 copy_device: u16, "the member that the second copy is on";
        18 reserved: u16, "zero";
        20 epoch: u32, "the low half of the epoch in which dirty blocks were written";
    }
}

/// A bit for each block of a line, of which there are up to 256.
pub type Mask = [u64; 4];

/// Bytes of a mask on the device.
pub(crate) const fn mask_bytes(line_blocks: u32) -> usize {
    line_blocks.div_ceil(8) as usize
}

pub(crate) fn put_mask(mask: &Mask, out: &mut [u8]) {
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = (mask[i / 8] >> (i % 8 * 8)) as u8;
    }
}

pub(crate) fn get_mask(bytes: &[u8]) -> Mask {
    let mut mask = [0; 4];
    for (i, byte) in bytes.iter().enumerate() {
        mask[i / 8] |= u64::from(*byte) << (i % 8 * 8);
    }
    mask
}

/// True if `mask` has bits only for blocks that a line has.
pub(crate) fn mask_fits(mask: &Mask, line_blocks: u32) -> bool {
    (line_blocks..256).all(|block| mask[block as usize / 64] >> (block % 64) & 1 == 0)
}

const fn entry_bytes(line_blocks: u32) -> usize {
    EntryRow::BYTES + 2 * mask_bytes(line_blocks) + 4 * line_blocks as usize
}

/// Entries of a page of the map, for lines of `line_blocks` blocks.
pub const fn entries_per_page(line_blocks: u32) -> u32 {
    (BODY_BYTES / entry_bytes(line_blocks)) as u32
}
const _: () = assert!(entries_per_page(256) == 3 && entries_per_page(16) == 44);

/// True if byte `at` of a page of the map is of a line's checksums.
pub const fn is_checksum(line_blocks: u32, at: usize) -> bool {
    let bytes = entry_bytes(line_blocks);
    let entries = bytes * entries_per_page(line_blocks) as usize;
    let Some(body) = at.checked_sub(PageHeader::BYTES) else {
        return false;
    };
    body < entries && body % bytes >= EntryRow::BYTES + 2 * mask_bytes(line_blocks)
}

/// The content of a slot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MapEntry {
    /// The line's key; 0 if the slot is empty.
    pub key: u64,
    /// The heat of the line; 0 if unknown.
    pub heat: u16,
    /// The valid blocks.
    pub valid: Mask,
    /// The dirty blocks; always empty so far.
    pub dirty: Mask,
    /// A checksum for each block; arbitrary for blocks that are not valid.
    pub crcs: Vec<u32>,
}

/// A page of the map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapPage {
    /// The page's number: its first slot is this times [`entries_per_page`].
    pub number: u64,
    /// The checkpoint that the page belongs to.
    pub generation: u32,
    /// The entries of its slots.
    pub entries: Vec<MapEntry>,
}

impl MapPage {
    /// Writes the page as one block.
    pub fn encode(&self, device: Uuid, line_blocks: u32, out: &mut [u8]) {
        let bytes = entry_bytes(line_blocks);
        let mask = mask_bytes(line_blocks);
        let slots = out[PageHeader::BYTES..].chunks_exact_mut(bytes);
        assert!(self.entries.len() <= entries_per_page(line_blocks) as usize);
        for (entry, out) in self.entries.iter().zip(slots) {
            let row = EntryRow {
                key: entry.key,
                flags: 0,
                heat: entry.heat,
                copy_slot: NO_COPY,
                copy_device: 0,
                reserved: 0,
                epoch: 0,
            };
            row.encode(out);
            let (masks, crcs) = out[EntryRow::BYTES..].split_at_mut(2 * mask);
            put_mask(&entry.valid, &mut masks[..mask]);
            put_mask(&entry.dirty, &mut masks[mask..]);
            for (out, crc) in crcs.chunks_exact_mut(4).zip(&entry.crcs) {
                out.copy_from_slice(&crc.to_le_bytes());
            }
        }
        let used = self.entries.len() * bytes;
        seal(out, KIND, device, self.number, used, self.generation);
    }

    /// Reads page `number` of checkpoint `generation`.
    pub fn decode(
        block: &[u8],
        device: Uuid,
        line_blocks: u32,
        number: u64,
        generation: u32,
    ) -> Result<MapPage, PageError> {
        let (header, body) = open(block, KIND, device)?;
        if (header.number, header.generation) != (number, generation) {
            return Err(PageError::Misplaced);
        }
        let mask = mask_bytes(line_blocks);
        let entry = |bytes: &[u8]| {
            let row = EntryRow::decode(bytes);
            let (masks, crcs) = bytes[EntryRow::BYTES..].split_at(2 * mask);
            let crcs = crcs.chunks_exact(4);
            let entry = MapEntry {
                key: row.key,
                heat: row.heat,
                valid: get_mask(&masks[..mask]),
                dirty: get_mask(&masks[mask..]),
                crcs: crcs
                    .map(|crc| u32::from_le_bytes(crc.try_into().expect("four bytes")))
                    .collect(),
            };
            let sound = row.flags == 0
                && mask_fits(&entry.valid, line_blocks)
                && entry.dirty == Mask::default();
            sound.then_some(entry).ok_or(PageError::Nonsense)
        };
        let bytes = entry_bytes(line_blocks);
        if !body.len().is_multiple_of(bytes) {
            return Err(PageError::Nonsense);
        }
        let entries: Result<_, _> = body.chunks_exact(bytes).map(entry).collect();
        Ok(MapPage {
            number,
            generation,
            entries: entries?,
        })
    }
}
