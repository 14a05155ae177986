//! A daemon in a directory of its own, and programs to run against it.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod browser;
pub mod client;
pub mod site;

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit of anything that is to happen at once: longer than a daemon waits for the locks of
/// one that was killed.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The command under test: the one built with the tests, or the one beside those, unless `HOTSET`
/// names another.
pub fn hotset() -> Command {
    let beside = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debug/hotset");
    let built = || {
        option_env!("CARGO_BIN_EXE_hotset")
            .map_or_else(beside, PathBuf::from)
            .into()
    };
    Command::new(std::env::var_os("HOTSET").unwrap_or_else(built))
}

/// A program of a Debian package. A missing one panics with the name of the package.
pub fn tool(program: &str, package: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path)
        .chain(sbin)
        .map(|dir| dir.join(program))
        .find(|file| file.exists());
    let Some(found) = found else {
        panic!("`{program}` is missing: install the Debian package `{package}`");
    };
    let mut command = Command::new("timeout");
    command.arg("300").arg(found);
    command
}

/// A script of `tools` for Node. Missing packages panic with the remedy.
pub fn script(tool: &str, file: &str) -> Command {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tools")
        .join(tool);
    assert!(
        folder.join("node_modules").exists(),
        "packages of tools/{tool} are missing: `npm ci` in that folder, or `make deps-test`"
    );
    let mut node = Command::new("node");
    node.arg(folder.join(file));
    node
}

/// True if exports can be attached to this machine's kernel; otherwise the reason is printed.
/// Mounts of this thread then end with the thread.
pub fn attaches() -> bool {
    // Programs that can be installed are required.
    for (program, package) in [("nbdfuse", "libnbd-bin"), ("fusermount3", "fuse3")] {
        tool(program, package);
    }
    let obstacle = testbed::attached::obstacle();
    obstacle.iter().for_each(|why| eprintln!("skipped: {why}"));
    if obstacle.is_none() {
        testbed::namespace::enter().unwrap();
    }
    obstacle.is_none()
}

/// The output of a program that is to succeed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", all(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The exit status and the output of a program.
pub fn all(output: &Output) -> String {
    format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The complaints of `mandoc` about manual pages; `None` without `mandoc`.
pub fn mandoc(pages: &[PathBuf]) -> Option<Output> {
    let mut mandoc = Command::new("mandoc");
    mandoc.args(["-T", "lint"]).args(pages).output().ok()
}

/// Has `mandoc` find no fault in manual pages.
pub fn faultless_pages(pages: &[PathBuf]) {
    match mandoc(pages) {
        Some(judged) => assert!(
            judged.stdout.is_empty() && judged.status.success(),
            "{}",
            all(&judged)
        ),
        None => eprintln!("skipped: `mandoc` is missing: install the Debian package `mandoc`"),
    }
}

/// Runs a program that is to fail with `status` and one line that holds each
/// of `expected`.
pub fn refused(command: &mut Command, status: i32, expected: &[&str]) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{}", all(&output));
    let error = String::from_utf8_lossy(&output.stderr);
    let line = |line: &str| expected.iter().all(|part| line.contains(part));
    assert!(
        error.lines().any(line),
        "no line with {expected:?} in:\n{error}"
    );
}

/// Waits until `done`.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < TIMEOUT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes that look random and depend on `seed`.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        // Steele and Vigna's SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        out.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// A process that is killed when dropped.
pub struct Process(pub Child);

impl Process {
    pub fn signal(&self, signal: i32) {
        // SAFETY: no pointers are involved; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    /// Kills the process at once, without a chance to finish anything.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory with files for devices and a configuration.
pub struct Place {
    pub dir: TempDir,
}

impl Place {
    /// Serves `$/origin` at `$/slow`: nbdkit, which SIGSTOP stops.
    pub fn stoppable_origin(&self) -> Process {
        let mut server = tool("nbdkit", "nbdkit");
        server.args(["--foreground", "--exit-with-parent", "--unix"]);
        server.arg(self.path("slow")).arg("file");
        server.arg(self.path("origin"));
        // `timeout` passes on no SIGSTOP.
        let words: Vec<_> = server.get_args().skip(1).map(ToOwned::to_owned).collect();
        let server = Process(Command::new(&words[0]).args(&words[1..]).spawn().unwrap());
        until("nbdkit", || self.path("slow").exists());
        server
    }

    /// On the file system that the build is on, for `/tmp` may have no direct
    /// I/O, and with a short path, for those of sockets must be.
    pub fn new() -> Place {
        let pictured = std::env::var_os("HOTSET_PICTURES");
        let parent = pictured.unwrap_or(env!("CARGO_TARGET_TMPDIR").into());
        Place {
            dir: tempfile::Builder::new()
                .prefix("hotset-")
                .tempdir_in(parent)
                .unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A file of zeroes.
    pub fn file(&self, name: &str, mib: u64) {
        File::create(self.path(name))
            .unwrap()
            .set_len(mib << 20)
            .unwrap();
    }

    /// Writes a configuration in which every `$` stands for this directory.
    pub fn config(&self, text: &str) -> PathBuf {
        let path = self.path("hotset.toml");
        let dir = self.dir.path().display().to_string();
        fs::write(&path, text.replace('$', &dir)).unwrap();
        path
    }

    /// An origin of 128 MiB, a pool of 64 MiB, and a configuration for them.
    pub fn usual() -> Place {
        let place = Place::new();
        place.file("origin", 128);
        place.file("pool", 64);
        place.config(USUAL);
        place
    }

    /// The volume called `name` as NBD's URI.
    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.text("nbd"))
    }

    /// Starts a daemon on the configuration and waits until the daemon is ready.
    pub fn serve(&self) -> Daemon<'_> {
        let notify = self.path("notify");
        let _ = fs::remove_file(&notify);
        let socket = UnixDatagram::bind(&notify).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut command = hotset();
        command
            .arg("serve")
            .arg("--config")
            .arg(self.path("hotset.toml"));
        command.env("NOTIFY_SOCKET", &notify).stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let mut state = [0; 64];
        // A wait with a time limit ends early when the process is stopped and
        // goes on.
        let received = loop {
            match socket.recv(&mut state) {
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                // Of the one before.
                Ok(len) if state[..len].starts_with(b"STOPPING=1") => (),
                other => break other,
            }
        };
        let Ok(len) = received else {
            process.0.kill().unwrap();
            let mut error = String::new();
            process
                .0
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut error)
                .unwrap();
            panic!("the daemon is not ready ({received:?}): {error}");
        };
        assert!(state[..len].starts_with(b"READY=1"), "{state:?}");
        Daemon {
            place: self,
            process,
        }
    }

