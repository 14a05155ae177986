//! A file written beside another, to take its place as a whole.
//!
//! Invariants:
//!     nothing that was there before is overwritten, followed or removed
//!     a text takes over the owner, mode, access list and extended attributes of the file it replaces
//!     a draft that is dropped before the replacement is removed

use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Names to try; a crash may have left a file under each.
const NAMES_MAX: u32 = 100;
/// Attributes that the kernel gives to each file by itself, or lets only some users set.
const NOT_COPIED: [&str; 2] = ["security.", "trusted."];

/// The file beside.
pub struct DraftFile(PathBuf);

impl DraftFile {
    /// Writes `text` beside the file at `path`, which is no link.
    pub(crate) fn write(path: &Path, text: &str) -> io::Result<DraftFile> {
        let meta = fs::metadata(path)?;
        if meta.nlink() > 1 {
            let what = "it has other names, hard links, which would keep the old text";
            return Err(io::Error::new(ErrorKind::Unsupported, what));
        }
        let (beside, mut file) = DraftFile::make(path)?;
        let ours = file.metadata()?;
        if (ours.uid(), ours.gid()) != (meta.uid(), meta.gid()) {
            fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        copy_attributes(&File::open(path)?, &file)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(beside)
    }

    /// Makes an empty file beside `path`, which its user alone can read.
    pub fn make(path: &Path) -> io::Result<(DraftFile, File)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for n in 0..NAMES_MAX {
            // No file of `conf.d`, by its dot.
            let beside = path.with_file_name(format!(".{name}.new-{n}"));
            let made = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&beside);
            match made {
                Ok(file) => return Ok((DraftFile(beside), file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Renames the draft to `path`, over the file there.
    pub fn replace(&self, path: &Path) -> io::Result<()> {
        fs::rename(&self.0, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        // After the replacement the name is gone.
        let _ = fs::remove_file(&self.0);
    }
}

/// Gives `to` the extended attributes of `from`, of which an access list is one.
fn copy_attributes(from: &File, to: &File) -> io::Result<()> {
    for name in attributes(from)? {
        let shown = name.to_string_lossy();
        if NOT_COPIED.iter().any(|prefix| shown.starts_with(prefix)) {
            continue;
        }
        let value = attribute(from, &name)?;
        // SAFETY: the name ends in a zero, and the value is as long as is said.
        let set = unsafe {
            let value_at = value.as_ptr().cast();
            libc::fsetxattr(to.as_raw_fd(), name.as_ptr(), value_at, value.len(), 0)
        };
        if set < 0 {
            let why = io::Error::last_os_error();
            let what = format!("its attribute {shown} cannot be kept: {why}");
            return Err(io::Error::new(why.kind(), what));
        }
    }
    Ok(())
}

fn attributes(file: &File) -> io::Result<Vec<CString>> {
    let list = filled(|buffer: &mut [u8]| {
        // SAFETY: the buffer is writable and as long as is said.
        unsafe { libc::flistxattr(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) }
    })?;
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

fn attribute(file: &File, name: &CStr) -> io::Result<Vec<u8>> {
    filled(|buffer: &mut [u8]| {
        // SAFETY: as above, and the name ends in a zero.
        unsafe {
            let value_at = buffer.as_mut_ptr().cast();
            libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value_at, buffer.len())
        }
    })
}

/// Bytes from `fill`, which is asked for their length first; empty without attributes.
fn filled(fill: impl Fn(&mut [u8]) -> isize) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    loop {
        let wanted = fill(&mut []);
        let wanted = match usize::try_from(wanted) {
            Ok(wanted) => wanted,
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENOTSUP) => return Ok(buffer),
                error => return Err(error),
            },
        };
        buffer.resize(wanted, 0);
        if wanted == 0 {
            return Ok(buffer);
        }
        match usize::try_from(fill(&mut buffer)) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(_) => match io::Error::last_os_error() {
                // The value has grown since.
                error if error.raw_os_error() == Some(libc::ERANGE) => continue,
                error => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn set(file: &Path, name: &CStr, value: &[u8]) -> bool {
        let path = CString::new(file.as_os_str().as_bytes()).unwrap();
        // SAFETY: both names end in a zero, and the value is as long as is said.
        let set = unsafe {
            let value_at = value.as_ptr().cast();
            libc::setxattr(path.as_ptr(), name.as_ptr(), value_at, value.len(), 0)
        };
        set == 0
    }

    #[test]
    fn what_the_file_has_stays_and_what_lies_beside_it_too() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("hotset.toml");
        let kept = dir.path().join("kept");
        fs::write(&path, "old").unwrap();
        fs::write(&kept, "precious").unwrap();
        std::os::unix::fs::symlink(&kept, dir.path().join(".hotset.toml.new-0")).unwrap();
        std::os::unix::fs::symlink(&kept, dir.path().join("hotset.toml.new")).unwrap();
        // An access list that lets user 65534 read, as `setfacl -m u:65534:r` writes it.
        let mut list = vec![2, 0, 0, 0];
        for (tag, mode, id) in [
            (1u16, 6u16, -1i32),
            (2, 4, 65534),
            (4, 4, -1),
            (16, 4, -1),
            (32, 0, -1),
        ] {
            list.extend(
                [
                    &tag.to_le_bytes()[..],
                    &mode.to_le_bytes(),
                    &id.to_le_bytes(),
                ]
                .concat(),
            );
        }
        let has_list = set(&path, c"system.posix_acl_access", &list);
        let has_note = set(&path, c"user.note", b"kept");
        let beside = DraftFile::write(&path, "new").unwrap();
        beside.replace(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "precious");
        let file = File::open(&path).unwrap();
        if has_list {
            assert_eq!(attribute(&file, c"system.posix_acl_access").unwrap(), list);
        }
        if has_note {
            assert_eq!(attribute(&file, c"user.note").unwrap(), b"kept");
        }
        fs::hard_link(&path, dir.path().join("other")).unwrap();
        let refused = DraftFile::write(&path, "newer").err().unwrap();
        assert!(refused.to_string().contains("hard links"), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
    }
}
