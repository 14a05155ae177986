//! The files of a stack: an origin with a file system and a database, a pool, and
//! the daemon's configuration.

use super::database::create;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testbed::attached::AttachedDevice;
use testbed::killed::until_ended;
use testbed::mounted::MountedFileSystem;
use testbed::server::{ServerProcess, uri};
use testbed::tools::{run, tool};
use writelog::Cleaning;

const VOLUME_BYTES: u64 = 192 << 20;
const POOL_BYTES: u64 = 96 << 20;
/// Both copies of the log of a volume that is write-back.
const LOGS: [&str; 2] = ["log0", "log1"];

/// A volume's log.
pub(super) struct StackWriteBack {
    pub(super) order: Cleaning,
    pub(super) max_lag: Duration,
    /// The size of each of its devices.
    pub(super) bytes: u64,
    /// Lines of the journal's section, beside its path.
    pub(super) journal: String,
}

/// The directory of a stack.
pub(super) struct StackDirectory {
    dir: PathBuf,
    /// The log of a volume that is write-back.
    log: Option<StackWriteBack>,
}

impl StackDirectory {
    /// Makes the files in `directory`. `origin` returns the configuration line of the origin, given
    /// the directory.
    pub(super) fn new(
        directory: &Path,
        log: Option<StackWriteBack>,
        origin: impl Fn(std::path::Display) -> String,
    ) -> Result<StackDirectory, String> {
        let text = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(text)?;
        let dir = directory.canonicalize().map_err(text)?;
        let place = StackDirectory { dir, log };
        let file = File::create(place.path("origin")).map_err(text)?;
        file.set_len(VOLUME_BYTES).map_err(text)?;
        place.blank()?;
        // The database's user needs access too.
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&place.dir, all).map_err(text)?;
        for left in ["recorder", "nbd", "control"] {
            // The file is there only if an earlier run was killed.
            let _ = fs::remove_file(place.path(left));
        }
        fs::create_dir_all(place.path("sockets")).map_err(text)?;
        fs::write(
            place.path("hotset.toml"),
            place.configuration(&origin(place.dir.display())),
        )
        .map_err(text)?;
        Ok(place)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes all files but the origin empty.
    pub(super) fn blank(&self) -> Result<(), String> {
        let log = self.log.as_ref().map_or(0, |log| log.bytes);
        let files = [("pool", POOL_BYTES), ("journal", log)];
        let logs = LOGS.map(|name| (name, log));
        for (name, bytes) in files.into_iter().chain(logs) {
            let made = File::create(self.path(name)).and_then(|file| file.set_len(bytes));
            made.map_err(|error| format!("{name}: {error}"))?;
        }
        let _ = fs::remove_dir_all(self.path("state"));
        Ok(())
    }

    /// Destroys the fast devices, and the daemon's state. A running daemon goes on with its open
    /// files.
    pub(super) fn destroy(&self) -> Result<(), String> {
        for name in LOGS.into_iter().chain(["pool"]) {
            fs::remove_file(self.path(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        fs::remove_dir_all(self.path("state")).map_err(|error| format!("state: {error}"))
    }

    /// Discards a lost log, once the journal is replayed and the killed daemon has ended. Returns
    /// the command's output.
    pub(super) fn recover(&self, program: &Path) -> Result<String, String> {
        until_ended(&self.path("control"))?;
        let mut command = Command::new(program);
        command.args(["pool", "recover", "vol", "--discard", "--config"]);
        run(command.arg(self.path("hotset.toml")))
    }

    fn configuration(&self, origin: &str) -> String {
        let dir = self.dir.display();
        let mut log = String::new();
        let mut devices = String::new();
        if let Some(log_of) = &self.log {
            let order = log_of.order.name();
            log = format!(
                "mode = \"write-back\"\nwrite_back = \"{order}\"\nlog = [\"log0\", \"log1\"]\n\
                 journal = \"journal\"\nmax_lag = \"{}s\"\n",
                log_of.max_lag.as_secs()
            );
            let logs = LOGS.map(|name| (name, ""));
            for (name, more) in logs.into_iter().chain([("journal", &log_of.journal[..])]) {
                devices += &format!(
                    "[[device]]\nname = \"{name}\"\npath = \"{dir}/{name}\"\ncontroller = \"{name}\"\n{more}"
                );
            }
        }
        format!(
            "[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{dir}/state\"\n\
             [[device]]\nname = \"origin\"\n{origin}\n\
             [[device]]\nname = \"pool\"\npath = \"{dir}/pool\"\n\
             {devices}[[pool]]\nname = \"fast\"\ndevices = [\"pool\"]\nhit_latency_max = \"10s\"\n\
             [[volume]]\nname = \"vol\"\norigin = \"origin\"\npool = \"fast\"\n{log}\
             [[listen]]\nunix = \"{dir}/nbd\"\n"
        )
    }

    /// Makes a file system with a database on the origin.
    pub(super) fn make(&self) -> Result<(), String> {
        let (origin, mount) = (self.path("origin"), self.path("mount"));
        run(tool("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&origin))?;
        let made = MountedFileSystem::new(&origin, &mount)?;
        create(&mount.join("data"), &self.path("sockets"))?;
        made.unmount()
    }

    /// Starts a daemon and waits until the daemon serves.
    pub(super) fn serve(&self, program: &Path) -> Result<ServerProcess, String> {
        let (toml, socket) = (self.path("hotset.toml"), self.path("nbd"));
        ServerProcess::hotset(program, &toml, &socket).map_err(|error| error.to_string())
    }

    /// The daemon's volume as a block device.
    pub(super) fn attach(&self) -> Result<AttachedDevice, String> {
        let uri = uri(&self.path("nbd"), "vol");
        AttachedDevice::new(&uri, &self.path("fuse"), &[])
    }
}
