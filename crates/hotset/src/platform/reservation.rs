//! Persistent reservations of block devices, SCSI and NVMe alike: the ioctls of `<linux/pr.h>`.
//!
//! The reservation is write exclusive, for registrants only. A host has a registration a path, with
//! SCSI, and the reservation belongs to one of them: plain write exclusive would refuse the host's
//! own writes by its other paths. All hosts may read.
//!
//! Invariants:
//!     a device was taken ⟹ no key but this host's was registered then, and the reservation
//!                          is its own
//!     a registration has lasted ⟹ no other hotset has taken the device since
//!     a conflict leaves no registration of this host: whoever is registered may write
//!
//! The paths of a multipath map are registered one by one: the map itself gives up all of them if
//! one does not answer. Keys of others are never read, which few kernels offer: a takeover clears
//! all keys.
//!
//! Not here: the times of steps, and the fate of a volume whose origin is lost (`node`).

use super::machine;
use super::wear::NvmeCommand;
use block::{IoError, IoErrorKind, IoResult};
use control::config::Config;
use control::problem::ConfigurationProblem;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `IOC_PR_REGISTER` to `IOC_PR_CLEAR`: `_IOW('p', 200…, …)`.
const REGISTER: u32 = 0x4018_70c8;
const RESERVE: u32 = 0x4010_70c9;
const RELEASE: u32 = 0x4010_70ca;
const PREEMPT: u32 = 0x4018_70cb;
const CLEAR: u32 = 0x4010_70cd;

/// `NVME_IOCTL_ID` and `NVME_IOCTL_IO_CMD`, with NVMe's command to unregister: `REGISTER` with a
/// new key of 0 ends a registration of SCSI alone. NVMe would have the key 0 registered.
const NVME_NAMESPACE: u32 = 0x4e40;
const NVME_COMMAND: u32 = 0xc048_4e43;
const NVME_REGISTER: u8 = 0x0d;
const NVME_UNREGISTER: u32 = 1;

/// `PR_WRITE_EXCLUSIVE_REG_ONLY`.
const KIND: u32 = 3;
/// `PR_FL_IGNORE_KEY`: registers whatever key was registered before.
const IGNORE_KEY: u32 = 1;

/// Answers of the ioctls: `PR_STS_RESERVATION_CONFLICT`, and NVMe's own before Linux 6.5.
const CONFLICT: i32 = 0x18;
const NVME_CONFLICT: i32 = 0x83;
const NVME_STATUS: i32 = 0x7ff;
/// `PR_STS_IOERR`; also the answer to the first command after an event at the device.
const FAILED: i32 = 0x2;
/// Attempts at a command that the device answers with an event.
const ATTEMPTS: u32 = 4;

/// `struct pr_registration`, and `struct pr_preempt` with the kind in the place of the flags.
#[repr(C)]
struct TwoKeys {
    old: u64,
    new: u64,
    flags_or_kind: u32,
    rest: u32,
}

/// `struct pr_reservation`, and `struct pr_clear` with flags in the place of the kind.
#[repr(C)]
struct OneKey {
    key: u64,
    kind: u32,
    flags: u32,
}

const _: () = assert!(size_of::<TwoKeys>() == 24 && size_of::<OneKey>() == 16);

/// A block device under the key of a volume of this host.
pub struct Reservable {
    paths: Vec<File>,
    key: u64,
}

/// The key of the volume `name` on the machine `host`: stable over restarts, and never 0.
pub fn key(host: &str, name: &str) -> u64 {
    let text = format!("hotset reservation\0{host}\0{name}");
    twox_hash::XxHash3_64::oneshot(text.as_bytes()).max(1)
}

impl Reservable {
    /// The device at `place`. Nothing changes yet.
    pub fn open(place: &Path, key: u64) -> IoResult<Reservable> {
        let about = fs::metadata(place).map_err(cannot_open)?;
        let Some(about) = machine::block_device(&about) else {
            return Err(none());
        };
        if about.join("partition").exists() {
            let what = "is a partition, and a reservation is of the whole device; serve that, or \
                        leave out `reserve` of its volume";
            return Err(IoError::new(IoErrorKind::Unsupported, what));
        }
        let id = fs::read_to_string(about.join("dm/uuid")).unwrap_or_default();
        let paths = match id.starts_with("mpath-") {
            true => fs::read_dir(about.join("slaves"))
                .map_err(cannot_open)?
                .map(|path| open(&Path::new("/dev").join(path?.file_name())))
                .collect::<io::Result<_>>(),
            false => open(place).map(|file| vec![file]),
        };
        let paths = paths.map_err(cannot_open)?;
        Ok(Reservable { paths, key })
    }

    /// True if the device has reservations; nothing changes.
    pub fn is_offered(&self) -> IoResult<bool> {
        // No host has this key, so every device refuses.
        match self.on_each(|path| change_key(path, 1, 1, 0)) {
            Err(error) if error.kind() == IoErrorKind::Unsupported => Ok(false),
            Err(error) if error.kind() != IoErrorKind::Reserved => Err(error),
            _ => Ok(true),
        }
    }

