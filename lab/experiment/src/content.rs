//! A web server's content on NTFS: the places of the files in the file system.
//!
//! The master file table has a record of 1 KiB for each file, in one zone of the volume.
//! Directories are index buffers of 4 KiB, which follow the table, and then the files' data, one
//! file behind the other.
//!
//! Where a part of a content stands for the whole, its pieces are as far apart as in the whole
//! ([`apart`]): heads then seek as far.

use crate::site::{PAGE_BYTES, SiteFile, log_normal};
use sim::SimRng;

/// The purpose of a random stream.
const SIZES: u64 = 5;
/// Records of a page of the master file table.
const RECORDS: u64 = 4;
/// Names of an index buffer: entries of some 100 bytes, two thirds full.
const NAMES: u64 = 27;
/// Blocks of a piece: 64 MiB.
const PIECE_PAGES: u64 = 16_384;

/// Amount of content.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ContentShape {
    /// HTML files.
    pub pages: u32,
    /// Images.
    pub images: u32,
    /// The mean size of a file.
    pub file_bytes: f64,
    /// Images of a page: one of both, as often.
    pub images_per_page: [u32; 2],
    /// Factor by which the content is spread beyond its size.
    pub spread: u64,
}

/// Place of the block at `page`, if pieces are spread over so many times their size.
pub fn apart(page: u64, spread: u64) -> u64 {
    page / PIECE_PAGES * PIECE_PAGES * spread + page % PIECE_PAGES
}

/// The files: HTML first.
pub struct SiteContent {
    shape: ContentShape,
    files: Vec<SiteFile>,
}

impl SiteContent {
    /// Lays the files out on a volume of so many blocks; an error if the files do not fit.
    pub fn new(seed: u64, shape: ContentShape, volume_pages: u64) -> Result<SiteContent, String> {
        let mut sizes = SimRng::fork(seed, SIZES);
        let count = u64::from(shape.pages + shape.images);
        let indexes = count.div_ceil(RECORDS);
        let mut end = indexes + count.div_ceil(NAMES);
        // HTML and images are made together: a page is followed by its images.
        let mut order: Vec<u64> = (0..count).collect();
        sizes.shuffle(&mut order);
        let mut files = vec![None; count as usize];
        for (number, made) in order.into_iter().enumerate() {
            let bytes = log_normal(&mut sizes, shape.file_bytes);
            let number = number as u64;
            files[made as usize] = Some(SiteFile {
                directory: apart(indexes + number / NAMES, shape.spread),
                inode: apart(number / RECORDS, shape.spread),
                // Data that reaches beyond its piece is in the gap behind it.
                data: apart(end, shape.spread),
                bytes,
            });
            end += bytes.div_ceil(PAGE_BYTES);
        }
        let end = apart(end, shape.spread);
        if end > volume_pages {
            return Err(format!(
                "{count} files take {end} blocks, the volume has {volume_pages}; give fewer"
            ));
        }
        let files = files.into_iter().flatten().collect();
        Ok(SiteContent { shape, files })
    }

    /// The files of a page, all drawn uniformly.
    pub fn draw(&self, rng: &mut SimRng, items: &mut Vec<SiteFile>) {
        let ContentShape { pages, images, .. } = self.shape;
        items.push(self.files[rng.below(pages.into()) as usize]);
        for _ in 0..self.shape.images_per_page[rng.below(2) as usize] {
            let image = u64::from(pages) + rng.below(images.into());
            items.push(self.files[image as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SHAPE: ContentShape = ContentShape {
        pages: 1_000,
        images: 17_500,
        file_bytes: 27_000.0,
        images_per_page: [11, 12],
        spread: 1,
    };

    #[test]
    fn no_block_belongs_to_two_files_nor_to_a_table() {
        for spread in [1, 10] {
            is_laid_out(ContentShape { spread, ..SHAPE });
        }
    }

    fn is_laid_out(shape: ContentShape) {
        let content = SiteContent::new(1, shape, 1 << 21).unwrap();
        let mut taken = HashSet::new();
        for file in &content.files {
            for page in file.data..file.data + file.pages() {
                assert!(taken.insert(page), "{file:?}");
            }
        }
        for file in &content.files {
            assert!(!taken.contains(&file.directory) && !taken.contains(&file.inode));
            assert!(file.inode < file.directory);
        }
        let sum: u64 = content.files.iter().map(|file| file.bytes).sum();
        let mean = sum as f64 / content.files.len() as f64 / SHAPE.file_bytes;
        // The deviation of the mean is 1.6 % of the mean: 2.16 / sqrt(18,500).
        assert!((mean - 1.0).abs() < 0.06, "{mean}");
        assert!(SiteContent::new(1, shape, 1 << 10).is_err());
    }

    /// A tenth, spread tenfold, reaches as far as the whole does.
    #[test]
    fn a_part_that_is_spread_reaches_as_far_as_the_whole() {
        let reach = |shape: ContentShape| {
            let content = SiteContent::new(1, shape, 1 << 24).unwrap();
            content.files.iter().map(|file| file.data).max().unwrap() as f64
        };
        let whole = ContentShape {
            pages: 10_000,
            images: 175_000,
            ..SHAPE
        };
        let part = ContentShape {
            spread: 10,
            ..SHAPE
        };
        let ratio = reach(part) / reach(whole);
        assert!((0.85..1.15).contains(&ratio), "{ratio}");
        assert!(reach(SHAPE) / reach(whole) < 0.15);
    }

    /// Checks n draws from m images: an image is among them with 1 - (1 - 1/m)^n.
    #[test]
    fn images_are_drawn_uniformly() {
        let distinct = |shape: ContentShape| {
            let content = SiteContent::new(1, shape, 1 << 20).unwrap();
            let (mut rng, mut items) = (SimRng::new(3), Vec::new());
            (0..2_000).for_each(|_| content.draw(&mut rng, &mut items));
            let html = u64::from(shape.pages);
            let places: Vec<u64> = content.files.iter().map(|file| file.data).collect();
            let images: HashSet<u64> = places[html as usize..].iter().copied().collect();
            let drawn = items.iter().filter(|file| images.contains(&file.data));
            let drawn: Vec<u64> = drawn.map(|file| file.data).collect();
            assert_eq!(items.len() - drawn.len(), 2_000);
            let n = drawn.len() as f64;
            assert!((n / 23_000.0 - 1.0).abs() < 0.01, "{n}");
            drawn.into_iter().collect::<HashSet<_>>().len() as f64
        };
        let m = f64::from(SHAPE.images);
        let exact = m * (1.0 - libm::pow(1.0 - 1.0 / m, 23_000.0));
        let found = distinct(SHAPE);
        assert!((found / exact - 1.0).abs() < 0.02, "{found} {exact}");
        let fewer = ContentShape {
            images: 16_000,
            ..SHAPE
        };
        let found = distinct(fewer);
        assert!((found / exact - 1.0).abs() > 0.02, "{found} {exact}");
    }
}
