//! The disk of one guest: set up by the control thread, and served by shards.
//!
//! A disk has a part for each shard that serves it. Ring r is of part r modulo the parts, and no
//! part waits for another.
//!
//! Invariants:
//!     a ring is set up, or has an event ⟹ it is so in its own part alone   (`DiskParts::of`)
//!     a tag waits, or holds a request, or its server has it
//!     a tag waits ⟹ no ring has a request, or a tag was woken for one  (`rouse`)

use crate::layout;
use crate::log::{DiskLog, GuestTopic};
use crate::memory::Memory;
use crate::request::{self, ChainRequest, MemoryPieces, Unmapped};
use crate::ring::{RingBroken, VirtRing};
use crate::shape::{GuestDiskCounters, GuestDiskShape, Log, QUEUES_MAX, RING_MAX};
use block::{Answer, Buf, Fua, IoError, IoErrorKind, IoResult, Request, Tag};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use virtio_bindings::bindings::virtio_blk as blk;
use vm_memory::{Bytes, GuestAddress};

/// Most requests answered here, without the volume, before other tasks have their turn.
const AT_ONCE_MAX: u32 = 64;

/// The number of the part that has a ring, of so many parts.
pub(crate) fn part_of(ring: usize, parts: usize) -> usize {
    ring % parts
}

/// All parts of a disk.
pub(crate) struct DiskParts(Vec<Arc<DiskLock>>);

impl DiskParts {
    pub(crate) fn new(parts: usize, shape: &GuestDiskShape, log: &Log) -> DiskParts {
        let part = |_| Arc::new(DiskLock::new(shape.clone(), log.clone()));
        DiskParts((0..parts.max(1)).map(part).collect())
    }

    /// The part that has the ring of that number.
    pub(crate) fn of(&self, ring: usize) -> &DiskLock {
        &self.0[part_of(ring, self.0.len())]
    }

