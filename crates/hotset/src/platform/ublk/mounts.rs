//! The mounts that this process sees.

use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MOUNTS: &str = "/proc/self/mountinfo";

/// A line of the list of mounts.
pub struct Mount {
    /// The number of its device.
    pub number: String,
    /// The mount point.
    pub at: PathBuf,
    /// The kind of its file system.
    pub kind: String,
    /// The name of the source in the file system.
    pub source: String,
    /// The options of the file system.
    pub options: String,
}

fn mounts() -> impl Iterator<Item = (u64, Mount)> {
    let text = fs::read_to_string(MOUNTS).unwrap_or_default();
    let lines: Vec<_> = text.lines().filter_map(mount).collect();
    lines.into_iter()
}

/// `36 35 98:0 /root /mnt rw,noatime shared:1 - ext4 /dev/sda1 rw`.
fn mount(line: &str) -> Option<(u64, Mount)> {
    let (first, last) = line.split_once(" - ")?;
    let mut first = first.split(' ');
    let id = first.next()?.parse().ok()?;
    let number = first.nth(1)?.to_owned();
    let at = PathBuf::from(unescaped(first.nth(1)?));
    let mut last = last.split(' ');
    let kind = last.next()?.to_owned();
    let source = unescaped(last.next()?);
    let options = unescaped(last.next().unwrap_or_default());
    Some((
        id,
        Mount {
            number,
            at,
            kind,
            source,
            options,
        },
    ))
}

/// Spaces and the like are written in octal there.
fn unescaped(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let replace = |text: String, (from, to): (&str, &str)| text.replace(from, to);
    escapes.into_iter().fold(text.to_owned(), replace)
}

/// The mount of a file.
pub fn of(path: &Path) -> Option<Mount> {
    const MOUNT_ID: libc::c_uint = 0x1000;
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut about = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the name is a C string, and the structure is writable.
    let about = unsafe {
        let flags = libc::AT_STATX_DONT_SYNC;
        if libc::statx(
            libc::AT_FDCWD,
            name.as_ptr(),
            flags,
            MOUNT_ID,
            about.as_mut_ptr(),
        ) != 0
        {
            return None;
        }
        about.assume_init()
    };
    let is_it = |id: u64| about.stx_mask & MOUNT_ID != 0 && id == about.stx_mnt_id;
    mounts().find_map(|(id, mount)| is_it(id).then_some(mount))
}

/// The mount point of the block device with this number.
pub fn mounted(number: &str) -> Option<PathBuf> {
    mounts().find_map(|(_, mount)| (mount.number == number).then_some(mount.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_mount_is_read() {
        let line = r"36 35 98:0 / /mnt/a\040b rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw,errors=continue";
        let (id, mount) = mount(line).unwrap();
        assert_eq!((id, mount.number.as_str()), (36, "98:0"));
        assert_eq!(mount.at, Path::new("/mnt/a b"));
        assert_eq!(
            [&*mount.kind, &*mount.source, &*mount.options],
            ["ext4", "/dev/sda1", "rw,errors=continue"]
        );
        assert!(super::mount("36 35 98:0 /").is_none());
    }
}