    /// A command that speaks to the daemon.
    pub fn command(&self, words: &str) -> Command {
        let mut command = hotset();
        command
            .args(words.split(' '))
            .env("HOTSET_CONTROL", self.path("control"));
        command
    }
}

/// One volume `vol`, served by two shards. A busy machine's disk is not to be taken for a broken one,
/// and a daemon that has less memory to clear starts sooner.
pub const USUAL: &str = r#"[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
shards = 2
[[device]]
name = "origin"
path = "$/origin"
[[device]]
name = "pool"
path = "$/pool"
controller = "pcie0"
[[pool]]
name = "fast"
devices = ["pool"]
hit_latency_max = "10s"
[[volume]]
name = "vol"
origin = "origin"
pool = "fast"
[[listen]]
unix = "$/nbd"
"#;

/// A running daemon.
pub struct Daemon<'a> {
    pub place: &'a Place,
    pub process: Process,
}

impl Daemon<'_> {
    pub fn uri(&self, name: &str) -> String {
        self.place.uri(name)
    }

    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&run(&mut self.place.command("status --json"))).unwrap()
    }

    /// A counter of the only pool.
    pub fn count(&self, counter: &str) -> u64 {
        self.status()["pools"][0]["counters"][counter]
            .as_u64()
            .unwrap()
    }

    /// Clients of the volume `vol` that keep long work at its lowest rate from now on, until
    /// dropped.
    pub fn slow_reads(&self) -> Process {
        let mut fio = tool("fio", "fio");
        fio.current_dir(self.place.dir.path()).args([
            "--name=load",
            "--ioengine=nbd",
            "--thread",
            "--time_based",
            "--runtime=600",
            "--rw=randread",
            "--bs=4k",
            "--rate_iops=200",
        ]);
        fio.arg(format!("--uri={}", self.uri("vol")));
        let requests = || self.status()["nbd"]["requests"].as_u64().unwrap();
        let before = requests();
        let quiet = fio.stdout(Stdio::null()).stderr(Stdio::null());
        let clients = Process(quiet.spawn().unwrap());
        until("requests", || requests() > before + 100);
        clients
    }

    /// Ends the daemon as systemd would, which must succeed. Returns its log.
    pub fn stop(mut self) -> String {
        self.process.signal(libc::SIGTERM);
        let status = self.process.0.wait().unwrap();
        let mut error = String::new();
        self.process
            .0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut error)
            .unwrap();
        assert!(status.success(), "{status}: {error}");
        for socket in ["control", "nbd"] {
            assert!(!self.place.path(socket).exists(), "{socket} is left behind");
        }
        error
    }
}

/// Writes `bytes` to a volume with nbdcopy.
pub fn copy_in(file: &Path, uri: &str) {
    run(tool("nbdcopy", "libnbd-bin")
        .arg("--flush")
        .arg(file)
        .arg(uri));
}

/// Reads a volume with nbdcopy.
pub fn copy_out(uri: &str, file: &Path) -> Vec<u8> {
    run(tool("nbdcopy", "libnbd-bin").arg(uri).arg(file));
    fs::read(file).unwrap()
}

/// Runs fio against a volume and returns its report.
pub fn fio(place: &Place, name: &str, uri: &str, options: &[&str]) -> serde_json::Value {
    let report = place.path(&format!("{name}.json"));
    let mut command = tool("fio", "fio");
    command
        .current_dir(place.dir.path())
        .args([
            "--ioengine=nbd",
            "--thread",
            "--output-format=json",
            "--randrepeat=0",
        ])
        .arg(format!("--name={name}"))
        .arg(format!("--uri={uri}"))
        .arg(format!("--output={}", report.display()))
        .args(options);
    run(&mut command);
    let text = fs::read_to_string(report).unwrap();
    // Notes may stand before the report.
    let begin = text.find('{').unwrap();
    serde_json::from_str(&text[begin..]).unwrap()
}

/// Asserts that fio saw no error, and returns its longest latency in seconds.
pub fn faultless(report: &serde_json::Value) -> f64 {
    let mut longest = 0.0_f64;
    let jobs = report["jobs"].as_array().unwrap();
    assert!(!jobs.is_empty());
    for job in jobs {
        assert_eq!(job["error"], 0, "{job}");
        for kind in ["read", "write"] {
            let ns = job[kind]["clat_ns"]["max"].as_f64().unwrap_or(0.0);
            longest = longest.max(ns / 1e9);
        }
    }
    longest
}
