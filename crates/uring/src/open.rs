//! Opens a file or block device as a disk: its conditions, its shape, and one clear error for each
//! possible fault, with its remedy.

use crate::aside;
use crate::errno;
use block::{Geometry, IoError, IoErrorKind, IoResult, PAGE_BYTES, SECTOR_BYTES, Sectors};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::*};

/// Options of a disk. The default is direct, writable, shared I/O in the logical blocks that the
/// device reports.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct DiskOptions {
    /// Goes through the page cache, for file systems without direct I/O.
    pub buffered: bool,
    /// Refuses writes, zeroing and discards with `ReadOnly`.
    pub read_only: bool,
    /// Takes the disk for this opening alone. Refused if another process (or disk of this one) has
    /// an exclusive opening, and for mounted block devices. Others are refused until closed.
    pub exclusive: bool,
    /// The logical block, 1 or 8 sectors, instead of the detected one; never
    /// smaller than the device's own.
    pub block: Option<Sectors>,
    /// Name in errors and reports, instead of the path.
    pub name: Option<String>,
}

/// An open disk, shared by all shards.
pub(crate) struct OpenDisk {
    file: ManuallyDrop<File>,
    pub(crate) geometry: Geometry,
    pub(crate) is_block_device: bool,
    pub(crate) buffered: bool,
    pub(crate) read_only: bool,
    /// A file of tmpfs; its transfers wait for no device.
    pub(crate) in_memory: bool,
    /// A file of FUSE or of the network: the file system may block the caller, even where a call
    /// asks not to wait.
    pub(crate) may_block: bool,
    /// Alignment in memory of direct I/O, in bytes.
    pub(crate) memory_align: usize,
    /// The way to zero that works here; see `disk::Zeroing`.
    pub(crate) zeroing: AtomicU8,
    lost: AtomicBool,
    closed: AtomicBool,
}

impl OpenDisk {
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Takes the disk out of service: a flush has failed.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Relaxed);
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Refuses every operation on a disk that is lost.
    pub(crate) fn check_in_service(&self) -> IoResult {
        if !self.lost.load(Relaxed) {
            return Ok(());
        }
        let what = "is out of service since a flush or a durable write failed: acknowledged \
             writes may be lost; check the device, then restart what uses it";
        Err(self.geometry.error(IoErrorKind::Gone, what))
    }

    /// The present size in bytes.
    pub(crate) fn bytes_now(&self) -> io::Result<u64> {
        bytes_of(&self.file, self.is_block_device)
    }
}

impl Drop for OpenDisk {
    fn drop(&mut self) {
        // SAFETY: nothing uses the file after this.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if self.may_block {
            // Closing may take as long as the file system does not answer. Without a thread for it,
            // the file is closed right here.
            let _ = aside::begin("close", move || drop(file));
        }
    }
}

/// Opens the file or block device at `path`.
pub(crate) fn open(path: &Path, options: &DiskOptions) -> IoResult<OpenDisk> {
    let name = match &options.name {
        Some(name) => name.clone(),
        None => path.display().to_string(),
    };
    open_named(path, options, &name).map_err(|error| error.on(name))
}

