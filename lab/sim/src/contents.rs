//! A disk's bytes and its volatile write cache.
//!
//! Invariants:
//!     latest = durable + the unflushed writes, oldest first
//!     an acknowledged write leaves `unflushed` only when it is durable
//!     after a cut, each block holds its durable bytes or those of one write
//!     that was unflushed or in flight                    (`tests/durability`)
//!
//! A cache never promises to keep a write volatile: when more than `unflushed_max` pieces
//! wait, the oldest become durable of their own accord.
//!
//! Not here: when operations happen and how they fail (`disk`).

use crate::pages::{PageMap, PagePiece, WHOLE};
use crate::rng::SimRng;
use block::{Extent, Lba, SECTOR_BYTES, Sectors};
use std::collections::{BTreeMap, VecDeque};

/// Fates of a write that was not durable, in a power cut.
///
/// A write neither kept nor torn is lost. A write of one logical block is never torn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Survival {
    /// The probability that a write survives whole.
    pub kept: f64,
    /// The probability that only some of its blocks survive.
    pub torn: f64,
}

/// Effect of a power cut on the writes that were not durable.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Settled {
    pub lost: Vec<Lba>,
    pub torn: Vec<Lba>,
    /// Writes that left bytes although an older one lost some.
    pub reordered: Vec<Lba>,
    /// The blocks that no write left bytes in although one was to, in order.
    pub taken: Vec<Lba>,
}

pub(crate) struct DiskContents {
    durable: PageMap,
    latest: PageMap,
    unflushed: VecDeque<(u64, PagePiece)>,
    unflushed_max: usize,
    /// Count of acknowledged volatile writes: the number of the last.
    acknowledged: u64,
    block: Sectors,
}

impl DiskContents {
    pub fn new(block: Sectors, unflushed_max: usize) -> DiskContents {
        DiskContents {
            durable: PageMap::default(),
            latest: PageMap::default(),
            unflushed: VecDeque::new(),
            unflushed_max,
            acknowledged: 0,
            block,
        }
    }

    pub fn read(&self, at: Lba, out: &mut [u8]) {
        self.latest.read(at, out);
    }

    /// Reads the bytes that are left without the volatile cache.
    pub fn read_durable(&self, at: Lba, out: &mut [u8]) {
        self.durable.read(at, out);
    }

    /// True if losing the volatile cache would lose bytes.
    pub fn is_volatile(&self) -> bool {
        self.unflushed.iter().any(|(_, piece)| piece.mask != 0)
    }

    pub fn image(&self) -> PageMap {
        self.latest.clone()
    }

    /// Holds `image` and nothing else, durably.
    pub fn become_image(&mut self, image: PageMap) {
        self.unflushed.clear();
        self.durable = image.clone();
        self.latest = image;
    }

    /// The pieces of a zeroing of `extent`.
    pub fn pieces_of_zero(&self, extent: Extent) -> Vec<PagePiece> {
        self.latest.pieces_of_zero(extent)
    }

    /// Takes a write, durable now or when a flush covers the write.
    pub fn write(&mut self, pieces: Vec<PagePiece>, durable: bool) {
        if !durable {
            self.acknowledged += 1;
        }
        if durable {
            self.supersede(&pieces);
        }
        for piece in pieces {
            self.latest.apply(&piece);
            if durable {
                self.durable.apply(&piece);
            } else {
                self.unflushed.push_back((self.acknowledged, piece));
            }
        }
        while self.unflushed.len() > self.unflushed_max {
            self.destage_oldest();
        }
    }

    /// Sets the size of logical blocks from now on.
    pub fn set_block(&mut self, block: Sectors) {
        self.block = block;
    }

    /// Changes one bit at rest, in the cache and on the medium.
    pub fn flip_bit(&mut self, at: Lba, bit: u64) {
        for pages in [&mut self.durable, &mut self.latest] {
            let mut sector = [0; SECTOR_BYTES as usize];
            pages.read(at, &mut sector);
            sector[(bit / 8) as usize] ^= 1 << (bit % 8);
            for piece in PageMap::pieces_of_write(at, &sector) {
                pages.apply(&piece);
            }
        }
    }

    /// The mark that a flush submitted now has to cover.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Makes the writes acknowledged up to the mark durable.
    pub fn flush(&mut self, covers: u64) {
        while self.unflushed.front().is_some_and(|(n, _)| *n <= covers) {
            self.destage_oldest();
        }
    }

    /// Older volatile bytes must not come back over durable ones. The pieces
    /// are in order of their pages.
    fn supersede(&mut self, newer: &[PagePiece]) {
        for (_, older) in &mut self.unflushed {
            if let Ok(i) = newer.binary_search_by_key(&older.page, |p| p.page) {
                older.mask &= !newer[i].mask;
            }
        }
    }

