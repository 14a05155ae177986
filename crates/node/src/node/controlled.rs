//! The node behind the control socket: questions are answered at any time, changes in their turn.

use super::Node;
use super::refusal::Refusal;
use crate::event::NodeEvent;
use crate::platform::Platform;
use crate::report::ReportSession;
use block::{IoError, Peer};
use control::protocol::{ControlRequest, Reply, RunningConfiguration};
use control::serve::RequestHandler;
use std::rc::Rc;

/// The control socket's view of a node.
pub struct Controlled<P: Platform>(pub Rc<Node<P>>);

impl<P: Platform> RequestHandler for Controlled<P> {
    type Session = ReportSession;

    async fn handle(&self, request: ControlRequest, session: &mut ReportSession) -> Reply {
        let node = &self.0;
        let answer = match &request {
            ControlRequest::Status => Some(Ok(Reply::Status(Box::new(node.report(session))))),
            ControlRequest::Configuration => {
                let config = node.devices.config();
                Some(Ok(Reply::Configuration(RunningConfiguration {
                    text: config.text(),
                    files: config.files.iter().cloned().collect(),
                })))
            }
            ControlRequest::Observe { volume } => {
                let observed = node.observe(volume);
                Some(observed.map(|observed| Reply::Observed(Box::new(observed))))
            }
            ControlRequest::Explain { volume, range } => {
                let explained = node.explain(volume, *range).await;
                Some(explained.map(|explained| Reply::Explained(Box::new(explained))))
            }
            ControlRequest::Record { volume } => {
                Some(node.record(volume, session).map(|()| Reply::Done))
            }
            ControlRequest::TakeRecords => Some(node.take_records(session)),
            ControlRequest::Preview { change } => Some(node.preview(change).await),
            ControlRequest::Ping => Some(Ok(Reply::Done)),
            _ => None,
        };
        if let Some(answer) = answer {
            return answer.unwrap_or_else(Reply::Error);
        }
        match request {
            ControlRequest::Change { change, temporary } => {
                let accepted = node.take_change(*change, temporary, session.peer).await;
                accepted.map_or_else(Reply::Error, Reply::Accepted)
            }
            ControlRequest::Outcome { change } => node.queue.look(&change),
            ControlRequest::Hold { volume, forget } => {
                let held = node.hold(volume, forget, session).await;
                held.map_or_else(Reply::Error, |()| Reply::Done)
            }
            ControlRequest::Release => match session.hold.take() {
                Some(hold) => hold.release().await,
                None => Reply::Error("this connection holds no volume; see `hold`".into()),
            },
            request => match node.at_once(&request, session.peer).await {
                Some(reply) => reply,
                None => node.in_turn(request, session.peer).await,
            },
        }
    }

    fn meet(&self, peer: Option<Peer>, session: &mut ReportSession) {
        session.peer = peer;
    }

    fn cannot_accept(&self, error: &IoError) {
        let what = format!("control connections wait: {error}");
        let event = NodeEvent::Frontend { volume: None, what };
        self.0.platform.event(event);
    }
}

impl<P: Platform> Node<P> {
    /// Carries out a request that may concern the running change, or that resumes a volume.
    pub(super) async fn at_once(
        self: &Rc<Self>,
        request: &ControlRequest,
        peer: Option<Peer>,
    ) -> Option<Reply> {
        let done = match request {
            _ if self.stopped.get() => return None,
            ControlRequest::PauseJob { job, paused } => self.pause(job, *paused),
            ControlRequest::CancelJob { job } => self.cancel(job).await,
            ControlRequest::Resume { volume } if !self.queue.is_about(volume) => {
                self.resume(volume).await
            }
            _ => return None,
        };
        let made = |()| Reply::Made(self.made(request, false, &self.devices.config().files));
        let reply = done.map_or_else(Reply::Error, made);
        self.log_change(&reply, request.volume(), peer);
        Some(reply)
    }

    /// Accepts a change without waiting for its end. Returns the name of the change.
    async fn take_change(
        self: &Rc<Self>,
        request: ControlRequest,
        temporary: bool,
        peer: Option<Peer>,
    ) -> Result<String, Refusal> {
        if !request.is_change() {
            return Err("that is no change; ask it by itself".into());
        }
        if let Some(reply) = self.at_once(&request, peer).await {
            return Ok(self.note_outcome(reply));
        }
        match &request {
            ControlRequest::ReplaceMember { array, member, .. }
                if temporary && self.is_in_sync(array, member) =>
            {
                return Err(
                    "an exchange of a sound member is not temporary: the next start would lack the \
                     new one. Leave out --temporary."
                        .into(),
                );
            }
            // The supervision of arrays sends this request; it must not wait, and sends another
            // later.
            ControlRequest::Exchanged { .. } if self.queue.is_busy() => {
                return Err("another change is going on; it is tried again".into());
            }
            _ => (),
        }
        self.accept(request, !temporary, peer)
    }

    /// True if `member`, a device or the number of a role, is in sync.
    fn is_in_sync(&self, array: &str, member: &str) -> bool {
        let arrays = self.devices.reports(self.env().timer.now());
        let array = arrays.into_iter().find(|other| other.name == array);
        let members = array.into_iter().flat_map(|array| array.members);
        let mut its = members.filter(|other| {
            other.device.as_deref() == Some(member) || other.role.to_string() == member
        });
        its.any(|member| member.state == "in sync")
    }
}
