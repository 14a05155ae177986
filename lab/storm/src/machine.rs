//! The daemon: its files, its process, and its messages.

use crate::plan::{ETC, FILES};
use crate::weather::{TURN, Weather};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, PipeReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testbed::tools::{bound, outcome};

/// Interval of checks for an event.
pub const LOOK: Duration = Duration::from_millis(20);
/// Interval of checks for an overdue answer.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes of the smallest pipe.
const PIPE: usize = 4096;
/// Lines of the daemon's log that a violation shows.
const LAST: usize = 12;

/// Destination of a daemon's standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Voice {
    /// A log file.
    Heard,
    /// A closed descriptor.
    Closed,
    /// A file on a full device.
    Full,
    /// A pipe without a reader.
    Unread,
}

impl Voice {
    /// All destinations.
    pub const ALL: [Voice; 4] = [Voice::Heard, Voice::Closed, Voice::Full, Voice::Unread];
}

/// Places of a daemon's files.
pub struct StormMachine {
    /// Program of the daemon.
    pub program: PathBuf,
    /// Folder of the daemon.
    pub folder: PathBuf,
    /// Held by the operator that edits the configuration.
    pub desk: Mutex<()>,
    /// Bytes of the log before this life.
    said_before: AtomicU64,
    /// The last daemon's process. The number of a process may be another's later.
    daemon: Mutex<Option<OwnedFd>>,
}

/// A descriptor of a process.
fn descriptor(process: &Child) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are involved; the child has not been waited for.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, process.id(), 0) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new.
        opened => Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) }),
    }
}

impl StormMachine {
    /// A machine without a daemon.
    pub fn new(program: PathBuf, folder: PathBuf) -> StormMachine {
        StormMachine {
            program,
            folder,
            desk: Mutex::new(()),
            said_before: AtomicU64::new(0),
            daemon: Mutex::new(None),
        }
    }