    fn destage_oldest(&mut self) {
        if let Some((_, piece)) = self.unflushed.pop_front() {
            self.durable.apply(&piece);
        }
    }

    /// Cuts the power: unflushed writes, and the writes `in_flight`, survive as `survival` and the
    /// seed decide, in any order.
    pub fn cut(
        &mut self,
        in_flight: Vec<Vec<PagePiece>>,
        survival: Option<Survival>,
        rng: &mut SimRng,
    ) -> Settled {
        let survival = survival.unwrap_or_else(|| draw_survival(rng));
        let mut writes: Vec<(u64, Vec<PagePiece>)> = Vec::new();
        for (number, piece) in self.unflushed.drain(..) {
            match writes.last_mut() {
                Some((n, pieces)) if *n == number => pieces.push(piece),
                _ => writes.push((number, vec![piece])),
            }
        }
        let acknowledged = self.acknowledged;
        writes.extend((acknowledged + 1..).zip(in_flight));
        writes.retain(|(_, pieces)| pieces.iter().any(|p| p.mask != 0));

        let mut settled = Settled::default();
        let mut oldest_harmed = u64::MAX;
        let mut survivors = Vec::new();
        let mut wanted: BTreeMap<u64, u8> = BTreeMap::new();
        for (age, mut pieces) in writes {
            for piece in &pieces {
                *wanted.entry(piece.page).or_default() |= piece.mask;
            }
            let start = start_of(&pieces);
            let whole = blocks(&pieces, self.block);
            let kept = match rng.chance(survival.kept) {
                true => whole,
                false => {
                    let torn = survival.torn / (1.0 - survival.kept);
                    survive_partly(&mut pieces, self.block, rng.chance(torn), rng)
                }
            };
            if kept == 0 {
                settled.lost.push(start);
            } else if kept < whole {
                settled.torn.push(start);
            }
            if kept > 0 && oldest_harmed < age {
                settled.reordered.push(start);
            }
            if kept < whole {
                oldest_harmed = oldest_harmed.min(age);
            }
            survivors.push(pieces);
        }
        for piece in survivors.iter().flatten() {
            *wanted.entry(piece.page).or_default() &= !piece.mask;
        }
        let sectors = wanted.into_iter().flat_map(|(page, mask)| {
            let held = (0..8).filter(move |i| mask & (1 << i) != 0);
            held.map(move |i| Lba(page * 8 + i))
        });
        let block = self.block.0;
        settled.taken = sectors.filter(|at| at.0.is_multiple_of(block)).collect();
        let touched: Vec<u64> = survivors.iter().flatten().map(|p| p.page).collect();
        rng.shuffle(&mut survivors);
        for piece in survivors.iter().flatten() {
            self.durable.apply(piece);
        }
        for page in touched {
            self.latest.set(page, self.durable.page(page));
        }
        settled
    }
}

/// Independent fates with moderate odds would never show a long queue wholly
/// lost or wholly kept, so that the odds themselves are drawn for each cut.
fn draw_survival(rng: &mut SimRng) -> Survival {
    let (kept, torn) = match rng.below(8) {
        0 => (1.0, 0.0),
        1 => (0.0, 0.0),
        2 => (0.0, 1.0),
        3 => (0.9, 0.05),
        4 => (0.05, 0.05),
        _ => (0.35, 0.3),
    };
    Survival { kept, torn }
}

fn start_of(pieces: &[PagePiece]) -> Lba {
    let first = pieces.iter().find(|p| p.mask != 0).expect("not empty");
    Lba(first.page * 8 + u64::from(first.mask.trailing_zeros()))
}

fn blocks(pieces: &[PagePiece], block: Sectors) -> u64 {
    let sectors: u64 = pieces.iter().map(|p| u64::from(p.mask.count_ones())).sum();
    sectors / block.0
}

