//! The daemon's files and its process.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testbed::tools::bound;

/// Time limit of a daemon's start.
const START_MAX: Duration = Duration::from_secs(60);
/// The size of each volume.
pub(super) const VOLUME_BYTES: u64 = 32 << 20;
const POOL_BYTES: u64 = 48 << 20;

/// A directory with two origins, a pool and a configuration.
pub(super) struct KillDirectory {
    dir: PathBuf,
    program: PathBuf,
}

/// A process that is killed when dropped.
pub(crate) struct KilledProcess(Child);

impl KilledProcess {
    /// Kills the process, as `kill -9` does.
    pub(crate) fn kill(mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for KilledProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
    pub(super) fn serve(&self) -> Result<KilledProcess, String> {
        let (toml, log) = (self.path("hotset.toml"), self.path("log"));
        start(&self.program, &toml, &self.path("nbd"), &log)
    }
}

/// Starts a daemon of the executable `program` that listens at `socket`, and waits until the daemon
/// serves. The daemon's messages go to the file `log`.
pub(crate) fn start(
    program: &Path,
    toml: &Path,
    socket: &Path,
    log: &Path,
) -> Result<KilledProcess, String> {
    // A ring that the kernel is still taking down keeps the socket of a killed daemon listening: a
    // connection to that socket would show nothing.
    let _ = fs::remove_file(socket);
    let mut command = bound(program);
    command.args(["serve", "--config"]).arg(toml);
    let said = File::create(log).map_err(|e| e.to_string())?;
    let child = command.stdin(Stdio::null()).stderr(said).spawn();
    let mut process = KilledProcess(child.map_err(|e| e.to_string())?);
    let begin = Instant::now();
    // Only a connection shows that the daemon listens.
    while UnixStream::connect(socket).is_err() {
        let ended = process.0.try_wait().map_err(|e| e.to_string())?;
        if ended.is_some() || begin.elapsed() > START_MAX {
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(format!("the daemon does not serve: {said}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}
