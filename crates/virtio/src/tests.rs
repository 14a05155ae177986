//! Guests that keep the rules, and guests that break them.

use crate::device::DiskLock;
use crate::fault::tests::file;
use crate::guest::{BASE, BUFFERS, BYTES, GuestMemory, INDIRECT, NEXT, RawDescriptor, WRITE};
use crate::hostile::{FLUSH, disk, header, hostile, offer_read, poll, serve, serve_all, was_read};
use crate::inflight::{self, Marks};
use crate::port::VirtioPort;
use crate::ring::VirtRing;
use crate::shape::RING_MAX;
use block::conformance::PortClients;
use block::{
    Answer, Buf, Env, Extent, Fua, IoResult, Lba, Nanos, Pool, Port, Request, Sectors, Tag,
};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use vm_memory::{Bytes, FileOffset, GuestAddress, MmapRegion};

#[test]
fn what_a_dead_daemon_left_is_served_again_and_what_it_answered_is_not() {
    let pool = Pool::new(4 << 20);
    let (file, _) = inflight::create(1, 16).unwrap();
    let marks = Marks::map(file, 0, 1, 16).unwrap();
    let mut guest = GuestMemory::new(16);
    let first = disk();
    guest.attach(&first, Some(&marks));
    for head in [0, 3, 6] {
        offer_read(&mut guest, head, head.into());
    }
    let taken: Vec<_> = (0..3)
        .map(|tag| poll(&first, Tag(tag)).unwrap().unwrap())
        .collect();
    serve(&first, &pool, Tag(1), taken[1]);
    assert_eq!(guest.used(), Some((3, 513)));
    offer_read(&mut guest, 9, 9);
    // The first guest is gone without a message.
    let next = disk();
    guest.attach(&next, Some(&marks));
    let at = |head| Request::Read(Extent::new(Lba(head), Sectors(1)));
    assert_eq!(serve_all(&next, &pool), [at(0), at(6), at(9)]);
    let heads: Vec<_> = std::iter::from_fn(|| guest.used())
        .map(|(head, _)| head)
        .collect();
    assert_eq!(heads, [0, 6, 9]);
    assert!([0, 3, 6, 9].into_iter().all(|head| was_read(&guest, head)));
}

#[test]
fn without_flushes_every_write_is_durable_at_once() {
    for (features, expected) in [(FLUSH, Fua::No), (0, Fua::Yes)] {
        let (disk, mut guest) = (disk(), GuestMemory::new(8));
        disk.lock().features = features;
        guest.attach(&disk, None);
        header(&guest, BUFFERS, 1, 8);
        // Header and data in one, which virtio 1 allows.
        let (data, status) = (16 + 512, BUFFERS + 4096);
        let raw = |at, len, flags, next| RawDescriptor {
            at,
            len,
            flags,
            next,
        };
        guest.put(BASE, 0, raw(BUFFERS, data, NEXT, 1));
        guest.put(BASE, 1, raw(status, 1, WRITE, 0));
        guest.offer(0);
        let request = poll(&disk, Tag(0)).unwrap().unwrap();
        assert_eq!(
            request,
            Request::Write(Extent::new(Lba(8), Sectors(1)), expected)
        );
    }
}