fn open_named(path: &Path, options: &DiskOptions, name: &str) -> IoResult<OpenDisk> {
    let meta = std::fs::metadata(path).map_err(|cause| cannot_open(cause, path, options))?;
    let is_block_device = meta.file_type().is_block_device();
    if meta.is_dir() {
        return Err(invalid("is a directory; name a file or a block device"));
    }
    if !meta.is_file() && !is_block_device {
        let what = "is neither a file nor a block device; name one of these";
        return Err(invalid(what));
    }
    let mut flags = 0;
    if !options.buffered {
        flags |= libc::O_DIRECT;
    }
    if options.exclusive && is_block_device {
        flags |= libc::O_EXCL;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .custom_flags(flags)
        .open(path)
        .map_err(|cause| cannot_open(cause, path, options))?;
    if options.exclusive {
        claim(&file)?;
    }
    let limits = if is_block_device {
        device_limits(&file)?
    } else {
        file_limits(&file, options.buffered)?
    };
    let block = choose_block(options.block, &limits)?;
    let bytes = bytes_of(&file, is_block_device)
        .map_err(|cause| errno::error(cause, "cannot determine its size"))?;
    if is_block_device && bytes == 0 {
        return Err(IoError::new(IoErrorKind::Gone, NO_DEVICE));
    }
    let sectors = whole_blocks(bytes, block)?;

    let queue = QueueAttributes::of(if is_block_device {
        meta.rdev()
    } else {
        meta.dev()
    });
    let mut geometry = Geometry::new(name, sectors, block);
    geometry.rotational = queue.read("rotational").as_deref() == Some("1");
    if is_block_device {
        geometry.native = limits.preferred;
        describe(&mut geometry, &queue);
    }
    let file_system = (!is_block_device).then(|| file_system_of(&file));
    Ok(OpenDisk {
        in_memory: file_system == Some(libc::TMPFS_MAGIC as i128),
        may_block: file_system.is_some_and(|kind| !ANSWER_AT_ONCE.contains(&kind)),
        file: ManuallyDrop::new(file),
        geometry,
        is_block_device,
        buffered: options.buffered,
        read_only: options.read_only,
        memory_align: limits.memory_align,
        zeroing: AtomicU8::new(0),
        lost: AtomicBool::new(false),
        closed: AtomicBool::new(false),
    })
}

/// Takes the kernel's description of a block device's queue.
fn describe(geometry: &mut Geometry, queue: &QueueAttributes) {
    geometry.volatile = queue.read("write_cache").as_deref() != Some("write through");
    let optimal = queue.read("optimal_io_size").and_then(|n| n.parse().ok());
    if let Some(optimal) = optimal.and_then(Sectors::from_bytes)
        && optimal.0 > geometry.block.0
        && optimal.0.is_multiple_of(geometry.block.0)
    {
        geometry.optimal = optimal;
    }
}

fn invalid(what: &'static str) -> IoError {
    IoError::new(IoErrorKind::Invalid, what)
}

fn cannot_open(cause: io::Error, path: &Path, options: &DiskOptions) -> IoError {
    let what = match cause.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) if path.starts_with("/dev") => {
            "does not exist; check the path, or attach the device"
        }
        Some(libc::ENOENT | libc::ENOTDIR) => {
            "does not exist; check the path, or mount its file system"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "access is denied; give this user read and write permission"
        }
        Some(libc::EROFS) => "is on a read-only file system; remount it for writing",
        Some(libc::EBUSY) => IN_USE,
        Some(libc::EINVAL) if !options.buffered => {
            let what = "its file system offers no direct I/O; \
                 move it to one that does (ext4, XFS), or ask for buffered I/O";
            return IoError::new(IoErrorKind::Unsupported, what).because(cause);
        }
        Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => NO_DEVICE,
        _ => "cannot be opened; see that it is attached and works",
    };
    errno::error(cause, what)
}

const NO_DEVICE: &str = "has no device behind it; attach one";
const IN_USE: &str = "is in use by another process, or mounted; stop that first";

/// Takes the advisory lock that each disk opened as exclusive holds. The lock ends when the last
/// descriptor of this opening closes.
///
/// `Busy` if another has the lock, another kind if the file cannot be locked.
pub fn claim(file: &File) -> IoResult {
    // SAFETY: no pointers are involved.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(());
    }
    let cause = io::Error::last_os_error();
    let what = match cause.raw_os_error() {
        Some(libc::EWOULDBLOCK) => IN_USE,
        _ => "cannot be locked; open it without the exclusive option",
    };
    Err(errno::error(cause, what))
}

/// Demands of the device below on transfers.
struct TransferLimits {
    /// Addresses and lengths are multiples of this many bytes.
    block_bytes: u64,
    /// The block to offer if the caller chooses none.
    preferred: Sectors,
    memory_align: usize,
}

fn device_limits(file: &File) -> IoResult<TransferLimits> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one `int`.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &raw mut bytes) };
    if result < 0 {
        let cause = io::Error::last_os_error();
        return Err(errno::error(cause, "cannot determine its logical block"));
    }
    limits(bytes as u64, SECTOR_BYTES as usize)
}

fn file_limits(file: &File, buffered: bool) -> IoResult<TransferLimits> {
    if buffered {
        return limits(SECTOR_BYTES, 1);
    }
    match direct_io_alignment(file) {
        Some((_, 0)) => Err(IoError::new(
            IoErrorKind::Unsupported,
            "this file offers no direct I/O (it may be encrypted, compressed or journalled); \
             ask for buffered I/O",
        )),
        Some((memory, offset)) => limits(offset.into(), memory as usize),
        // A file system that reports nothing: a page suits every one, and a smaller block may be
        // configured where possible.
        None => Ok(TransferLimits {
            block_bytes: SECTOR_BYTES,
            preferred: Sectors(8),
            memory_align: PAGE_BYTES,
        }),
    }
}

