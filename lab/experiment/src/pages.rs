//! A web server's pages on a file system: the files of a page, and the time to serve them.
//!
//! Files are log-normal around their mean, as in [`site`](crate::site). Each section of the site, a
//! customer's own site or a directory, has a group of the file system to itself. The group is drawn
//! at random: ext3 spreads directories of the top level over the disk (Orlov's allocator). A page
//! and its images are drawn uniformly from one section.
//!
//! Left out: processors in short supply; the machines here had many.

use crate::host::{PageCacheHost, WINDOW_PAGES};
use crate::replay::ReplayServer;
use crate::site::{Layout, SiteFile, log_normal};
use crate::visitors::{ServedRequest, VisitTally, VisitedSite, VisitorConnection};
use crate::wire::Team;
use block::{Env, IoResult, Nanos};
use sim::SimRng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Purposes of random streams.
const SIZES: u64 = 3;
const PLACES: u64 = 4;

/// The content of the volume.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PagesShape {
    /// Sections, each in a group of its own.
    pub sections: u32,
    /// HTML files of a section.
    pub pages: u32,
    /// Images of a section.
    pub images: u32,
    /// The mean size of a file.
    pub file_bytes: f64,
    /// Images of a page: one of both, as often.
    pub images_per_page: [u32; 2],
}

/// The files.
pub struct PageFileSet {
    shape: PagesShape,
    /// Files by section: its HTML, then its images.
    files: Vec<SiteFile>,
}

impl PageFileSet {
    /// Lays the files out on a volume of so many blocks; an error if the files do not fit.
    pub fn new(seed: u64, shape: PagesShape, volume_pages: u64) -> Result<PageFileSet, String> {
        let mut sizes = SimRng::fork(seed, SIZES);
        let groups = Layout::groups(volume_pages);
        if u64::from(shape.sections) > groups {
            return Err(format!(
                "{} sections do not fit in {groups} groups; give fewer",
                shape.sections
            ));
        }
        let mut order: Vec<u64> = (0..groups).collect();
        SimRng::fork(seed, PLACES).shuffle(&mut order);
        let count = shape.pages + shape.images;
        let mut files = Vec::with_capacity((shape.sections * count) as usize);
        for group in order.into_iter().take(shape.sections as usize) {
            let mut layout = Layout::at(group);
            for _ in 0..count {
                files.push(layout.put(log_normal(&mut sizes, shape.file_bytes)));
            }
            if layout.group() != group {
                return Err(format!("{count} files do not fit in a group; give fewer"));
            }
        }
        Ok(PageFileSet { shape, files })
    }

    /// The HTML of each of the first sections, to be watched.
    pub fn first(&self, sections: u32) -> WatchedSections {
        let PagesShape { pages, images, .. } = self.shape;
        let each = self.files.chunks((pages + images) as usize);
        let each = each.take(sections as usize).enumerate();
        let places = each.flat_map(|(n, section)| {
            let html = section.iter().take(pages as usize);
            html.map(move |file| (file.data, n))
        });
        WatchedSections {
            places: places.collect(),
            tallies: RefCell::new(vec![VisitTally::default(); sections as usize]),
        }
    }

    fn draw(&self, rng: &mut SimRng, items: &mut Vec<SiteFile>) {
        let PagesShape { pages, images, .. } = self.shape;
        let start = rng.below(self.shape.sections.into()) * u64::from(pages + images);
        items.push(self.files[(start + rng.below(pages.into())) as usize]);
        for _ in 0..self.shape.images_per_page[rng.below(2) as usize] {
            let image = start + u64::from(pages) + rng.below(images.into());
            items.push(self.files[image as usize]);
        }
    }
}

/// The pages of some sections that were complete in time.
pub struct WatchedSections {
    /// Sections by the places of their HTML.
    places: BTreeMap<u64, usize>,
    tallies: RefCell<Vec<VisitTally>>,
}

impl WatchedSections {
    /// The pages of each section.
    pub fn tallies(&self) -> Vec<VisitTally> {
        self.tallies.borrow().clone()
    }
}

/// A server of files.
pub struct Front {
    /// Environment of the server's shard.
    pub env: Env,
    /// The host that serves the server's reads.
    pub host: PageCacheHost,
    /// Speed of the server.
    pub server: ReplayServer,
    /// The way to the visitors.
    pub team: Team,
}

impl Front {
    /// Takes a request.
    pub async fn take(&self, on: VisitorConnection) {
        let trip = self.server.round_trip;
        let connect = if on.fresh { trip } else { Nanos::ZERO };
        let half = Nanos(trip.0 / 2);
        let timer = &self.env.timer;
        timer.sleep(connect + half + self.server.processor).await;
    }

    /// Answers a request with a file of the host's first volume.
    pub async fn send(&self, file: SiteFile, on: VisitorConnection) -> IoResult<ServedRequest> {
        let timer = &self.env.timer;
        let half = Nanos(self.server.round_trip.0 / 2);
        self.host.read(file.directory, 1).await?;
        self.host.read(file.inode, 1).await?;
        let first = file.pages().min(WINDOW_PAGES);
        self.host.read(file.data, first).await?;
        let read = timer.now();
        self.host
            .read(file.data + first, file.pages() - first)
            .await?;
        let sent = self.team.send(on.flow, read, file.bytes);
        timer.until(sent + half).await;
        Ok(ServedRequest {
            first: read + half,
            bytes: file.bytes,
        })
    }
}