/// A monitor makes the file of its guest's memory shorter, at each point of a write.
#[test]
fn memory_that_is_taken_away_fails_its_guest_alone() {
    for point in 0..3 {
        let pool = Pool::new(4 << 20);
        let file = file(BYTES as usize);
        let backed = FileOffset::new(file.try_clone().unwrap(), 0);
        let map = MmapRegion::from_file(backed, BYTES as usize).unwrap();
        let (disk, mut guest) = (disk(), GuestMemory::with(16, map));
        guest.attach(&disk, None);
        let is_lost = |at: i32| at == point && file.set_len(0).is_ok();
        header(&guest, BUFFERS, 1, 8);
        let raw = |at, len, flags, next| RawDescriptor {
            at,
            len,
            flags,
            next,
        };
        guest.put(BASE, 0, raw(BUFFERS, 16 + 512, NEXT, 1));
        guest.put(BASE, 1, raw(BUFFERS + 4096, 1, WRITE, 0));
        guest.offer(0);
        let lost = is_lost(0);
        match poll(&disk, Tag(0)) {
            None => assert!(lost, "what is there is served"),
            Some(request) => {
                assert!(!lost, "{request:?} of zeroes");
                let lost = is_lost(1);
                let mut buf = pool.take(512);
                let taken = disk.take(Tag(0), &mut buf);
                assert_eq!(taken.is_err(), lost, "{taken:?}");
                is_lost(2);
                disk.answer(Tag(0), taken.map(|()| None)).unwrap();
                assert!(poll(&disk, Tag(0)).is_none());
            }
        }
        assert_eq!(disk.lock().counters.broken, 1, "at {point}");
        // The next guest has memory of its own.
        disk.lock().rings[0] = VirtRing::new(RING_MAX);
        let mut next = GuestMemory::new(16);
        next.attach(&disk, None);
        offer_read(&mut next, 0, 3);
        assert_eq!(serve_all(&disk, &pool).len(), 1);
        assert!(was_read(&next, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_hostile_guest_harms_itself_alone(bytes in prop::collection::vec(any::<u8>(), 520..700)) {
        hostile(&bytes);
    }
}

/// A port with writes of the requested durability, which virtio cannot express.
struct Durable {
    port: VirtioPort,
    forced: Rc<RefCell<HashSet<Lba>>>,
}

impl Port for Durable {
    fn tags(&self) -> u16 {
        self.port.tags()
    }

    async fn next(&self, tag: Tag, answer: Option<Answer>) -> IoResult<Request> {
        let next = self.port.next(tag, answer).await?;
        Ok(match next {
            Request::Write(at, _) if self.forced.borrow().contains(&at.start) => {
                Request::Write(at, Fua::Yes)
            }
            other => other,
        })
    }

    async fn take(&self, tag: Tag, buf: Buf) -> (Buf, IoResult) {
        self.port.take(tag, buf).await
    }

    fn close(&self) {
        self.port.close();
    }
}

/// A driver in a guest. Each of its requests has a table of its own, or all share the ring's.
struct Driver {
    disk: Arc<DiskLock>,
    guest: RefCell<GuestMemory>,
    free: RefCell<Vec<u16>>,
    used: RefCell<HashMap<u16, u32>>,
    forced: Rc<RefCell<HashSet<Lba>>>,
    env: Env,
    count: Cell<u64>,
}

/// Slots of 16 KiB, and four descriptors each.
const SLOTS: u16 = 64;
const SLOT_BYTES: u64 = 16 << 10;

impl Driver {
    fn offer(&self, slot: u16, kind: u32, sector: u64, out: &[u8], into: u32) {
        let mut guest = self.guest.borrow_mut();
        let at = BUFFERS + 0x10_0000 + u64::from(slot) * SLOT_BYTES;
        header(&guest, at, kind, sector);
        guest
            .memory
            .write_slice(out, GuestAddress(at + 64))
            .unwrap();
        let (table, first, flags) = match self.count.get() % 2 {
            0 => (BASE, slot * 4, 0),
            _ => (at + 15 * 1024, 0, INDIRECT),
        };
        self.count.set(self.count.get() + 1);
        let raw = |at, len, flags, next| RawDescriptor {
            at,
            len,
            flags,
            next,
        };
        guest.put(table, first, raw(at, 16, NEXT, first + 1));
        let (data, direction) = match into {
            0 => (out.len() as u32, 0),
            bytes => (bytes, WRITE),
        };
        // Data in two parts, of which one may be empty.
        let (half, start) = (data / 2, at + 64);
        guest.put(
            table,
            first + 1,
            raw(start, half, NEXT | direction, first + 2),
        );
        let rest = raw(
            start + u64::from(half),
            data - half,
            NEXT | direction,
            first + 3,
        );
        guest.put(table, first + 2, rest);
        guest.put(table, first + 3, raw(at + 48, 1, WRITE, 0));
        if flags == INDIRECT {
            guest.put(BASE, slot * 4, raw(table, 64, INDIRECT, 0));
        }
        guest.offer(slot * 4);
        drop(guest);
        self.disk.lock().rouse();
    }

    fn bytes(&self, slot: u16, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let place = BUFFERS + 0x10_0000 + u64::from(slot) * SLOT_BYTES + at;
        let memory = &self.guest.borrow().memory;
        memory.read_slice(&mut bytes, GuestAddress(place)).unwrap();
        bytes
    }
}

impl PortClients for Driver {
    async fn ask(&self, request: Request, data: Vec<u8>) -> Option<Vec<u8>> {
        let pause = || self.env.timer.sleep(Nanos::from_micros(50));
        let slot = loop {
            let free = self.free.borrow_mut().pop();
            match free {
                Some(slot) => break slot,
                None => pause().await,
            }
        };
        let range = |at: Extent| {
            let mut bytes = at.start.0.to_le_bytes().to_vec();
            bytes.extend((at.len.0 as u32).to_le_bytes());
            bytes.extend([0; 4]);
            bytes
        };
        match request {
            Request::Read(at) => self.offer(slot, 0, at.start.0, &[], at.len.bytes() as u32),
            Request::Write(at, fua) => {
                if fua == Fua::Yes {
                    self.forced.borrow_mut().insert(at.start);
                }
                self.offer(slot, 1, at.start.0, &data, 0);
            }
            Request::Flush => self.offer(slot, 4, 0, &[], 0),
            Request::Discard(at) => self.offer(slot, 11, 0, &range(at), 0),
            Request::Zero(at) => self.offer(slot, 13, 0, &range(at), 0),
        }
        while self.used.borrow_mut().remove(&(slot * 4)).is_none() {
            let given = self.guest.borrow_mut().used();
            match given {
                Some((head, len)) => {
                    self.used.borrow_mut().insert(head as u16, len);
                }
                None => pause().await,
            }
        }
        let status = self.bytes(slot, 48, 1)[0];
        let read = match request {
            Request::Read(at) => self.bytes(slot, 64, at.len.bytes() as usize),
            _ => Vec::new(),
        };
        self.free.borrow_mut().push(slot);
        (status == 0).then_some(read)
    }
}

#[test]
fn a_guests_requests_are_those_of_a_port() {
    let mut host = uring::Uring::new(uring::Options::default()).unwrap();
    let ended = shard::run_alone(&mut host, |local| async move {
        for seed in 0..3 {
            let (disk, guest) = (disk(), GuestMemory::new(256));
            guest.attach(&disk, None);
            let forced = Rc::new(RefCell::new(HashSet::new()));
            let driver = Driver {
                disk: disk.clone(),
                guest: RefCell::new(guest),
                free: RefCell::new((0..SLOTS).collect()),
                used: RefCell::default(),
                forced: forced.clone(),
                env: local.env(),
                count: Cell::new(0),
            };
            let port = Rc::new(Durable {
                port: VirtioPort::new(disk),
                forced,
            });
            block::conformance::port(port, &driver, &local.env(), seed).await;
        }
    });
    ended.expect("nothing cuts its power");
}
