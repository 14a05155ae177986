//! Sparse contents in 4 KiB pages that are copied only when they diverge.
//!
//! A page that is absent reads as zeroes. Cloning a page, or keeping one in two
//! maps, copies nothing.

use block::{Extent, Lba, SECTOR_BYTES};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;
static ZEROES: Bytes = [0; PAGE_BYTES];
/// All sectors of a page.
pub(crate) const WHOLE: u8 = u8::MAX;

pub(crate) type Bytes = [u8; PAGE_BYTES];

/// A page's bytes; `None` is zeroes.
pub(crate) type Page = Option<Rc<Bytes>>;

/// New bytes for some sectors of one page.
#[derive(Clone)]
pub(crate) struct PagePiece {
    pub page: u64,
    /// Bit `i`: sector `i` of the page is new.
    pub mask: u8,
    /// The bytes, valid in the sectors of the mask.
    pub bytes: Page,
}

impl PagePiece {
    /// The bytes, to be changed; no other holder of them notices.
    pub fn bytes_mut(&mut self) -> &mut Bytes {
        Rc::make_mut(self.bytes.get_or_insert_with(|| Rc::new([0; PAGE_BYTES])))
    }
}

/// Page number to bytes.
#[derive(Clone, Default)]
pub(crate) struct PageMap(HashMap<u64, Rc<Bytes>, BuildHasherDefault<PageHasher>>);

impl PageMap {
    pub fn page(&self, page: u64) -> Page {
        self.0.get(&page).cloned()
    }

    pub fn set(&mut self, page: u64, bytes: Page) {
        match bytes {
            Some(bytes) => self.0.insert(page, bytes),
            None => self.0.remove(&page),
        };
    }

    /// Number of pages that hold bytes.
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Overwrites the sectors that `piece` covers.
    pub fn apply(&mut self, piece: &PagePiece) {
        match piece.mask {
            0 => {}
            WHOLE => self.set(piece.page, piece.bytes.clone()),
            mask => {
                if piece.bytes.is_none() && !self.0.contains_key(&piece.page) {
                    return;
                }
                let zeroes = || Rc::new([0; PAGE_BYTES]);
                let page = Rc::make_mut(self.0.entry(piece.page).or_insert_with(zeroes));
                for sector in (0..8).filter(|i| mask & (1 << i) != 0) {
                    let range = sector_range(sector);
                    match &piece.bytes {
                        Some(bytes) => page[range.clone()].copy_from_slice(&bytes[range]),
                        None => page[range].fill(0),
                    }
                }
            }
        }
    }

    /// Fills `out` with the sectors from `at`.
    pub fn read(&self, at: Lba, out: &mut [u8]) {
        let mut byte = at.byte();
        let mut out = out;
        while !out.is_empty() {
            let inside = (byte % PAGE_BYTES as u64) as usize;
            let len = out.len().min(PAGE_BYTES - inside);
            let (head, tail) = out.split_at_mut(len);
            match self.0.get(&(byte / PAGE_BYTES as u64)) {
                Some(bytes) => head.copy_from_slice(&bytes[inside..inside + len]),
                None => head.fill(0),
            }
            out = tail;
            byte += len as u64;
        }
    }

    /// The pages within `extent` that hold bytes, in order.
    fn held_in(&self, extent: Extent) -> Vec<u64> {
        let (first, last) = page_span(extent);
        let mut held: Vec<u64> = if last - first < self.len() {
            (first..=last).filter(|p| self.0.contains_key(p)).collect()
        } else {
            let inside = |p: &&u64| (first..=last).contains(*p);
            self.0.keys().filter(inside).copied().collect()
        };
        held.sort_unstable();
        held
    }

