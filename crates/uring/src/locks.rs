//! Locks that outlive their process: the kernel keeps a file of a ring until all I/O of the ring
//! has ended. With a slow disk, that is long after the end of the process.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// True if a process that has ended still has the lock of `claim` on the file at `path`. False
/// where that cannot be known, as in a name space of processes.
pub fn is_left_locked(path: &Path) -> bool {
    let (Ok(file), Ok(locks)) = (
        std::fs::metadata(path),
        std::fs::read_to_string("/proc/locks"),
    ) else {
        return false;
    };
    // SAFETY: no pointers are involved, and signal 0 is none.
    let has_ended = |pid| unsafe { libc::kill(pid, 0) } == -1 && errno() == libc::ESRCH;
    holder(&locks, &file).is_some_and(has_ended)
}

fn errno() -> i32 {
    let error = std::io::Error::last_os_error();
    error.raw_os_error().unwrap_or_default()
}

/// The process that has the lock of `file`, by the kernel's list of all locks.
fn holder(locks: &str, file: &Metadata) -> Option<i32> {
    let (major, minor) = (libc::major(file.dev()), libc::minor(file.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let held = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, "WRITE", pid, at, ..] if at == place => pid.parse().ok(),
            _ => None,
        }
    });
    held.filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_lock_is_left_once_its_process_has_ended() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        let open = || File::create(&path).unwrap();
        let mine = open();
        crate::claim(&mine).unwrap();
        assert!(!is_left_locked(&path), "this process lives");
        drop(mine);
        assert!(!is_left_locked(&path), "nobody has it");
        // The program locks its inherited descriptor, and ends; the lock stays with the descriptor.
        let left = open();
        let mut flock = Command::new("flock");
        let locked = flock
            .args(["--exclusive", "0"])
            .stdin(left.try_clone().unwrap());
        assert!(locked.status().unwrap().success());
        assert!(is_left_locked(&path));
        crate::claim(&open()).unwrap_err();
        drop((left, flock));
        // A process that another test is just making has its descriptors for a moment.
        let begun = Instant::now();
        while is_left_locked(&path) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert!(!is_left_locked(&path));
        crate::claim(&open()).unwrap();
        assert!(!is_left_locked(&dir.path().join("missing")));
    }
}
