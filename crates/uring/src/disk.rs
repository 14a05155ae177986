//! Disk operations: the steps that each asks of the kernel.
//!
//! Invariants:
//!     a transfer that ends short goes on from the last whole block
//!     no data within the size known at opening ⟹ the device shrank: `Gone`
//!     a flush that fails takes the disk out of service: the kernel reports
//!     lost writes once only, and a second flush would pass
//!     (Rebello et al., "Can Applications Recover from fsync Failures?", 2020).
//!     Flushes in flight with the failed one fail too, even if the kernel lets them pass (`syncs`)

use crate::errno;
use crate::memory::{Bounce, RegisteredArena};
use crate::op::OpStep;
use crate::open::OpenDisk;
use block::{
    Buf, DriverOp, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Payload, SECTOR_BYTES,
    Sectors, SharedBuf,
};
use io_uring::{opcode, squeue, types};
use std::sync::atomic::Ordering::Relaxed;

/// A disk's descriptor for the ring: a registered file or a plain descriptor. Also says if a worker
/// of the ring has to begin each operation.
#[derive(Clone, Copy)]
pub(crate) struct DiskHandle {
    pub(crate) fd: types::Fd,
    pub(crate) flags: squeue::Flags,
}

impl DiskHandle {
    pub(crate) fn plain(fd: i32) -> DiskHandle {
        DiskHandle {
            fd: types::Fd(fd),
            flags: squeue::Flags::empty(),
        }
    }

    pub(crate) fn registered(index: u32) -> DiskHandle {
        DiskHandle {
            fd: types::Fd(index as i32),
            flags: squeue::Flags::FIXED_FILE,
        }
    }
}

/// The longest transfer that is done in place; copying a longer one is worth another
/// thread.
const IN_PLACE_MAX: u64 = 64 << 10;

/// A disk operation in progress.
pub(crate) struct DiskOp {
    at: Lba,
    bytes: u64,
    done: u64,
    action: DiskAction,
}

enum DiskAction {
    Read(Buf, Option<Box<Bounce>>),
    Write(SharedBuf, Fua, Option<Box<Bounce>>),
    Zero(Zeroing),
    Flush,
    Discard,
}

/// Ways to zero, best first; the first that a disk offers is remembered. A hole stays a hole, so
/// that zeroes never fill a thin disk that can have holes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeroing {
    /// Gives the space back.
    Punch = 0,
    /// Keeps the space allocated.
    Range = 1,
    /// Writes zeroes.
    Write = 2,
}

impl Zeroing {
    fn of(disk: &OpenDisk) -> Zeroing {
        match disk.zeroing.load(Relaxed) {
            0 => Zeroing::Punch,
            1 => Zeroing::Range,
            _ => Zeroing::Write,
        }
    }

    fn worse(self) -> Zeroing {
        match self {
            Zeroing::Punch => Zeroing::Range,
            Zeroing::Range | Zeroing::Write => Zeroing::Write,
        }
    }
}

#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

/// No data where there was some when the device was opened.
const ENDED: &str = "the device is gone, shrank or was truncated since it was opened; \
     attach it again, or restore its size";

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

impl DiskOp {
    /// Checks `op` against the disk; a refusal gives back the operation's buffers.
    pub(crate) fn begin(disk: &OpenDisk, op: DriverOp) -> Result<DiskOp, (IoError, Payload)> {
        let checked = disk.check_in_service().and_then(|()| extent_of(disk, &op));
        let extent = match checked {
            Ok(extent) => extent,
            Err(error) => return Err((error, op.into_payload())),
        };
        let action = match op {
            DriverOp::Read(_, buf) => {
                let bounce = bounce_for(disk, &buf);
                DiskAction::Read(buf, bounce)
            }
            DriverOp::Write(_, data, fua) => {
                let mut bounce = bounce_for(disk, &data);
                if let Some(bounce) = &mut bounce {
                    bounce.bytes().copy_from_slice(&data);
                }
                DiskAction::Write(data, fua, bounce)
            }
            DriverOp::Zero(_) => DiskAction::Zero(Zeroing::of(disk)),
            DriverOp::Flush => DiskAction::Flush,
            DriverOp::Discard(_) => DiskAction::Discard,
            op => {
                let what = "a stream operation on a disk";
                return Err((
                    disk.geometry.error(IoErrorKind::Invalid, what),
                    op.into_payload(),
                ));
            }
        };
        Ok(DiskOp {
            at: extent.start,
            bytes: extent.len.bytes(),
            done: 0,
            action,
        })
    }

