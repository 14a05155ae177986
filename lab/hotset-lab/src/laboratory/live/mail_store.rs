//! A mail store on files: databases of pages, a log for each, and a scan that checks all pages.
//!
//! Requests are direct, as those of the published tool. A page has its number and a checksum, which
//! each read checks. Invariant: no page is read amid a write of that page.
//!
//! Left out: the database's memory, the tree above the pages, and more than one page in flight of a
//! database's writer.

use super::rounds::Interruption;
use block::Nanos;
use crc32c::crc32c;
use experiment::mail::MailServed;
use experiment::perc_mail::SHAPE;
use experiment::queries::QueryReads;
use fastrand::Rng;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

const PAGE_BYTES: usize = SHAPE.page_bytes as usize;
/// Pages of a read of the scan.
const SCAN_PAGES: usize = SHAPE.scan_bytes as usize / PAGE_BYTES;
/// A log begins again after so many bytes.
pub const LOG_BYTES: u64 = 16 << 20;
/// Changed pages of a database that wait to be written; a thread waits for room.
const CHANGED_MAX: usize = 64;
/// Locks of a database, each of every so many reads of a scan.
const LOCKS: usize = 64;
/// Draws the bytes of pages, and the pages of threads.
const SEED: u64 = 10;
/// The checksum, and the page's number after it.
const SUM: usize = 4;
const HEAD: usize = SUM + 8;

/// A page, at a place in memory that direct requests take.
#[repr(C, align(4096))]
#[derive(Clone)]
struct MailPage([u8; PAGE_BYTES]);

impl MailPage {
    fn new() -> Box<MailPage> {
        Box::new(MailPage([0; PAGE_BYTES]))
    }

    /// Takes drawn bytes, the number, and their checksum.
    fn draw(&mut self, number: u64, rng: &mut Rng) {
        rng.fill(&mut self.0[HEAD..]);
        self.0[SUM..HEAD].copy_from_slice(&number.to_le_bytes());
        let sum = crc32c(&self.0[SUM..]);
        self.0[..SUM].copy_from_slice(&sum.to_le_bytes());
    }

    /// An error unless this is the page of that number, whole.
    fn check(&self, number: u64) -> io::Result<()> {
        let whole = crc32c(&self.0[SUM..]).to_le_bytes() == self.0[..SUM];
        match whole && self.0[SUM..HEAD] == number.to_le_bytes() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "page {number}: its checksum or number is wrong"
            ))),
        }
    }
}

/// A database and its log.
struct MailDatabase {
    path: PathBuf,
    pages: File,
    log: File,
    /// The end of the log.
    end: Mutex<u64>,
    locks: Vec<RwLock<()>>,
}

impl MailDatabase {
    fn lock(&self, page: u64) -> &RwLock<()> {
        &self.locks[page as usize / SCAN_PAGES % LOCKS]
    }

    fn read(&self, number: u64, page: &mut MailPage, sum: &mut QueryReads) -> io::Result<()> {
        let lock = self.lock(number).read();
        let _lock = lock.unwrap_or_else(PoisonError::into_inner);
        let at = number * PAGE_BYTES as u64;
        timed(sum, PAGE_BYTES, || {
            self.pages.read_exact_at(&mut page.0, at)
        })?;
        page.check(number)
    }

    fn write(&self, number: u64, page: &MailPage, sum: &mut QueryReads) -> io::Result<()> {
        let lock = self.lock(number).write();
        let _lock = lock.unwrap_or_else(PoisonError::into_inner);
        let at = number * PAGE_BYTES as u64;
        timed(sum, PAGE_BYTES, || self.pages.write_all_at(&page.0, at))
    }

    /// Appends to the log, and flushes the log.
    fn commit(&self, page: &MailPage, sum: &mut QueryReads) -> io::Result<()> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let record = &page.0[..SHAPE.commit_bytes as usize];
        timed(sum, record.len(), || {
            self.log.write_all_at(record, *end)?;
            self.log.sync_data()
        })?;
        *end = (*end + SHAPE.commit_bytes) % LOG_BYTES;
        Ok(())
    }
}

/// Does a request, and counts it with its time.
fn timed(
    sum: &mut QueryReads,
    bytes: usize,
    request: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let begun = Instant::now();
    request()?;
    *sum += QueryReads {
        reads: 1,
        bytes: bytes as u64,
        taken: Nanos(begun.elapsed().as_nanos() as u64),
    };
    Ok(())
}

/// A store.
pub struct FileStore {
    databases: Vec<MailDatabase>,
    /// Pages of a database.
    pages: u64,
}

/// The load of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreLoad {
    /// Threads of a database.
    pub threads: u64,
    /// Mean pause of a thread between two pages.
    pub pause: Duration,
    /// Time of the load.
    pub span: Duration,
}

