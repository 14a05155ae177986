//! The node at the other end of the control socket: questions are answered at
//! any time, changes one after the other.

use super::Node;
use super::refusal::Refusal;
use crate::event::Event;
use crate::platform::Platform;
use crate::report::Session;
use block::{IoError, Nanos};
use control::protocol::{Reply, Request, Running};
use control::serve::Handler;
use std::cell::Cell;
use std::rc::Rc;

/// How often it is looked whether a change has ended.
const TICK: Nanos = Nanos::from_millis(10);

/// Marks that a change runs.
struct Changing<'a>(&'a Cell<bool>);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// The control socket's view of a node.
pub struct Controlled<P: Platform>(pub Rc<Node<P>>);

impl<P: Platform> Handler for Controlled<P> {
    type Session = Session;

    async fn handle(&self, request: Request, session: &mut Session) -> Reply {
        let node = &self.0;
        let answer = match &request {
            Request::Status => Some(Ok(Reply::Status(Box::new(node.report(session))))),
            Request::Configuration => {
                let config = node.devices.config();
                Some(Ok(Reply::Configuration(Running {
                    text: config.text(),
                    files: config.files.iter().cloned().collect(),
                })))
            }
            Request::Observe { volume } => {
                let observed = node.observe(volume);
                Some(observed.map(|observed| Reply::Observed(Box::new(observed))))
            }
            Request::Explain { volume, range } => {
                let explained = node.explain(volume, *range).await;
                Some(explained.map(|explained| Reply::Explained(Box::new(explained))))
            }
            Request::Record { volume } => Some(node.record(volume, session).map(|()| Reply::Done)),
            Request::TakeRecords => Some(node.take_records(session)),
            _ => None,
        };
        if let Some(answer) = answer {
            return answer.unwrap_or_else(Reply::Error);
        }
        if node.stopped.get() {
            return Reply::Error("the daemon is stopping; try again once it is back".into());
        }
        // What is cancelled or paused may be the change that is going on.
        if let Request::PauseJob { job, paused } = &request {
            let done = node.pause(job, *paused);
            return done.map_or_else(Reply::Error, |()| Reply::Done);
        }
        if let Request::CancelJob { job } = &request {
            let cancelled = node.cancel(job).await;
            return cancelled.map_or_else(Reply::Error, |()| Reply::Done);
        }
        if node.changing.replace(true) {
            return Reply::Error("another change is going on; try again".into());
        }
        let _changing = Changing(&node.changing);
        if matches!(request, Request::Reload) {
            return node
                .reload()
                .await
                .map_or_else(Reply::Error, Reply::Reloaded);
        }
        match node.change(request).await {
            Ok(()) => Reply::Done,
            Err(refusal) => Reply::Error(refusal),
        }
    }

    fn cannot_accept(&self, error: &IoError) {
        let what = format!("control connections wait: {error}");
        self.0.platform.event(Event::Frontend { what });
    }
}

impl<P: Platform> Node<P> {
    /// Reads the configuration and runs it, once no other change is going on.
    pub async fn reload_in_turn(&self) -> Result<(), Refusal> {
        let timer = self.env().timer;
        while self.changing.get() && !self.stopped.get() {
            timer.sleep(TICK).await;
        }
        if self.stopped.get() {
            return Ok(());
        }
        self.changing.set(true);
        let _changing = Changing(&self.changing);
        self.reload().await.map(drop)
    }
}
