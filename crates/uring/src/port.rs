//! Ports: the requests of a ublk device, handed out by its driver in the kernel.
//!
//! Invariants:
//!     the kernel copies an answer's bytes within the system call that takes its entry in:
//!     the bytes are lent until then and no longer         (`Ports::lend`, `Ports::settle`)
//!     a ring that serves a device holds the device open until the ring's last operation has
//!     ended, of disks too: only then may another server take the device over
//!     a queue is mapped only once the kernel has its tags: Linux 6.12 keeps the process that
//!     mapped first until a recovery begins, and permits none before a queue is ready; a server
//!     killed between the two would leave a device that no other could take over
//!     the commands of a queue are of one thread, as its driver demands: a port has whole queues,
//!     and one shard
//!
//! For the latter, the device is among the ring's registered files. Commands name the device by
//! its plain descriptor all the same. If waiting commands named a registered file, no file
//! closed later would be released (Linux before 6.14).

use crate::errno;
use crate::memory::RegisteredArena;
use crate::op::OpStep;
use crate::ring::KernelRing;
use block::TargetId;
use block::{
    Answer, Buf, DriverOp, IoError, IoErrorKind, IoResult, PAGE_BYTES, Payload, Request, SharedBuf,
    Tag,
};
use io_uring::{opcode, squeue, types};
use slab::Slab;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use ublk::uapi::{NEED_GET_DATA, block_device, character_device, descriptors_at};
use ublk::{Descriptor, DeviceInfo, IoCommand};

/// Ports that a ring can hold open; there are few.
pub(crate) const PORTS_MAX: u32 = 64;

/// Some of the queues of a device, which one shard serves.
pub(crate) struct ServedPort {
    /// The driver opens a device once.
    file: Arc<File>,
    queues: Vec<PortQueue>,
    /// The tags of a queue; those of the port count through its queues.
    depth: u16,
    pub(crate) tags: u16,
    name: String,
    closed: AtomicBool,
}

/// A queue of a port.
struct PortQueue {
    /// Its number in the device.
    number: u16,
    /// From its first request on.
    descriptors: OnceLock<Descriptors>,
}

