//! One shard's queue: operations become ring entries, completions come back.
//!
//! Invariants:
//!     an entry is in the ring or the kernel ⟹ its slot is taken, and holds
//!     all memory that the entry points at
//!     `submit` makes no system call on a disk used before, except one for a transfer
//!     done in place (`DiskOp::in_place`) and one for entries of the weight `EARLY`.
//!     A `park` with completions due makes one system call if there are entries
//!     to submit, else none
//!     operations done in place never keep completions of the ring waiting
//!     memory that the kernel may still write is never freed     (`Drop`)

mod ending;
mod outside;

use crate::disk::DiskOp;
use crate::disks::{DiskTable, REGISTERED_MAX};
use crate::errno;
use crate::memory::RegisteredArena;
use crate::op::OpStep;
use crate::port::{PortOp, Ports};
use crate::resolve::Resolver;
use crate::ring::{CompletionMode, KernelRing, Wait};
use crate::shared::RingShared;
use crate::stream::{ConnectOp, SendMessage, StreamOp};
use crate::targets::RingTarget;
use crate::waker::Waker;
use block::{
    Address, Completion, Driver, DriverOp, Geometry, IoError, IoErrorKind, IoResult, Nanos,
    Payload, Peer, Pool, TargetId, Token, Unpark,
};
use io_uring::{cqueue, opcode, squeue, types};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

/// `user_data` of entries without a slot.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
/// Held-back entries are submitted at this weight, before the turn's end: disks that idle meanwhile
/// cost more than the system call. Of 1, 2, 4 and 8 entries of disks, 4 cost the least CPU, and 8
/// some 2 % of the reads (the bench group `reads` at depth 32).
const EARLY: usize = 8;
/// Weight of an entry of a disk.
const DISK_WEIGHT: usize = 2;
/// Weight of the answer to a client of a port. A client that is woken for fewer answers costs more.
const ANSWER_WEIGHT: usize = 1;

/// The queue pair and clock of one shard. Belongs to the thread that made it.
pub struct UringDriver {
    ring: KernelRing,
    slots: Slab<DriverSlot>,
    /// Slots that found the submission queue full, in order.
    backlog: VecDeque<usize>,
    /// Weight of the entries of disks and ports in the ring that are not submitted.
    held_back: usize,
    /// Operations that ended in `submit`, for the next `park` to deliver.
    ended: Vec<Completion>,
    disks: DiskTable,
    ports: Ports,
    /// Count of closed disks and ports of the host when this shard last released any.
    held_closed: u64,
    arena: RegisteredArena,
    spare_messages: Vec<SendMessage>,
    resolver: Resolver,
    waker: Arc<Waker>,
    wake_is_armed: bool,
    is_ending: bool,
    host: Arc<RingShared>,
    pool: Pool,
    _one_thread: PhantomData<*const ()>,
}

struct DriverSlot {
    token: Token,
    work: DriverWork,
}

enum DriverWork {
    /// An operation on the disk with this key in `disks`.
    Disk(usize, DiskOp),
    Stream(StreamOp),
    Port(PortOp),
}

/// The waker of a shard.
pub(crate) fn waker() -> IoResult<Waker> {
    Waker::new().map_err(|cause| errno::error(cause, "no eventfd to wake a shard with"))
}

impl UringDriver {
    pub(crate) fn new(
        host: Arc<RingShared>,
        pool_bytes: usize,
        modes: &[CompletionMode],
    ) -> IoResult<UringDriver> {
        let options = &host.options;
        let ring = KernelRing::new(options.entries, modes)?;
        let pool = Pool::try_new(pool_bytes)?;
        let arena = RegisteredArena::register(&pool, options.registered, &ring.io.submitter());
        let disks = DiskTable::new(&ring, options.registered, options.entries);
        let waker = Arc::new(waker()?);
        host.add_waker(&waker);
        Ok(UringDriver {
            slots: Slab::with_capacity(options.entries as usize),
            backlog: VecDeque::new(),
            held_back: 0,
            ended: Vec::with_capacity(options.entries as usize),
            disks,
            ports: Ports::new(REGISTERED_MAX),
            held_closed: host.targets.held_closed(),
            arena,
            spare_messages: Vec::new(),
            resolver: Resolver::new(waker.clone()),
            waker,
            wake_is_armed: false,
            is_ending: false,
            ring,
            host,
            pool,
            _one_thread: PhantomData,
        })
    }

