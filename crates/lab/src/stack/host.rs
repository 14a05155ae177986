//! What the stack asks of the machine: file systems that are mounted, PostgreSQL.

use crate::attached;
use crate::tools::{missing, outcome, run, tool};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process may take to end: a database has stopped once its file says
/// so, a moment before it lets go of its directory.
const LEAVING_MAX: Duration = Duration::from_secs(10);

/// Where Debian keeps the servers' programs, a directory for each version.
const POSTGRESQL: &str = "/usr/lib/postgresql";
const TOOLS: [&str; 5] = ["mkfs.ext4", "e2fsck", "mount", "runuser", "psql"];

/// What is missing here; `None` if the stack can be built.
pub fn obstacle() -> Option<String> {
    let tools = || missing(&TOOLS);
    attached::obstacle()
        .or_else(tools)
        .or_else(|| postgresql().err())
}

/// The directory of the newest PostgreSQL's programs.
pub(super) fn postgresql() -> Result<PathBuf, String> {
    let versions = std::fs::read_dir(POSTGRESQL)
        .into_iter()
        .flatten()
        .flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    let newest = programs.filter(|bin| bin.join("initdb").is_file()).max();
    newest.ok_or_else(|| "PostgreSQL is not installed: the Debian package postgresql".into())
}

/// A file system that is mounted, until dropped.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts the ext4 that is in a file, or on a block device.
    pub(super) fn new(what: &Path, at: &Path) -> Result<Mounted, String> {
        std::fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let mut mount = tool("mount");
        if what.is_file() {
            mount.args(["-o", "loop"]);
        }
        run(mount.args(["-t", "ext4"]).arg(what).arg(at))?;
        Ok(Mounted(at.to_owned()))
    }

    pub(super) fn at(&self) -> &Path {
        &self.0
    }

    /// Unmounts it, within [`LEAVING_MAX`] of when it was last used.
    pub(super) fn unmount(self) -> Result<(), String> {
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

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = outcome(tool("umount").arg("--lazy").arg(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_unmounted_once_the_last_process_has_left() {
        if let Some(obstacle) = obstacle() {
            eprintln!("skipped: {obstacle}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("mount"));
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(4 << 20))
            .unwrap();
        run(tool("mkfs.ext4").arg("-q").arg(&image)).unwrap();
        let mounted = Mounted::new(&image, &at).unwrap();
        let used = std::fs::File::create(mounted.at().join("file")).unwrap();
        let user = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(used);
        });
        mounted.unmount().unwrap();
        assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0);
        user.join().unwrap();
    }
}
