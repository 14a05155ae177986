//! The ublk devices that this machine has, and the files by which udev names them.

use block::{IoError, IoResult, Kind};
use std::fs;
use std::io;
use std::path::PathBuf;
use ublk::uapi::block_device;
use ublk::{Command, Control, DeviceInfo};
use uring::ublk_control;

/// Where a file for each device has the name of its volume, as udev's rules read it.
const NAMES: &str = "/run/hotset/ublk";
/// The line in it, before the name.
const NAME: &str = "HOTSET_NAME=";

/// Every device of ublk's driver, of other programs too.
pub fn all() -> IoResult<Vec<DeviceInfo>> {
    let Ok(list) = fs::read_dir("/sys/class/ublk-char") else {
        return Ok(Vec::new());
    };
    let numbers = list.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("ublkc")?.parse().ok()
    });
    let mut found = Vec::new();
    for id in numbers {
        let mut ask = Control::of(Command::GetInfo, id);
        ask.buffer = vec![0; DeviceInfo::BYTES];
        // One may go meanwhile.
        let info = ublk_control(ask)?.ok();
        found.extend(info.and_then(|bytes| DeviceInfo::decode(&bytes)));
    }
    found.sort_by_key(|info| info.id);
    Ok(found)
}

/// Whether a process runs: one that has ended, and that nobody has asked about, does not.
pub fn runs(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name before it may hold anything.
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    pid > 0 && !state.starts_with(['Z', 'X'])
}

/// Names a device for udev.
pub fn record(id: u32, name: &str) -> IoResult {
    let file = file(id);
    let written =
        fs::create_dir_all(NAMES).and_then(|()| fs::write(&file, format!("{NAME}{name}\n")));
    written.map_err(|cause| {
        let what = "the name of a device cannot be recorded; let this user write there";
        let error = IoError::new(Kind::Denied, what).on(file.display().to_string());
        error.because(cause)
    })
}

/// Takes the name of a device that is gone away.
pub fn forget(id: u32) {
    // What is left names nothing.
    let _ = fs::remove_file(file(id));
}

/// The volume that a device was made for, if it is one of hotset's.
pub fn name(id: u32) -> Option<String> {
    let text = fs::read_to_string(file(id)).ok()?;
    Some(text.trim_end().strip_prefix(NAME)?.to_owned())
}

/// Whether the block device is mounted, or in use by what wants no other user.
pub fn in_use(id: u32) -> io::Result<bool> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("/dev/{}", block_device(id));
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(path);
    match opened {
        Ok(_) => Ok(false),
        Err(cause) => match cause.raw_os_error() {
            Some(libc::EBUSY) => Ok(true),
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Ok(false),
            _ => Err(cause),
        },
    }
}

fn file(id: u32) -> PathBuf {
    PathBuf::from(NAMES).join(block_device(id))
}