    /// True if the kernel took the pool as registered buffers. If not, locked memory is capped:
    /// `CAP_IPC_LOCK` or a higher `RLIMIT_MEMLOCK` would save the pinning of pages in every
    /// transfer.
    pub fn memory_is_registered(&self) -> bool {
        self.arena.is_registered()
    }

    /// System calls made to submit and to wait, so far.
    pub fn enters(&self) -> u64 {
        self.ring.enters
    }

    fn begin(&mut self, target: TargetId, op: DriverOp) -> Result<DriverWork, (IoError, Payload)> {
        if let Some(key) = self.disks.find(target) {
            let disk = &self.disks.get(key).disk;
            return DiskOp::begin(disk, op).map(|op| DriverWork::Disk(key, op));
        }
        if matches!(op, DriverOp::Next(..) | DriverOp::Take(..))
            && let Some(key) = self.ports.find(target)
        {
            return self.ports.begin(key, op).map(DriverWork::Port);
        }
        match self.host.targets.get(target) {
            Some(RingTarget::Disk(disk)) => {
                let key = self.disks.add(target, disk.clone(), &self.ring);
                DiskOp::begin(&disk, op).map(|op| DriverWork::Disk(key, op))
            }
            Some(RingTarget::Port(port)) => match self.ports.add(target, &port, &self.ring) {
                Ok(key) => self.ports.begin(key, op).map(DriverWork::Port),
                Err(error) => Err((error, op.into_payload())),
            },
            Some(target) => {
                StreamOp::begin(target, op, &mut self.spare_messages).map(DriverWork::Stream)
            }
            None => {
                let kind = match op {
                    DriverOp::Accept | DriverOp::Recv(_) | DriverOp::Send(_) => IoErrorKind::Stream,
                    _ => IoErrorKind::Gone,
                };
                let error = IoError::new(kind, "closed, or never opened");
                Err((error, op.into_payload()))
            }
        }
    }

