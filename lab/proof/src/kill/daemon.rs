//! The daemon's files and its process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use testbed::server::ServerProcess;

/// The size of each volume.
pub(super) const VOLUME_BYTES: u64 = 32 << 20;
const POOL_BYTES: u64 = 48 << 20;

/// A directory with two origins, a pool and a configuration.
pub(super) struct KillDirectory {
    dir: PathBuf,
    program: PathBuf,
}

impl KillDirectory {
    /// Makes the files in `dir`, which must be on a file system with direct I/O. `program` is the
    /// executable of hotset.
    pub(super) fn new(dir: &Path, program: &Path) -> io::Result<KillDirectory> {
        fs::create_dir_all(dir)?;
        for (name, bytes) in [
            ("checked", VOLUME_BYTES),
            ("fio", VOLUME_BYTES),
            ("pool", POOL_BYTES),
        ] {
            let file = File::create(dir.join(name))?;
            file.set_len(bytes)?;
        }
        let place = KillDirectory {
            dir: dir.to_path_buf(),
            program: program.to_path_buf(),
        };
        fs::write(place.path("hotset.toml"), place.configuration())?;
        Ok(place)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn configuration(&self) -> String {
        let dir = self.dir.display();
        let device =
            |name| format!("[[device]]\nname = \"{name}-disk\"\npath = \"{dir}/{name}\"\n");
        let volume = |name| {
            format!("[[volume]]\nname = \"{name}\"\norigin = \"{name}-disk\"\npool = \"fast\"\n")
        };
        [
            format!("[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{dir}/state\"\nbuffers = \"64MiB\"\n"),
            device("checked"),
            device("fio"),
            device("pool"),
            "[[pool]]\nname = \"fast\"\ndevices = [\"pool-disk\"]\nhit_latency_max = \"10s\"\n"
                .into(),
            volume("checked"),
            volume("fio"),
            format!("[[listen]]\nunix = \"{dir}/nbd\"\n"),
        ]
        .concat()
    }

    /// Starts a daemon and waits until the daemon serves.
    pub(super) fn serve(&self) -> Result<ServerProcess, String> {
        let (toml, socket) = (self.path("hotset.toml"), self.path("nbd"));
        ServerProcess::hotset(&self.program, &toml, &socket).map_err(|error| error.to_string())
    }
}
