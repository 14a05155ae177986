//! Shared parts of the drills on this machine: a daemon, and clients on a thread of their own.

use super::row::to_message;
use block::{Env, Nanos};
use control::client::ControlClient;
use control::status::Status;
use shard::{Local, run_alone};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use testbed::server::ServerProcess;
use uring::{Options, Uring, UringDriver};

/// Time limit of a daemon to serve.
const START_MAX: Duration = Duration::from_secs(60);
/// Interval of checks for that.
const PERIOD: Duration = Duration::from_millis(50);
/// Interval of checks for an answer of the other thread.
const LOOK: Nanos = Nanos::from_millis(2);

/// A daemon on the configuration `hotset.toml` of a directory; killed if dropped.
pub(super) struct DrillDaemon {
    process: ServerProcess,
    control: PathBuf,
}

impl DrillDaemon {
    /// Starts `program`; returns once the daemon answers.
    pub(super) fn start(program: &Path, directory: &Path) -> Result<DrillDaemon, String> {
        let control = directory.join("control");
        let process = ServerProcess::hotset(program, &directory.join("hotset.toml"), &control);
        let process = process.map_err(to_message)?;
        let daemon = DrillDaemon { process, control };
        let began = Instant::now();
        while let Err(why) = daemon.status() {
            if began.elapsed() > START_MAX {
                return Err(format!("the daemon does not serve: {why}"));
            }
            std::thread::sleep(PERIOD);
        }
        Ok(daemon)
    }

    /// A session at its control socket.
    pub(super) fn client(&self) -> Result<ControlClient, String> {
        ControlClient::connect(&self.control).map_err(to_message)
    }

    /// Reads the status of the daemon.
    pub(super) fn status(&self) -> Result<Status, String> {
        self.client()?.status().map_err(to_message)
    }

    /// Ends the daemon in order.
    pub(super) fn stop(self) -> Result<(), String> {
        self.process.stop().map_err(to_message)
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
