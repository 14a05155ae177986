//! Files that are replaced whole or not at all.

use std::fs;
use std::io;
use std::path::Path;

/// Replaces the file at `path` by `text`.
pub fn replace(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path))
}
