//! Shared parts of the drills on this machine: a daemon, and clients on a thread of their own.

use super::row::to_message;
use block::{Env, Nanos};
use control::client::ControlClient;
use control::status::Status;
use shard::{Local, run_alone};
use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use testbed::tools::bound;
use uring::{Options, Uring, UringDriver};

/// Time limits of a daemon, to serve and to end.
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(120);
/// Interval of checks for both.
const PERIOD: Duration = Duration::from_millis(50);
/// Interval of checks for an answer of the other thread.
const LOOK: Nanos = Nanos::from_millis(2);

/// A daemon on the configuration `hotset.toml` of a directory; killed if dropped.
pub(super) struct DrillDaemon {
    process: Child,
    directory: PathBuf,
}

impl Drop for DrillDaemon {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl DrillDaemon {
    /// Starts `program`; returns once the daemon answers.
    pub(super) fn start(program: &Path, directory: &Path) -> Result<DrillDaemon, String> {
        let log = File::create(directory.join("log")).map_err(to_message)?;
        let mut daemon = bound(program);
        daemon.args(["serve", "--config"]);
        daemon.arg(directory.join("hotset.toml"));
        daemon.stdin(Stdio::null()).stderr(log);
        let daemon = DrillDaemon {
            process: daemon.spawn().map_err(to_message)?,
            directory: directory.to_owned(),
        };
        let began = Instant::now();
        while daemon.status().is_err() {
            if began.elapsed() > START_MAX {
                let number = daemon.process.id();
                return Err(format!(
                    "the daemon {number} does not serve: {}",
                    daemon.log()
                ));
            }
            std::thread::sleep(PERIOD);
        }
        Ok(daemon)
    }

    /// A session at its control socket.
    pub(super) fn client(&self) -> Result<ControlClient, String> {
        ControlClient::connect(&self.directory.join("control")).map_err(to_message)
    }

    /// Reads the status of the daemon.
    pub(super) fn status(&self) -> Result<Status, String> {
        self.client()?.status().map_err(to_message)
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.directory.join("log"));
        log.unwrap_or_default().trim().to_owned()
    }

    /// Ends the daemon in order.
    pub(super) fn stop(mut self) -> Result<(), String> {
        let number = self.process.id().to_string();
        let mut kill = Command::new("kill");
        kill.args(["-TERM", &number]).status().map_err(to_message)?;
        let began = Instant::now();
        loop {
            match self.process.try_wait().map_err(to_message)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(format!("the daemon ends with {status}: {}", self.log()));
                }
                None if began.elapsed() > STOP_MAX => {
                    return Err(format!("the daemon {number} does not end: {}", self.log()));
                }
                None => std::thread::sleep(PERIOD),
            }
        }
    }
}

/// The thread that carries out the script's jobs, in the view of the script.
pub(super) struct Remote<J, A> {
    env: Env,
    jobs: Sender<J>,
    answers: RefCell<Receiver<Result<A, String>>>,
}

impl<J, A> Remote<J, A> {
    pub(super) async fn ask(&self, job: J) -> Result<A, String> {
        self.jobs.send(job).map_err(to_message)?;
        loop {
            let answer = self.answers.borrow().try_recv();
            match answer {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => self.env.timer.sleep(LOOK).await,
                Err(TryRecvError::Disconnected) => return Err("the drill was ended".into()),
            }
        }
    }
}

/// Runs `script` on a thread of its own, with the driver for the clients, while this thread carries
/// out the script's jobs.
pub(super) fn beside<J, A, T, F>(
    script: impl FnOnce(Local<UringDriver>, Remote<J, A>) -> F + Send + 'static,
    mut carry_out: impl FnMut(J) -> Result<A, String>,
) -> Result<T, String>
where
    J: Send + 'static,
    A: Send + 'static,
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + 'static,
{
    let (jobs, of_script) = channel();
    let (to_script, answers) = channel();
    std::thread::scope(|scope| {
        let script = scope.spawn(move || {
            let mut host = Uring::new(Options::default()).map_err(to_message)?;
            let ended = run_alone(&mut host, |local: Local<UringDriver>| {
                let remote = Remote {
                    env: local.env(),
                    jobs,
                    answers: RefCell::new(answers),
                };
                script(local, remote)
            });
            ended.unwrap_or_else(|| Err("the load did not end".into()))
        });
        // Ends when the script has ended and has dropped its end.
        for job in of_script {
            if to_script.send(carry_out(job)).is_err() {
                break;
            }
        }
        script.join().map_err(|_| "the load panicked".to_owned())?
    })
}
