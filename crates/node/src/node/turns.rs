//! Changes in their turn, with or without a waiting client.
//!
//! Invariants:
//!     a change was accepted ⟹ it is carried out or refused, even if its client leaves
//!     a change is in the files of the configuration ⟺ it was made and was meant to last
//!
//! Not here: requests that are answered at any time (`controlled`).

use super::Node;
use super::queue::{Full, Queued};
use super::refusal::Refusal;
use crate::event::NodeEvent;
use crate::platform::{ConfigurationDraft, Platform};
use block::Peer;
use control::config::{Name, VolumeMode};
use control::files::ConfigurationFiles;
use control::protocol::{ControlRequest, Reply};
use control::status::ArrayReport;
use std::rc::Rc;

impl<P: Platform> Node<P> {
    /// Accepts a change into the queue. Returns its name.
    pub(super) fn accept(
        self: &Rc<Self>,
        request: ControlRequest,
        lasts: bool,
        peer: Option<Peer>,
    ) -> Result<String, Refusal> {
        if self.stopped.get() {
            return Err("the daemon is stopping; try again once it is back".into());
        }
        let name = self.next_name();
        let queued = Queued {
            name: name.clone(),
            request,
            lasts,
            peer,
        };
        self.queue.push(queued).map_err(|Full(changes)| {
            format!("{changes} changes wait already; see `hotset job list` for what goes on")
        })?;
        self.begin_next();
        Ok(name)
    }

    /// A name for a change; the next daemon gives different names.
    fn next_name(&self) -> String {
        format!("{:x}-{}", self.incarnation, self.queue.number())
    }

    /// Records the result of a change made out of turn. Returns its name.
    pub(super) fn note_outcome(&self, reply: Reply) -> String {
        let name = self.next_name();
        self.queue.note(name.clone(), reply);
        name
    }

    /// Begins the next change, if none is running, in a task that outlives its client.
    fn begin_next(self: &Rc<Self>) {
        let Some(next) = self.queue.begin() else {
            return;
        };
        let node = self.clone();
        self.env().spawn.spawn(async move {
            let volume = next.request.volume().map(str::to_owned);
            let reply = match node.stopped.get() {
                true => Reply::Error("the daemon is stopping; try again once it is back".into()),
                false => {
                    let made = node.carry_out(next.request, next.lasts).await;
                    made.unwrap_or_else(Reply::Error)
                }
            };
            node.log_change(&reply, volume.as_deref(), next.peer);
            node.queue.end(next.name, reply);
            node.begin_next();
        });
    }

    /// Logs a change that was made.
    pub(super) fn log_change(&self, reply: &Reply, volume: Option<&str>, peer: Option<Peer>) {
        if let Reply::Made(what) = reply {
            self.platform.event(NodeEvent::Changed {
                volume: volume.map(str::to_owned),
                what: what.clone(),
                peer,
            });
        }
    }

    async fn carry_out(&self, request: ControlRequest, lasts: bool) -> Result<Reply, Refusal> {
        if matches!(request, ControlRequest::Reload) {
            return self.reload().await.map(Reply::Reloaded);
        }
        if !lasts && self.would_be_forgotten(&request) {
            return Err(
                "write-back is not temporary: the next start would refuse a volume that may lack \
                 what its log has. Leave out --temporary."
                    .into(),
            );
        }
        // The check of the files would find the pool missing; this one names the volume.
        if let ControlRequest::RemovePool { pool } = &request {
            self.unused_pool(&Name::new(pool)?)?;
        }
        // The text is written beside its file first. So a change that cannot be written is not
        // made.
        let draft = match lasts {
            true => self.draft(&request).await?,
            false => None,
        };
        let before = self.devices.config().files.clone();
        if let Some(files) = self.make(request.clone(), draft).await? {
            let mut config = (*self.devices.config()).clone();
            config.files = files;
            self.devices.adopt(config);
        }
        Ok(Reply::Made(self.made(&request, lasts, &before)))
    }