/// A server of pages.
pub struct PageServer {
    /// The server's pages.
    pub pages: Rc<PageFileSet>,
    /// The server of the pages' files.
    pub front: Front,
    /// The sections that are watched.
    pub watched: Rc<WatchedSections>,
}

impl VisitedSite for PageServer {
    type Item = SiteFile;

    fn page(&self, rng: &mut SimRng, items: &mut Vec<SiteFile>) {
        self.pages.draw(rng, items);
    }

    async fn answer(&self, file: SiteFile, on: VisitorConnection) -> IoResult<ServedRequest> {
        self.front.take(on).await;
        self.front.send(file, on).await
    }

    fn visited(&self, html: SiteFile, took: Nanos) {
        if let Some(section) = self.watched.places.get(&html.data) {
            self.watched.tallies.borrow_mut()[*section].page(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::on_disk;
    use drives::catalogue::link::GIGABIT;
    use std::collections::{HashMap, HashSet};

    const SHAPE: PagesShape = PagesShape {
        sections: 200,
        pages: 8,
        images: 140,
        file_bytes: 10_296.0,
        images_per_page: [11, 12],
    };
    /// A terabyte.
    const VOLUME_PAGES: u64 = 1 << 28;

    #[test]
    fn each_section_has_a_group_of_its_own_and_no_block_belongs_to_two_files() {
        let pages = PageFileSet::new(1, SHAPE, VOLUME_PAGES).unwrap();
        let mut taken = HashSet::new();
        let mut groups = HashSet::new();
        for section in pages.files.chunks(148) {
            let group = |page: u64| page / (VOLUME_PAGES / Layout::groups(VOLUME_PAGES));
            assert!(groups.insert(group(section[0].data)));
            for file in section {
                assert_eq!(group(file.data), group(section[0].data));
                for page in file.data..file.data + file.pages() {
                    assert!(taken.insert(page), "{file:?}");
                }
            }
        }
        assert!(PageFileSet::new(1, SHAPE, 1 << 20).is_err());
    }

    /// Checks n draws from m HTML files: a file is among them with 1 - (1 - 1/m)^n.
    #[test]
    fn pages_are_drawn_uniformly_and_each_from_one_section() {
        const DRAWN: u32 = 3_000;
        let drawn = |shape: PagesShape| {
            let pages = PageFileSet::new(1, shape, VOLUME_PAGES).unwrap();
            let count = (shape.pages + shape.images) as usize;
            let files = pages.files.iter().enumerate();
            let section: HashMap<u64, usize> = files.map(|(n, f)| (f.data, n / count)).collect();
            let (mut rng, mut distinct, mut requests) = (SimRng::new(3), HashSet::new(), 0);
            for _ in 0..DRAWN {
                let mut items = Vec::new();
                pages.draw(&mut rng, &mut items);
                let of: HashSet<usize> = items.iter().map(|file| section[&file.data]).collect();
                assert_eq!(of.len(), 1);
                requests += items.len();
                distinct.insert(items[0].data);
            }
            (distinct.len() as f64, requests as f64 / f64::from(DRAWN))
        };
        let m = f64::from(SHAPE.sections * SHAPE.pages);
        let exact = m * (1.0 - libm::pow(1.0 - 1.0 / m, f64::from(DRAWN)));
        let (distinct, requests) = drawn(SHAPE);
        assert!((distinct / exact - 1.0).abs() < 0.02, "{distinct} {exact}");
        assert!((requests / 12.5 - 1.0).abs() < 0.01, "{requests}");
        // Another number of pages, and of images of a page, is seen.
        let more = PagesShape { pages: 9, ..SHAPE };
        assert!((drawn(more).0 / exact - 1.0).abs() > 0.02);
        let images_per_page = [12, 12];
        let other = drawn(PagesShape {
            images_per_page,
            ..SHAPE
        });
        assert!((other.1 / 12.5 - 1.0).abs() > 0.01);
    }

    const READ: Nanos = Nanos::from_micros(5_000);

    /// Time of a request with its directory, inode and data read one after the other.
    fn answered(fresh: bool, processor: Nanos) -> Nanos {
        on_disk(READ, async move |gate, env| {
            let front = Front {
                env: env.clone(),
                host: PageCacheHost::new(gate, 1_000),
                server: ReplayServer::behind(&GIGABIT, processor),
                team: Team::new(1, &GIGABIT),
            };
            let file = SiteFile {
                directory: 10,
                inode: 11,
                data: 100,
                bytes: 117_000,
            };
            let on = VisitorConnection { flow: 0, fresh };
            let asked = env.timer.now();
            front.take(on).await;
            front.send(file, on).await.unwrap();
            env.timer.now() - asked
        })
    }

    #[test]
    fn a_request_takes_what_its_parts_take() {
        let processor = Nanos::from_micros(200);
        // 150 us there and back, 117 KB at 117 MB/s.
        let rest = Nanos::from_micros(150 + 200 + 1_000);
        let exact = Nanos(3 * READ.0) + rest;
        assert_eq!(answered(false, processor), exact);
        assert_eq!(answered(true, processor), exact + Nanos::from_micros(150));
        assert_ne!(answered(false, Nanos::from_micros(201)), exact);
    }
}
