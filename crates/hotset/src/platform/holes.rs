//! The holes of a sparse file.

use block::{Extent, Lba, SECTOR_BYTES, Sectors};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The most holes to look for, from the beginning.
const HOLES_MAX: usize = 1 << 16;

/// The holes of the file at `path`, as whole sectors; none of a device, or of a file system that
/// does not report them.
pub fn of(path: &Path) -> io::Result<Vec<Extent>> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let mut found = Vec::new();
    let mut at = 0;
    while meta.is_file() && at < meta.len() && found.len() < HOLES_MAX {
        let from = next(&file, at, libc::SEEK_HOLE)?.unwrap_or(meta.len());
        let to = next(&file, from, libc::SEEK_DATA)?.unwrap_or(meta.len());
        let (first, end) = (from.div_ceil(SECTOR_BYTES), to / SECTOR_BYTES);
        if first < end {
            found.push(Extent::new(Lba(first), Sectors(end - first)));
        }
        if to <= at {
            break;
        }
        at = to;
    }
    Ok(found)
}

/// The next hole or data from `at` on; `None` if there is none.
fn next(file: &File, at: u64, whence: i32) -> io::Result<Option<u64>> {
    let at = libc::off_t::try_from(at).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and no memory is involved.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_was_written_is_in_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let data = [0, 5 << 20, (1 << 39) + 4096, (1 << 40) - 4096];
        for at in data {
            file.write_all_at(&[1; 4096], at).unwrap();
        }
        let holes = of(&path).unwrap();
        let is_in = |at: u64| {
            let lba = Lba(at / SECTOR_BYTES);
            holes
                .iter()
                .any(|hole| hole.start <= lba && lba < hole.end())
        };
        assert!(data.into_iter().all(|at| !is_in(at)), "{holes:?}");
        assert!(is_in(1 << 30) && is_in(1 << 38), "{holes:?}");
        assert!(holes.is_sorted_by_key(|hole| hole.start), "{holes:?}");
        let whole = dir.path().join("whole");
        std::fs::write(&whole, [1; 8192]).unwrap();
        assert_eq!(of(&whole).unwrap(), []);
    }
}
