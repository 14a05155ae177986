//! The other end of the control socket.
//!
//! Invariants:
//!     at most [`CONNECTIONS_MAX`] connections for questions and changes, one for the
//!     report, and [`RECORDINGS_MAX`] that record
//!     the report is asked for at most once in [`REPORT_AGE_MAX`], for all viewers

use crate::events::{EventHistory, WebEvent};
use crate::history::{self, DaemonHistory};
use crate::notify::Notifier;
use crate::problem::ProblemAnswer;
use crate::report::DaemonReport;
use axum::http::StatusCode;
use control::client::{ControlClient, Error};
use control::protocol::{ControlRequest, Reply};
use control::recording::ControlRecording;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Connections for questions and changes; the daemon serves 16 in all.
pub const CONNECTIONS_MAX: usize = 4;
/// Recordings at one time.
pub const RECORDINGS_MAX: usize = 2;
/// The greatest age of a report that is shown again.
const REPORT_AGE_MAX: Duration = Duration::from_millis(900);
/// Time limit of a question's wait for a connection.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The first and the longest pause between two looks at a change.
const LOOK_PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(1)];

/// The daemon behind a control socket.
pub struct DaemonLink {
    path: PathBuf,
    free: Semaphore,
    recordings: Arc<Semaphore>,
    reports: Mutex<Reports>,
    events: std::sync::Mutex<EventHistory>,
    history: std::sync::Mutex<DaemonHistory>,
    notifier: Notifier,
}

/// The connection for reports: rates count since the last one.
#[derive(Default)]
struct Reports {
    client: Option<ControlClient>,
    last: Option<(Instant, Result<Arc<DaemonReport>, ProblemAnswer>)>,
}

impl DaemonLink {
    /// The daemon that listens on `path`.
    pub fn new(
        path: PathBuf,
        events: EventHistory,
        history: DaemonHistory,
        notifier: Notifier,
    ) -> DaemonLink {
        DaemonLink {
            path,
            free: Semaphore::new(CONNECTIONS_MAX),
            recordings: Arc::new(Semaphore::new(RECORDINGS_MAX)),
            reports: Mutex::default(),
            events: std::sync::Mutex::new(events),
            history: std::sync::Mutex::new(history),
            notifier,
        }
    }

    /// The events so far, the oldest first.
    pub fn events(&self) -> Vec<WebEvent> {
        self.events.lock().expect("no holder panics").all().to_vec()
    }

    /// The history of the daemon's figures.
    pub fn history(&self) -> std::sync::MutexGuard<'_, DaemonHistory> {
        self.history.lock().expect("no holder panics")
    }

    /// Returns the last report if that is fresh, or a new one.
    pub async fn report(&self) -> Result<Arc<DaemonReport>, ProblemAnswer> {
        let mut reports = self.reports.lock().await;
        if let Some((at, last)) = &reports.last
            && at.elapsed() < REPORT_AGE_MAX
        {
            return last.clone();
        }
        let (path, client) = (self.path.clone(), reports.client.take());
        let asked = blocking(move || {
            if let Some(mut client) = client {
                match client.status() {
                    Ok(status) => return Ok((client, status)),
                    Err(error) if error.is_silence() => return Err(error),
                    // A connection to a daemon that has ended since is of no more use.
                    Err(_) => (),
                }
            }
            let mut client = ControlClient::connect(&path)?;
            let status = client.status()?;
            Ok((client, status))
        });
        let report = match asked.await {
            Ok((client, status)) => {
                reports.client = Some(client);
                Ok(Arc::new(DaemonReport::new(status)))
            }
            Err(problem) => Err(problem),
        };
        let found = report.as_ref().ok();
        let status = found.map(|report| &report.status);
        self.events
            .lock()
            .expect("no holder panics")
            .observe(status);
        self.history().observe(history::now(), found);
        self.notifier.observe(status);
        reports.last = Some((Instant::now(), report.clone()));
        report
    }

    /// Sends `request` and returns the answer.
    pub async fn ask(&self, request: ControlRequest) -> Result<Reply, ProblemAnswer> {
        self.with_client(move |client| client.ask(&request)).await
    }

    /// Begins to record `volume`, with a place among the recordings, which the caller holds.
    pub async fn record(
        &self,
        volume: String,
    ) -> Result<(ControlRecording, OwnedSemaphorePermit), ProblemAnswer> {
        let place = self.recordings.clone().try_acquire_owned().map_err(|_| {
            ProblemAnswer::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{RECORDINGS_MAX} recordings go on through this server"),
                "wait until one has ended, or use `hotset trace record`",
            )
        })?;
        let path = self.path.clone();
        let begin = move || ControlRecording::begin(ControlClient::connect(&path)?, &volume);
        Ok((blocking(begin).await?, place))
    }

    /// Carries out a change, and writes it to the daemon's file unless `temporary`.
    pub async fn change(
        &self,
        request: ControlRequest,
        temporary: bool,
    ) -> Result<(), ProblemAnswer> {
        let change = Box::new(request);
        let accepted = self
            .ask(ControlRequest::Change { change, temporary })
            .await?;
        let Reply::Accepted(change) = accepted else {
            return Err(ProblemAnswer::unexpected(&accepted));
        };
        let [mut pause, longest] = LOOK_PAUSES;
        loop {
            let change = change.clone();
            match self.ask(ControlRequest::Outcome { change }).await? {
                Reply::Ended(reply) => {
                    return match *reply {
                        Reply::Error(why) => Err(ProblemAnswer::of_daemon(&Error::Refused(why))),
                        _ => Ok(()),
                    };
                }
                // The connection is released: a request to pause or cancel needs one.
                Reply::Waiting(_) => tokio::time::sleep(pause).await,
                other => return Err(ProblemAnswer::unexpected(&other)),
            }
            pause = (pause * 2).min(longest);
        }
    }

    async fn with_client<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut ControlClient) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ProblemAnswer> {
        let busy = || {
            ProblemAnswer::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the daemon is busy with other requests of this server",
                "try again",
            )
        };
        let free = timeout(WAIT_MAX, self.free.acquire()).await;
        let _free = free.map_err(|_| busy())?.map_err(|_| busy())?;
        let path = self.path.clone();
        blocking(move || work(&mut ControlClient::connect(&path)?)).await
    }
}

/// Runs `work`, which waits for the daemon, on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, ProblemAnswer> {
    let done = tokio::task::spawn_blocking(work).await;
    done.expect("what asks does not panic")
        .map_err(|error| ProblemAnswer::of_daemon(&error))
}
