//! Bitmap: regions of volumes in which lines may no longer agree with the origin.
//!
//! A bit stands for a region of one volume, or of several, since there are more
//! regions than bits. The bits of neighbouring regions are neighbours. Two pairs
//! of blocks are written in turn, each pair with the same bits twice, so that
//! neither a write that was torn nor a flipped bit of a device loses a bit of the bitmap.

use crate::page::{BODY_BYTES, PageError, PageHeader, kind, open, seal};
use crate::record::record;
use crate::{BLOCK_BYTES, Uuid};
use block::Regions;

const KIND: u32 = kind(*b"HSMK");

record! {
    /// The fields before the bits.
    BitmapRow, 32 {
        0 epoch: u64, "the epoch of the pool in which they were written";
        8 log_end: u64, "the log was durable up to before this sequence number";
        16 reserved: u128, "zero";
    }
}

/// Bits of a bitmap.
pub const BITMAP_BITS: u32 = ((BODY_BYTES - BitmapRow::BYTES) * 8) as u32;
const WORDS: usize = BITMAP_BITS as usize / 64;
const _: () = assert!(BITMAP_BITS == 32_256 && BITMAP_BITS.is_multiple_of(64));
const _: () = assert!(PageHeader::BYTES + BitmapRow::BYTES + WORDS * 8 == BLOCK_BYTES);

/// One version of the write-intent bitmap of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bitmap {
    /// The version; counts up.
    pub version: u64,
    /// The epoch in which the bits were written.
    pub epoch: u64,
    /// The log was durable up to before this when the bits were written.
    pub log_end: u64,
    /// The bits that are set.
    pub regions: Regions,
}

impl Bitmap {
    /// No bit is set.
    pub fn none() -> Bitmap {
        Bitmap {
            version: 0,
            epoch: 0,
            log_end: 0,
            regions: Regions::none(BITMAP_BITS as usize),
        }
    }

    /// The bit of region `region` of the volume with this id.
    ///
    /// Volumes start at places spread by the golden ratio's multiplier (Knuth,
    /// volume 3, 6.4), so that small ones seldom share bits.
    pub fn bit(volume: u32, region: u64) -> u32 {
        let start = u64::from(volume.wrapping_mul(0x9e37_79b1)) % u64::from(BITMAP_BITS);
        ((start + region) % u64::from(BITMAP_BITS)) as u32
    }

    /// Writes one of the two equal blocks of a pair.
    pub fn encode(&self, device: Uuid, out: &mut [u8]) {
        let row = BitmapRow {
            epoch: self.epoch,
            log_end: self.log_end,
            reserved: 0,
        };
        row.encode(&mut out[PageHeader::BYTES..]);
        let bits = &mut out[PageHeader::BYTES + BitmapRow::BYTES..];
        for (bytes, word) in bits.chunks_exact_mut(8).zip(self.regions.words()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        seal(out, KIND, device, self.version, BODY_BYTES, 0);
    }

    /// Reads one block.
    pub fn decode(block: &[u8], device: Uuid) -> Result<Bitmap, PageError> {
        let (header, body) = open(block, KIND, device)?;
        if body.len() != BODY_BYTES {
            return Err(PageError::Nonsense);
        }
        let row = BitmapRow::decode(body);
        let words = body[BitmapRow::BYTES..].chunks_exact(8);
        let words = words.map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
        let regions = Regions::from_words(BITMAP_BITS as usize, words.collect());
        Ok(Bitmap {
            version: header.number,
            epoch: row.epoch,
            log_end: row.log_end,
            regions: regions.expect("as many as there are bits"),
        })
    }

    /// The block of the area at which version `version` is written; its second copy is the next
    /// block.
    pub fn place(version: u64) -> u64 {
        version % 2 * 2
    }
}

/// The newest bitmap in its area; `None` if no block of the area is sound, or one is of another
/// device. In the latter case a write from before `device` was reinitialised has landed late, and
/// may have overwritten a newer bitmap. Then every region must be taken for marked.
pub fn newest_bitmap(area: &[u8], device: Uuid) -> Option<Bitmap> {
    let blocks = area.chunks_exact(BLOCK_BYTES);
    let mut newest: Option<Bitmap> = None;
    for found in blocks.map(|block| Bitmap::decode(block, device)) {
        match found {
            Err(PageError::Foreign) => return None,
            Ok(bitmap) if newest.as_ref().is_none_or(|n| n.version < bitmap.version) => {
                newest = Some(bitmap);
            }
            _ => {}
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(versions: &[u64]) -> Vec<u8> {
        let mut area = vec![0; 4 * BLOCK_BYTES];
        for version in versions {
            let mut bitmap = Bitmap::none();
            bitmap.version = *version;
            bitmap.regions.add(*version as usize);
            let at = Bitmap::place(*version) as usize * BLOCK_BYTES;
            for copy in 0..2 {
                let at = at + copy * BLOCK_BYTES;
                bitmap.encode(Uuid(7), &mut area[at..at + BLOCK_BYTES]);
            }
        }
        area
    }

    #[test]
    fn the_newest_survives_a_flip_and_a_torn_successor() {
        let mut area = written(&[5, 6]);
        assert!(newest_bitmap(&area, Uuid(7)).unwrap().regions.has(6));
        assert_eq!(newest_bitmap(&area, Uuid(8)), None);
        let newest = Bitmap::place(6) as usize * BLOCK_BYTES;
        area[newest + 99] ^= 4;
        assert_eq!(newest_bitmap(&area, Uuid(7)).unwrap().version, 6);
        area[newest + BLOCK_BYTES + 99] ^= 4;
        let older = newest_bitmap(&area, Uuid(7)).unwrap();
        assert!(older.version == 5 && older.regions.has(5) && !older.regions.has(6));
        area.fill(0);
        assert_eq!(newest_bitmap(&area, Uuid(7)), None);
    }

    #[test]
    fn a_sound_bitmap_of_another_device_leaves_none_to_trust() {
        let mut area = written(&[5, 6]);
        for block in 0..4 {
            let at = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
            let ours = area[at.clone()].to_vec();
            Bitmap::none().encode(Uuid(8), &mut area[at.clone()]);
            assert_eq!(newest_bitmap(&area, Uuid(7)), None);
            area[at].copy_from_slice(&ours);
        }
        assert!(newest_bitmap(&area, Uuid(7)).is_some());
    }

    #[test]
    fn neighbours_have_neighbouring_bits_and_all_wrap() {
        for volume in [0, 1, 77, u32::MAX] {
            let at = |region| Bitmap::bit(volume, region);
            assert_eq!((at(0) + 1) % BITMAP_BITS, at(1));
            assert_eq!(at(3), at(3 + u64::from(BITMAP_BITS)));
        }
    }
}
