//! The control protocol: a request is a line of JSON, and so is its reply.
//!
//! A connection may send any number of requests, one after the other. A line
//! that is no request is answered with an error and ends the connection.

use crate::explained::Explained;
use crate::files::File;
use crate::observed::Observed;
use crate::status::Status;
use serde::{Deserialize, Serialize};

/// What is asked of a daemon.
///
/// A new `device`, `volume`, `attach` or `pool` is the text of its section in the configuration, and
/// is read and checked as there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The report. Rates are over the time since this connection last asked,
    /// or since the daemon began.
    Status,
    /// The configuration that it runs.
    Configuration,
    /// Reads the configuration again, and makes the daemon run it.
    Reload,
    /// Has a change, or a reload, carried out in its turn, whether or not the client stays. The
    /// reply names it.
    Change {
        /// What is asked for.
        change: Box<Request>,
        /// Whether the files of the configuration stay as they are.
        temporary: bool,
    },
    /// What has come of a change.
    Outcome {
        /// Its name.
        change: String,
    },
    /// Nothing: whether the daemon answers.
    Ping,
    /// What was observed of a volume, to advise on the size of its pool.
    Observe {
        /// The volume.
        volume: String,
    },
    /// Why a volume is cached or not.
    Explain {
        /// The volume.
        volume: String,
        /// Where the lines to be listed one by one begin and end, in bytes.
        range: Option<(u64, u64)>,
    },
    /// Changes how a volume uses its pool.
    SetMode {
        /// The volume.
        volume: String,
        /// The mode's name.
        mode: String,
        /// Of write-back: the devices of its log, those of the configuration unless given.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        log: Vec<NamedOrNew>,
        /// Its journal: the volume becomes journaled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        journal: Option<NamedOrNew>,
    },
    /// Has a volume use its origin alone, or use its pool again by the mode that it had.
    SetOff {
        /// The volume.
        volume: String,
        /// Whether it is off.
        off: bool,
    },
    /// Puts a device in the place of one of a volume's log, or of its journal.
    ReplaceLog {
        /// The volume.
        volume: String,
        /// The device that leaves.
        device: String,
        /// The one that comes.
        by: NamedOrNew,
    },
    /// Holds back a volume's changes and makes its origin durable.
    Quiesce {
        /// The volume.
        volume: String,
    },
    /// Lets a quiesced volume's changes go on.
    Resume {
        /// The volume.
        volume: String,
    },
    /// Serves a volume with all that its origin has by now.
    GrowVolume {
        /// The volume.
        volume: String,
    },
    /// Forgets what is cached of a volume, whose origin others have changed.
    Invalidate {
        /// The volume.
        volume: String,
    },
    /// Quiesces a volume until `Release`, or until the connection ends however that happens. Then
    /// the volume goes on.
    Hold {
        /// The volume.
        volume: String,
        /// Whether what is cached of it is forgotten first.
        forget: bool,
    },
    /// Ends what `Hold` began on this connection.
    Release,
    /// Adds a volume, and its origin if that is not in the configuration.
    AddVolume {
        /// The volume.
        volume: String,
        /// Its origin.
        device: Option<String>,
    },
    /// Removes a volume, once its clients' requests in flight have ended.
    RemoveVolume {
        /// The volume.
        volume: String,
    },
    /// Makes a volume a block device of the daemon's machine, if it is none.
    Attach {
        /// The attachment.
        attach: String,
    },
    /// Makes a pool; what is on its devices is overwritten.
    AddPool {
        /// The pool.
        pool: String,
        /// Those of its devices that are not in the configuration.
        devices: Vec<String>,
    },
    /// Does without a pool that no volume uses.
    RemovePool {
        /// The pool.
        pool: String,
    },
    /// Adds a device to a pool. Its content is overwritten.
    AddDevice {
        /// The pool.
        pool: String,
        /// The name of a device of the configuration, or a new device.
        device: NamedOrNew,
    },
    /// Begins to record what clients ask of a volume, until the connection ends
    /// or records another.
    Record {
        /// The volume.
        volume: String,
    },
    /// What was recorded since the last time.
    TakeRecords,
    /// Takes a member out of an array.
    FailMember {
        /// The array.
        array: String,
        /// The member's device, or the number of its role.
        member: String,
    },
    /// Gives an array a device: one that was lost, or a spare.
    AddMember {
        /// The array.
        array: String,
        /// The name of a device of the configuration, or a new device.
        device: NamedOrNew,
        /// Whether what the device holds may be lost.
        overwrite: bool,
    },
    /// Puts a device in a member's place.
    ReplaceMember {
        /// The array.
        array: String,
        /// The member's device, or the number of its role.
        member: String,
        /// The name of a device of the configuration, or a new device.
        device: NamedOrNew,
        /// Whether what the device holds may be lost.
        overwrite: bool,
    },
    /// Has the configuration say how an exchange of members has ended, which the daemon asks
    /// for itself.
    Exchanged {
        /// The array.
        array: String,
        /// The device that is not in it any more.
        member: String,
        /// The device that has its place.
        device: String,
    },
    /// Begins to compare all that an array holds twice.
    Scrub {
        /// The array.
        array: String,
        /// Whether what differs is brought into agreement.
        repair: bool,
    },
    /// Ends a job before it is done; see `docs/commands/job.md` for what it leaves.
    CancelJob {
        /// Its name.
        job: String,
    },
    /// Has a job stop for a while, or go on.
    PauseJob {
        /// Its name.
        job: String,
        /// Whether it stops.
        paused: bool,
    },
    /// Takes an ejected or absent device back into its pool.
    ReadmitDevice {
        /// The pool.
        pool: String,
        /// The device.
        device: String,
    },
    /// Takes a device out of a pool.
    RemoveDevice {
        /// The pool.
        pool: String,
        /// The device.
        device: String,
    },
}

