//! The daemon: its files, its process, and what it says of itself.

use crate::plan::{ETC, FILES};
use crate::weather::{TURN, Weather};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, PipeReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testbed::tools::{bound, outcome};

/// How often it is looked whether something has come about.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked whether an answer is overdue.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes of the smallest pipe.
const PIPE: usize = 4096;
/// Lines of what a daemon said that a violation is reported with.
const LAST: usize = 12;

/// What becomes of what a daemon says on its standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Voice {
    /// It is kept.
    Heard,
    /// It is closed.
    Closed,
    /// It is a file on a full device.
    Full,
    /// It is a pipe that nobody reads.
    Unread,
}

impl Voice {
    /// All of them.
    pub const ALL: [Voice; 4] = [Voice::Heard, Voice::Closed, Voice::Full, Voice::Unread];
}

/// Where a daemon's files are.
pub struct Machine {
    /// The daemon's program.
    pub program: PathBuf,
    /// Its folder.
    pub folder: PathBuf,
    /// How much was said before this life.
    pub said_before: AtomicU64,
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

    /// The files of its devices as they are, and its state and configuration.
    pub fn back(&self) -> PathBuf {
        self.folder.join("back")
    }

    /// Its configuration, as the daemon sees it.
    pub fn configuration(&self) -> PathBuf {
        self.folder.join("devices").join(ETC).join("hotset.toml")
    }

    /// The text of each file of its configuration, and where that is.
    pub fn texts(&self) -> io::Result<Vec<(String, PathBuf)>> {
        let paths = FILES.map(|file| self.back().join(ETC).join(file));
        let there = paths.into_iter().filter(|path| path.exists());
        there
            .map(|path| Ok((fs::read_to_string(&path)?, path)))
            .collect()
    }

    /// Whether its configuration has a volume.
    pub fn has_volume(&self, name: &str) -> io::Result<bool> {
        let name = format!("name = \"{name}\"\n");
        let has = |(text, _): &(String, PathBuf)| {
            let mut sections = text.split("[[volume]]").skip(1);
            sections.any(|section| section.contains(&name))
        };
        Ok(self.texts()?.iter().any(has))
    }

    /// Runs `hotset` with these arguments, and the configuration after them; its status, and what it
    /// printed.
    pub fn command(&self, arguments: &[&str]) -> Result<(i32, String), String> {
        let mut command: Command = bound(&self.program);
        outcome(command.args(arguments).arg(self.configuration()))
    }

    fn log(&self) -> PathBuf {
        self.folder.join("daemon.log")
    }

    /// From now on another life says something.
    pub fn mark(&self) {
        let length = fs::metadata(self.log()).map_or(0, |log| log.len());
        self.said_before.store(length, SeqCst);
    }

    /// What the daemons of this life have said.
    pub fn said(&self) -> String {
        let bytes = fs::read(self.log()).unwrap_or_default();
        let before = self.said_before.load(SeqCst) as usize;
        String::from_utf8_lossy(&bytes[before.min(bytes.len())..]).into_owned()
    }

    /// The last lines of that.
    pub fn last_said(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(LAST)..].join("\n")
    }

    /// Starts a daemon; it need not serve yet.
    pub fn start(&self, voice: Voice) -> io::Result<Process> {
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
        Ok(Process(command.spawn()?, unread))
    }

    /// What it answers to a request; an error of the kind `TimedOut` if that is overdue.
    pub fn ask(&self, request: &Value, weather: &Weather) -> io::Result<Value> {
        self.talk()?.ask(request, weather)
    }

    /// A connection for several requests.
    pub fn talk(&self) -> io::Result<Talk> {
        Talk::new(&self.control())
    }

    /// Asks it for something, and hears no answer.
    pub fn send(&self, request: &Value) -> io::Result<()> {
        let mut stream = UnixStream::connect(self.control())?;
        stream.write_all(format!("{request}\n").as_bytes())
    }

    /// What has come of a change that the configuration keeps.
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

    /// Its report.
    pub fn status(&self, weather: &Weather) -> io::Result<Value> {
        let overdue = |begun| weather.overdue_report(begun);
        let answer = self
            .talk()?
            .answer(&json!({"request": "status"}), &overdue)?;
        Ok(answer["status"].clone())
    }
}

/// A connection to the socket of commands.
pub struct Talk(BufReader<UnixStream>);

impl Talk {
    fn new(control: &Path) -> io::Result<Talk> {
        let stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Talk(BufReader::new(stream)))
    }

    /// The answer to a request; an error of the kind `TimedOut` if that is overdue.
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

/// A daemon's process, which is killed when dropped, and a pipe that nobody reads.
pub struct Process(
    Child,
    #[expect(dead_code, reason = "it is held open")] Option<PipeReader>,
);

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
