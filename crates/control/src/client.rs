//! The operator's end of the control socket.

use crate::config::{self, Config};
use crate::explained::Explained;
use crate::files::ConfigurationFiles;
use crate::observed::Observed;
use crate::plain;
use crate::protocol::{ControlRequest, Reply};
use crate::status::Status;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit of a reply, after which the client sends a ping; and time limit of the ping's reply.
/// A daemon that hangs is thus reported within 5 s.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Factor of [`TIMEOUT`] for the reply to a change.
const CHANGE_PATIENCE: u32 = 15;
/// First and longest pause between two questions for the outcome of a change.
const LOOK_PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(1)];
/// Longest time that a connection is kept between such questions: connections are few.
const KEPT_MAX: Duration = Duration::from_millis(500);
/// Time after which the client reports that a change takes a while.
const UNREPORTED_MAX: Duration = Duration::from_secs(2);
/// Most questions in a row that may fail.
const LOOKS_FAILED_MAX: u32 = 10;

/// A connection to a daemon.
pub struct ControlClient {
    path: PathBuf,
    timeout: Duration,
    stream: BufReader<UnixStream>,
}

/// Reason of a failed request.
#[derive(Debug)]
pub enum Error {
    /// The daemon cannot be reached.
    Unreachable(PathBuf, io::Error),
    /// The daemon refused the request.
    Refused(String),
}

impl Error {
    /// True if a daemon has the socket and does not answer.
    pub fn is_silence(&self) -> bool {
        matches!(self, Error::Unreachable(_, cause) if cause.kind() == io::ErrorKind::WouldBlock)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, cause) = match self {
            Error::Refused(what) => return f.write_str(what),
            Error::Unreachable(path, cause) => (path.display(), cause),
        };
        let (kind, cause) = (cause.kind(), plain(cause));
        match kind {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => write!(
                f,
                "no daemon answers on {path} ({cause}); start `hotset serve`, or name its socket \
                 with --control"
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "the daemon on {path} is not this user's ({cause}); run this as the user that the \
                 daemon runs as, or as a member of its `control_group`"
            ),
            io::ErrorKind::WouldBlock => {
                write!(f, "the daemon on {path} does not answer; see its log")
            }
            io::ErrorKind::InvalidData => write!(
                f,
                "the daemon on {path} is of another version: its answer is not understood \
                 ({cause}); use hotset and a daemon of the same version"
            ),
            _ => write!(
                f,
                "the daemon on {path} has ended the connection ({cause}); see whether it still runs"
            ),
        }
    }
}

impl std::error::Error for Error {}

impl ControlClient {
    /// Connects to the daemon with the control socket `path`.
    pub fn connect(path: &Path) -> Result<ControlClient, Error> {
        ControlClient::within(path, TIMEOUT)
    }

    fn within(path: &Path, timeout: Duration) -> Result<ControlClient, Error> {
        let connect = || {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        };
        let stream = connect().map_err(|cause| Error::Unreachable(path.to_owned(), cause))?;
        Ok(ControlClient {
            path: path.to_owned(),
            timeout,
            stream: BufReader::new(stream),
        })
    }