    /// The changes of a write of `data` at `at`, page by page.
    pub fn pieces_of_write(at: Lba, data: &[u8]) -> Vec<PagePiece> {
        let mut pieces = Vec::with_capacity(data.len() / PAGE_BYTES + 2);
        let (mut byte, mut data) = (at.byte(), data);
        while !data.is_empty() {
            let inside = (byte % PAGE_BYTES as u64) as usize;
            let (head, tail) = data.split_at(data.len().min(PAGE_BYTES - inside));
            let sectors = head.len() as u64 / SECTOR_BYTES;
            let mut piece = PagePiece {
                page: byte / PAGE_BYTES as u64,
                mask: mask_of(inside as u64 / SECTOR_BYTES, sectors),
                bytes: None,
            };
            // Zeroes take no memory.
            if head != &ZEROES[..head.len()] {
                piece.bytes_mut()[inside..inside + head.len()].copy_from_slice(head);
            }
            pieces.push(piece);
            data = tail;
            byte += head.len() as u64;
        }
        pieces
    }

    /// The changes of a zeroing of `extent`, page by page; none for pages that hold no bytes here.
    pub fn pieces_of_zero(&self, extent: Extent) -> Vec<PagePiece> {
        let piece = |page: u64| {
            let whole = Extent::new(Lba(page * PAGE_SECTORS), block::Sectors(PAGE_SECTORS));
            let part = whole.intersect(extent);
            PagePiece {
                page,
                mask: mask_of((part.start - whole.start).0, part.len.0),
                bytes: None,
            }
        };
        self.held_in(extent).into_iter().map(piece).collect()
    }
}

/// The bytes of sector `i` of a page.
pub(crate) fn sector_range(i: u64) -> std::ops::Range<usize> {
    let bytes = SECTOR_BYTES as usize;
    let start = i as usize * bytes;
    start..start + bytes
}

/// The sectors `from .. from+len` of a page.
pub(crate) fn mask_of(from: u64, len: u64) -> u8 {
    (((1u16 << len) - 1) << from) as u8
}

/// The first and the last page that `extent`, not empty, touches.
fn page_span(extent: Extent) -> (u64, u64) {
    (
        extent.start.0 / PAGE_SECTORS,
        (extent.end().0 - 1) / PAGE_SECTORS,
    )
}

/// Spreads page numbers over the table: Fibonacci hashing.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Sectors;

    #[test]
    fn pieces_cover_what_was_written_and_nothing_else() {
        let mut pages = PageMap::default();
        let data: Vec<u8> = (0..11 * 512).map(|i| (i / 512 + 1) as u8).collect();
        for piece in PageMap::pieces_of_write(Lba(6), &data) {
            pages.apply(&piece);
        }
        let mut out = vec![9; 24 * 512];
        pages.read(Lba(0), &mut out);
        for sector in 0..24 {
            let want = if (6..17).contains(&sector) {
                sector as u8 - 5
            } else {
                0
            };
            assert!(out[sector_range(sector)].iter().all(|&b| b == want));
        }
        let pieces = pages.pieces_of_zero(Extent::new(Lba(7), Sectors(1 << 40)));
        assert_eq!(pieces.len(), 3, "only the pages that hold bytes");
        pieces.iter().for_each(|p| pages.apply(p));
        pages.read(Lba(0), &mut out);
        assert_eq!(out.iter().filter(|&&b| b != 0).count(), 512);
        assert_eq!(pages.len(), 1, "whole zero pages are given up");
    }

    #[test]
    fn written_zeroes_take_no_memory() {
        let mut pages = PageMap::default();
        let data = [vec![0; 4096], vec![7; 4096], vec![0; 512]].concat();
        let mut write = |at, data: &[u8]| {
            let pieces = PageMap::pieces_of_write(Lba(at), data);
            pieces.iter().for_each(|piece| pages.apply(piece));
            pages.len()
        };
        assert_eq!(write(0, &data), 1);
        assert_eq!(write(8, &data[..4096]), 0);
        assert_eq!(write(8, &data[4096..8192]), 1);
    }

    #[test]
    fn a_copy_diverges_from_its_origin() {
        let mut a = PageMap::default();
        PageMap::pieces_of_write(Lba(0), &[1; 4096])
            .iter()
            .for_each(|p| a.apply(p));
        let b = a.clone();
        PageMap::pieces_of_write(Lba(1), &[2; 512])
            .iter()
            .for_each(|p| a.apply(p));
        let mut out = [0; 1024];
        b.read(Lba(0), &mut out);
        assert_eq!(out, [1; 1024]);
        a.read(Lba(0), &mut out);
        assert_eq!(out[512..], [2; 512]);
    }
}
