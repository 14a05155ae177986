//! NBD exports as block devices of this kernel: a file of nbdfuse, and a loop device on that file.

use crate::tools::{bound, is_root, missing, outcome, run, tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// The requirement that is missing here; `None` if exports can be attached.
pub fn obstacle() -> Option<String> {
    if !is_root() {
        return Some("this needs root, to make loop devices".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Some(format!("there is no {device} here"));
        }
    }
    missing(&["losetup", "nbdfuse", "fusermount3", "setpriv"])
}

/// An export as a block device, until dropped, or until the thread that attached it ends. Open
/// files of the device then get errors, at the latest beyond the page cache.
pub struct AttachedDevice {
    fuse: PathBuf,
    nbdfuse: Child,
    device: Option<Loop>,
}

/// A loop device that the kernel detaches at its last close.
struct Loop {
    path: PathBuf,
    _open: File,
}

impl AttachedDevice {
    /// Attaches the export `uri`, by way of a directory `fuse`; `options` are of losetup.
    ///
    /// # Errors
    /// If a tool fails or shows nothing in ten seconds.
    pub fn new(uri: &str, fuse: &Path, options: &[&str]) -> Result<AttachedDevice, String> {
        fs::create_dir_all(fuse).map_err(|error| error.to_string())?;
        let file = fuse.join("disk");
        let log = fuse.with_extension("log");
        let said = File::create(&log).map_err(|error| error.to_string())?;
        let mut nbdfuse = bound(Path::new("nbdfuse"));
        let nbdfuse = nbdfuse.arg(&file).arg(uri).stderr(said).spawn();
        let mut attached = AttachedDevice {
            nbdfuse: nbdfuse.map_err(|error| format!("nbdfuse: {error}"))?,
            fuse: fuse.to_owned(),
            device: None,
        };
        for _ in 0..200 {
            if file.exists() {
                let mut losetup = tool("losetup");
                losetup.args(["--find", "--show"]).args(options);
                let device = run(losetup.arg(&file))?;
                attached.device = Some(Loop::hold(device.trim())?);
                return Ok(attached);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = fs::read_to_string(log).unwrap_or_default();
        Err(format!(
            "nbdfuse shows no file after ten seconds: {}",
            said.trim()
        ))
    }

    /// The path of the device.
    pub fn device(&self) -> &Path {
        &self.device.as_ref().expect("attached").path
    }
}

impl Loop {
    /// Takes over a device that was just attached.
    fn hold(device: &str) -> Result<Loop, String> {
        let held = File::open(device).map_err(|error| format!("{device}: {error}"));
        // As the device is open, this only marks the device to be detached.
        run(tool("losetup").args(["--detach", device]))?;
        Ok(Loop {
            path: device.into(),
            _open: held?,
        })
    }
}

impl Drop for AttachedDevice {
    fn drop(&mut self) {
        self.device = None;
        let _ = outcome(tool("fusermount3").args(["-u", "-z"]).arg(&self.fuse));
        // The process may have ended by itself.
        let _ = self.nbdfuse.kill();
        let _ = self.nbdfuse.wait();
    }
}