    /// Holds the device again if this host's registration has lasted; else returns false, and
    /// nothing changes.
    pub fn resume(&self) -> IoResult<bool> {
        if !self.is_registered()? {
            return Ok(false);
        }
        if self.paths.len() > 1 {
            self.register()?;
        }
        self.reserve_again()?;
        Ok(true)
    }

    /// Takes a device that no other host has reserved, with this host's key alone registered.
    pub fn take(&self) -> IoResult {
        self.register()?;
        self.reserve_again()?;
        // A host that has ended in order has left its key, and may not come back with that key.
        self.take_alone()
    }

    /// Checks that this host still has the device. `Reserved` if not.
    pub fn check(&self) -> IoResult {
        match self.reserve() {
            // The path with the reservation may be away.
            Err(error) if is_conflict(&error) && self.is_registered()? => Ok(()),
            held => held,
        }
    }

    /// Ends the reservation. The registration stays, and shows at the next start that no other host
    /// came.
    pub fn release(&self) -> IoResult {
        self.on_each(|path| one_key(path, RELEASE, self.key, KIND))
    }

    /// Ends the reservation and the registration.
    pub fn leave(&self) -> IoResult {
        self.on_each(|path| unregister(path, self.key))
    }

    /// Takes the device from whichever host has it.
    pub fn take_over(&self) -> IoResult {
        self.register()?;
        self.take_alone()
    }

    fn take_alone(&self) -> IoResult {
        self.clear()?;
        self.register()?;
        self.reserve_again()
    }

    fn is_registered(&self) -> IoResult<bool> {
        match self.on_each(|path| change_key(path, self.key, self.key, 0)) {
            Err(error) if is_conflict(&error) => Ok(false),
            lasted => lasted.map(|()| true),
        }
    }

    fn register(&self) -> IoResult {
        self.on_each(|path| change_key(path, 0, self.key, IGNORE_KEY))
    }

    fn reserve(&self) -> IoResult {
        self.on_each(|path| one_key(path, RESERVE, self.key, KIND))
    }

    /// Reserves the device for a registered host. After a conflict the host is registered no more.
    fn reserve_again(&self) -> IoResult {
        let mut held = self.reserve();
        if held.as_ref().is_err_and(is_conflict) {
            // A session of this host that is gone may have the reservation, by the same key.
            let _ = self.on_each(|path| two_keys(path, PREEMPT, [self.key; 2], KIND));
            self.register()?;
            held = self.reserve();
        }
        if held.as_ref().is_err_and(is_conflict) {
            let _ = self.leave();
        }
        held
    }

    fn clear(&self) -> IoResult {
        self.on_each(|path| one_key(path, CLEAR, self.key, 0))
    }

    /// Sends a command by each path. `Ok` if one succeeds; else a conflict, if there is one.
    fn on_each(&self, command: impl Fn(&File) -> IoResult) -> IoResult {
        let mut answers: Vec<IoResult> = self.paths.iter().map(command).collect();
        let rank = |answer: &IoResult| match answer {
            Ok(()) => 0,
            Err(error) if is_conflict(error) => 1,
            Err(_) => 2,
        };
        answers.sort_by_key(rank);
        let none = IoError::new(IoErrorKind::Gone, "has no path; bring one back");
        answers.into_iter().next().unwrap_or(Err(none))
    }
}

/// Origins of volumes with `reserve` that have no reservations.
pub fn problems(config: &Config) -> Vec<ConfigurationProblem> {
    let reserved = config.volumes.iter().filter(|volume| volume.reserve.value);
    let lacking = reserved.filter_map(|volume| {
        let mut devices = config.devices.iter();
        let origin = devices.find(|device| device.name.value == volume.origin.value)?;
        let path = &origin.path.as_ref()?.value;
        let offered = Reservable::open(path, 0).and_then(|device| device.is_offered());
        let is_none = match offered {
            Ok(offered) => !offered,
            // A device that is away, or not for this user, is another problem.
            Err(error) => error.kind() == IoErrorKind::Unsupported,
        };
        is_none.then(|| {
            let name = &volume.name.value;
            let what = format!("volume {name}: {} has no reservations", path.display());
            ConfigurationProblem::new(volume.reserve.line, what, "leave out `reserve`")
        })
    });
    lacking.collect()
}

fn is_conflict(error: &IoError) -> bool {
    error.kind() == IoErrorKind::Reserved
}

/// Opens a device for its reservations alone. A device opened for writing would be probed by udev at
/// each close.
fn open(place: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    options.open(place)
}

fn cannot_open(cause: io::Error) -> IoError {
    let what = "cannot be opened for its reservation; see that it is attached and works";
    IoError::new(IoErrorKind::Gone, what).because(cause)
}