fn limits(block_bytes: u64, memory_align: usize) -> IoResult<TransferLimits> {
    let preferred = match block_bytes {
        0..=SECTOR_BYTES => Sectors(1),
        4096 => Sectors(8),
        _ if block_bytes < 4096 && block_bytes.is_power_of_two() => Sectors(8),
        _ => {
            let what =
                format!("has logical blocks of {block_bytes} bytes; hotset takes 512 or 4096");
            return Err(IoError::new(IoErrorKind::Unsupported, what));
        }
    };
    Ok(TransferLimits {
        block_bytes,
        preferred,
        memory_align: memory_align.clamp(1, PAGE_BYTES),
    })
}

/// Memory and offset alignment of direct I/O (Linux 6.1, `STATX_DIOALIGN`).
fn direct_io_alignment(file: &File) -> Option<(u32, u32)> {
    // SAFETY: all zeroes is a valid `statx`.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty C string and `stat` is writable.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut stat,
        )
    };
    (result == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0)
        .then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
}

/// File systems that do not wait for a device where a ring asks them not to.
const ANSWER_AT_ONCE: [i128; 5] = [
    libc::EXT4_SUPER_MAGIC as i128,
    libc::XFS_SUPER_MAGIC as i128,
    libc::BTRFS_SUPER_MAGIC as i128,
    libc::F2FS_SUPER_MAGIC as i128,
    libc::TMPFS_MAGIC as i128,
];

/// The kind of a file's file system; zero if unknown. C libraries differ in the type.
fn file_system_of(file: &File) -> i128 {
    // SAFETY: all zeroes is a valid `statfs`.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable.
    match unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) } {
        0 => i128::from(stat.f_type),
        _ => 0,
    }
}

fn choose_block(wanted: Option<Sectors>, limits: &TransferLimits) -> IoResult<Sectors> {
    match wanted {
        None => Ok(limits.preferred),
        Some(block) if block != Sectors(1) && block != Sectors(8) => Err(invalid(
            "a logical block is 512 or 4096 bytes; ask for one of these",
        )),
        Some(block) if block.bytes() < limits.block_bytes => Err(invalid(
            "cannot do 512-byte blocks; ask for 4096 or leave it to detection",
        )),
        Some(block) => Ok(block),
    }
}

fn whole_blocks(bytes: u64, block: Sectors) -> IoResult<Sectors> {
    if bytes < block.bytes() {
        let what = format!(
            "is too short: {bytes} bytes hold no block of {}; extend it with `truncate -s SIZE FILE`",
            block.bytes()
        );
        return Err(IoError::new(IoErrorKind::Invalid, what));
    }
    if !bytes.is_multiple_of(block.bytes()) {
        let what = format!(
            "is {bytes} bytes, no multiple of its block of {}; make it so with `truncate -s %{} FILE`",
            block.bytes(),
            block.bytes()
        );
        return Err(IoError::new(IoErrorKind::Invalid, what));
    }
    Ok(Sectors(bytes / SECTOR_BYTES))
}

/// `_IOR(0x12, 114, size_t)` of Linux `include/uapi/linux/fs.h`.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;

fn bytes_of(file: &File, is_block_device: bool) -> io::Result<u64> {
    if !is_block_device {
        return Ok(file.metadata()?.len());
    }
    let mut bytes: u64 = 0;
    // SAFETY: the request writes eight bytes.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) } {
        0 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The attributes of a block device's request queue, or of none.
struct QueueAttributes(PathBuf);

impl QueueAttributes {
    fn of(device: u64) -> QueueAttributes {
        let (major, minor) = (libc::major(device), libc::minor(device));
        let whole = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let is_partition = whole.join("partition").exists();
        QueueAttributes(whole.join(if is_partition { "../queue" } else { "queue" }))
    }

    fn read(&self, attribute: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.0.join(attribute)).ok()?;
        Some(text.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_logical_blocks_are_refused_or_rounded_up() {
        assert_eq!(limits(512, 4).unwrap().preferred, Sectors(1));
        assert_eq!(limits(2048, 4).unwrap().preferred, Sectors(8));
        assert!(limits(520, 4).is_err() && limits(8192, 4).is_err());
    }

    #[test]
    fn a_block_is_never_smaller_than_the_devices() {
        let four_k = limits(4096, 4).unwrap();
        assert_eq!(choose_block(None, &four_k).unwrap(), Sectors(8));
        assert!(choose_block(Some(Sectors(1)), &four_k).is_err());
        assert!(choose_block(Some(Sectors(2)), &four_k).is_err());
        let small = limits(512, 4).unwrap();
        assert_eq!(choose_block(Some(Sectors(8)), &small).unwrap(), Sectors(8));
    }
}
