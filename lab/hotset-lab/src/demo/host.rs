//! Requirements of the demonstration on the machine: tools, root, FUSE and loop.

use crate::CommandFailure;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::tools;

/// Tools, and the Debian packages that hold them.
const TOOLS: [(&str, &str); 6] = [
    ("nginx", "nginx-light"),
    ("nbdfuse", "libnbd-bin"),
    ("mkfs.ext4", "e2fsprogs"),
    ("losetup", "util-linux"),
    ("fincore", "util-linux-extra"),
    ("fusermount3", "fuse3"),
];

/// Reports everything that is missing at once.
pub fn require() -> Result<(), CommandFailure> {
    let mut missing = Vec::new();
    if !tools::is_root() {
        missing.push("root: run it with sudo, for it mounts a file system".to_owned());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            let remedy = "load its kernel module, or run outside the container";
            missing.push(format!("{device}: {remedy}"));
        }
    }
    for (tool, package) in TOOLS {
        if tools::missing(&[tool]).is_some() {
            missing.push(format!("{tool}: apt-get install {package}"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join("\n  ");
    Err(CommandFailure::Runtime(format!(
        "the demonstration needs\n  {list}"
    )))
}

/// The name of a demonstration's group, before the number of its process.
const GROUP: &str = "hotset-demo-";

/// Removes the groups of runs that were killed.
fn remove_left(root: &Path) {
    for group in std::fs::read_dir(root).into_iter().flatten().flatten() {
        if group.file_name().to_string_lossy().starts_with(GROUP) {
            // The removal fails for a group with a process inside.
            let _ = std::fs::remove_dir(group.path());
        }
    }
}

/// A memory control group, removed when dropped.
pub struct MemoryGroup {
    directory: PathBuf,
    limit_file: &'static str,
}

impl MemoryGroup {
    /// A group of at most `bytes`, page cache included.
    pub fn new(bytes: u64) -> Result<MemoryGroup, CommandFailure> {
        let name = format!("{GROUP}{}", std::process::id());
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (root, limit_file) in places {
            remove_left(Path::new(root));
            let directory = Path::new(root).join(&name);
            if std::fs::create_dir(&directory).is_err() {
                continue;
            }
            let group = MemoryGroup {
                directory,
                limit_file,
            };
            if std::fs::write(group.directory.join(limit_file), bytes.to_string()).is_ok() {
                return Ok(group);
            }
        }
        let what = "no memory control group can be made: mount the memory controller at \
                    /sys/fs/cgroup";
        Err(CommandFailure::runtime(what))
    }

    /// `program`, started inside the group.
    pub fn command(&self, program: Command) -> Command {
        let procs = self.directory.join("cgroup.procs");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command
            .arg(procs)
            .arg(program.get_program())
            .args(program.get_args());
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The pages that are left belong to the parent then.
        if std::fs::remove_dir(&self.directory).is_err() {
            let limit = self.directory.join(self.limit_file);
            eprintln!("left behind: the control group of {}", limit.display());
        }
    }
}
