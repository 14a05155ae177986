//! What the demonstration asks of the machine: tools, root, FUSE and loop.

use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A tool and the Debian package that holds it.
const TOOLS: [(&str, &str); 6] = [
    ("nginx", "nginx-light"),
    ("nbdfuse", "libnbd-bin"),
    ("mkfs.ext4", "e2fsprogs"),
    ("losetup", "util-linux"),
    ("fincore", "util-linux-extra"),
    ("fusermount3", "fuse3"),
];

/// Tells everything that is missing at once.
pub fn require() -> Result<(), Failure> {
    let mut missing = Vec::new();
    // SAFETY: no arguments, no failure.
    if unsafe { libc::geteuid() } != 0 {
        missing.push("root: run it with sudo, for it mounts a file system".to_owned());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            let remedy = "load its kernel module, or run outside the container";
            missing.push(format!("{device}: {remedy}"));
        }
    }
    for (tool, package) in TOOLS {
        if find(tool).is_none() {
            missing.push(format!("{tool}: apt-get install {package}"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join("\n  ");
    Err(Failure::Runtime(format!(
        "the demonstration needs\n  {list}"
    )))
}

/// The path of a tool.
fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual);
    places.find_map(|place| Some(place.join(tool)).filter(|file| file.is_file()))
}

/// A command by the name of its tool.
pub fn tool(name: &str) -> Command {
    Command::new(find(name).unwrap_or_else(|| name.into()))
}

/// Runs a command to its end; its output, or what it printed as an error.
pub fn run(command: &mut Command) -> Result<Output, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|e| Failure::Runtime(format!("{name} does not start: {e}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::Runtime(format!("{name} failed: {said}")))
}

/// A memory control group, removed when dropped.
pub struct MemoryGroup {
    directory: PathBuf,
    limit_file: &'static str,
}

impl MemoryGroup {
    /// A group of at most `bytes`, page cache included.
    pub fn new(bytes: u64) -> Result<MemoryGroup, Failure> {
        let name = format!("hotset-demo-{}", std::process::id());
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (root, limit_file) in places {
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
        Err(Failure::runtime(what))
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