impl Request {
    /// A change of mode that needs no devices.
    pub fn set_mode(volume: impl Into<String>, mode: impl Into<String>) -> Request {
        Request::SetMode {
            volume: volume.into(),
            mode: mode.into(),
            log: Vec::new(),
            journal: None,
        }
    }

    /// Whether it changes what the daemon runs, so that it waits its turn.
    pub fn is_change(&self) -> bool {
        !matches!(
            self,
            Request::Status
                | Request::Configuration
                | Request::Change { .. }
                | Request::Outcome { .. }
                | Request::Ping
                | Request::Observe { .. }
                | Request::Explain { .. }
                | Request::Hold { .. }
                | Request::Release
                | Request::Record { .. }
                | Request::TakeRecords
        )
    }

    /// Whether a file of the configuration says what it changes.
    pub fn is_kept(&self) -> bool {
        matches!(
            self,
            Request::SetMode { .. }
                | Request::SetOff { .. }
                | Request::ReplaceLog { .. }
                | Request::AddVolume { .. }
                | Request::RemoveVolume { .. }
                | Request::Attach { .. }
                | Request::AddPool { .. }
                | Request::RemovePool { .. }
                | Request::AddDevice { .. }
                | Request::RemoveDevice { .. }
                | Request::AddMember { .. }
                | Request::ReplaceMember { .. }
                | Request::Exchanged { .. }
        )
    }

    /// The volume that it changes.
    pub fn volume(&self) -> Option<&str> {
        match self {
            Request::SetMode { volume, .. }
            | Request::SetOff { volume, .. }
            | Request::ReplaceLog { volume, .. }
            | Request::Quiesce { volume }
            | Request::Resume { volume }
            | Request::Invalidate { volume }
            | Request::GrowVolume { volume }
            | Request::RemoveVolume { volume } => Some(volume),
            _ => None,
        }
    }
}

/// A device that the daemon knows, or one that it does not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedOrNew {
    /// The name of a device of the configuration.
    Named(String),
    /// The text of a section for a new one.
    New(String),
}

/// The answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done.
    Done,
    /// A change is made: what was done, where clients reach it and what keeps it, in a line.
    Made(String),
    /// The change waits its turn, by this name.
    Accepted(String),
    /// The change has not ended: so many are carried out before it; 0 if it is carried out itself.
    Waiting(usize),
    /// What the change has come to.
    Ended(Box<Reply>),
    /// The report.
    Status(Box<Status>),
    /// The configuration.
    Configuration(Running),
    /// It runs the configuration; what has changed for that, a line each.
    Reloaded(Vec<String>),
    /// What was observed.
    Observed(Box<Observed>),
    /// Why it is so.
    Explained(Box<Explained>),
    /// What was recorded.
    Records(Records),
    /// It is not done, and nothing has changed: why, and what to do. Of a reload that fails on
    /// its way, what was changed before.
    Error(String),
}

/// The configuration that a daemon runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Running {
    /// All of it, as one file would say it, with what was changed since.
    pub text: String,
    /// The files that it was read from.
    pub files: Vec<File>,
}

/// A piece of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Records {
    /// The records' encoding as `docs/trace-format.md` gives it, in base64.
    pub piece: String,
    /// Requests since the recording began that are not in it, for want of room.
    pub dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_people_would_write_them() {
        for (text, request) in [
            (r#"{"request":"status"}"#, Request::Status),
            (
                r#"{"request":"set-mode","volume":"v","mode":"pass-through"}"#,
                Request::set_mode("v", "pass-through"),
            ),
            (
                r#"{"request":"set-mode","volume":"v","mode":"write-back","log":[{"named":"a"}]}"#,
                Request::SetMode {
                    volume: "v".into(),
                    mode: "write-back".into(),
                    log: vec![NamedOrNew::Named("a".into())],
                    journal: None,
                },
            ),
            (
                r#"{"request":"add-device","pool":"p","device":{"named":"d"}}"#,
                Request::AddDevice {
                    pool: "p".into(),
                    device: NamedOrNew::Named("d".into()),
                },
            ),
        ] {
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
        }
        serde_json::from_str::<Request>(r#"{"request":"set-mode","volume":"v","mode":"m","x":1}"#)
            .unwrap_err();
        serde_json::from_str::<Request>(r#"{"request":"explode"}"#).unwrap_err();
    }
}
