//! A host's page cache over its volumes: pages that a process has read from a file system do not
//! reach the drives again while there is memory.
//!
//! One least-recently-used list of pages of 4 KiB, of all volumes. Missing pages are read from the
//! volume, neighbours in one request of at most the read-ahead window. A reader of a page that
//! another is reading waits for that read.
//!
//! Invariant: requests to a volume in flight <= the queue's depth; the rest wait in order, or in
//! the order of an I/O scheduler.
//!
//! Left out: pages that are written before they are read, read-ahead past the end of the request
//! (the files are small), and the division of memory between pages and other uses.

use crate::rig::Volume;
use crate::site::PAGE_BYTES;
use crate::turnstile::{QueueOrder, TurnRequest, Turnstile};
use block::{Boundary, Fua, IoResult, SharedBuf};
use futures_channel::oneshot;
use policy::{HashIndex, LineKey, Lru, Policy, PolicyRequest, Unpinned};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};

/// The largest request of the kernel's read-ahead: 128 KiB.
pub const WINDOW_PAGES: u64 = 32;
/// Requests that the kernel keeps in flight to one device: its default `nr_requests`.
pub const QUEUE_DEPTH: u32 = 128;
/// Processes of the scheduler: the reader, and the kernel's writer.
const READER: u32 = 0;
const WRITER: u32 = 1;
/// Keys the index of pages.
const INDEX: u64 = 1;
/// A page's number: the volume's number above, and the page's number on the volume below.
const VOLUME_SHIFT: u32 = 40;

/// The number of a page of a volume, by the volume's place among the host's.
pub const fn page_of(volume: u64, page: u64) -> u64 {
    volume << VOLUME_SHIFT | page
}

/// Pages requested, and their fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageCount {
    /// Pages requested.
    pub asked: u64,
    /// Read from the volume.
    pub missed: u64,
    /// Requests to the volume.
    pub reads: u64,
}

/// A volume, and its queue.
struct VolumeQueue {
    volume: Volume,
    queue: Turnstile,
}

/// A page cache, and the volumes below.
pub struct PageCacheHost {
    below: Vec<VolumeQueue>,
    pages: RefCell<Lru<HashIndex>>,
    /// Pages that are being read, and their waiting readers.
    coming: RefCell<FxHashMap<u64, Vec<oneshot::Sender<()>>>>,
    counts: Cell<PageCount>,
}

impl PageCacheHost {
    /// An empty cache of `memory_pages` over `volume`.
    pub fn new(volume: Volume, memory_pages: u32) -> PageCacheHost {
        PageCacheHost::over(vec![volume], memory_pages)
    }

    /// An empty cache of `memory_pages` over several volumes.
    pub fn over(volumes: Vec<Volume>, memory_pages: u32) -> PageCacheHost {
        let queue = || Turnstile::new(QUEUE_DEPTH);
        let below = |volume| VolumeQueue {
            volume,
            queue: queue(),
        };
        PageCacheHost {
            below: volumes.into_iter().map(below).collect(),
            pages: RefCell::new(Lru::new(INDEX, memory_pages)),
            coming: RefCell::default(),
            counts: Cell::default(),
        }
    }

    /// The same with one request in flight to each volume, the next of which `order` chooses.
    pub fn scheduled(mut self, order: QueueOrder) -> PageCacheHost {
        for below in &mut self.below {
            below.queue = Turnstile::ordered(1, order);
        }
        self
    }

    /// Counts of requested pages so far.
    pub fn counts(&self) -> PageCount {
        self.counts.get()
    }

    /// Reads pages of one volume.
    pub async fn read(&self, first: u64, pages: u64) -> IoResult {
        let mut missing = None;
        let mut awaited = Vec::new();
        for page in first..first + pages {
            let hit = self.touch(page);
            if hit && let Some(waiting) = self.coming.borrow_mut().get_mut(&page) {
                let (sender, page) = oneshot::channel();
                waiting.push(sender);
                awaited.push(page);
            }
            let start = *missing.get_or_insert(page);
            if hit {
                self.fetch(start, page).await?;
                missing = None;
            } else if page + 1 - start == WINDOW_PAGES {
                self.fetch(start, page + 1).await?;
                missing = None;
            }
        }
        if let Some(start) = missing {
            self.fetch(start, first + pages).await?;
        }
        for page in awaited {
            // The reader of the page reports an error.
            let _ = page.await;
        }
        Ok(())
    }

    /// Writes from a page of one volume on, as the kernel writes behind a process.
    pub async fn write_back(&self, first: u64, content: SharedBuf) -> IoResult {
        let (below, at) = self.below(first);
        let process = WRITER;
        let turn = below.queue.pass_for(TurnRequest { process, at }).await;
        let result = below.volume.write(at * PAGE_BYTES, content, Fua::No).await;
        drop(turn);
        result
    }

    /// The volume of a page, and the page's number there.
    fn below(&self, page: u64) -> (&VolumeQueue, u64) {
        let below = &self.below[(page >> VOLUME_SHIFT) as usize];
        (below, page & ((1 << VOLUME_SHIFT) - 1))
    }