    fn send(&mut self, request: &ControlRequest) -> io::Result<()> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())
    }

    /// Receives the rest of a line, whose beginning is in `line`.
    fn receive(&mut self, line: &mut String) -> io::Result<Reply> {
        if self.stream.read_line(line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(line)?)
    }

    /// Sends `request` and waits for the reply. A volume may take hours to drain its log, so the
    /// wait lasts as long as the daemon answers pings.
    fn exchange(&mut self, request: &ControlRequest) -> io::Result<Reply> {
        // A busy daemon carries out each change that it has taken, so the client waits longer.
        let patience = match request.is_change() || matches!(request, ControlRequest::Change { .. })
        {
            true => self.timeout * CHANGE_PATIENCE,
            false => self.timeout,
        };
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        let sent = self.send(request);
        let mut line = String::new();
        loop {
            match self.receive(&mut line) {
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock && self.answers() => {}
                // A refused connection gets a reply, though its request was not read.
                Ok(reply) => return Ok(reply),
                Err(cause) => return Err(sent.err().unwrap_or(cause)),
            }
        }
    }

    /// True if the daemon answers a ping.
    fn answers(&self) -> bool {
        let other = ControlClient::within(&self.path, self.timeout);
        other.is_ok_and(|mut other| {
            let sent = other.send(&ControlRequest::Ping);
            sent.and_then(|()| other.receive(&mut String::new()))
                .is_ok()
        })
    }

    /// The connection, which lasts until its last file descriptor is closed.
    pub fn connection(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }

    /// Sends `request`; a reply that refuses it is an error.
    pub fn ask(&mut self, request: &ControlRequest) -> Result<Reply, Error> {
        match self.exchange(request) {
            Ok(Reply::Error(what)) => Err(Error::Refused(what)),
            Ok(reply) => Ok(reply),
            Err(cause) => Err(Error::Unreachable(self.path.clone(), cause)),
        }
    }

    /// Asks for `request` and waits for its end.
    pub fn command(&mut self, request: &ControlRequest) -> Result<(), Error> {
        self.ask(request).map(drop)
    }

    /// Makes a change in its turn and returns its result. The files of the configuration are
    /// changed too, unless the change is `temporary`. The daemon goes on with the change even if
    /// this client leaves. If the change takes a while, `waits` is called once, with the name of
    /// the change and the number of changes before it.
    pub fn change(
        &mut self,
        request: &ControlRequest,
        temporary: bool,
        waits: impl FnOnce(&str, usize),
    ) -> Result<Reply, Error> {
        let asked = ControlRequest::Change {
            change: Box::new(request.clone()),
            temporary,
        };
        let name = match self.ask(&asked)? {
            Reply::Accepted(name) => name,
            other => return Err(unexpected(&other)),
        };
        self.outcome(&name, Some(waits))
    }

    /// Waits for the result of a change.
    pub fn outcome(
        &mut self,
        name: &str,
        mut waits: Option<impl FnOnce(&str, usize)>,
    ) -> Result<Reply, Error> {
        let asked = ControlRequest::Outcome {
            change: name.to_owned(),
        };
        let [mut pause, longest] = LOOK_PAUSES;
        let (began, mut failed) = (Instant::now(), 0);
        loop {
            let before = match self.ask(&asked) {
                Ok(Reply::Ended(reply)) => {
                    return match *reply {
                        Reply::Error(what) => Err(Error::Refused(what)),
                        reply => Ok(reply),
                    };
                }
                Ok(Reply::Waiting(before)) => {
                    failed = 0;
                    before
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => {
                    failed += 1;
                    if failed == LOOKS_FAILED_MAX {
                        return Err(error);
                    }
                    0
                }
            };
            if began.elapsed() > UNREPORTED_MAX
                && let Some(waits) = waits.take()
            {
                waits(name, before);
            }
            let is_given_up = failed > 0 || began.elapsed() > KEPT_MAX;
            if is_given_up {
                let _ = self.stream.get_ref().shutdown(Shutdown::Both);
            }
            std::thread::sleep(pause);
            if is_given_up && let Ok(again) = ControlClient::within(&self.path, self.timeout) {
                *self = again;
            }
            pause = (pause * 2).min(longest);
        }
    }

    /// The report; rates are over the time since the last call.
    pub fn status(&mut self) -> Result<Status, Error> {
        match self.ask(&ControlRequest::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// The configuration that the daemon runs, with the files that it was read from.
    pub fn configuration(&mut self) -> Result<Config, Error> {
        let running = match self.ask(&ControlRequest::Configuration)? {
            Reply::Configuration(running) => running,
            other => return Err(unexpected(&other)),
        };
        let mut problems = Vec::new();
        let mut config = config::parse(&running.text, &mut problems);
        if let Some(problem) = problems.first() {
            return Err(Error::Refused(format!(
                "the daemon runs what cannot be read here ({problem}); is it of this version?"
            )));
        }
        config.files = ConfigurationFiles::from(running.files);
        Ok(config)
    }

    /// Makes the daemon reload its configuration. Returns a line for each change.
    pub fn reload(&mut self) -> Result<Vec<String>, Error> {
        match self.change(&ControlRequest::Reload, true, |_, _| ())? {
            Reply::Reloaded(steps) => Ok(steps),
            other => Err(unexpected(&other)),
        }
    }

    /// Observations of a volume, for advice.
    pub fn observe(&mut self, volume: &str) -> Result<Observed, Error> {
        let volume = volume.to_owned();
        match self.ask(&ControlRequest::Observe { volume })? {
            Reply::Observed(observed) => Ok(*observed),
            other => Err(unexpected(&other)),
        }
    }

    /// Explains why a volume, and a range of its bytes, is cached or not.
    pub fn explain(&mut self, volume: &str, range: Option<(u64, u64)>) -> Result<Explained, Error> {
        let volume = volume.to_owned();
        match self.ask(&ControlRequest::Explain { volume, range })? {
            Reply::Explained(explained) => Ok(*explained),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Refused(format!(
        "the daemon answered `{}` to another question; is it of this version?",
        reply.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Asks a daemon that takes three times the client's time limit, and pauses in the middle of a
    /// line. Its replies to `others` come at once, or never.
    fn asked(others: bool) -> Result<Reply, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let timeout = Duration::from_millis(500);
        let mut client = ControlClient::within(&path, timeout).unwrap();
        let (mut first, _) = listener.accept().unwrap();
        thread::spawn(move || {
            first.write_all(b"\"do").unwrap();
            thread::sleep(3 * timeout);
            // A client that has given up does not read this.
            let _ = first.write_all(b"ne\"\n");
        });
        thread::spawn(move || {
            for other in listener.incoming() {
                let mut other = other.unwrap();
                match others {
                    true => {
                        // A connection closed before its request is read would fail the request.
                        BufReader::new(&other)
                            .read_line(&mut String::new())
                            .unwrap();
                        other.write_all(b"\"done\"\n").unwrap();
                    }
                    false => thread::sleep(100 * timeout),
                }
            }
        });
        client.ask(&ControlRequest::Configuration)
    }

    #[test]
    fn a_daemon_that_answers_others_is_waited_for() {
        assert!(matches!(asked(true), Ok(Reply::Done)));
        let error = asked(false).unwrap_err();
        assert!(error.to_string().contains("does not answer; see its log"));
    }
}
