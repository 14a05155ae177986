//! NBD servers that are measured: hotset and its peers.

use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::server::{ServerProcess, uri};

/// qemu-nbd on `file`, read-only, with `options`.
pub fn qemu_nbd(file: &Path, dir: &Path, options: &[&str]) -> io::Result<ServerProcess> {
    let socket = dir.join(format!("qemu-nbd-{}", stem(file)));
    let mut command = Command::new("qemu-nbd");
    command
        .args(["--persistent", "--shared=0", "--read-only", "--format=raw"])
        .args(options)
        .arg(format!("--socket={}", socket.display()))
        .arg(file);
    let name = format!("qemu-nbd {}", options.join(" "));
    ServerProcess::start(&name, command, &socket, uri(&socket, ""), "qemu-utils")
}

/// `binary`, a hotset, on a configuration that serves `export` on the socket
/// `hotset` of `dir`.
pub fn hotset(binary: &Path, config: &Path, dir: &Path, export: &str) -> io::Result<ServerProcess> {
    let socket = dir.join("hotset");
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(config);
    let uri = uri(&socket, export);
    ServerProcess::start("hotset", command, &socket, uri, "none; build it")
}

fn stem(file: &Path) -> String {
    let stem = file.file_name().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// A daemon of hotset with one volume, `volume`.
pub struct Hotset {
    /// Process of the daemon.
    pub server: ServerProcess,
    binary: PathBuf,
    control: PathBuf,
}

/// Origin and pool of a daemon of hotset.
pub struct DaemonSetup<'a> {
    /// Directory of the daemon's sockets and configuration.
    pub dir: &'a Path,
    /// Configuration lines of the origin's place.
    pub origin: String,
    /// Configuration lines of the only pool device's place.
    pub pool: String,
}

/// A file with direct I/O, in a configuration.
pub fn direct(file: &Path) -> String {
    format!("path = \"{}\"", file.display())
}

/// A file behind the page cache, in a configuration.
pub fn buffered(file: &Path) -> String {
    direct(file) + "\nbuffered = true"
}

/// A server's export, in a configuration.
pub fn nbd(server: &ServerProcess) -> String {
    format!("nbd = \"{}\"", server.uri)
}

impl Hotset {
    /// Starts `binary`. Sequential streams are promoted too, so that the pool can be warmed in
    /// order; all other settings are the defaults.
    pub fn start(binary: &Path, setup: &DaemonSetup) -> io::Result<Hotset> {
        // The state of an earlier run's pool does not belong to this one.
        let _ = fs::remove_dir_all(setup.dir.join("state"));
        Hotset::resume(binary, setup)
    }

    /// Starts `binary` on the files of an earlier daemon.
    pub fn resume(binary: &Path, setup: &DaemonSetup) -> io::Result<Hotset> {
        let dir = setup.dir;
        let control = dir.join("control");
        let state = dir.join("state");
        let config = format!(
            r#"
[daemon]
control = "{}"
state = "{}"
[[device]]
name = "origin"
{}
[[device]]
name = "ssd"
{}
[[pool]]
name = "pool"
devices = ["ssd"]
sequential = 0
[[volume]]
name = "volume"
origin = "origin"
pool = "pool"
[[listen]]
unix = "{}"
"#,
            control.display(),
            state.display(),
            setup.origin,
            setup.pool,
            dir.join("hotset").display(),
        );
        let file = dir.join("hotset.toml");
        fs::write(&file, config)?;
        let server = hotset(binary, &file, dir, "volume")?;
        Ok(Hotset {
            server,
            binary: binary.into(),
            control,
        })
    }

    /// Runs a command of the program; returns its output.
    pub fn command(&self, words: &[&str]) -> io::Result<Vec<u8>> {
        let mut command = Command::new(&self.binary);
        let output = command
            .args(words)
            .arg("--control")
            .arg(&self.control)
            .output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(io::Error::other(text))
    }

    /// The output of `hotset status --json`.
    pub fn status(&self) -> io::Result<Value> {
        Ok(serde_json::from_slice(
            &self.command(&["status", "--json"])?,
        )?)
    }

    /// A counter of its pool and volume.
    pub fn counter(&self, name: &str) -> io::Result<u64> {
        let status = self.status()?;
        let missing = || io::Error::other(format!("hotset has no counter {name}"));
        status["pools"][0]["counters"][name]
            .as_u64()
            .ok_or_else(missing)
    }

    /// Changes how its volume uses the pool.
    pub fn set_mode(&self, mode: &str) -> io::Result<()> {
        self.command(&["volume", "set-mode", "--temporary", "volume", mode])
            .map(drop)
    }
}
