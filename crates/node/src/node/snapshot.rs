//! A volume that is quiesced for the time of a connection, for a snapshot of its origin.
//!
//! Invariants:
//!     the connection ends in any way ⟹ the volume goes on after it
//!     the origin may have been changed meanwhile ⟹ the volume goes on only after its cached
//!     lines are dropped
//!     the daemon ends first ⟹ the next daemon has no cached lines of the volume (`stop`)

use super::Node;
use super::refusal::Refusal;
use crate::event::NodeEvent;
use crate::hold::Hold;
use crate::platform::Platform;
use crate::report::ReportSession;
use block::{Nanos, Peer};
use control::protocol::{ControlRequest, Reply};
use std::rc::Rc;

/// Pause between two attempts to end a hold.
const AGAIN: Nanos = Nanos::from_secs(1);

impl<P: Platform> Node<P> {
    /// Quiesces `volume` for the time of `session`.
    pub(super) async fn hold(
        self: &Rc<Self>,
        volume: String,
        forget: bool,
        session: &mut ReportSession,
    ) -> Result<(), Refusal> {
        if session.hold.is_some() {
            return Err("this connection holds a volume; release it first".into());
        }
        let request = ControlRequest::Quiesce {
            volume: volume.clone(),
        };
        if let Reply::Error(refusal) = self.in_turn(request, session.peer).await {
            return Err(refusal);
        }
        let (node, peer) = (self.clone(), session.peer);
        let end = Box::pin(async move { node.end_hold(volume, forget, peer).await });
        session.hold = Some(Hold::new(self.env().spawn, end));
        Ok(())
    }

    async fn end_hold(self: Rc<Self>, volume: String, forget: bool, peer: Option<Peer>) -> Reply {
        let mut is_first = true;
        loop {
            let why = match self.try_end_hold(&volume, forget, peer).await {
                Reply::Error(why) => why,
                reply => return reply,
            };
            let is_held = self
                .volume(&volume)
                .is_ok_and(|volume| volume.cached().is_quiesced());
            if self.stopped.get() || !is_held {
                return Reply::Error(why);
            }
            if std::mem::take(&mut is_first) {
                let what = format!(
                    "volume {volume} does not go on after its snapshot yet, and it is tried again: {why}"
                );
                let volume = Some(volume.clone());
                self.platform.event(NodeEvent::Frontend { volume, what });
            }
            self.env().timer.sleep(AGAIN).await;
        }
    }

    async fn try_end_hold(
        self: &Rc<Self>,
        volume: &str,
        forget: bool,
        peer: Option<Peer>,
    ) -> Reply {
        let volume = || volume.to_owned();
        if forget {
            let request = ControlRequest::Invalidate { volume: volume() };
            if let Reply::Error(why) = self.in_turn(request, peer).await {
                return Reply::Error(why);
            }
        }
        let request = ControlRequest::Resume { volume: volume() };
        match self.at_once(&request, peer).await {
            Some(reply) => reply,
            None => self.in_turn(request, peer).await,
        }
    }
}