/// The parts that all threads of a load share.
struct LoadThread<'a> {
    store: &'a FileStore,
    load: StoreLoad,
    until: Instant,
    interruption: &'a Interruption,
    failed: &'a AtomicBool,
}

impl FileStore {
    /// Makes the files of a store with databases of so many bytes. The error names the file.
    pub fn make(
        directory: &Path,
        bytes: u64,
        interruption: &Interruption,
    ) -> Result<FileStore, (PathBuf, io::Error)> {
        let pages = bytes / PAGE_BYTES as u64;
        let mut rng = Rng::with_seed(SEED);
        let mut file = |name: String, pages: u64| {
            let path = directory.join(name);
            let file = write_pages(&path, pages, &mut rng, interruption);
            file.map(|file| (path.clone(), file))
                .map_err(|cause| (path, cause))
        };
        let mut databases = Vec::new();
        for number in 1..=SHAPE.databases {
            let (path, pages) = file(format!("db{number}"), pages)?;
            let (_, log) = file(format!("log{number}"), LOG_BYTES / PAGE_BYTES as u64)?;
            databases.push(MailDatabase {
                path,
                pages,
                log,
                end: Mutex::new(0),
                locks: (0..LOCKS).map(|_| RwLock::new(())).collect(),
            });
        }
        Ok(FileStore { databases, pages })
    }

    /// The file of the first database.
    pub fn first(&self) -> &Path {
        &self.databases[0].path
    }

    /// Runs the load; returns the requests that ended in time.
    pub fn run(&self, load: StoreLoad, interruption: &Interruption) -> io::Result<MailServed> {
        let failed = AtomicBool::new(false);
        let thread = LoadThread {
            store: self,
            load,
            until: Instant::now() + load.span,
            interruption,
            failed: &failed,
        };
        let ended: Vec<io::Result<MailServed>> = scope(|scope| {
            let mut threads: Vec<ScopedJoinHandle<io::Result<MailServed>>> = Vec::new();
            for database in 0..self.databases.len() {
                let (changed, queue) = sync_channel(CHANGED_MAX);
                let thread = &thread;
                for number in 0..load.threads {
                    let changed = changed.clone();
                    let rng = Rng::with_seed(SEED + 1 + database as u64 * load.threads + number);
                    threads.push(
                        scope.spawn(move || thread.ended(thread.transact(database, rng, &changed))),
                    );
                }
                let write = move || thread.ended(thread.write(database, &queue));
                threads.push(scope.spawn(write));
                threads.push(scope.spawn(move || thread.ended(thread.scan(database))));
            }
            let ended = threads.into_iter().map(|thread| thread.join());
            let ended = ended.map(|ended| ended.unwrap_or_else(|e| std::panic::resume_unwind(e)));
            ended.collect()
        });
        let mut all = MailServed::default();
        for served in ended {
            all += served?;
        }
        Ok(all)
    }
}

