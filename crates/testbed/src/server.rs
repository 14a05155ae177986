//! NBD servers, the daemon among them, as processes of their own.

use crate::tools::bound;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a server's start.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of a server's end.
const STOP_MAX: Duration = Duration::from_secs(120);

/// A server, which is ended when dropped.
pub struct ServerProcess {
    /// Its name in reports.
    pub name: String,
    /// Its export.
    pub uri: String,
    log: PathBuf,
    child: Child,
}

impl ServerProcess {
    /// Runs `command` of the Debian package `package`, which listens on the unix socket `socket`.
    pub fn start(
        name: &str,
        mut command: Command,
        socket: &Path,
        uri: String,
        package: &str,
    ) -> io::Result<ServerProcess> {
        // A socket of an earlier run would be taken for readiness. A ring that the kernel is still
        // taking down keeps the socket of a killed daemon listening.
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let log = socket.with_extension("log");
        command.stdin(Stdio::null()).stderr(fs::File::create(&log)?);
        let child = command.spawn().map_err(|e| {
            io::Error::other(format!(
                "{name} (Debian package {package}) did not start: {e}"
            ))
        })?;
        let mut server = ServerProcess {
            name: name.into(),
            uri,
            log,
            child,
        };
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            let ended = server.child.try_wait()?;
            if ended.is_some() || begin.elapsed() > TIMEOUT {
                let message = fs::read_to_string(&server.log)?;
                let what = format!("{name} does not serve ({ended:?}): {}", message.trim());
                return Err(io::Error::other(what));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// nbdkit with `arguments`; `name` is its name in reports.
    pub fn nbdkit(name: &str, dir: &Path, arguments: &[&str]) -> io::Result<ServerProcess> {
        let socket = dir.join(name.replace([' ', '='], "-"));
        let mut command = Command::new("nbdkit");
        command
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(&socket)
            .args(arguments)
            // The cache filter keeps its file there.
            .env("TMPDIR", dir);
        ServerProcess::start(name, command, &socket, uri(&socket, ""), "nbdkit")
    }

    /// The daemon of the executable `program`, which listens at `socket`. The process ends with the
    /// thread that starts it.
    pub fn hotset(program: &Path, config: &Path, socket: &Path) -> io::Result<ServerProcess> {
        let mut command = bound(program);
        command.args(["serve", "--config"]).arg(config);
        command.stdout(Stdio::null());
        ServerProcess::start("hotset", command, socket, uri(socket, ""), "none; build it")
    }

    /// CPU time of the process so far, user and system, its dead threads too.
    pub fn cpu(&self) -> io::Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        ticks(&text)
            .map(|ticks| Duration::from_secs_f64(ticks as f64 / TICKS_PER_S))
            .ok_or_else(|| io::Error::other("/proc/PID/stat has another form"))
    }

    /// Bytes that the server has read from files.
    pub fn bytes_read(&self) -> io::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        let number = line.and_then(|number| number.parse().ok());
        number.ok_or_else(|| io::Error::other("/proc/PID/io has another form"))
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        // SAFETY: no pointers are involved; the child has not been waited for.
        match unsafe { libc::kill(self.child.id() as libc::pid_t, signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Ends the server in order, and waits for the end.
    pub fn stop(mut self) -> io::Result<()> {
        self.signal(libc::SIGTERM)?;
        let begin = Instant::now();
        let ended = loop {
            let ended = self.child.try_wait()?;
            if ended.is_some() || begin.elapsed() > STOP_MAX {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        if ended.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let (name, said) = (&self.name, fs::read_to_string(&self.log)?);
        let what = format!("{name} does not end in order ({ended:?}): {}", said.trim());
        Err(io::Error::other(what))
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Linux shows every program a clock of 100 Hz, whatever its own.
const TICKS_PER_S: f64 = 100.0;

/// The fields utime and stime of proc(5); the name before them may hold blanks.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(number(11)? + number(12)?)
}

/// The URI of an export of the server on `socket`.
pub fn uri(socket: &Path, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", socket.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_a_strange_name() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 70 8 0 0 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(78));
        assert_eq!(ticks("12 (short) S 1"), None);
    }
}
