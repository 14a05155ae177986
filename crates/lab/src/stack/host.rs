//! What the stack asks of the machine: tools, root, loop devices, PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end: a database has stopped once its file says
/// so, a moment before it lets go of its directory.
const LEAVING_MAX: Duration = Duration::from_secs(10);

/// Where Debian keeps the servers' programs, a directory for each version.
const POSTGRESQL: &str = "/usr/lib/postgresql";
const TOOLS: [&str; 7] = [
    "mkfs.ext4",
    "e2fsck",
    "losetup",
    "mount",
    "nbdfuse",
    "runuser",
    "psql",
];

/// What is missing here; `None` if the stack can be built.
pub fn obstacle() -> Option<String> {
    // SAFETY: no pointers are involved.
    if unsafe { libc::geteuid() } != 0 {
        return Some("this needs root, to make loop devices and mount".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Some(format!("there is no {device} here"));
        }
    }
    if let Some(tool) = TOOLS.iter().find(|tool| find(tool).is_none()) {
        return Some(format!("there is no {tool} here"));
    }
    postgresql().err()
}

fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual);
    places.find_map(|place| Some(place.join(tool)).filter(|file| file.is_file()))
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

/// A command by the name of its tool.
pub(super) fn tool(name: &str) -> Command {
    let mut command = Command::new(find(name).unwrap_or_else(|| name.into()));
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end; what it printed, or why it failed.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let (status, text) = outcome(command)?;
    match status {
        0 => Ok(text),
        _ => Err(format!("{command:?}: status {status}: {text}")),
    }
}

/// Runs a command to its end: its status, and all that it printed.
pub(super) fn outcome(command: &mut Command) -> Result<(i32, String), String> {
    let output: Output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code().unwrap_or(-1), text))
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

/// A volume of a daemon as a block device, until dropped.
pub(super) struct Attached {
    fuse: PathBuf,
    nbdfuse: std::process::Child,
    device: Option<String>,
}

impl Attached {
    /// The volume `uri`, by way of a directory `fuse`.
    pub(super) fn new(uri: &str, fuse: &Path) -> Result<Attached, String> {
        std::fs::create_dir_all(fuse).map_err(|error| error.to_string())?;
        let file = fuse.join("disk");
        let said = std::fs::File::create(fuse.with_extension("log"));
        let said = said.map_err(|error| error.to_string())?;
        let nbdfuse = tool("nbdfuse").arg(&file).arg(uri).stderr(said).spawn();
        let mut attached = Attached {
            nbdfuse: nbdfuse.map_err(|error| format!("nbdfuse: {error}"))?,
            fuse: fuse.to_owned(),
            device: None,
        };
        for _ in 0..200 {
            if file.exists() {
                let device = run(tool("losetup").args(["--find", "--show"]).arg(&file))?;
                attached.device = Some(device.trim().to_owned());
                return Ok(attached);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Err("nbdfuse shows no file after ten seconds".into())
    }

    pub(super) fn device(&self) -> &Path {
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
