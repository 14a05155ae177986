//! NBD exports as block devices of this kernel: a file by nbdfuse, and a loop
//! device on it.

use crate::tools::{missing, outcome, run, tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// What is missing here; `None` if exports can be attached.
pub fn obstacle() -> Option<String> {
    // SAFETY: no pointers are involved.
    if unsafe { libc::geteuid() } != 0 {
        return Some("this needs root, to make loop devices".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Some(format!("there is no {device} here"));
        }
    }
    missing(&["losetup", "nbdfuse", "fusermount3"])
}

/// An export as a block device, until dropped. Who has it open then gets errors, at
/// the latest at what is not in the page cache.
pub struct Attached {
    fuse: PathBuf,
    nbdfuse: Child,
    device: Option<String>,
}

impl Attached {
    /// The export `uri`, by way of a directory `fuse`; `options` are of losetup.
    ///
    /// # Errors
    /// If a tool fails or shows nothing in ten seconds.
    pub fn new(uri: &str, fuse: &Path, options: &[&str]) -> Result<Attached, String> {
        fs::create_dir_all(fuse).map_err(|error| error.to_string())?;
        let file = fuse.join("disk");
        let log = fuse.with_extension("log");
        let said = File::create(&log).map_err(|error| error.to_string())?;
        let nbdfuse = tool("nbdfuse").arg(&file).arg(uri).stderr(said).spawn();
        let mut attached = Attached {
            nbdfuse: nbdfuse.map_err(|error| format!("nbdfuse: {error}"))?,
            fuse: fuse.to_owned(),
            device: None,
        };
        for _ in 0..200 {
            if file.exists() {
                let mut losetup = tool("losetup");
                losetup.args(["--find", "--show"]).args(options);
                let device = run(losetup.arg(&file))?;
                attached.device = Some(device.trim().to_owned());
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

    /// Its path.
    pub fn device(&self) -> &Path {
        Path::new(self.device.as_deref().expect("attached"))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            let _ = outcome(tool("losetup").arg("--detach").arg(device));
        }
        let _ = outcome(tool("fusermount3").args(["-u", "-z"]).arg(&self.fuse));
        // It may have ended by itself.
        let _ = self.nbdfuse.kill();
        let _ = self.nbdfuse.wait();
    }
}