    /// True if a change makes a volume write-back with a log that no file names at the next start.
    fn would_be_forgotten(&self, request: &ControlRequest) -> bool {
        let is_on = match request {
            ControlRequest::SetMode { mode, .. } => mode == VolumeMode::WriteBack.name(),
            ControlRequest::SetOff { volume, off: false } => self.has_log_when_on(volume),
            ControlRequest::ReplaceLog { .. } => true,
            ControlRequest::SetUp { additions } => {
                return additions.iter().any(|one| self.would_be_forgotten(one));
            }
            _ => false,
        };
        is_on && self.devices.config().files.main().is_some()
    }

    /// True if a volume is write-back while it is on.
    fn has_log_when_on(&self, volume: &str) -> bool {
        let mode = Name::new(volume).and_then(|volume| self.mode_of(&volume));
        mode == Ok(VolumeMode::WriteBack)
    }

    /// Makes a change, and puts the changed text in its place. Returns the files as they are then.
    pub(super) async fn make(
        &self,
        request: ControlRequest,
        draft: Option<Box<dyn ConfigurationDraft>>,
    ) -> Result<Option<ConfigurationFiles>, Refusal> {
        match request {
            ControlRequest::SetMode {
                volume,
                mode,
                log,
                journal,
            } if mode == VolumeMode::WriteBack.name() => {
                let wanted = self.wanted_log(&Name::new(&volume)?, log, journal)?;
                self.become_write_back(wanted, draft).await
            }
            ControlRequest::SetOff { volume, off: false } if self.has_log_when_on(&volume) => {
                let wanted = self.wanted_log(&Name::new(&volume)?, Vec::new(), None)?;
                self.become_write_back(wanted, draft).await
            }
            ControlRequest::ReplaceLog { volume, device, by } => {
                let (volume, device) = (Name::new(&volume)?, Name::new(&device)?);
                self.replace_log(&volume, &device, by, draft).await
            }
            ControlRequest::SetUp { additions } => self.set_up(additions, draft).await,
            request => {
                self.change(request).await?;
                kept(draft).await
            }
        }
    }

    /// The lines that a change would write to the files of the configuration.
    pub(super) async fn preview(&self, change: &ControlRequest) -> Result<Reply, Refusal> {
        let draft = self.draft(change).await?;
        let difference = draft.and_then(|draft| draft.difference());
        difference
            .map(Reply::Preview)
            .ok_or_else(|| "that change writes nothing to the configuration".into())
    }

    async fn draft(
        &self,
        request: &ControlRequest,
    ) -> Result<Option<Box<dyn ConfigurationDraft>>, Refusal> {
        let arrays = self.devices.reports(self.env().timer.now());
        let roles = |array: ArrayReport| {
            let members = array.members.into_iter();
            let roles = members.map(|member| (member.role, member.device));
            (array.name, roles.collect())
        };
        let roles = arrays.into_iter().map(roles).collect();
        let running = &self.devices.config().files;
        self.platform.draft(running, request, roles).await
    }

    /// Makes a change in its turn. Returns its result.
    pub(super) async fn in_turn(
        self: &Rc<Self>,
        request: ControlRequest,
        peer: Option<Peer>,
    ) -> Reply {
        match self.accept(request, false, peer) {
            Ok(name) => self.queue.outcome(&name).await,
            Err(refusal) => Reply::Error(refusal),
        }
    }

    /// Reloads the configuration, once no other change is running.
    pub async fn reload_in_turn(self: &Rc<Self>) -> Result<(), Refusal> {
        match self.in_turn(ControlRequest::Reload, None).await {
            // No client waits for the reload any more.
            Reply::Error(_) if self.stopped.get() => Ok(()),
            Reply::Error(refusal) => Err(refusal),
            _ => Ok(()),
        }
    }
}

/// Puts the changed text of a change that was made in its place, if any. Returns the files
/// as they are then.
pub(super) async fn kept(
    draft: Option<Box<dyn ConfigurationDraft>>,
) -> Result<Option<ConfigurationFiles>, Refusal> {
    let Some(draft) = draft else { return Ok(None) };
    let files = draft.commit().await.map_err(|why| {
        format!(
            "the daemon has changed, and its configuration has not: {why}. Put the change into it, \
             and run `hotset reload`."
        )
    });
    files.map(Some)
}