fn none() -> IoError {
    let what = "has no persistent reservations; leave out `reserve` of its volume";
    IoError::new(IoErrorKind::Unsupported, what)
}

fn change_key(path: &File, old: u64, new: u64, flags: u32) -> IoResult {
    two_keys(path, REGISTER, [old, new], flags)
}

fn two_keys(path: &File, request: u32, [old, new]: [u64; 2], flags_or_kind: u32) -> IoResult {
    let argument = TwoKeys {
        old,
        new,
        flags_or_kind,
        rest: 0,
    };
    ask(path, request, argument)
}

fn one_key(path: &File, request: u32, key: u64, kind: u32) -> IoResult {
    let flags = 0;
    ask(path, request, OneKey { key, kind, flags })
}

fn unregister(path: &File, key: u64) -> IoResult {
    // SAFETY: no pointers are involved.
    let namespace = unsafe { libc::ioctl(path.as_raw_fd(), NVME_NAMESPACE as libc::Ioctl) };
    let Some(namespace) = u32::try_from(namespace).ok().filter(|id| *id > 0) else {
        return change_key(path, key, 0, 0);
    };
    let keys = [key, 0];
    let command = NvmeCommand {
        opcode: NVME_REGISTER,
        namespace,
        data: keys.as_ptr() as u64,
        data_bytes: size_of_val(&keys) as u32,
        words_10_15: [NVME_UNREGISTER, 0, 0, 0, 0, 0],
        ..NvmeCommand::default()
    };
    ask(path, NVME_COMMAND, command)
}

fn ask<T>(path: &File, request: u32, mut argument: T) -> IoResult {
    let mut answer = FAILED;
    for _ in 0..ATTEMPTS {
        let request = request as libc::Ioctl;
        // SAFETY: `argument` has the form of the request. Argument and bytes that `argument` points
        // to outlive the call.
        answer = unsafe { libc::ioctl(path.as_raw_fd(), request, &raw mut argument) };
        if answer != FAILED {
            break;
        }
    }
    match answer {
        -1 => Err(refused(io::Error::last_os_error())),
        answer => judged(answer),
    }
}

/// The meaning of a device's answer.
fn judged(answer: i32) -> IoResult {
    match answer {
        0 => Ok(()),
        CONFLICT => Err(IoError::new(IoErrorKind::Reserved, RESERVED)),
        nvme if nvme & NVME_STATUS == NVME_CONFLICT => {
            Err(IoError::new(IoErrorKind::Reserved, RESERVED))
        }
        // The answer of a SCSI disk to an unknown command.
        FAILED => Err(none()),
        other => {
            let what = format!("cannot be reserved (status {other:#x}); see to it and its paths");
            Err(IoError::new(IoErrorKind::Other, what))
        }
    }
}

const RESERVED: &str = "is reserved by another host";

/// The meaning of the kernel's refusal.
fn refused(cause: io::Error) -> IoError {
    match cause.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => none(),
        Some(libc::EPERM | libc::EACCES) => {
            let what = "is not to be reserved by this user; give the daemon CAP_SYS_ADMIN";
            IoError::new(IoErrorKind::Denied, what).because(cause)
        }
        _ => {
            let what = "cannot be reserved; see that it is attached and works";
            IoError::new(IoErrorKind::Other, what).because(cause)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_at_each_start_and_of_one_host_and_volume() {
        let (host, other) = ("4c8f7d5e", "4c8f7d5f");
        assert_eq!(key("machinea", "data-a"), 0x6491_473a_4257_2ea6);
        let keys = [key(host, "data"), key(host, "db"), key(other, "data")];
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
        // The parts are not run together.
        assert_ne!(key("ab", "c"), key("a", "bc"));
    }

    #[test]
    fn answers_of_scsi_and_nvme_mean_the_same() {
        judged(0).unwrap();
        for conflict in [0x18, 0x83, 0x4083] {
            assert_eq!(judged(conflict).unwrap_err().kind(), IoErrorKind::Reserved);
        }
        for fault in [0x1_0000, 0xe_0000] {
            assert_eq!(judged(fault).unwrap_err().kind(), IoErrorKind::Other);
        }
        assert_eq!(judged(0x2).unwrap_err().kind(), IoErrorKind::Unsupported);
        let kind = |errno| refused(io::Error::from_raw_os_error(errno)).kind();
        for none in [libc::ENOTTY, libc::EOPNOTSUPP, libc::EINVAL] {
            assert_eq!(kind(none), IoErrorKind::Unsupported);
        }
        assert_eq!(kind(libc::EPERM), IoErrorKind::Denied);
        assert_eq!(kind(libc::EIO), IoErrorKind::Other);
    }

    #[test]
    fn a_file_has_no_reservations() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = Reservable::open(file.path(), 1).err().unwrap();
        assert_eq!(refused.kind(), IoErrorKind::Unsupported);
        assert!(refused.to_string().contains("leave out `reserve`"));
    }
}
