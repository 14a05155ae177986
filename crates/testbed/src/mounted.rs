//! An ext4 file system, mounted.

use crate::tools::{outcome, run, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit of a process to end: a database counts as stopped once its file records that, a
/// moment before the database releases its directory.
const LEAVING_MAX: Duration = Duration::from_secs(10);

/// A file system that is mounted, until dropped.
pub struct MountedFileSystem(PathBuf);

impl MountedFileSystem {
    /// Mounts the ext4 that is in a file, or on a block device, at the directory `at`.
    /// Reading a file writes nothing.
    ///
    /// # Errors
    /// If a tool fails, with its messages.
    pub fn new(what: &Path, at: &Path) -> Result<MountedFileSystem, String> {
        fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let options = match what.is_file() {
            true => "noatime,loop",
            false => "noatime",
        };
        let mut mount = tool("mount");
        run(mount.args(["-t", "ext4", "-o", options]).arg(what).arg(at))?;
        Ok(MountedFileSystem(at.to_owned()))
    }

    /// The directory of the mount.
    pub fn at(&self) -> &Path {
        &self.0
    }

    /// Unmounts the file system, within ten seconds of its last use.
    ///
    /// # Errors
    /// If the file system is used for longer; it stays mounted then.
    pub fn unmount(self) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let result = run(tool("umount").arg(&self.0)).map(drop);
            if result.is_ok() {
                std::mem::forget(self);
                return result;
            }
            if begin.elapsed() > LEAVING_MAX {
                return result;
            }
            std::thread::sleep(LEAVING_MAX / 200);
        }
    }
}

impl Drop for MountedFileSystem {
    fn drop(&mut self) {
        let _ = outcome(tool("umount").arg("--lazy").arg(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::missing;

    #[test]
    fn a_file_system_is_unmounted_once_the_last_process_has_left() {
        let obstacle = crate::attached::obstacle();
        if let Some(obstacle) = obstacle.or_else(|| missing(&["mkfs.ext4", "mount"])) {
            eprintln!("skipped: {obstacle}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("mount"));
        fs::File::create(&image)
            .and_then(|file| file.set_len(4 << 20))
            .unwrap();
        run(tool("mkfs.ext4").arg("-q").arg(&image)).unwrap();
        let mounted = MountedFileSystem::new(&image, &at).unwrap();
        let used = fs::File::create(mounted.at().join("file")).unwrap();
        let user = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(used);
        });
        mounted.unmount().unwrap();
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
        user.join().unwrap();
    }
}
