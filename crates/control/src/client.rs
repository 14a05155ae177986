//! The operator's end of the control socket.

use crate::config::{self, Config};
use crate::explained::Explained;
use crate::files::Files;
use crate::observed::Observed;
use crate::protocol::{Reply, Request};
use crate::status::Status;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a daemon that does anything may take to answer what takes no time.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a daemon.
pub struct Client {
    path: PathBuf,
    timeout: Duration,
    stream: BufReader<UnixStream>,
}

/// Why a request failed.
#[derive(Debug)]
pub enum Error {
    /// There is no talking to the daemon.
    Unreachable(PathBuf, io::Error),
    /// It refused.
    Refused(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, cause) = match self {
            Error::Refused(what) => return f.write_str(what),
            Error::Unreachable(path, cause) => (path.display(), cause),
        };
        match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => write!(
                f,
                "no daemon answers on {path} ({cause}); start `hotset serve`, or name its socket \
                 with --control"
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "the daemon on {path} is not this user's ({cause}); run this as the user that the \
                 daemon runs as"
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

impl Client {
    /// Connects to the daemon whose control socket is `path`.
    pub fn connect(path: &Path) -> Result<Client, Error> {
        Client::within(path, TIMEOUT)
    }

    fn within(path: &Path, timeout: Duration) -> Result<Client, Error> {
        let connect = || {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        };
        let stream = connect().map_err(|cause| Error::Unreachable(path.to_owned(), cause))?;
        Ok(Client {
            path: path.to_owned(),
            timeout,
            stream: BufReader::new(stream),
        })
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())
    }

    /// The rest of a line, of which that is there already.
    fn receive(&mut self, line: &mut String) -> io::Result<Reply> {
        if self.stream.read_line(line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(line)?)
    }

    /// A volume may take hours to give up its log: whoever answers others is waited for.
    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        self.send(request)?;
        let mut line = String::new();
        loop {
            match self.receive(&mut line) {
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock && self.answers() => {}
                reply => return reply,
            }
        }
    }

    /// Whether the daemon answers what takes no time.
    fn answers(&self) -> bool {
        let other = Client::within(&self.path, self.timeout);
        other.is_ok_and(|mut other| {
            let sent = other.send(&Request::Status);
            sent.and_then(|()| other.receive(&mut String::new()))
                .is_ok()
        })
    }

    /// Sends `request`; a reply that refuses it is an error.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        match self.exchange(request) {
            Ok(Reply::Error(what)) => Err(Error::Refused(what)),
            Ok(reply) => Ok(reply),
            Err(cause) => Err(Error::Unreachable(self.path.clone(), cause)),
        }
    }

    /// Has `request` carried out.
    pub fn command(&mut self, request: &Request) -> Result<(), Error> {
        self.ask(request).map(drop)
    }

    /// The report, over the time since the last call.
    pub fn status(&mut self) -> Result<Status, Error> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// The configuration that it runs; its files are those that it was read from.
    pub fn configuration(&mut self) -> Result<Config, Error> {
        let running = match self.ask(&Request::Configuration)? {
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
        config.files = Files::from(running.files);
        Ok(config)
    }

    /// Has it read its configuration again; what has changed.
    pub fn reload(&mut self) -> Result<Vec<String>, Error> {
        match self.ask(&Request::Reload)? {
            Reply::Reloaded(steps) => Ok(steps),
            other => Err(unexpected(&other)),
        }
    }

    /// What was observed of a volume.
    pub fn observe(&mut self, volume: &str) -> Result<Observed, Error> {
        let volume = volume.to_owned();
        match self.ask(&Request::Observe { volume })? {
            Reply::Observed(observed) => Ok(*observed),
            other => Err(unexpected(&other)),
        }
    }

    /// Why a volume, and a range of its bytes, is cached or not.
    pub fn explain(&mut self, volume: &str, range: Option<(u64, u64)>) -> Result<Explained, Error> {
        let volume = volume.to_owned();
        match self.ask(&Request::Explain { volume, range })? {
            Reply::Explained(explained) => Ok(*explained),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Refused(format!(
        "the daemon answered {reply:?} to another question; is it of this version?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Asks a daemon that takes ten times as long as is waited for, and in the middle of a line;
    /// others it answers at once, or not at all.
    fn asked(others: bool) -> Result<Reply, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let timeout = Duration::from_millis(50);
        let mut client = Client::within(&path, timeout).unwrap();
        let (mut first, _) = listener.accept().unwrap();
        thread::spawn(move || {
            first.write_all(b"\"do").unwrap();
            thread::sleep(10 * timeout);
            // Whoever has given up does not read it.
            let _ = first.write_all(b"ne\"\n");
        });
        thread::spawn(move || {
            for other in listener.incoming() {
                let mut other = other.unwrap();
                match others {
                    true => other.write_all(b"\"done\"\n").unwrap(),
                    false => thread::sleep(100 * timeout),
                }
            }
        });
        client.ask(&Request::Reload)
    }

    #[test]
    fn a_daemon_that_answers_others_is_waited_for() {
        assert!(matches!(asked(true), Ok(Reply::Done)));
        let error = asked(false).unwrap_err();
        assert!(error.to_string().contains("does not answer; see its log"));
    }
}