    /// The part with the shape, and with counters and log lines that are of no ring.
    pub(crate) fn first(&self) -> &DiskLock {
        &self.0[0]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<DiskLock>> {
        self.0.iter()
    }

    pub(crate) fn counters(&self) -> GuestDiskCounters {
        let mut sum = self.first().lock().counters;
        for part in &self.0[1..] {
            let part = part.lock().counters;
            sum.repeated += part.repeated;
            sum.broken += part.broken;
        }
        sum
    }
}

/// A part of the disk, behind a lock that is held for the copy of one request's bytes at most.
pub(crate) struct DiskLock {
    device: Mutex<VirtioDisk>,
    /// Signals that a request was answered.
    answered: Condvar,
}

pub(crate) struct VirtioDisk {
    pub(crate) shape: GuestDiskShape,
    pub(crate) rings: Vec<VirtRing>,
    /// Features that the guest accepted.
    pub(crate) features: u64,
    pub(crate) counters: GuestDiskCounters,
    pub(crate) log: DiskLog,
    closed: bool,
    held: Vec<Option<HeldRequest>>,
    /// Tags that wait, in order.
    idle: VecDeque<(Tag, Waker)>,
    /// Ring to begin the next search with.
    first: usize,
}

/// A request that a tag holds.
struct HeldRequest {
    ring: usize,
    head: u16,
    memory: Arc<Memory>,
    status: GuestAddress,
    request: Request,
    data: MemoryPieces,
    taken: bool,
}

impl DiskLock {
    pub(crate) fn new(shape: GuestDiskShape, log: Log) -> DiskLock {
        let held = (0..shape.depth).map(|_| None).collect();
        let rings = (0..QUEUES_MAX).map(|_| VirtRing::new(RING_MAX)).collect();
        DiskLock {
            device: Mutex::new(VirtioDisk {
                shape,
                rings,
                features: 0,
                counters: GuestDiskCounters::default(),
                log: DiskLog::new(log),
                closed: false,
                held,
                idle: VecDeque::new(),
                first: 0,
            }),
            answered: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, VirtioDisk> {
        self.device.lock().expect("no panic under this lock")
    }

    /// Stops the rings of this part that `which` names, and waits until they have no request in
    /// flight, or the part is closed.
    pub(crate) fn stop(&self, which: impl Fn(usize) -> bool) -> MutexGuard<'_, VirtioDisk> {
        let mut device = self.lock();
        for (_, ring) in device
            .rings
            .iter_mut()
            .enumerate()
            .filter(|(n, _)| which(*n))
        {
            ring.stop();
        }
        let busy = |device: &mut VirtioDisk| {
            let mut rings = device.rings.iter().enumerate();
            !device.closed && rings.any(|(n, ring)| which(n) && ring.in_hand > 0)
        };
        let waited = self.answered.wait_while(device, busy);
        waited.expect("no panic under this lock")
    }

    pub(crate) fn poll_next(&self, tag: Tag, cx: &Context<'_>) -> Poll<IoResult<Request>> {
        self.lock().poll_next(tag, cx)
    }

    pub(crate) fn answer(&self, tag: Tag, answer: Answer) -> IoResult {
        let answered = self.lock().answer(tag, answer);
        self.answered.notify_all();
        answered
    }

    pub(crate) fn take(&self, tag: Tag, buf: &mut Buf) -> IoResult {
        self.lock().take(tag, buf)
    }

    pub(crate) fn close(&self) {
        let mut device = self.lock();
        device.closed = true;
        let idle = std::mem::take(&mut device.idle);
        drop(device);
        idle.into_iter().for_each(|(_, waker)| waker.wake());
        self.answered.notify_all();
    }
}

impl VirtioDisk {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    fn poll_next(&mut self, tag: Tag, cx: &Context<'_>) -> Poll<IoResult<Request>> {
        if self.closed {
            return Poll::Ready(Err(self.gone()));
        }
        let place = self.held.get(usize::from(tag.0));
        if place.is_none_or(|held| held.is_some()) {
            let what = "not what its tag waits for";
            return Poll::Ready(Err(self.invalid(what)));
        }
        self.idle.retain(|(other, _)| *other != tag);
        for _ in 0..AT_ONCE_MAX {
            match self.begin() {
                BeginOutcome::Request(held) => {
                    let request = held.request;
                    self.held[usize::from(tag.0)] = Some(*held);
                    self.rouse();
                    return Poll::Ready(Ok(request));
                }
                BeginOutcome::Done => {}
                BeginOutcome::Nothing if self.has_more() => {}
                BeginOutcome::Nothing => {
                    self.idle.push_back((tag, cx.waker().clone()));
                    return Poll::Pending;
                }
            }
        }
        self.idle.push_back((tag, cx.waker().clone()));
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Wakes a tag if there is a request for it; that tag wakes the next. Returns true if a tag was
    /// woken.
    pub(crate) fn rouse(&mut self) -> bool {
        let wakes = !self.idle.is_empty() && self.has_more();
        let next = wakes.then(|| self.idle.pop_front()).flatten();
        next.map(|(_, waker)| waker.wake()).is_some()
    }

    fn has_more(&mut self) -> bool {
        for at in 0..self.rings.len() {
            match self.rings[at].has_more() {
                Ok(true) => return true,
                Ok(false) => {}
                Err(why) => self.give_up(at, &why),
            }
        }
        false
    }

    /// Takes the next request of any ring, each ring in its turn.
    fn begin(&mut self) -> BeginOutcome {
        let rings = self.rings.len();
        for at in (self.first..rings).chain(0..self.first) {
            match self.rings[at].pop() {
                Ok(None) => {}
                Ok(Some((head, memory))) => {
                    self.first = (at + 1) % rings;
                    return self.read(at, head, memory);
                }
                Err(why) => self.give_up(at, &why),
            }
        }
        BeginOutcome::Nothing
    }

    /// Reads a popped request, and answers it at once if the volume is not needed.
    fn read(&mut self, ring: usize, head: u16, memory: Arc<Memory>) -> BeginOutcome {
        // A guest that cannot flush has every write durable.
        let fua = match layout::flushes(self.features) {
            true => Fua::No,
            false => Fua::Yes,
        };
        let table = self.rings[ring].table();
        let parsed = request::parse(memory.parts(), table, head, &self.shape, fua);
        // Zeroes in the place of lost memory are no request.
        let Some(parsed) = parsed.ok().filter(|_| !memory.is_lost()) else {
            self.push(ring, &memory, head, 0);
            return BeginOutcome::Done;
        };
        let (status, written) = match parsed.asked {
            ChainRequest::Request(request, data) => {
                return BeginOutcome::Request(Box::new(HeldRequest {
                    ring,
                    head,
                    memory,
                    status: parsed.status,
                    request,
                    data,
                    taken: false,
                }));
            }
            ChainRequest::Id(data) => match data.write(memory.parts(), &self.id()) {
                Ok(()) => (blk::VIRTIO_BLK_S_OK as u8, layout::ID_BYTES as u32),
                Err(Unmapped) => (blk::VIRTIO_BLK_S_IOERR as u8, 0),
            },
            ChainRequest::Refused(status) => (status, 0),
        };
        self.finish(ring, &memory, head, parsed.status, status, written);
        BeginOutcome::Done
    }

    fn id(&self) -> [u8; layout::ID_BYTES] {
        let mut id = [0; layout::ID_BYTES];
        let name = self.shape.name.as_bytes();
        let len = name.len().min(id.len());
        id[..len].copy_from_slice(&name[..len]);
        id
    }

    fn answer(&mut self, tag: Tag, answer: Answer) -> IoResult {
        let place = self.held.get_mut(usize::from(tag.0)).and_then(Option::take);
        let Some(held) = place else {
            return Err(self.invalid("its tag holds nothing to answer"));
        };
        if !held.request.is_answered_by(&answer, held.taken) {
            self.held[usize::from(tag.0)] = Some(held);
            return Err(self.invalid("no answer to what its tag holds"));
        }
        let (status, written) = match (answer, held.request) {
            (Ok(Some(data)), Request::Read(_)) => {
                match held.data.write(held.memory.parts(), &data) {
                    Ok(()) => (blk::VIRTIO_BLK_S_OK, held.request.bytes()),
                    Err(Unmapped) => (blk::VIRTIO_BLK_S_IOERR, 0),
                }
            }
            (Ok(_), _) => (blk::VIRTIO_BLK_S_OK, 0),
            (Err(error), _) if error.kind() == IoErrorKind::Unsupported => {
                (blk::VIRTIO_BLK_S_UNSUPP, 0)
            }
            (Err(_), _) => (blk::VIRTIO_BLK_S_IOERR, 0),
        };
        let (status, written) = (status as u8, written as u32);
        let HeldRequest { ring, head, .. } = held;
        self.finish(ring, &held.memory, head, held.status, status, written);
        Ok(())
    }

    fn take(&mut self, tag: Tag, buf: &mut Buf) -> IoResult {
        if self.closed {
            return Err(self.gone());
        }
        let held = self.held.get_mut(usize::from(tag.0));
        let Some(Some(held)) = held else {
            return Err(self.invalid("its tag holds nothing to take"));
        };
        let is_write = matches!(held.request, Request::Write(..));
        if !is_write || held.taken || buf.len() != held.request.bytes() {
            return Err(self.invalid("no write of this length to take"));
        }
        held.taken = true;
        let copied = held.data.read(held.memory.parts(), buf);
        let copied = copied.and(match held.memory.is_lost() {
            true => Err(Unmapped),
            false => Ok(()),
        });
        copied.map_err(|Unmapped| {
            let what = "the guest gave no memory for its bytes";
            IoError::new(IoErrorKind::Other, what).on(self.shape.name.clone())
        })
    }

    /// Writes the status of a request, and gives its descriptors back.
    fn finish(
        &mut self,
        ring: usize,
        memory: &Memory,
        head: u16,
        at: GuestAddress,
        status: u8,
        written: u32,
    ) {
        // Without a place for the status, the guest harms only itself.
        let written = match memory.write_obj(status, at) {
            Ok(()) => written + 1,
            Err(_) => 0,
        };
        self.push(ring, memory, head, written);
    }

    fn push(&mut self, ring: usize, memory: &Memory, head: u16, written: u32) {
        if let Err(why) = self.rings[ring].push(memory, head, written) {
            self.give_up(ring, &why);
        }
    }

    fn give_up(&mut self, ring: usize, RingBroken(why): &RingBroken) {
        self.rings[ring].give_up();
        self.counters.broken += 1;
        let name = &self.shape.name;
        let line = format!("queue {ring} of the guest of volume {name} makes no sense: {why}");
        self.log.say(GuestTopic::Broken, &line);
    }

    fn gone(&self) -> IoError {
        IoError::new(IoErrorKind::Gone, "the port has ended").on(self.shape.name.clone())
    }

    fn invalid(&self, what: &'static str) -> IoError {
        IoError::new(IoErrorKind::Invalid, what).on(self.shape.name.clone())
    }
}

/// The result of `VirtioDisk::begin`.
enum BeginOutcome {
    Request(Box<HeldRequest>),
    /// A request was answered.
    Done,
    Nothing,
}
