//! A web site's files: their sizes, their places in the file system, and the frequency of their
//! requests.
//!
//! Sizes are log-normal, as files of the web are: Barford and Crovella, "Generating representative
//! web workloads", SIGMETRICS 1998, with their sigma for the body. Requests follow Zipf's law with
//! an exponent below one: Breslau, Cao, Fan, Phillips and Shenker, "Web caching and Zipf-like
//! distributions", INFOCOM 1999, with 0.64 to 0.83. Popularity and place have nothing to do with
//! each other.
//!
//! The file system is ext3's layout: groups of 128 MiB, each with a table of inodes at
//! its front, and directories whose files follow them.

use libm::{cos, exp, log, pow, sqrt};
use rand_distr::Distribution;
use rand_distr::weighted::WeightedAliasIndex;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sim::SimRng;
use std::f64::consts::TAU;

/// Bytes of a page and of a file system's block.
pub const PAGE_BYTES: u64 = 4096;
/// Blocks of a group.
const GROUP_PAGES: u64 = 32_768;
/// Inodes of a group at one for each 8 KiB.
const GROUP_INODES: u64 = 16_384;
/// Inodes of 128 bytes in a block.
const INODES_PER_PAGE: u64 = 32;
/// Bitmaps and descriptors before a group's table of inodes.
const GROUP_HEAD_PAGES: u64 = 16;
/// Files in a directory.
const FILES_PER_DIRECTORY: u64 = 200;
/// The width of the sizes: sigma of their logarithm.
const SIGMA: f64 = 1.318;
/// Purposes of random streams.
const SIZES: u64 = 1;
const PLACES: u64 = 2;

/// Shape of a site.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SiteShape {
    /// Number of files.
    pub files: u32,
    /// The mean size of an answer in bytes.
    pub mean_bytes: f64,
    /// Zipf's exponent.
    pub exponent: f64,
}

/// A file in its place; numbers of pages of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteFile {
    /// The directory's block.
    pub directory: u64,
    /// The block of the file's inode.
    pub inode: u64,
    /// First block of the file.
    pub data: u64,
    /// Bytes sent of the file.
    pub bytes: u64,
}

impl SiteFile {
    /// Number of blocks of the file.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE_BYTES)
    }
}

/// The files, the most popular first.
pub struct SiteFiles {
    files: Vec<SiteFile>,
    pages: u64,
}

impl SiteFiles {
    /// The site that `seed` draws.
    pub fn new(seed: u64, shape: SiteShape) -> SiteFiles {
        let mut sizes = SimRng::fork(seed, SIZES);
        let mut layout = Layout::default();
        let mut files: Vec<SiteFile> = (0..shape.files)
            .map(|_| layout.put(log_normal(&mut sizes, shape.mean_bytes)))
            .collect();
        SimRng::fork(seed, PLACES).shuffle(&mut files);
        SiteFiles {
            files,
            pages: layout.end(),
        }
    }

    /// A file by its rank in popularity, 0 the most popular.
    pub fn file(&self, rank: u32) -> SiteFile {
        self.files[rank as usize]
    }

    /// Blocks from the volume's first to the last that is used.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

/// The ranks of `requests` files that `seed` draws one after the other.
pub fn log_of(seed: u64, shape: SiteShape, requests: u32) -> Vec<u32> {
    let weights = (1..=shape.files).map(|rank| pow(f64::from(rank), -shape.exponent));
    let popularity = WeightedAliasIndex::new(weights.collect());
    let popularity = popularity.expect("weights are positive, and there are some");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let draw = |_| popularity.sample(&mut rng) as u32;
    (0..requests).map(draw).collect()
}

/// A file's size where the mean is `mean_bytes`.
pub fn log_normal(rng: &mut SimRng, mean_bytes: f64) -> u64 {
    // The mean of a log-normal distribution is exp(mu + sigma^2 / 2).
    let mu = log(mean_bytes) - SIGMA * SIGMA / 2.0;
    exp(mu + SIGMA * normal(rng)).max(1.0) as u64
}

/// Box and Muller's normal deviate.
fn normal(rng: &mut SimRng) -> f64 {
    let uniform = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (radius, angle) = (uniform(rng.bits()), uniform(rng.bits()));
    sqrt(-2.0 * log(radius)) * cos(TAU * angle)
}

/// Puts files one behind the other into groups.
#[derive(Default)]
pub struct Layout {
    group: u64,
    /// Inodes and blocks of the group that are used.
    inodes: u64,
    blocks: u64,
    /// Files in the directory, and its block.
    listed: u64,
    directory: u64,
}

impl Layout {
    const DATA_AT: u64 = GROUP_HEAD_PAGES + GROUP_INODES / INODES_PER_PAGE;