    /// The next request to the kernel.
    #[inline]
    pub(crate) fn entry(&mut self, file: DiskHandle, arena: &RegisteredArena) -> squeue::Entry {
        let offset = self.at.byte() + self.done;
        let left = self.bytes - self.done;
        let done = self.done as usize;
        match &mut self.action {
            DiskAction::Read(buf, bounce) => {
                let start = start_of(buf, bounce);
                // SAFETY: `done` is less than the buffer's length.
                read(file, unsafe { start.add(done) }, left as u32, offset, arena)
            }
            DiskAction::Write(data, fua, bounce) => {
                let start = source_of(data, bounce);
                // SAFETY: as above.
                let from = unsafe { start.add(done) };
                write(file, from, left as u32, offset, *fua, arena)
            }
            DiskAction::Zero(Zeroing::Write) => {
                let bytes = left.min(ZEROES.0.len() as u64) as u32;
                write(file, ZEROES.0.as_ptr(), bytes, offset, Fua::No, arena)
            }
            DiskAction::Zero(how) => {
                let mode = if *how == Zeroing::Range {
                    ZERO_RANGE
                } else {
                    PUNCH
                };
                fallocate(file, offset, left, mode)
            }
            DiskAction::Discard => fallocate(file, offset, left, PUNCH),
            DiskAction::Flush => opcode::Fsync::new(file.fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        }
        .flags(file.flags)
    }

    /// Carries out a short transfer of a file in memory, and returns the kernel's answer. Such a
    /// file waits for no device, but its file system does not offer `FMODE_NOWAIT` (Linux 6.18,
    /// `mm/shmem.c`). A ring would hand the transfer to a worker thread.
    #[inline]
    pub(crate) fn in_place(&mut self, disk: &OpenDisk) -> Option<i32> {
        if !disk.in_memory || self.bytes > IN_PLACE_MAX {
            return None;
        }
        let (fd, offset, bytes) = (disk.fd(), self.at.byte() as i64, self.bytes as usize);
        let answer = match &mut self.action {
            DiskAction::Read(buf, bounce) => {
                let start = start_of(buf, bounce);
                // SAFETY: the memory is this operation's, of that length.
                unsafe { libc::pread(fd, start.cast(), bytes, offset) }
            }
            DiskAction::Write(data, _, bounce) => {
                let start = source_of(data, bounce);
                // SAFETY: as above.
                unsafe { libc::pwrite(fd, start.cast(), bytes, offset) }
            }
            _ => return None,
        };
        Some(match answer {
            -1 => -std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
            moved => moved as i32,
        })
    }

    /// Takes the kernel's answer: bytes moved, or a negative error number.
    #[inline]
    pub(crate) fn advance(&mut self, disk: &OpenDisk, result: i32) -> OpStep {
        match &self.action {
            _ if errno::is_transient(-result) => OpStep::Again,
            DiskAction::Read(..) | DiskAction::Write(..) | DiskAction::Zero(Zeroing::Write) => {
                if result as i64 == (self.bytes - self.done) as i64 {
                    self.finish();
                    return OpStep::Done(Ok(0));
                }
                self.advance_transfer(disk, result)
            }
            DiskAction::Zero(how) if is_unsupported(-result) => {
                let how = how.worse();
                disk.zeroing.fetch_max(how as u8, Relaxed);
                self.action = DiskAction::Zero(how);
                OpStep::Again
            }
            // The next may need no more room than there is.
            DiskAction::Zero(how) if -result == libc::ENOSPC => {
                self.action = DiskAction::Zero(how.worse());
                OpStep::Again
            }
            DiskAction::Discard if is_unsupported(-result) => OpStep::Done(Ok(0)),
            DiskAction::Flush if result < 0 => {
                disk.lose();
                let what = "flush failed; writes since the last flush may be lost";
                OpStep::Done(Err(self.error(disk, -result, what)))
            }
            DiskAction::Zero(_) if result < 0 => {
                OpStep::Done(Err(self.error(disk, -result, "zeroing failed")))
            }
            DiskAction::Discard if result < 0 => {
                OpStep::Done(Err(self.error(disk, -result, "discard failed")))
            }
            DiskAction::Zero(_) | DiskAction::Discard | DiskAction::Flush => OpStep::Done(Ok(0)),
        }
    }

    /// A transfer that failed or ended short.
    #[cold]
    fn advance_transfer(&mut self, disk: &OpenDisk, result: i32) -> OpStep {
        if result < 0 {
            return OpStep::Done(Err(self.transfer_failed(disk, -result)));
        }
        let block = disk.geometry.block.bytes();
        let whole = (result as u64) / block * block;
        if whole == 0 {
            return OpStep::Done(Err(disk
                .geometry
                .error(IoErrorKind::Gone, ENDED)
                .at(self.rest())));
        }
        self.done += whole;
        if self.done == self.bytes {
            self.finish();
            return OpStep::Done(Ok(0));
        }
        OpStep::Again
    }

    fn transfer_failed(&self, disk: &OpenDisk, number: i32) -> IoError {
        let what = match self.action {
            DiskAction::Read(..) => "read failed",
            DiskAction::Write(_, Fua::Yes, _) if disk.buffered || number == libc::EIO => {
                // The error may be that of the flush inside this write. That flush covered the
                // writes before this one too.
                disk.lose();
                "durable write failed; writes since the last flush may be lost"
            }
            _ => "write failed",
        };
        // A block device answers "no space" beyond its end.
        let end = self.at.byte() + self.bytes;
        if number == libc::ENOSPC
            && disk.is_block_device
            && disk.bytes_now().is_ok_and(|bytes| bytes < end)
        {
            return disk
                .geometry
                .error(IoErrorKind::Gone, ENDED)
                .at(self.rest());
        }
        self.error(disk, number, what)
    }

    fn finish(&mut self) {
        if let DiskAction::Read(buf, Some(bounce)) = &mut self.action {
            buf.copy_from_slice(bounce.bytes());
        }
    }

    fn error(&self, disk: &OpenDisk, number: i32, what: &'static str) -> IoError {
        let what = match number {
            libc::EBADE => "is reserved by another host",
            _ => what,
        };
        let error = disk.geometry.error(errno::kind(number), what);
        let error = error.because(errno::source(number));
        match self.action {
            DiskAction::Flush => error,
            _ => error.at(self.rest()),
        }
    }

    fn rest(&self) -> Extent {
        let start = Lba((self.at.byte() + self.done) / SECTOR_BYTES);
        Extent::new(start, Sectors((self.bytes - self.done) / SECTOR_BYTES))
    }

    /// True if the operation makes writes durable. Such an operation may meet the loss of other
    /// writes.
    #[inline]
    pub(crate) fn is_sync(&self) -> bool {
        matches!(
            self.action,
            DiskAction::Flush | DiskAction::Write(_, Fua::Yes, _)
        )
    }

    pub(crate) fn is_flush(&self) -> bool {
        matches!(self.action, DiskAction::Flush)
    }

    /// The payload returned to the submitter.
    pub(crate) fn into_payload(self) -> Payload {
        match self.action {
            DiskAction::Read(buf, _) => Payload::Buf(buf),
            _ => Payload::None,
        }
    }
}

/// The sectors `op` concerns, if the disk has them and takes such operations.
fn extent_of(disk: &OpenDisk, op: &DriverOp) -> IoResult<Extent> {
    let geometry = &disk.geometry;
    let (extent, changes) = match op {
        DriverOp::Read(at, buf) => (geometry.transfer(*at, buf.len())?, false),
        DriverOp::Write(at, data, _) => (geometry.transfer(*at, data.len())?, true),
        DriverOp::Zero(extent) | DriverOp::Discard(extent) => {
            geometry.check(*extent)?;
            (*extent, true)
        }
        _ => (geometry.extent(), false),
    };
    if changes && disk.read_only {
        return Err(geometry
            .error(IoErrorKind::ReadOnly, "opened read-only")
            .at(extent));
    }
    Ok(extent)
}

/// Address to which a read moves its bytes.
#[inline]
fn start_of(buf: &mut Buf, bounce: &mut Option<Box<Bounce>>) -> *mut u8 {
    match bounce {
        Some(bounce) => bounce.as_mut_ptr(),
        None => buf.as_mut_ptr(),
    }
}

/// Address from which a write takes its bytes.
#[inline]
fn source_of(data: &SharedBuf, bounce: &mut Option<Box<Bounce>>) -> *const u8 {
    match bounce {
        Some(bounce) => bounce.as_mut_ptr().cast_const(),
        None => data.as_ptr(),
    }
}

/// A copy's place, if direct I/O cannot begin where `bytes` lie.
fn bounce_for(disk: &OpenDisk, bytes: &[u8]) -> Option<Box<Bounce>> {
    let reachable = disk.buffered || (bytes.as_ptr() as usize).is_multiple_of(disk.memory_align);
    (!reachable).then(|| Box::new(Bounce::new(bytes.len())))
}

fn is_unsupported(number: i32) -> bool {
    matches!(number, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV)
}

fn read(
    file: DiskHandle,
    to: *mut u8,
    bytes: u32,
    offset: u64,
    arena: &RegisteredArena,
) -> squeue::Entry {
    match arena.index_of(to) {
        Some(index) => opcode::ReadFixed::new(file.fd, to, bytes, index)
            .offset(offset)
            .build(),
        None => opcode::Read::new(file.fd, to, bytes).offset(offset).build(),
    }
}

fn write(
    file: DiskHandle,
    from: *const u8,
    bytes: u32,
    offset: u64,
    fua: Fua,
    arena: &RegisteredArena,
) -> squeue::Entry {
    let flags = match fua {
        Fua::No => 0,
        Fua::Yes => libc::RWF_DSYNC,
    };
    match arena.index_of(from) {
        Some(index) => opcode::WriteFixed::new(file.fd, from, bytes, index)
            .offset(offset)
            .rw_flags(flags)
            .build(),
        None => opcode::Write::new(file.fd, from, bytes)
            .offset(offset)
            .rw_flags(flags)
            .build(),
    }
}

fn fallocate(file: DiskHandle, offset: u64, bytes: u64, mode: i32) -> squeue::Entry {
    opcode::Fallocate::new(file.fd, bytes)
        .offset(offset)
        .mode(mode)
        .build()
}
