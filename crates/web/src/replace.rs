//! Files that are replaced whole or not at all, and that their user alone can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces the file at `path` by `text`.
pub fn replace(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    replace_with(path, |file| file.write_all(text.as_ref()))
}

/// Replaces the file at `path` by one with the content that `fill` writes.
pub fn replace_with(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let beside = path.with_extension("new");
    // A file that a killed process left here may have other permissions.
    let _ = fs::remove_file(&beside);
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let filled = options.open(&beside).and_then(|mut file| {
        fill(&mut file)?;
        file.sync_all()
    });
    let placed = filled.and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        // A full disk leaves no partial file.
        let _ = fs::remove_file(&beside);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_whole_or_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, "first").unwrap();
        let cut_short = replace_with(&path, |file| {
            file.write_all(b"sec")?;
            Err(io::Error::other("the disk is full"))
        });
        cut_short.unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        replace(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    }
}