    /// Number of groups of a volume of so many blocks.
    pub fn groups(pages: u64) -> u64 {
        pages / GROUP_PAGES
    }

    /// Creates a layout from this group on.
    pub fn at(group: u64) -> Layout {
        Layout {
            group,
            ..Layout::default()
        }
    }

    /// The group that the next file goes to.
    pub fn group(&self) -> u64 {
        self.group
    }

    /// Puts the next file.
    pub fn put(&mut self, bytes: u64) -> SiteFile {
        let pages = bytes.div_ceil(PAGE_BYTES);
        let full = self.inodes == GROUP_INODES
            || Self::DATA_AT + self.blocks + pages + 1 > GROUP_PAGES && self.blocks > 0;
        if full {
            self.group += 1 + pages / GROUP_PAGES;
            (self.inodes, self.blocks, self.listed) = (0, 0, 0);
        }
        let start = self.group * GROUP_PAGES;
        if self.listed.is_multiple_of(FILES_PER_DIRECTORY) {
            self.directory = start + Self::DATA_AT + self.blocks;
            self.blocks += 1;
        }
        let file = SiteFile {
            directory: self.directory,
            inode: start + GROUP_HEAD_PAGES + self.inodes / INODES_PER_PAGE,
            data: start + Self::DATA_AT + self.blocks,
            bytes,
        };
        self.inodes += 1;
        self.listed += 1;
        self.blocks += pages;
        file
    }

    fn end(&self) -> u64 {
        self.group * GROUP_PAGES + Self::DATA_AT + self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SHAPE: SiteShape = SiteShape {
        files: 50_000,
        mean_bytes: 6_000.0,
        exponent: 0.8,
    };

    #[test]
    fn no_block_belongs_to_two_files() {
        let site = SiteFiles::new(1, SHAPE);
        let mut taken = HashSet::new();
        let mut directories = HashSet::new();
        for rank in 0..SHAPE.files {
            let file = site.file(rank);
            directories.insert(file.directory);
            for page in file.data..file.data + file.pages() {
                assert!(taken.insert(page), "{file:?}");
                assert!(page < site.pages());
            }
        }
        assert!(directories.is_disjoint(&taken));
    }

    #[test]
    fn sizes_have_the_mean_that_was_asked_for() {
        let site = SiteFiles::new(2, SHAPE);
        let sum: u64 = (0..SHAPE.files).map(|rank| site.file(rank).bytes).sum();
        let mean = sum as f64 / f64::from(SHAPE.files);
        // The deviation of the mean is 0.97 % of the mean: 2.16 / sqrt(50,000).
        assert!((mean / SHAPE.mean_bytes - 1.0).abs() < 0.04, "{mean}");
    }

    /// Checks n draws: a file of probability p is among them with 1 - (1 - p)^n.
    #[test]
    fn as_many_files_are_asked_for_as_the_law_says() {
        let requests = 60_000;
        let log = log_of(3, SHAPE, requests);
        let weights: Vec<f64> = (1..=SHAPE.files)
            .map(|rank| pow(f64::from(rank), -SHAPE.exponent))
            .collect();
        let sum: f64 = weights.iter().sum();
        let seen = |w: &f64| 1.0 - pow(1.0 - w / sum, f64::from(requests));
        let expected: f64 = weights.iter().map(seen).sum();
        let distinct = log.iter().collect::<HashSet<_>>().len() as f64;
        assert!((distinct / expected - 1.0).abs() < 0.02, "{distinct}");
        // Another exponent is seen.
        let other = SiteShape {
            exponent: 0.9,
            ..SHAPE
        };
        let other = log_of(3, other, requests);
        let distinct = other.iter().collect::<HashSet<_>>().len() as f64;
        assert!((distinct / expected - 1.0).abs() > 0.04, "{distinct}");
    }
}