/// Takes blocks out of a write: some of them if it is `torn`, else all. Returns the number of
/// blocks left.
pub(crate) fn survive_partly(
    pieces: &mut [PagePiece],
    block: Sectors,
    torn: bool,
    rng: &mut SimRng,
) -> u64 {
    let whole = blocks(pieces, block);
    let shape = rng.below(3);
    let edge = if whole > 1 {
        rng.between(1, whole - 1)
    } else {
        0
    };
    let mut index = 0;
    let mut survives = |rng: &mut SimRng| {
        index += 1;
        torn && match shape {
            0 => index <= edge,
            1 => index > edge && edge > 0,
            _ => edge > 0 && rng.below(2) == 0,
        }
    };
    for piece in pieces.iter_mut() {
        if block.0 == 8 {
            if piece.mask == WHOLE && !survives(rng) {
                piece.mask = 0;
            }
            continue;
        }
        for bit in (0..8).map(|i| 1 << i) {
            if piece.mask & bit != 0 && !survives(rng) {
                piece.mask &= !bit;
            }
        }
    }
    blocks(pieces, block)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Sectors = Sectors(1);

    fn write(contents: &mut DiskContents, at: u64, sectors: usize, value: u8, durable: bool) {
        let data = vec![value; sectors * 512];
        contents.write(PageMap::pieces_of_write(Lba(at), &data), durable);
    }

    fn first_bytes(contents: &DiskContents, sectors: usize) -> Vec<u8> {
        let mut out = vec![0; sectors * 512];
        contents.read(Lba(0), &mut out);
        out.iter().step_by(512).copied().collect()
    }

    fn cut(contents: &mut DiskContents, kept: f64, torn: f64, seed: u64) -> Settled {
        let survival = Some(Survival { kept, torn });
        contents.cut(Vec::new(), survival, &mut SimRng::new(seed))
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it() {
        let mut c = DiskContents::new(BLOCK, 100);
        write(&mut c, 0, 1, 1, false);
        let mark = c.acknowledged();
        write(&mut c, 1, 1, 2, false);
        c.flush(mark);
        assert_eq!(first_bytes(&c, 2), [1, 2]);
        let settled = cut(&mut c, 0.0, 0.0, 1);
        assert_eq!(settled.lost, [Lba(1)]);
        assert_eq!(first_bytes(&c, 2), [1, 0]);
    }

    #[test]
    fn durable_bytes_are_not_undone_by_older_volatile_ones() {
        let mut c = DiskContents::new(BLOCK, 100);
        write(&mut c, 0, 4, 1, false);
        write(&mut c, 1, 1, 2, true);
        let settled = cut(&mut c, 1.0, 0.0, 1);
        assert_eq!(settled, Settled::default());
        assert_eq!(first_bytes(&c, 4), [1, 2, 1, 1]);
    }

    #[test]
    fn cuts_lose_tear_and_reorder() {
        let (mut torn, mut reordered, mut older_won) = (0, 0, 0);
        for seed in 0..200 {
            let mut c = DiskContents::new(BLOCK, 100);
            write(&mut c, 0, 6, 1, false);
            write(&mut c, 0, 6, 2, false);
            let settled = cut(&mut c, 0.3, 0.4, seed);
            torn += settled.torn.len();
            reordered += settled.reordered.len();
            older_won += usize::from(first_bytes(&c, 6).contains(&1));
        }
        assert!(
            torn > 50 && reordered > 20 && older_won > 50,
            "{torn} {reordered} {older_won}"
        );
    }

    #[test]
    fn what_a_cut_takes_is_reported_block_by_block() {
        for seed in 0..50 {
            let mut c = DiskContents::new(BLOCK, 100);
            write(&mut c, 0, 6, 1, false);
            write(&mut c, 2, 2, 2, false);
            let settled = cut(&mut c, 0.3, 0.4, seed);
            let bytes = first_bytes(&c, 6);
            let old = (0..6).filter(|at| bytes[*at as usize] == 0).map(Lba);
            assert_eq!(settled.taken, old.collect::<Vec<_>>(), "{bytes:?}");
        }
    }

    #[test]
    fn a_bit_flips_where_it_rests() {
        let mut c = DiskContents::new(BLOCK, 100);
        write(&mut c, 0, 2, 4, true);
        c.flip_bit(Lba(1), 0);
        assert_eq!(first_bytes(&c, 2), [4, 5]);
        cut(&mut c, 0.0, 0.0, 1);
        assert_eq!(first_bytes(&c, 2), [4, 5]);
    }

    #[test]
    fn a_large_logical_block_is_never_torn() {
        for seed in 0..200 {
            let mut c = DiskContents::new(Sectors(8), 100);
            write(&mut c, 0, 24, 1, false);
            cut(&mut c, 0.0, 1.0, seed);
            let bytes = first_bytes(&c, 24);
            assert!(
                bytes.chunks(8).all(|b| b.iter().all(|x| *x == b[0])),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn a_full_cache_makes_its_oldest_writes_durable() {
        let mut c = DiskContents::new(BLOCK, 2);
        for at in 0..5 {
            write(&mut c, at * 8, 1, 1, false);
        }
        let settled = cut(&mut c, 0.0, 0.0, 1);
        assert_eq!(settled.lost, [Lba(24), Lba(32)]);
    }
}
