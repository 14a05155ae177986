//! The daemon: its files, its process, and what it says of itself.

use crate::weather::{COMMAND, Weather};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testbed::tools::bound;

/// How often it is looked whether something has come about.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked whether an answer is overdue.
const PATIENCE: Duration = Duration::from_millis(200);

/// Lines of what a daemon said that a violation is reported with.
const LAST: usize = 12;

/// Where a daemon's files are.
pub struct Machine {
    /// The daemon's program.
    pub program: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
}

impl Machine {
    /// The control socket.
    pub fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// The socket of its volumes.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("nbd")
    }

    /// Its configuration.
    pub fn configuration(&self) -> PathBuf {
        self.folder.join("hotset.toml")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("daemon.log")
    }

    /// All that daemons have said.
    pub fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The last lines of that.
    pub fn last_said(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(LAST)..].join("\n")
    }

    /// Starts a daemon; it need not serve yet.
    pub fn start(&self) -> io::Result<Process> {
        for socket in [self.control(), self.socket()] {
            // A ring that the kernel is still taking down keeps the sockets of a killed daemon.
            let _ = fs::remove_file(socket);
        }
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command: Command = bound(&self.program);
        command
            .args(["serve", "--config"])
            .arg(self.configuration());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Ok(Process(command.spawn()?))
    }

    /// What it answers to a request; an error of the kind `TimedOut` if that is overdue.
    pub fn ask(&self, request: &Value, weather: &Weather) -> io::Result<Value> {
        ask(&self.control(), request, weather)
    }

    /// Its report.
    pub fn status(&self, weather: &Weather) -> io::Result<Value> {
        let answer = self.ask(&serde_json::json!({"request": "status"}), weather)?;
        Ok(answer["status"].clone())
    }

    /// Waits until it serves all of its volumes; an error if it ends, or takes too long.
    pub fn serves(
        &self,
        process: &mut Process,
        volumes: usize,
        weather: &Weather,
        limit: Duration,
    ) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            if let Some(status) = process.ended()? {
                return Err(format!("the daemon does not start: it ends with {status}"));
            }
            let status = self.status(weather).unwrap_or_default();
            if status["volumes"].as_array().map_or(0, Vec::len) == volumes {
                return Ok(());
            }
            if let Some(waited) = weather.overdue(begun, limit) {
                return Err(format!(
                    "not all volumes are served after {} s: waiting {}",
                    waited.as_secs(),
                    status["waiting"]
                ));
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn ask(control: &Path, request: &Value, weather: &Weather) -> io::Result<Value> {
    let begun = Instant::now();
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let (mut stream, mut line) = (BufReader::new(stream), Vec::new());
    loop {
        match stream.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => break,
            Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if weather.overdue(begun, COMMAND).is_some() {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    serde_json::from_slice(&line).map_err(io::Error::other)
}

/// A daemon's process, which is killed when dropped.
pub struct Process(Child);

impl Process {
    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: no pointers are involved; the child has not been waited for.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Result<Option<String>, String> {
        let status = self.0.try_wait().map_err(|error| error.to_string())?;
        Ok(status.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => format!("status {code}"),
            (_, signal) => format!("signal {}", signal.unwrap_or(0)),
        }))
    }

    /// Waits until it has ended; how, or an error if that takes too long.
    pub fn wait(&mut self, weather: &Weather, limit: Duration) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if let Some(waited) = weather.overdue(begun, limit) {
                return Err(format!("it has not ended after {} s", waited.as_secs()));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
