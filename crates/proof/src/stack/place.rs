//! The files of a stack: an origin with a file system and a database, a pool, and
//! the daemon's configuration.

use super::database::create;
use crate::kill::daemon::{Process, start};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testbed::attached::Attached;
use testbed::mounted::Mounted;
use testbed::tools::{run, tool};

const VOLUME_BYTES: u64 = 192 << 20;
const POOL_BYTES: u64 = 96 << 20;

/// The directory of a stack.
pub(super) struct Place(PathBuf);

impl Place {
    /// Makes the files in `directory`; `origin` is the line of the configuration
    /// that says where the origin is, given the directory.
    pub(super) fn new(
        directory: &Path,
        origin: impl Fn(std::path::Display) -> String,
    ) -> Result<Place, String> {
        let text = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(text)?;
        let place = Place(directory.canonicalize().map_err(text)?);
        for (name, bytes) in [("origin", VOLUME_BYTES), ("pool", POOL_BYTES)] {
            let file = File::create(place.path(name)).map_err(text)?;
            file.set_len(bytes).map_err(text)?;
        }
        // The database's user comes here too.
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&place.0, all).map_err(text)?;
        for left in ["recorder", "nbd", "control"] {
            // It is there only if an earlier run was killed.
            let _ = fs::remove_file(place.path(left));
        }
        let _ = fs::remove_dir_all(place.path("state"));
        fs::create_dir_all(place.path("sockets")).map_err(text)?;
        fs::write(
            place.path("hotset.toml"),
            place.configuration(&origin(place.0.display())),
        )
        .map_err(text)?;
        Ok(place)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn configuration(&self, origin: &str) -> String {
        let dir = self.0.display();
        format!(
            "[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{dir}/state\"\n\
             [[device]]\nname = \"origin\"\n{origin}\n\
             [[device]]\nname = \"pool\"\npath = \"{dir}/pool\"\n\
             [[pool]]\nname = \"fast\"\ndevices = [\"pool\"]\nhit_latency_max = \"10s\"\n\
             [[volume]]\nname = \"vol\"\norigin = \"origin\"\npool = \"fast\"\n\
             [[listen]]\nunix = \"{dir}/nbd\"\n"
        )
    }

    /// Makes a file system with a database on the origin.
    pub(super) fn make(&self) -> Result<(), String> {
        let (origin, mount) = (self.path("origin"), self.path("mount"));
        run(tool("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&origin))?;
        let made = Mounted::new(&origin, &mount)?;
        create(&mount.join("data"), &self.path("sockets"))?;
        made.unmount()
    }

    /// Starts a daemon and waits until it serves.
    pub(super) fn serve(&self, program: &Path) -> Result<Process, String> {
        let (toml, log) = (self.path("hotset.toml"), self.path("log"));
        start(program, &toml, &self.path("nbd"), &log)
    }

    /// The daemon's volume as a block device.
    pub(super) fn attach(&self) -> Result<Attached, String> {
        let uri = format!("nbd+unix:///vol?socket={}", self.path("nbd").display());
        Attached::new(&uri, &self.path("fuse"), &[])
    }
}