    /// Path of the control socket.
    pub fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// Path of the socket of its volumes.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("nbd")
    }

    /// Folder of the devices' true files, the state and the configuration.
    pub fn back(&self) -> PathBuf {
        self.folder.join("back")
    }

    /// Folder of the configuration, as the daemon sees it.
    pub fn etc(&self) -> PathBuf {
        self.folder.join("devices").join(ETC)
    }

    /// Path of the configuration for the daemon.
    pub fn configuration(&self) -> PathBuf {
        self.etc().join(FILES[0])
    }

    /// Folder of the configuration's true files.
    pub fn true_etc(&self) -> PathBuf {
        self.back().join(ETC)
    }

    /// Returns the text and the path of each file of the configuration.
    pub fn texts(&self) -> io::Result<Vec<(String, PathBuf)>> {
        let paths = FILES.map(|file| self.true_etc().join(file));
        let there = paths.into_iter().filter(|path| path.exists());
        there
            .map(|path| Ok((fs::read_to_string(&path)?, path)))
            .collect()
    }

    /// Returns true if the configuration has a volume.
    pub fn has_volume(&self, name: &str) -> io::Result<bool> {
        let name = format!("name = \"{name}\"\n");
        let has = |(text, _): &(String, PathBuf)| {
            let mut sections = text.split("[[volume]]").skip(1);
            sections.any(|section| section.contains(&name))
        };
        Ok(self.texts()?.iter().any(has))
    }

    /// Runs `hotset` with these arguments, followed by the configuration. Returns its status and
    /// its output.
    pub fn command(&self, arguments: &[&str]) -> Result<(i32, String), String> {
        let mut command: Command = bound(&self.program);
        outcome(command.args(arguments).arg(self.configuration()))
    }

    /// Returns a command of `hotset` for the running daemon.
    pub fn hotset(&self) -> Command {
        let mut command: Command = bound(&self.program);
        command.env("HOTSET_CONTROL", self.control());
        command
    }

    /// Sends the last daemon a signal.
    pub fn signal(&self, signal: i32) {
        let daemon = self.daemon.lock().expect("no panic under this lock");
        if let Some(daemon) = &*daemon {
            let (daemon, none) = (daemon.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
            // A daemon that has ended takes no signal.
            // SAFETY: the descriptor is open, and a null pointer is permitted.
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, daemon, signal, none, 0) };
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.join("daemon.log")
    }

    /// Marks the beginning of another life in the log.
    pub fn mark(&self) {
        let length = fs::metadata(self.log()).map_or(0, |log| log.len());
        self.said_before.store(length, SeqCst);
    }

    /// Returns the log of this life's daemons.
    pub fn said(&self) -> String {
        let bytes = fs::read(self.log()).unwrap_or_default();
        let before = self.said_before.load(SeqCst) as usize;
        String::from_utf8_lossy(&bytes[before.min(bytes.len())..]).into_owned()
    }

    /// Returns the last lines of that log.
    pub fn last_said(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(LAST)..].join("\n")
    }

    /// Starts a daemon, and does not wait until it serves.
    pub fn start(&self, voice: Voice) -> io::Result<DaemonProcess> {
        for socket in [self.control(), self.socket()] {
            // A ring that the kernel is still taking down keeps the sockets of a killed daemon.
            let _ = fs::remove_file(socket);
        }
        let mut command: Command = match voice {
            Voice::Closed => {
                let mut command = bound("sh".as_ref());
                command
                    .args(["-c", "exec \"$0\" \"$@\" 2>&-"])
                    .arg(&self.program);
                command
            }
            _ => bound(&self.program),
        };
        command
            .args(["serve", "--config"])
            .arg(self.configuration());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut unread = None;
        match voice {
            Voice::Heard => {
                let log = File::options().create(true).append(true).open(self.log())?;
                command.stderr(log);
            }
            Voice::Closed => {}
            Voice::Full => {
                command.stderr(File::options().write(true).open("/dev/full")?);
            }
            Voice::Unread => {
                let (reader, mut writer) = io::pipe()?;
                // SAFETY: no pointers are involved; the pipe is ours.
                unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE as i32) };
                writer.write_all(&[b'\n'; PIPE])?;
                command.stderr(writer);
                unread = Some(reader);
            }
        }
        let process = DaemonProcess(command.spawn()?, unread);
        let daemon = descriptor(&process.0)?;
        *self.daemon.lock().expect("no panic under this lock") = Some(daemon);
        Ok(process)
    }

    /// Returns the daemon's answer to a request; an overdue one is an error of the kind `TimedOut`.
    pub fn ask(&self, request: &Value, weather: &Weather) -> io::Result<Value> {
        self.talk()?.ask(request, weather)
    }

    /// Connects for several requests.
    pub fn talk(&self) -> io::Result<Talk> {
        Talk::new(&self.control())
    }

    /// Sends a request without reading the answer.
    pub fn send(&self, request: &Value) -> io::Result<()> {
        let mut stream = UnixStream::connect(self.control())?;
        stream.write_all(format!("{request}\n").as_bytes())
    }

    /// Makes a change that the configuration keeps, and returns its outcome.
    pub fn change(&self, change: &Value, weather: &Weather) -> io::Result<Value> {
        let begun = Instant::now();
        let request = json!({"request": "change", "change": change, "temporary": false});
        let answer = self.ask(&request, weather)?;
        let Some(name) = answer["accepted"].as_str() else {
            return Ok(answer);
        };
        loop {
            let outcome = self.ask(&json!({"request": "outcome", "change": name}), weather)?;
            if let Some(ended) = outcome.get("ended") {
                return Ok(ended.clone());
            }
            if outcome.get("error").is_some() {
                return Ok(outcome);
            }
            if weather.overdue(begun, TURN).is_some() {
                return Err(ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the daemon's report.
    pub fn status(&self, weather: &Weather) -> io::Result<Value> {
        let overdue = |begun| weather.overdue_report(begun);
        let answer = self
            .talk()?
            .answer(&json!({"request": "status"}), &overdue)?;
        Ok(answer["status"].clone())
    }
}

/// A connection to the control socket.
pub struct Talk(BufReader<UnixStream>);

impl Talk {
    fn new(control: &Path) -> io::Result<Talk> {
        let stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Talk(BufReader::new(stream)))
    }

    /// Returns the answer to a request; an overdue one is an error of the kind `TimedOut`.
    pub fn ask(&mut self, request: &Value, weather: &Weather) -> io::Result<Value> {
        self.answer(request, &|begun| weather.overdue(begun, TURN))
    }

    fn answer(
        &mut self,
        request: &Value,
        overdue: &dyn Fn(Instant) -> Option<Duration>,
    ) -> io::Result<Value> {
        let (begun, mut line) = (Instant::now(), Vec::new());
        self.0
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())?;
        loop {
            match self.0.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => break,
                Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if overdue(begun).is_some() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        serde_json::from_slice(&line).map_err(io::Error::other)
    }
}

/// A daemon's process, which is killed when dropped, and a pipe without a reader.
pub struct DaemonProcess(
    Child,
    #[expect(dead_code, reason = "it is held open")] Option<PipeReader>,
);

impl DaemonProcess {
    /// Sends the process a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: no pointers are involved; the child has not been waited for.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }

    /// Returns the exit status or the signal, if the process has ended.
    pub fn ended(&mut self) -> Result<Option<String>, String> {
        let status = self.0.try_wait().map_err(|error| error.to_string())?;
        Ok(status.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => format!("status {code}"),
            (_, signal) => format!("signal {}", signal.unwrap_or(0)),
        }))
    }

    /// Waits for the end of the process. Returns its status; fails if that takes too long.
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

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