    fn connect(&mut self, token: Token, address: &Address) -> IoResult {
        let (connect, host) = ConnectOp::new(address)?;
        let work = DriverWork::Stream(StreamOp::Connect(Box::new(connect)));
        let key = self.slots.insert(DriverSlot { token, work });
        match host {
            None => self.queue(key),
            Some(host) => {
                if let Err(cause) = self.resolver.begin(key, host) {
                    self.slots.remove(key);
                    return Err(errno::error(cause, "no thread to look up a host"));
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self, token: Token, error: IoError, payload: Payload) {
        self.ended.push(Completion {
            token,
            result: Err(error),
            payload,
        });
    }

    /// Puts the slot's next entry into the ring, or into the backlog.
    #[inline]
    fn queue(&mut self, key: usize) {
        if !self.backlog.is_empty() || !self.push(key) {
            self.backlog.push_back(key);
        }
        if self.held_back >= EARLY {
            self.held_back = 0;
            entered(self.ring.submit());
            self.settle();
        }
    }

    #[inline]
    fn push(&mut self, key: usize) -> bool {
        let mut queue = self.ring.io.submission();
        if queue.is_full() {
            return false;
        }
        let mut entry = match &mut self.slots[key].work {
            DriverWork::Disk(disk, op) => {
                self.held_back += DISK_WEIGHT;
                op.entry(self.disks.get(*disk).handle, &self.arena)
            }
            DriverWork::Stream(op) => op.entry(),
            DriverWork::Port(op) => {
                self.held_back += ANSWER_WEIGHT;
                self.ports.entry(op, &self.arena)
            }
        };
        entry.set_user_data(key as u64);
        // SAFETY: the slot owns all memory that the entry points at, and stays until the kernel's
        // completion or, in `drop`, for ever.
        unsafe { queue.push(&entry) }.is_ok()
    }

    /// Puts an entry without a slot into the ring; false if it stays full.
    ///
    /// # Safety
    /// All memory that the entry points at lives until its completion.
    unsafe fn push_bare(&mut self, entry: squeue::Entry) -> bool {
        if self.ring.io.submission().is_full() {
            self.enter(Wait::No);
        }
        // SAFETY: the caller's promise.
        unsafe { self.ring.io.submission().push(&entry) }.is_ok()
    }

    fn enter(&mut self, wait: Wait) {
        self.held_back = 0;
        entered(self.ring.enter(wait));
        self.settle();
    }

    /// Takes back the buffers lent to the kernel until the ring was entered.
    #[inline]
    fn settle(&mut self) {
        if self.ports.has_lent() && self.ring.io.submission().is_empty() {
            self.ports.settle();
        }
    }

    fn push_backlog(&mut self) {
        while let Some(&key) = self.backlog.front() {
            if !self.push(key) {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Takes every completion out of the ring.
    fn reap(&mut self, done: &mut Vec<Completion>) {
        loop {
            let entry = self.ring.io.completion().next();
            let Some(entry) = entry else { return };
            match entry.user_data() {
                WAKE => self.wake_is_armed = cqueue::more(entry.flags()),
                CANCEL => {}
                key => self.complete(key as usize, entry.result(), done),
            }
        }
    }

    /// The kernel has answered the slot's entry.
    #[inline]
    pub(crate) fn complete(&mut self, key: usize, answer: i32, done: &mut Vec<Completion>) {
        let mut sync = None;
        let step = match &mut self.slots[key].work {
            DriverWork::Disk(disk, op) => {
                sync = op.is_sync().then_some(*disk);
                op.advance(&self.disks.get(*disk).disk, answer)
            }
            DriverWork::Stream(op) => match op.advance(&self.host.targets, answer) {
                OpStep::Again if self.is_ending => return drop(self.slots.remove(key)),
                step => step,
            },
            DriverWork::Port(op) => match self.ports.advance(op, answer) {
                _ if op.is_left() => return drop(self.slots.remove(key)),
                step => step,
            },
        };
        let result = match step {
            OpStep::Again => return self.queue(key),
            OpStep::Done(result) => result,
        };
        match sync {
            None => self.deliver(key, result, done),
            Some(disk) => self.end_sync(disk, key, result, done),
        }
    }

    /// Delivers the end of a flush or durable write, or holds it back. Then delivers earlier ones
    /// that no longer need to wait.
    #[cold]
    fn end_sync(
        &mut self,
        disk: usize,
        key: usize,
        result: IoResult<u64>,
        done: &mut Vec<Completion>,
    ) {
        self.disks.syncs(disk).end(key);
        // A direct write answers for itself: the kernel keeps no part of the write to lose.
        let is_shared = match &self.slots[key].work {
            DriverWork::Disk(disk, op) => op.is_flush() || self.disks.get(*disk).disk.buffered,
            DriverWork::Stream(_) | DriverWork::Port(_) => false,
        };
        let waits = is_shared && result.is_ok();
        if !waits || !self.disks.syncs(disk).hold(key) {
            let result = result.and_then(|done| {
                let disk = &self.disks.get(disk).disk;
                disk.check_in_service().map(|()| done)
            });
            self.deliver(key, result, done);
        }
        while let Some(key) = self.disks.syncs(disk).release() {
            let result = self.disks.get(disk).disk.check_in_service();
            self.deliver(key, result.map(|()| 0), done);
        }
    }

    #[inline]
    fn deliver(&mut self, key: usize, result: IoResult<u64>, done: &mut Vec<Completion>) {
        let DriverSlot { token, work } = self.slots.remove(key);
        if self.is_ending
            && let (DriverWork::Stream(op), Ok(opened)) = (&work, &result)
            && op.opens()
        {
            // No submitter is left to close the new target.
            self.host.close(TargetId(*opened as u32));
        }
        let payload = match work {
            DriverWork::Disk(_, op) => op.into_payload(),
            DriverWork::Stream(op) => op.into_payload(&mut self.spare_messages),
            DriverWork::Port(op) => op.into_payload(result.is_ok()),
        };
        done.push(Completion {
            token,
            result,
            payload,
        });
    }

    /// Arms the ring to end its waits when the waker's event is signalled; false if the ring has no
    /// room for that now.
    fn arm_wake(&mut self) -> bool {
        if !self.wake_is_armed {
            // Each signal completes the poll once, and the poll stays armed: the event is never
            // read.
            let entry = opcode::PollAdd::new(types::Fd(self.waker.fd()), libc::POLLIN as u32)
                .multi(true)
                .build()
                .user_data(WAKE);
            // SAFETY: the entry points at no memory.
            self.wake_is_armed = unsafe { self.push_bare(entry) };
        }
        self.wake_is_armed
    }

    fn wait_until(&self, deadline: Nanos) -> Wait {
        if deadline == Nanos::ZERO {
            return Wait::No;
        }
        if deadline == Nanos::MAX {
            return Wait::Forever;
        }
        match deadline.since(self.now()) {
            Nanos::ZERO => Wait::No,
            span => Wait::For(span),
        }
    }

    /// True if a `park` that may not wait needs the kernel: for entries to submit or, if the ring
    /// gave no completion yet, for completion work.
    fn must_enter(&mut self, has_reaped: bool) -> bool {
        let queue = self.ring.io.submission();
        !queue.is_empty() || !has_reaped && (queue.taskrun() || queue.cq_overflow())
    }
}

fn entered(result: io::Result<()>) {
    if let Err(error) = result {
        panic!("the ring cannot be entered: {error}");
    }
}

impl Driver for UringDriver {
    fn now(&self) -> Nanos {
        self.host.clock.now()
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn submit(&mut self, token: Token, target: TargetId, op: DriverOp) {
        if let DriverOp::Connect(address) = &op {
            if let Err(error) = self.connect(token, address) {
                self.refuse(token, error, Payload::None);
            }
            return;
        }
        match self.begin(target, op) {
            Ok(mut work) => {
                let entry = self.slots.vacant_entry();
                let key = entry.key();
                let mut answer = None;
                if let DriverWork::Disk(disk, op) = &mut work {
                    if op.is_sync() {
                        self.disks.syncs(*disk).begin(key);
                    }
                    answer = op.in_place(&self.disks.get(*disk).disk);
                }
                entry.insert(DriverSlot { token, work });
                match answer {
                    None => self.queue(key),
                    Some(answer) => {
                        let mut ended = mem::take(&mut self.ended);
                        self.complete(key, answer, &mut ended);
                        self.ended = ended;
                    }
                }
            }
            Err((error, payload)) => self.refuse(token, error, payload),
        }
    }

    fn park(&mut self, deadline: Nanos, done: &mut Vec<Completion>) {
        let before = done.len();
        self.catch_up();
        done.append(&mut self.ended);
        let of_the_ring = done.len();
        self.push_backlog();
        self.reap(done);
        loop {
            let is_due = self.waker.take() || done.len() > before;
            let wait = if is_due {
                Wait::No
            } else {
                self.wait_until(deadline)
            };
            if let Wait::No = wait {
                if self.must_enter(done.len() > of_the_ring) {
                    self.enter(Wait::No);
                    self.push_backlog();
                    self.reap(done);
                }
                return;
            }
            let may_sleep = self.arm_wake() && self.waker.fall_asleep();
            self.enter(if may_sleep { wait } else { Wait::No });
            self.push_backlog();
            self.reap(done);
            self.catch_up();
            done.append(&mut self.ended);
        }
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        self.waker.clone()
    }

    fn geometry(&self, target: TargetId) -> Option<Geometry> {
        match self.host.targets.get(target)? {
            RingTarget::Disk(disk) => Some(disk.geometry.clone()),
            RingTarget::Stream(_) | RingTarget::Listener(_) | RingTarget::Port(_) => None,
        }
    }

    fn tags(&self, target: TargetId) -> Option<u16> {
        match self.host.targets.get(target)? {
            RingTarget::Port(port) => Some(port.tags),
            _ => None,
        }
    }

    fn peer_closed(&self, target: TargetId) -> bool {
        match self.host.targets.get(target) {
            Some(RingTarget::Stream(socket)) => socket.peer_closed(),
            _ => false,
        }
    }

    fn peer(&self, target: TargetId) -> Option<Peer> {
        match self.host.targets.get(target) {
            Some(RingTarget::Stream(socket)) => socket.peer(),
            _ => None,
        }
    }

    fn close(&mut self, target: TargetId) {
        self.host.close(target);
    }
}
