//! Files in directories of hotset's own that are replaced whole or not at all: state, records,
//! results.
//!
//! Invariant: whenever the disk is full or the power goes, the file is the old one or the new one.
//!
//! Not here: files beside which others have theirs (`amend`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Permissions of a file that its user alone can read.
pub const PRIVATE: u32 = 0o600;
/// Permissions of a file that everybody can read, unless the umask forbids it.
pub const SHARED: u32 = 0o666;

/// Replaces the file at `path` by `text`.
pub fn replace(path: &Path, mode: u32, text: impl AsRef<[u8]>) -> io::Result<()> {
    replace_with(path, mode, |file| file.write_all(text.as_ref()))
}

/// Replaces the file at `path` by one with the content that `fill` writes.
pub fn replace_with(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // A file that a killed process left here may have other permissions.
    let _ = fs::remove_file(&beside);
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(mode);
    let filled = options.open(&beside).and_then(|mut file| {
        fill(&mut file)?;
        file.sync_all()
    });
    let placed = filled.and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        // A full disk leaves no partial file.
        let _ = fs::remove_file(&beside);
    }
    placed?;
    let directory = path
        .parent()
        .filter(|directory| *directory != Path::new(""));
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_file_is_replaced_whole_or_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, PRIVATE, "first").unwrap();
        let cut_short = replace_with(&path, PRIVATE, |file| {
            file.write_all(b"sec")?;
            Err(io::Error::other("the disk is full"))
        });
        cut_short.unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        replace(&path, PRIVATE, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    }

    #[test]
    fn a_file_that_is_replaced_is_whole_at_any_moment() {
        let dir = tempfile::tempdir().unwrap();
        let (file, over) = (dir.path().join("file"), AtomicBool::new(false));
        let texts = ["first\nand more\n", "second\n"];
        replace(&file, SHARED, texts[0]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for text in texts.iter().cycle().take(1000) {
                    replace(&file, SHARED, text).unwrap();
                }
                over.store(true, Ordering::SeqCst);
            });
            while !over.load(Ordering::SeqCst) {
                let found = std::fs::read_to_string(&file).unwrap();
                assert!(texts.contains(&found.as_str()), "{found:?}");
            }
        });
    }
}
