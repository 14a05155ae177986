//! The node behind the control socket: questions are answered at any time, changes in their turn.

use super::Node;
use super::refusal::Refusal;
use crate::event::Event;
use crate::platform::Platform;
use crate::report::Session;
use block::IoError;
use control::protocol::{Reply, Request, Running};
use control::serve::Handler;
use std::rc::Rc;

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
            Request::Ping => Some(Ok(Reply::Done)),
            _ => None,
        };
        if let Some(answer) = answer {
            return answer.unwrap_or_else(Reply::Error);
        }
        match request {
            Request::Change { change, temporary } => {
                let accepted = node.take_change(*change, temporary).await;
                accepted.map_or_else(Reply::Error, Reply::Accepted)
            }
            Request::Outcome { change } => node.queue.look(&change),
            Request::Hold { volume, forget } => {
                let held = node.hold(volume, forget, session).await;
                held.map_or_else(Reply::Error, |()| Reply::Done)
            }
            Request::Release => match session.hold.take() {
                Some(hold) => hold.release().await,
                None => Reply::Error("this connection holds no volume; see `hold`".into()),
            },
            request => match node.at_once(&request).await {
                Some(reply) => reply,
                None => node.in_turn(request, false).await,
            },
        }
    }

    fn cannot_accept(&self, error: &IoError) {
        let what = format!("control connections wait: {error}");
        self.0.platform.event(Event::Frontend { what });
    }
}

impl<P: Platform> Node<P> {
    /// Carries out a request that may concern the running change, or that resumes a volume.
    pub(super) async fn at_once(self: &Rc<Self>, request: &Request) -> Option<Reply> {
        let done = match request {
            _ if self.stopped.get() => return None,
            Request::PauseJob { job, paused } => self.pause(job, *paused),
            Request::CancelJob { job } => self.cancel(job).await,
            Request::Resume { volume } if !self.queue.is_about(volume) => self.resume(volume).await,
            _ => return None,
        };
        let made = |()| Reply::Made(self.made(request, false, &self.devices.config().files));
        Some(done.map_or_else(Reply::Error, made))
    }

    /// Accepts a change without waiting for its end. Returns the name of the change.
    async fn take_change(
        self: &Rc<Self>,
        request: Request,
        temporary: bool,
    ) -> Result<String, Refusal> {
        if !request.is_change() {
            return Err("that is no change; ask it by itself".into());
        }
        if let Some(reply) = self.at_once(&request).await {
            return Ok(self.note_outcome(reply));
        }
        match &request {
            Request::ReplaceMember { array, member, .. }
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
            Request::Exchanged { .. } if self.queue.is_busy() => {
                return Err("another change is going on; it is tried again".into());
            }
            _ => (),
        }
        self.accept(request, !temporary)
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