/// The kernel's descriptions of requests, one for each tag of a queue.
struct Descriptors {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is the kernel's, and is only read.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn map(file: &File, queue: u16, tags: u16) -> io::Result<Descriptors> {
        let bytes = (usize::from(tags) * Descriptor::BYTES).next_multiple_of(PAGE_BYTES);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let (fd, at) = (file.as_raw_fd(), descriptors_at(queue) as libc::off_t);
        // SAFETY: a new mapping, which overlays nothing.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, fd, at) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Descriptors { start, bytes })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn get(&self, tag: u16) -> Descriptor {
        let at = usize::from(tag) * Descriptor::BYTES;
        assert!(at + Descriptor::BYTES <= self.bytes);
        // SAFETY: inside the mapping. The kernel writes the descriptor before it completes the
        // command that reported the request, and not again while the tag holds the request.
        Descriptor::decode(unsafe { self.start.add(at).cast().read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, and no reference into the mapping is left. The call cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl ServedPort {
    /// Opens the device that `info` describes, to be served by as many shards as `ports`: each
    /// queue is of the port of its number, modulo `ports`. There are fewer ports if the device has
    /// fewer queues.
    pub(crate) fn open(info: &DeviceInfo, ports: u16) -> IoResult<Vec<ServedPort>> {
        let path = character_device(info.id);
        let named = |error: IoError| error.on(path.clone());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(&path)
            .map_err(|cause| named(errno::error(cause, "cannot be opened to serve it")))?;
        let tags = info.queues.checked_mul(info.depth);
        if tags.is_none_or(|tags| tags == 0) {
            let error = IoError::new(IoErrorKind::Unsupported, "too many tags");
            return Err(named(error));
        }
        let (file, ports) = (Arc::new(file), ports.min(info.queues));
        let port = |first| {
            let queues = (first..info.queues).step_by(usize::from(ports));
            let queues = queues.map(|number| PortQueue {
                number,
                descriptors: OnceLock::new(),
            });
            let queues: Vec<_> = queues.collect();
            ServedPort {
                file: file.clone(),
                tags: queues.len() as u16 * info.depth,
                queues,
                depth: info.depth,
                name: format!("/dev/{}", block_device(info.id)),
                closed: AtomicBool::new(false),
            }
        };
        Ok((0..ports).map(port).collect())
    }

    /// The queue that has `tag`, and the tag's number in that queue.
    fn place(&self, tag: Tag) -> (&PortQueue, u16) {
        let queue = &self.queues[usize::from(tag.0 / self.depth)];
        (queue, tag.0 % self.depth)
    }

    /// The request that the kernel has given to `tag`.
    fn request(&self, tag: Tag) -> IoResult<Request> {
        let (queue, tag) = self.place(tag);
        let descriptors = match queue.descriptors.get() {
            Some(descriptors) => descriptors,
            None => {
                let fresh = Descriptors::map(&self.file, queue.number, self.depth)
                    .map_err(|cause| errno::error(cause, "its requests cannot be mapped"))?;
                queue.descriptors.get_or_init(|| fresh)
            }
        };
        let request = descriptors.get(tag).request();
        request.ok_or_else(|| IoError::new(IoErrorKind::Unsupported, "not offered by this device"))
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Release);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    fn gone(&self) -> IoError {
        IoError::new(IoErrorKind::Gone, "the port has ended").on(self.name.clone())
    }

    fn invalid(&self, what: &'static str) -> IoError {
        IoError::new(IoErrorKind::Invalid, what).on(self.name.clone())
    }
}

/// Stage of a tag, for the rules of `block::Port`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TagStage {
    /// The kernel has had no command of the tag.
    New,
    /// The kernel has a command of the tag.
    Busy,
    /// The tag holds a request.
    Holds(Request),
    /// The tag holds a write, and its bytes were taken.
    Taken(Request),
}

/// The ports that one shard serves.
pub(crate) struct Ports {
    list: Slab<LocalPort>,
    /// The first of the ring's registered files that are kept for ports.
    first_file: u32,
    /// The bytes of answers that the kernel has not taken in.
    lent: Vec<SharedBuf>,
}

struct LocalPort {
    id: TargetId,
    port: Arc<ServedPort>,
    stages: Vec<TagStage>,
}

/// A command of a tag in progress.
pub(crate) struct PortOp {
    port: usize,
    tag: Tag,
    /// The tag's request, if there is one.
    held: Option<Request>,
    action: PortAction,
}

enum PortAction {
    Next(Option<Answer>),
    Take(Buf),
    /// The submitter has been answered that the port has ended; the kernel has not answered.
    Left,
}

impl Ports {
    pub(crate) fn new(first_file: u32) -> Ports {
        Ports {
            list: Slab::new(),
            first_file,
            lent: Vec::new(),
        }
    }

    /// The key of an open port that this shard has served before.
    #[inline]
    pub(crate) fn find(&self, id: TargetId) -> Option<usize> {
        let is_it = |local: &LocalPort| local.id == id && !local.port.is_closed();
        let (key, _) = self.list.iter().find(|(_, local)| is_it(local))?;
        Some(key)
    }

    /// Checks `op` on the port with this key against the rules of ports; a refusal gives back the
    /// operation's buffers.
    pub(crate) fn begin(&mut self, key: usize, op: DriverOp) -> Result<PortOp, (IoError, Payload)> {
        let local = &mut self.list[key];
        let port = &local.port;
        let refuse = |op: DriverOp, error: IoError| Err((error, op.into_payload()));
        let (DriverOp::Next(tag, _) | DriverOp::Take(tag, _)) = &op else {
            return refuse(op, port.invalid("not an operation of a port"));
        };
        let tag = *tag;
        let Some(stage) = local.stages.get_mut(usize::from(tag.0)) else {
            return refuse(op, port.invalid("it has no such tag"));
        };
        if port.is_closed() {
            return refuse(op, port.gone());
        }
        let held = match *stage {
            TagStage::Holds(request) | TagStage::Taken(request) => Some(request),
            TagStage::New | TagStage::Busy => None,
        };
        let action = match (op, *stage) {
            (DriverOp::Next(_, None), TagStage::New) => PortAction::Next(None),
            (DriverOp::Next(_, Some(answer)), TagStage::Holds(request))
                if request.is_answered_by(&answer, false) =>
            {
                PortAction::Next(Some(answer))
            }
            (DriverOp::Next(_, Some(answer)), TagStage::Taken(_)) => PortAction::Next(Some(answer)),
            (DriverOp::Take(_, buf), TagStage::Holds(request @ Request::Write(..)))
                if buf.len() == request.bytes() =>
            {
                PortAction::Take(buf)
            }
            (op, _) => return refuse(op, port.invalid("not what its tag waits for")),
        };
        *stage = TagStage::Busy;
        Ok(PortOp {
            port: key,
            tag,
            held,
            action,
        })
    }

    /// The key of an open port, which is added at its first use here.
    pub(crate) fn add(
        &mut self,
        id: TargetId,
        port: &Arc<ServedPort>,
        ring: &KernelRing,
    ) -> IoResult<usize> {
        if let Some(key) = self.find(id) {
            return Ok(key);
        }
        let entry = self.list.vacant_entry();
        let key = entry.key();
        let place = self.first_file + key as u32;
        let kept = (key as u32) < PORTS_MAX
            && ring
                .io
                .submitter()
                .register_files_update(place, &[port.fd()])
                .is_ok();
        if !kept {
            // Without it, a write of this process could land after the death of the process, over a
            // write that the next server has repeated.
            let what = "the ring cannot hold the device open; raise RLIMIT_MEMLOCK, or serve \
                 fewer devices";
            return Err(IoError::new(IoErrorKind::Unsupported, what).on(port.name.clone()));
        }
        entry.insert(LocalPort {
            id,
            port: port.clone(),
            stages: vec![TagStage::New; usize::from(port.tags)],
        });
        Ok(key)
    }

    /// The next request to the kernel.
    pub(crate) fn entry(&mut self, op: &mut PortOp, arena: &RegisteredArena) -> squeue::Entry {
        let port = &self.list[op.port].port;
        let fd = types::Fd(port.fd());
        let (queue, tag) = port.place(op.tag);
        let (command, result, address) = match &mut op.action {
            PortAction::Next(None) => (IoCommand::Fetch, 0, 0),
            PortAction::Next(Some(answer)) => {
                let (result, data) = match answer {
                    Ok(data) => (op.held.map_or(0, |asked| asked.bytes() as i32), data.take()),
                    Err(error) => (-errno::of_kind(error.kind()), None),
                };
                let address = match (op.held, data) {
                    (Some(Request::Read(_)), Some(data)) => {
                        let address = data.as_ptr() as u64;
                        self.lent.push(data);
                        address
                    }
                    // A read that failed must have one too, where nothing is copied.
                    (Some(Request::Read(_)), None) => arena.address(),
                    _ => 0,
                };
                (IoCommand::CommitAndFetch, result, address)
            }
            PortAction::Take(buf) => (IoCommand::GetData, 0, buf.as_mut_ptr() as u64),
            PortAction::Left => unreachable!("the kernel has it"),
        };
        opcode::UringCmd16::new(fd, command.op())
            .cmd(IoCommand::encode(queue.number, tag, result, address))
            .build()
    }

    /// Takes the kernel's answer.
    pub(crate) fn advance(&mut self, op: &mut PortOp, answer: i32) -> OpStep {
        let local = &mut self.list[op.port];
        let stage = &mut local.stages[usize::from(op.tag.0)];
        if answer < 0 {
            return OpStep::Done(Err(local.port.gone()));
        }
        match &op.action {
            PortAction::Next(_) => {
                debug_assert!(answer <= NEED_GET_DATA);
                match local.port.request(op.tag) {
                    Ok(request) => {
                        *stage = TagStage::Holds(request);
                        op.held = Some(request);
                    }
                    Err(error) => {
                        op.held = None;
                        op.action = PortAction::Next(Some(Err(error)));
                        return OpStep::Again;
                    }
                }
            }
            PortAction::Take(_) => {
                *stage = TagStage::Taken(op.held.expect("a write was taken"));
            }
            // The request waits for the next server.
            PortAction::Left => {}
        }
        OpStep::Done(Ok(0))
    }

    /// Frees the lent bytes: the kernel has taken in every entry.
    pub(crate) fn settle(&mut self) {
        self.lent.clear();
    }

    pub(crate) fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Leaves `op` to the kernel if its port is closed and the operation waits for a request.
    /// Returns the error for its submitter.
    pub(crate) fn leave(&self, op: &mut PortOp) -> Option<IoError> {
        let port = &self.list[op.port].port;
        let leaves = port.is_closed() && matches!(op.action, PortAction::Next(_));
        leaves.then(|| {
            op.action = PortAction::Left;
            port.gone()
        })
    }

    /// Releases closed ports, except those in use. Returns true when none is left.
    pub(crate) fn release_closed(
        &mut self,
        ring: &KernelRing,
        in_use: impl Fn(usize) -> bool,
    ) -> bool {
        let (mut none_left, first_file) = (true, self.first_file);
        self.list.retain(|key, local| {
            let stays = !local.port.is_closed();
            if stays || in_use(key) {
                none_left &= stays;
                return true;
            }
            // After a failure, the device stays open in the ring until the ring ends.
            let place = first_file + key as u32;
            let _ = ring.io.submitter().register_files_update(place, &[-1]);
            false
        });
        none_left
    }
}

impl PortOp {
    /// The key of its port.
    pub(crate) fn port(&self) -> usize {
        self.port
    }

    /// True if the submitter no longer waits for the operation.
    pub(crate) fn is_left(&self) -> bool {
        matches!(self.action, PortAction::Left)
    }

    /// True if the kernel may write to memory of the operation.
    pub(crate) fn owns_memory(&self) -> bool {
        matches!(self.action, PortAction::Take(_))
    }

    /// The payload returned to the submitter of an operation that has succeeded or not.
    pub(crate) fn into_payload(self, is_done: bool) -> Payload {
        match (self.action, self.held) {
            (PortAction::Take(buf), _) => Payload::Buf(buf),
            (PortAction::Next(_), Some(request)) if is_done => Payload::Request(request),
            _ => Payload::None,
        }
    }
}
