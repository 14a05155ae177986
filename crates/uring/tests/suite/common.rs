//! Real objects to test on: files, loop devices, mounts, and a plain driver.

use block::{Buf, Completion, Driver, DriverOp, IoResult, Nanos, Payload, TargetId, Token};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use uring::{Options, Uring, UringDriver};

/// A directory on the file system that the build is on, for `/tmp` may have no
/// direct I/O.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A sparse file of `bytes`.
pub fn file(dir: &TempDir, bytes: u64) -> PathBuf {
    let path = dir.path().join("disk");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

pub fn host() -> Uring {
    Uring::new(Options {
        pool_bytes: 16 << 20,
        ..Options::default()
    })
    .unwrap()
}

/// Runs a program and returns its output, or the reason for its absence.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// A loop device over a file, detached when dropped.
pub struct Loop(String);

impl Loop {
    /// A loop device over `file`. Prints the cause and returns `None` where this machine does not
    /// allow one.
    pub fn attach(file: &Path, options: &[&str]) -> Option<Loop> {
        let file = file.to_str().unwrap();
        let arguments = [&["--find", "--show"], options, &[file]].concat();
        match run("losetup", &arguments) {
            Ok(device) => Some(Loop(device)),
            Err(reason) => {
                eprintln!("skipped: no loop device here: {reason}");
                None
            }
        }
    }

    pub fn path(&self) -> &str {
        &self.0
    }

    /// Detaches now: its number may be another's a moment later.
    pub fn detach(self) {
        run("losetup", &["--detach", &self.0]).unwrap();
        std::mem::forget(self);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.0]);
    }
}

/// A file system mounted on a directory, unmounted when dropped.
pub struct Mount(TempDir);

impl Mount {
    /// A mounted file system. Prints the cause and returns `None` where this machine does not allow
    /// one.
    pub fn new(kind: &str, options: &str) -> Option<Mount> {
        let dir = directory();
        let at = dir.path().to_str().unwrap();
        match run("mount", &["-t", kind, "-o", options, kind, at]) {
            Ok(_) => Some(Mount(dir)),
            Err(reason) => {
                eprintln!("skipped: no {kind} can be mounted here: {reason}");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy", self.0.path().to_str().unwrap()]);
    }
}

/// Performs one operation to its end.
pub fn perform(
    driver: &mut UringDriver,
    target: TargetId,
    op: DriverOp,
) -> (IoResult<u64>, Payload) {
    driver.submit(Token(0), target, op);
    let completion = wait(driver, 1).pop().unwrap();
    (completion.result, completion.payload)
}

/// Parks until `count` operations have completed.
pub fn wait(driver: &mut UringDriver, count: usize) -> Vec<Completion> {
    let limit = driver.now() + Nanos::from_secs(30);
    let mut done = Vec::new();
    while done.len() < count {
        assert!(driver.now() < limit, "{} of {count} completed", done.len());
        driver.park(limit, &mut done);
    }
    done
}

/// A buffer of one value.
pub fn filled(driver: &UringDriver, bytes: usize, value: u8) -> Buf {
    let mut buf = driver.pool().try_get(bytes).unwrap();
    buf.fill(value);
    buf
}

/// The buffer that a completed read gives back.
pub fn buf_of(payload: Payload) -> Buf {
    match payload {
        Payload::Buf(buf) => buf,
        other => panic!("a buffer, not {other:?}"),
    }
}