    /// Tests for `page` in memory, and puts it there.
    fn touch(&self, page: u64) -> bool {
        let mut lru = self.pages.borrow_mut();
        let request = PolicyRequest::default();
        let hit = lru.touch(LineKey(page), &request).is_some();
        if !hit {
            lru.insert(LineKey(page), &request, &Unpinned);
        }
        let mut counts = self.counts.get();
        counts.asked += 1;
        counts.missed += u64::from(!hit);
        self.counts.set(counts);
        hit
    }

    async fn fetch(&self, start: u64, end: u64) -> IoResult {
        if start == end {
            return Ok(());
        }
        let mut counts = self.counts.get();
        counts.reads += 1;
        self.counts.set(counts);
        let pages = (start..end).map(|page| (page, Vec::new()));
        self.coming.borrow_mut().extend(pages);
        let (below, at) = self.below(start);
        let process = READER;
        let turn = below.queue.pass_for(TurnRequest { process, at }).await;
        let len = ((end - start) * PAGE_BYTES) as usize;
        let result = below.volume.read(at * PAGE_BYTES, len).await;
        drop(turn);
        let mut coming = self.coming.borrow_mut();
        for page in start..end {
            // The end of the channel notifies the waiting readers.
            coming.remove(&page);
        }
        result.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::on_disk;
    use block::{Env, Nanos};
    use futures_util::future::join_all;
    use sim::SimRng;
    use std::collections::VecDeque;

    const READ: Nanos = Nanos::from_micros(100);

    /// Runs `test` on a host with so many pages over a disk that reads in [`READ`].
    fn over<T: 'static>(pages: u32, test: impl AsyncFn(PageCacheHost, Env) -> T + 'static) -> T {
        on_disk(READ, async move |gate, env| {
            test(PageCacheHost::new(gate, pages), env).await
        })
    }

    /// The textbook's list, searched from end to end.
    #[test]
    fn misses_are_those_of_the_least_recently_used_list() {
        const PAGES: usize = 50;
        let counts = over(PAGES as u32, async |host, _| {
            let mut rng = SimRng::new(7);
            let mut list = VecDeque::new();
            let mut missed = 0;
            for _ in 0..20_000 {
                let page = rng.below(10) * rng.below(20);
                host.read(page, 1).await.unwrap();
                match list.iter().position(|p| *p == page) {
                    Some(place) => drop(list.remove(place)),
                    None => missed += 1,
                }
                list.push_front(page);
                list.truncate(PAGES);
            }
            assert_eq!(host.counts().missed, missed);
            host.counts()
        });
        assert_eq!(counts.reads, counts.missed);
        assert!(
            counts.missed > 1_000 && counts.missed < 19_000,
            "{counts:?}"
        );
    }

    #[test]
    fn neighbours_that_are_missing_are_one_request_up_to_the_window() {
        over(1_000, async |host, env| {
            let begun = env.timer.now();
            host.read(100, 3).await.unwrap();
            host.read(96, 10).await.unwrap();
            let counts = host.counts();
            // 100..103, then 96..100 and 103..106.
            assert_eq!((counts.asked, counts.missed, counts.reads), (13, 10, 3));
            assert_eq!(env.timer.now() - begun, Nanos(3 * READ.0));
            host.read(200, 70).await.unwrap();
            assert_eq!(host.counts().reads, 6);
        });
    }

    #[test]
    fn volumes_share_the_memory_and_not_their_pages() {
        let missed = on_disk(READ, async |gate, _| {
            let host = PageCacheHost::over(vec![gate.clone(), gate], 10);
            for page in [page_of(0, 7), page_of(1, 7), page_of(0, 7)] {
                host.read(page, 1).await.unwrap();
            }
            let once = host.counts().missed;
            host.read(page_of(1, 100), 9).await.unwrap();
            host.read(page_of(1, 7), 1).await.unwrap();
            (once, host.counts().missed)
        });
        // Nine more pages leave room for the one that was read last.
        assert_eq!(missed, (2, 12));
    }

    #[test]
    fn who_wants_a_page_that_is_being_read_waits_for_it() {
        over(1_000, async |host, env| {
            let begun = env.timer.now();
            let both = [host.read(7, 1), host.read(7, 1)];
            let ended = both.map(async |read| {
                read.await.unwrap();
                env.timer.now() - begun
            });
            assert_eq!(join_all(ended).await, [READ, READ]);
            assert_eq!(host.counts().reads, 1);
        });
    }

    #[test]
    fn more_requests_than_the_queue_is_deep_take_turns() {
        over(1_000, async |host, env| {
            let begun = env.timer.now();
            let reads = (0..u64::from(QUEUE_DEPTH) + 1).map(|page| host.read(2 * page, 1));
            join_all(reads).await;
            assert_eq!(env.timer.now() - begun, Nanos(2 * READ.0));
        });
    }
}
