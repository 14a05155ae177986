//! Shared parts of the drills on this machine: a daemon, and clients on a thread of their own.

use super::row::to_message;
use block::{Env, Nanos};
use control::client::ControlClient;
use control::status::Status;
use shard::{Local, run_alone};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, TryRecvError, channel};
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

/// A piece of work on the stage.
type StageJob<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The thread with the stage `S`, in the view of the script.
pub(super) struct Remote<S> {
    env: Env,
    jobs: Sender<StageJob<S>>,
}

impl<S: 'static> Remote<S> {
    /// Has the other thread carry out `job`.
    pub(super) async fn ask<A: Send + 'static>(
        &self,
        job: impl FnOnce(&mut S) -> Result<A, String> + Send + 'static,
    ) -> Result<A, String> {
        let (to_script, answer) = channel();
        let job = move |stage: &mut S| {
            // A script that has ended awaits no answer.
            let _ = to_script.send(job(stage));
        };
        self.jobs.send(Box::new(job)).map_err(to_message)?;
        loop {
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => self.env.timer.sleep(LOOK).await,
                Err(TryRecvError::Disconnected) => return Err("the drill was ended".into()),
            }
        }
    }
}

/// Runs `script` on a thread of its own, with the driver for the clients, while this thread carries
/// out the script's jobs on `stage`.
pub(super) fn beside<S, T, F>(
    stage: &mut S,
    script: impl FnOnce(Local<UringDriver>, Remote<S>) -> F + Send + 'static,
) -> Result<T, String>
where
    S: 'static,
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + 'static,
{
    let (jobs, of_script) = channel::<StageJob<S>>();
    std::thread::scope(|scope| {
        let script = scope.spawn(move || {
            let mut host = Uring::new(Options::default()).map_err(to_message)?;
            let ended = run_alone(&mut host, |local: Local<UringDriver>| {
                let env = local.env();
                script(local, Remote { env, jobs })
            });
            ended.map_err(to_message)?
        });
        // Ends when the script has ended and has dropped its end.
        of_script.into_iter().for_each(|job| job(stage));
        script.join().map_err(|_| "the load panicked".to_owned())?
    })
}