impl LoadThread<'_> {
    /// Passes the end of a thread on. A failure ends the others.
    fn ended(&self, served: io::Result<MailServed>) -> io::Result<MailServed> {
        if served.is_err() {
            self.failed.store(true, Relaxed);
        }
        served
    }

    /// Waits until then; false if the load is over.
    fn goes_on_at(&self, time: Instant) -> io::Result<bool> {
        self.interruption.pause_until(time.min(self.until))?;
        Ok(!self.failed.load(Relaxed) && Instant::now() < self.until)
    }

    /// Reads pages at random places, and changes some.
    fn transact(
        &self,
        own: usize,
        mut rng: Rng,
        changed: &SyncSender<u64>,
    ) -> io::Result<MailServed> {
        let database = &self.store.databases[own];
        let (mut served, mut page) = (MailServed::default(), MailPage::new());
        loop {
            // The logarithm of a number above zero is finite.
            let pause = self.load.pause.mul_f64(-(1.0 - rng.f64()).ln());
            if !self.goes_on_at(Instant::now() + pause)? {
                return Ok(served);
            }
            let number = rng.u64(..self.store.pages);
            database
                .read(number, &mut page, &mut served.reads[own])
                .map_err(|cause| self.named(own, cause))?;
            if rng.f64() >= SHAPE.changed {
                continue;
            }
            if changed.send(number).is_err() {
                // The writer has failed, and says why.
                return Ok(served);
            }
            if rng.f64() < SHAPE.committed {
                database
                    .commit(&page, &mut served.commits[own])
                    .map_err(|cause| self.named(own, cause))?;
            }
        }
    }

    /// Writes changed pages.
    fn write(&self, own: usize, queue: &Receiver<u64>) -> io::Result<MailServed> {
        let (mut served, mut page) = (MailServed::default(), MailPage::new());
        let mut rng = Rng::with_seed(SEED);
        for number in queue {
            if Instant::now() >= self.until {
                break;
            }
            page.draw(number, &mut rng);
            self.store.databases[own]
                .write(number, &page, &mut served.writes[own])
                .map_err(|cause| self.named(own, cause))?;
        }
        Ok(served)
    }

    /// Reads the database in sequence at the scan's rate, and checks all pages.
    fn scan(&self, own: usize) -> io::Result<MailServed> {
        let database = &self.store.databases[own];
        let named = |cause| self.named(own, cause);
        let mut file = open(&database.path).map_err(named)?;
        let mut pages = vec![MailPage([0; PAGE_BYTES]); SCAN_PAGES];
        let every = SHAPE.scan_bytes as f64 / SHAPE.scan_bytes_per_second as f64;
        let (mut served, mut first) = (MailServed::default(), 0);
        let mut due = Instant::now();
        while self.goes_on_at(due)? {
            due = Instant::now() + Duration::from_secs_f64(every);
            let lock = database.lock(first).read();
            let _lock = lock.unwrap_or_else(PoisonError::into_inner);
            let bytes = SHAPE.scan_bytes as usize;
            timed(&mut served.scans[own], bytes, || {
                read_whole(&mut file, &mut pages)
            })
            .map_err(named)?;
            for (number, page) in (first..).zip(&pages) {
                page.check(number).map_err(named)?;
            }
            first += SCAN_PAGES as u64;
            if first + SCAN_PAGES as u64 > self.store.pages {
                first = 0;
                file.rewind().map_err(named)?;
            }
        }
        Ok(served)
    }

    fn named(&self, own: usize, cause: io::Error) -> io::Error {
        let path = self.store.databases[own].path.display();
        io::Error::new(cause.kind(), format!("{path}: {cause}"))
    }
}

/// Reads so many pages at once.
fn read_whole(file: &mut File, pages: &mut [MailPage]) -> io::Result<()> {
    let expected = pages.len() * PAGE_BYTES;
    let mut parts: Vec<_> = pages
        .iter_mut()
        .map(|page| IoSliceMut::new(&mut page.0))
        .collect();
    match file.read_vectored(&mut parts)? {
        read if read == expected => Ok(()),
        read => Err(io::Error::other(format!(
            "{read} of {expected} bytes are read"
        ))),
    }
}

/// Opens a file for direct requests.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT);
    options.open(path)
}

/// Writes a file of so many pages, and opens the file for direct requests.
fn write_pages(
    path: &Path,
    pages: u64,
    rng: &mut Rng,
    interruption: &Interruption,
) -> io::Result<File> {
    let (mut out, mut page) = (File::create(path)?, MailPage::new());
    for number in 0..pages {
        interruption.require_none()?;
        page.draw(number, rng);
        out.write_all(&page.0)?;
    }
    open(path).map_err(|cause| {
        io::Error::new(
            cause.kind(),
            format!("no direct requests here ({cause}). Name storage of a block device"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::mail::of_all;

    #[test]
    fn a_damaged_page_or_one_in_another_place_is_an_error() {
        let mut page = MailPage::new();
        page.draw(7, &mut Rng::with_seed(1));
        page.check(7).unwrap();
        assert!(page.check(8).unwrap_err().to_string().contains("page 8"));
        for at in [0, SUM, HEAD, PAGE_BYTES - 1] {
            let mut damaged = page.clone();
            damaged.0[at] ^= 1;
            assert!(damaged.check(7).is_err(), "{at}");
        }
    }

    #[test]
    fn a_store_with_a_damaged_page_ends_the_load() {
        let dir = tempfile::tempdir().unwrap();
        let interruption = Interruption::default();
        let store = FileStore::make(dir.path(), 1 << 20, &interruption).unwrap();
        let load = StoreLoad {
            threads: 2,
            pause: Duration::from_millis(1),
            span: Duration::from_secs(1),
        };
        let served = store.run(load, &interruption).unwrap();
        assert!(
            served.reads.iter().all(|reads| reads.reads > 0),
            "{served:?}"
        );
        let scans = of_all(&served.scans);
        assert!(scans.bytes.is_multiple_of(SHAPE.scan_bytes) && scans.reads > 0);
        let damaged = OpenOptions::new().write(true).open(store.first()).unwrap();
        damaged.write_all_at(b"damage", 5 << 15).unwrap();
        damaged.sync_all().unwrap();
        let Err(cause) = store.run(load, &interruption) else {
            panic!("a damaged page was read");
        };
        assert!(
            cause.to_string().contains("db1: page 5: its checksum"),
            "{cause}"
        );
    }
}
