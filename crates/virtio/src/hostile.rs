//! A guest that breaks rules, for the fuzzer and for tests on random bytes.

use crate::device::DiskLock;
use crate::guest::{BASE, BUFFERS, BYTES, GuestMemory, NEXT, RawDescriptor, WRITE};
use crate::inflight::{self, Marks};
use crate::layout::REQUEST_MAX;
use crate::ring::VirtRing;
use crate::shape::{GuestDiskShape, RING_MAX};
use block::{Geometry, IoResult, Pool, Request, Sectors, Tag};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use vm_memory::{Bytes, GuestAddress};

const SECTORS: Sectors = Sectors(1 << 15);
const DEPTH: u16 = 4;
/// Feature of a guest that can flush, from `layout::features`.
pub(crate) const FLUSH: u64 = 1 << 9;

pub(crate) fn disk() -> Arc<DiskLock> {
    let shape = GuestDiskShape {
        geometry: Geometry::new("data", SECTORS, Sectors(1)),
        read_only: false,
        name: "data".into(),
        depth: DEPTH,
    };
    let disk = Arc::new(DiskLock::new(shape, Arc::new(|_| ())));
    disk.lock().features = FLUSH;
    disk
}

pub(crate) fn poll(disk: &DiskLock, tag: Tag) -> Option<IoResult<Request>> {
    match disk.poll_next(tag, &Context::from_waker(Waker::noop())) {
        Poll::Ready(next) => Some(next),
        Poll::Pending => None,
    }
}

/// Serves the request of `tag`, on a disk with 7 in every byte.
pub(crate) fn serve(disk: &DiskLock, pool: &Pool, tag: Tag, request: Request) {
    let answer = match request {
        Request::Read(_) => {
            let mut buf = pool.take(request.bytes());
            buf.fill(7);
            Ok(Some(buf.share()))
        }
        Request::Write(..) => {
            let mut buf = pool.take(request.bytes());
            disk.take(tag, &mut buf).map(|()| None)
        }
        _ => Ok(None),
    };
    disk.answer(tag, answer).unwrap();
}

/// Serves the disk's tags until none has a request.
pub(crate) fn serve_all(disk: &DiskLock, pool: &Pool) -> Vec<Request> {
    let mut served = Vec::new();
    loop {
        let before = served.len();
        for tag in (0..DEPTH).map(Tag) {
            if let Some(next) = poll(disk, tag) {
                let request = next.unwrap();
                serve(disk, pool, tag, request);
                served.push(request);
            }
        }
        if served.len() == before {
            return served;
        }
    }
}

/// Writes a header at `at`.
pub(crate) fn header(guest: &GuestMemory, at: u64, kind: u32, sector: u64) {
    let memory = &guest.memory;
    memory.write_obj(kind, GuestAddress(at)).unwrap();
    memory.write_obj(0u32, GuestAddress(at + 4)).unwrap();
    memory.write_obj(sector, GuestAddress(at + 8)).unwrap();
}

/// Offers a read of one sector with three descriptors from `head` on.
pub(crate) fn offer_read(guest: &mut GuestMemory, head: u16, sector: u64) {
    let at = BUFFERS + u64::from(head) * 4096;
    header(guest, at, 0, sector);
    let raw = |at, len, flags, next| RawDescriptor {
        at,
        len,
        flags,
        next,
    };
    guest.put(BASE, head, raw(at, 16, NEXT, head + 1));
    guest.put(BASE, head + 1, raw(at + 512, 512, NEXT | WRITE, head + 2));
    guest.put(BASE, head + 2, raw(at + 1024, 1, WRITE, 0));
    guest
        .memory
        .write_obj(9u8, GuestAddress(at + 1024))
        .unwrap();
    guest.offer(head);
}

/// Returns true if that read was answered with the disk's bytes.
pub(crate) fn was_read(guest: &GuestMemory, head: u16) -> bool {
    let at = BUFFERS + u64::from(head) * 4096;
    let mut bytes = [0; 513];
    guest
        .memory
        .read_slice(&mut bytes, GuestAddress(at + 512))
        .unwrap();
    bytes[..512].iter().all(|byte| *byte == 7) && bytes[512] == 0
}

/// Bytes that determine choices; zeroes once they are used up.
struct HostileChoices<'a>(&'a [u8]);

impl HostileChoices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Chooses a descriptor: most lie in the buffers, some across the end of memory, in the tables,
    /// or nowhere.
    fn raw(&mut self) -> RawDescriptor {
        let (where_to, n) = (self.byte() % 8, u64::from(self.word()));
        let at = match where_to {
            0..=4 => BUFFERS + n % 64 * 512,
            5 => BASE + BYTES - n % 4096,
            6 => BASE + n % 64 * 16,
            _ => n << 48 | n,
        };
        let (length, n) = (self.byte(), u32::from(self.word()));
        let known = [0, 1, 16, 32, 512, 513, 4096, REQUEST_MAX, u32::MAX];
        let len = known.get(usize::from(length % 12)).copied();
        RawDescriptor {
            at,
            len: len.unwrap_or(n % 9000),
            flags: u16::from(self.byte() % 8),
            next: u16::from(self.byte() % 20),
        }
    }

    /// Chooses a kind of request and its sector.
    fn header(&mut self) -> (u32, u64) {
        let (kind, n) = (self.byte(), u64::from(self.word()));
        let sector = match kind >> 4 {
            0 => n << 48 | n,
            _ => n % (SECTORS.0 + 9),
        };
        (u32::from(kind % 16), sector)
    }
}

/// Serves a guest with memory contents chosen by `bytes`. Nothing panics, every request ends,
/// requests lie within the disk, and the next guest of the disk is served.
pub fn hostile(bytes: &[u8]) {
    let mut choices = HostileChoices(bytes);
    let (disk, mut guest, pool) = (disk(), GuestMemory::new(16), Pool::new(8 << 20));
    let (file, _) = inflight::create(1, 16).unwrap();
    let is_marked = choices.byte() % 2 == 1;
    let marks = is_marked.then(|| Marks::map(file, 0, 1, 16).unwrap());
    for table in [BASE, BUFFERS + 512] {
        for at in 0..16 {
            guest.put(table, at, choices.raw());
        }
    }
    for at in (0..64).filter(|at| *at != 1) {
        let (kind, sector) = choices.header();
        header(&guest, BUFFERS + at * 512, kind, sector);
    }
    guest.attach(&disk, marks.as_ref());
    while !choices.0.is_empty() {
        match choices.byte() {
            head @ 0..230 => guest.offer(u16::from(head % 18)),
            _ => guest.jump(choices.word()),
        }
        for request in serve_all(&disk, &pool) {
            if let Request::Read(at)
            | Request::Write(at, _)
            | Request::Zero(at)
            | Request::Discard(at) = request
            {
                assert!(at.end().0 <= SECTORS.0 && !at.is_empty(), "{request:?}");
                assert!(request.bytes() <= REQUEST_MAX as usize, "{request:?}");
            }
        }
    }
    drop(disk.stop(|_| true));
    disk.lock().rings[0] = VirtRing::new(RING_MAX);
    let mut next = GuestMemory::new(16);
    next.attach(&disk, None);
    offer_read(&mut next, 4, 4);
    assert_eq!(serve_all(&disk, &pool).len(), 1);
    assert!(was_read(&next, 4));
}
