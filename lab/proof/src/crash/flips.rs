//! Single bits flipped in images of pools, one at a time: each flip is found, or does no harm.
//!
//! A daemon opens the changed image, reads all back, writes some of it, and ends in order. Another
//! daemon then reads all again. A daemon may refuse the pool with an error; all data that it serves
//! must be right.

use super::image::{CrashImage, FlipVerdict, LINE_BYTES};
use layout::{BLOCK_BYTES, PlannedArea, is_checksum};
use serde::Serialize;
use sim::SimRng;
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of flips of one image.
const FLIPS_PER_IMAGE: u64 = 250;
/// Number of flips from which on every structure is expected to have been flipped.
const FLIPS_FOR_ALL: u64 = 500;

/// The structure that a flipped bit was part of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// A copy of the superblock.
    Superblock,
    /// The write-intent bitmap.
    Bitmap,
    /// The log.
    Journal,
    /// A checkpoint of the map, but for the checksums of lines.
    Map,
    /// The checksums of lines in a checkpoint.
    Checksums,
    /// The policy's hints.
    Hints,
    /// Lines.
    Data,
    /// A block that holds nothing.
    Empty,
}

impl Structure {
    /// The structures that every image has.
    pub const ALL: [Structure; 7] = [
        Structure::Superblock,
        Structure::Bitmap,
        Structure::Journal,
        Structure::Map,
        Structure::Checksums,
        Structure::Hints,
        Structure::Data,
    ];
}

/// Flips in one structure.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct FlipOutcome {
    /// Bits flipped.
    pub flips: u64,
    /// The pool was refused.
    pub refused: u64,
    /// The damage was counted.
    pub counted: u64,
    /// The flip had no effect.
    pub harmless: u64,
}

/// The outcomes of many flips.
#[derive(Default, Debug, Serialize)]
pub struct Flips {
    /// Bits flipped.
    pub flips: u64,
    /// Images with a flip.
    pub images: u64,
    /// Outcomes by structure.
    pub structures: BTreeMap<Structure, FlipOutcome>,
    /// Violations: the flip's seed, and a description of the bytes read.
    pub violations: Vec<(u64, String)>,
}

impl Flips {
    /// The structures without a flipped bit, if there were enough flips for all.
    pub fn missed(&self) -> Vec<Structure> {
        let missed = |structure: &&Structure| !self.structures.contains_key(structure);
        match self.flips < FLIPS_FOR_ALL {
            true => Vec::new(),
            false => Structure::ALL.iter().filter(missed).copied().collect(),
        }
    }
}

/// Flips a bit for each of `seeds`.
pub fn flips(seeds: Range<u64>) -> Flips {
    let mut flips = Flips::default();
    let mut image = None;
    for seed in seeds {
        let number = seed / FLIPS_PER_IMAGE;
        if image.as_ref().is_none_or(|(n, _)| *n != number) {
            image = Some((number, CrashImage::new(number)));
            flips.images += 1;
        }
        let (_, whole) = image.as_ref().expect("just made");
        let mut changed = whole.clone();
        let structure = changed.flip(seed);
        flips.flips += 1;
        let outcome = flips.structures.entry(structure).or_default();
        outcome.flips += 1;
        match changed.examine(seed) {
            FlipVerdict::Refused(_) => outcome.refused += 1,
            FlipVerdict::Counted => outcome.counted += 1,
            FlipVerdict::Harmless => outcome.harmless += 1,
            FlipVerdict::Wrong(what) => {
                let what = format!("in {structure:?}: {what}");
                flips.violations.push((seed, what));
            }
        }
    }
    flips
}

impl CrashImage {
    /// Flips the bit that `seed` draws, nine times of ten in a block that is not empty. All
    /// structures are equally likely. Returns that structure.
    pub fn flip(&mut self, seed: u64) -> Structure {
        let mut rng = SimRng::fork(seed, 22);
        let structure = Structure::ALL[rng.below(Structure::ALL.len() as u64) as usize];
        let areas = self.areas(structure);
        let area = areas[rng.below(areas.len() as u64) as usize];
        let used: Vec<u64> = (area.start..area.end())
            .filter(|block| self.block(*block).iter().any(|byte| *byte != 0))
            .collect();
        let block = match used.is_empty() || rng.chance(0.1) {
            true => area.start + rng.below(area.blocks),
            false => used[rng.below(used.len() as u64) as usize],
        };
        let is_empty = !used.contains(&block);
        let wanted = |at: usize| match structure {
            Structure::Map => !is_checksum(LINE_BYTES / BLOCK_BYTES as u32, at),
            Structure::Checksums => is_checksum(LINE_BYTES / BLOCK_BYTES as u32, at),
            _ => true,
        };
        let bit = loop {
            let bit = rng.below(BLOCK_BYTES as u64 * 8) as usize;
            if wanted(bit / 8) {
                break bit;
            }
        };
        self.pool[block as usize * BLOCK_BYTES + bit / 8] ^= 1 << (bit % 8);
        match is_empty {
            true => Structure::Empty,
            false => structure,
        }
    }

    fn areas(&self, structure: Structure) -> Vec<PlannedArea> {
        let plan = &self.plan;
        match structure {
            Structure::Superblock => plan.superblocks.to_vec(),
            Structure::Bitmap => vec![plan.bitmap],
            Structure::Journal => vec![plan.log],
            Structure::Map | Structure::Checksums => plan.maps.to_vec(),
            Structure::Hints => plan.hints.to_vec(),
            Structure::Data => vec![plan.lines],
            Structure::Empty => plan.areas().into_iter().map(|(_, area)| area).collect(),
        }
    }
}
