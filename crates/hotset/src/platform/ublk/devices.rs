//! The ublk devices that this machine has, and the files by which udev names them.
//!
//! Invariant: udev, which reads a file at any moment, finds all of the file.

use super::mounts;
use block::{IoError, IoErrorKind, IoResult};
use control::replace::{SHARED, replace};
use std::fs;
use std::io;
use std::path::PathBuf;
use ublk::uapi::block_device;
use ublk::{DeviceInfo, Found, UblkCommand, UblkControl, UblkState, is_marked, mark_of_name};
use uring::ublk_control;

/// The directory of a file for each device, with the name of its volume, for udev's rules.
const NAMES: &str = "/run/hotset/ublk";
/// The start of the line with the name.
const NAME: &str = "HOTSET_NAME=";
/// The start of the line of a device that was removed while in use. The numbers of the device and
/// of its partitions follow.
const REMOVED: &str = "HOTSET_REMOVED=";
/// The line of a device without a search for partitions so far.
const UNREAD: &str = "HOTSET_UNREAD=1\n";
/// The name of a device without a recorded volume.
const NAMELESS: &str = "?";

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
        let mut ask = UblkControl::of(UblkCommand::GetInfo, id);
        ask.buffer = vec![0; DeviceInfo::BYTES];
        // A device may go meanwhile.
        let info = ublk_control(ask)?.ok();
        found.extend(info.and_then(|bytes| DeviceInfo::decode(&bytes)));
    }
    found.sort_by_key(|info| info.id);
    Ok(found)
}

/// Every device, with the volume recorded for it, if any.
pub fn found() -> IoResult<Vec<Found>> {
    let all = all()?.into_iter();
    Ok(all.map(|info| (info, name(info.id))).collect())
}

/// The devices of hotset's volumes, with the names of these.
pub fn ours() -> IoResult<Vec<(String, DeviceInfo)>> {
    let found = found()?.into_iter().filter_map(|(info, name)| {
        let former = |name: &String| info.mark == mark_of_name(name);
        let is_ours = is_marked(info.mark) || name.as_ref().is_some_and(former);
        is_ours.then(|| (name.unwrap_or_else(|| NAMELESS.into()), info))
    });
    Ok(found.collect())
}

/// True if a device is live and its process runs.
pub fn is_served(info: &DeviceInfo) -> bool {
    info.state == UblkState::Live && runs(info.pid)
}

/// True if a process runs; a process that has ended, but still has an entry, does not.
pub fn runs(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The process's name before the state may contain any character.
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    pid > 0 && !state.starts_with(['Z', 'X'])
}

/// Records the name of a device for udev. `unread`: its partitions have not been looked for.
pub fn record(id: u32, name: &str, unread: bool) -> IoResult {
    let file = file(id);
    let note = if unread { UNREAD } else { "" };
    let text = format!("{NAME}{name}\n{note}");
    let written = fs::create_dir_all(NAMES).and_then(|()| replace(&file, SHARED, &text));
    written.map_err(|cause| {
        let what = "the name of a device cannot be recorded; let this user write there";
        let error = IoError::new(IoErrorKind::Denied, what).on(file.display().to_string());
        error.because(cause)
    })
}

/// True if a daemon ended before a search for the device's partitions.
pub fn is_unread(id: u32) -> bool {
    line(id, UNREAD.trim_end()).is_some()
}

/// Has udev name a device again.
pub fn announce(id: u32) {
    // Without udev nothing bears the name.
    let _ = fs::write(format!("/sys/block/{}/uevent", block_device(id)), "change");
}

/// Removes the record of a device that is gone. The record of a device that is still mounted stays,
/// for the unmount.
pub fn forget(id: u32) {
    if still_mounted(id).is_none() {
        // A file that is left names nothing.
        let _ = fs::remove_file(file(id));
    }
}

/// Notes that a device is about to be removed while in use.
pub fn record_removal(id: u32) {
    let about = PathBuf::from(format!("/sys/block/{}", block_device(id)));
    let parts = fs::read_dir(&about).into_iter().flatten().flatten();
    let all = std::iter::once(about).chain(parts.map(|part| part.path()));
    let numbers = all.filter_map(|about| fs::read_to_string(about.join("dev")).ok());
    let numbers: Vec<_> = numbers.map(|number| number.trim().to_owned()).collect();
    if let Ok(text) = fs::read_to_string(file(id)) {
        // Without the note the list lacks the device.
        let text = format!("{text}{REMOVED}{}\n", numbers.join(" "));
        let _ = replace(&file(id), SHARED, text);
    }
}

/// The mount point of a removed device that is still mounted.
pub fn still_mounted(id: u32) -> Option<PathBuf> {
    line(id, REMOVED)?.split(' ').find_map(mounts::mounted)
}

/// The devices that were removed and are still mounted: the volume, the number of the device, and
/// the mount point.
pub fn removed() -> Vec<(String, u32, PathBuf)> {
    let Ok(files) = fs::read_dir(NAMES) else {
        return Vec::new();
    };
    let numbers = files.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("ublkb")?.parse().ok()
    });
    let removed = numbers.filter(|id| line(*id, REMOVED).is_some());
    let mounted = removed.filter_map(|id| match still_mounted(id) {
        Some(at) => Some((name(id)?, id, at)),
        None => {
            forget(id);
            None
        }
    });
    let mut mounted: Vec<_> = mounted.collect();
    mounted.sort();
    mounted
}

/// The volume recorded for a device, if the device is one of hotset's.
pub fn name(id: u32) -> Option<String> {
    line(id, NAME)
}

/// The rest of the line that starts with `begins` in the record of a device.
fn line(id: u32, begins: &str) -> Option<String> {
    let text = fs::read_to_string(file(id)).ok()?;
    let found = text.lines().find_map(|line| line.strip_prefix(begins));
    found.map(str::to_owned)
}

/// True if the block device is mounted, or opened for exclusive use.
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

#[cfg(test)]
mod tests {
    use super::{NAME, NAMES};

    /// udev compares properties before the import of the same rule, which then never matches.
    #[test]
    fn the_rules_import_the_name_before_they_ask_for_it() {
        let rules = include_str!("../../../../../contrib/60-hotset.rules").replace("\\\n", "");
        let asks = format!("ENV{{{}}}==", NAME.trim_end_matches('='));
        let line = |what: &str| rules.lines().position(|rule| rule.contains(what));
        let import = line(&format!("IMPORT{{file}}=\"{NAMES}/%k\"")).expect("it imports");
        assert!(line(&asks).expect("it asks for the name") > import);
    }
}
