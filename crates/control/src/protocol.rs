//! The control protocol: a request is a line of JSON, and so is its reply.
//!
//! A connection may send any number of requests, one after the other. A line
//! that is no request is answered with an error and ends the connection.

use crate::config::{Device, Name};
use crate::explained::Explained;
use crate::files::{ConfigurationFile, FileDifference};
use crate::observed::Observed;
use crate::status::Status;
use serde::{Deserialize, Serialize};

/// Requests to a daemon.
///
/// A new `device`, `volume`, `attach`, `listen` or `pool` is the text of its section in the configuration,
/// and is read and checked as such.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// The report. Rates are over the time since this connection's last report, or since the start
    /// of the daemon.
    Status,
    /// The configuration that the daemon runs.
    Configuration,
    /// Reads the configuration again, and makes the daemon run it.
    Reload,
    /// Carries out a change or a reload in its turn, even if the client leaves. The reply names the
    /// change.
    Change {
        /// The change or reload.
        change: Box<ControlRequest>,
        /// True if the files of the configuration stay as they are.
        temporary: bool,
    },
    /// The result of a change, or its place in the queue.
    Outcome {
        /// Name of the change.
        change: String,
    },
    /// The lines that a change would write to the files of the configuration. Nothing changes.
    Preview {
        /// The change.
        change: Box<ControlRequest>,
    },
    /// Nothing; the reply shows that the daemon answers.
    Ping,
    /// Observations of a volume, for advice on the size of its pool.
    Observe {
        /// The volume.
        volume: String,
    },
    /// The reasons why a volume is cached or not.
    Explain {
        /// The volume.
        volume: String,
        /// Start and end of the lines to be listed one by one, in bytes.
        range: Option<(u64, u64)>,
    },
    /// Changes the mode of a volume.
    SetMode {
        /// The volume.
        volume: String,
        /// Name of the mode.
        mode: String,
        /// Devices of the log, for write-back; those of the configuration unless given.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        log: Vec<NamedOrNew>,
        /// Device of the journal; with it, the volume becomes journaled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        journal: Option<NamedOrNew>,
    },
    /// Makes a volume use its origin alone, or use its pool again by its former mode.
    SetOff {
        /// The volume.
        volume: String,
        /// True if the volume is to be off.
        off: bool,
    },
    /// Puts a device in the place of one of a volume's log, or of its journal.
    ReplaceLog {
        /// The volume.
        volume: String,
        /// The device that leaves.
        device: String,
        /// Its replacement.
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
    /// Serves a volume with the present size of its origin.
    GrowVolume {
        /// The volume.
        volume: String,
    },
    /// Ends the reservation that another host has of a volume's origin, and serves the volume.
    TakeOver {
        /// The volume.
        volume: String,
    },
    /// Drops all cached lines of a volume, after others have changed its origin.
    Invalidate {
        /// The volume.
        volume: String,
    },
    /// Quiesces a volume until `Release`, or until the connection ends in any way. Then the volume
    /// goes on.
    Hold {
        /// The volume.
        volume: String,
        /// True if the volume's cached lines are dropped first.
        forget: bool,
    },
    /// Ends what `Hold` began on this connection.
    Release,
    /// Adds a volume, and its origin if the configuration does not have it.
    AddVolume {
        /// The volume.
        volume: String,
        /// The origin, if new.
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
    /// Opens a socket to clients, or to the monitor of a virtual machine.
    Listen {
        /// The listener.
        listen: String,
    },
    /// Closes a socket; its clients, or the virtual machine, lose their volumes.
    Close {
        /// The path, or the address and port.
        place: String,
    },
    /// Makes a pool; the content of its devices is overwritten.
    AddPool {
        /// The pool.
        pool: String,
        /// The devices of the pool that are not in the configuration.
        devices: Vec<String>,
    },
    /// Removes a pool that no volume uses.
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
    /// Makes additions in their order, all or none. An addition is `AddPool`, `AddDevice`,
    /// `AddVolume`, `Attach` or `Listen`; the last may be a `SetMode`.
    SetUp {
        /// The additions.
        additions: Vec<ControlRequest>,
    },
    /// Starts to record clients' requests of a volume, until the connection ends or records another
    /// volume.
    Record {
        /// The volume.
        volume: String,
    },
    /// Takes the requests recorded since the last time.
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
        /// True if the device's content may be lost.
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
        /// True if the device's content may be lost.
        overwrite: bool,
    },
    /// Writes the end of an exchange of members to the configuration. The daemon itself asks for
    /// this.
    Exchanged {
        /// The array.
        array: String,
        /// The device that left the array.
        member: String,
        /// The device that has its place.
        device: String,
    },
    /// Starts to compare all copies, or data and parity, of an array.
    Scrub {
        /// The array.
        array: String,
        /// True if differences are repaired.
        repair: bool,
    },
    /// Ends a job early; see `docs/commands/job.md` for its leftovers.
    CancelJob {
        /// Name of the job.
        job: String,
    },
    /// Pauses or resumes a job.
    PauseJob {
        /// Name of the job.
        job: String,
        /// True if the job is to pause.
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

impl ControlRequest {
    /// A change of mode that needs no devices.
    pub fn set_mode(volume: impl Into<String>, mode: impl Into<String>) -> ControlRequest {
        ControlRequest::SetMode {
            volume: volume.into(),
            mode: mode.into(),
            log: Vec::new(),
            journal: None,
        }
    }

    /// True if the request changes the running daemon and so waits its turn.
    pub fn is_change(&self) -> bool {
        !matches!(
            self,
            ControlRequest::Status
                | ControlRequest::Configuration
                | ControlRequest::Change { .. }
                | ControlRequest::Outcome { .. }
                | ControlRequest::Preview { .. }
                | ControlRequest::Ping
                | ControlRequest::Observe { .. }
                | ControlRequest::Explain { .. }
                | ControlRequest::Hold { .. }
                | ControlRequest::Release
                | ControlRequest::Record { .. }
                | ControlRequest::TakeRecords
        )
    }

    /// True if the change is written to a file of the configuration.
    pub fn is_kept(&self) -> bool {
        matches!(
            self,
            ControlRequest::SetMode { .. }
                | ControlRequest::SetOff { .. }
                | ControlRequest::ReplaceLog { .. }
                | ControlRequest::AddVolume { .. }
                | ControlRequest::RemoveVolume { .. }
                | ControlRequest::Attach { .. }
                | ControlRequest::Listen { .. }
                | ControlRequest::Close { .. }
                | ControlRequest::SetUp { .. }
                | ControlRequest::AddPool { .. }
                | ControlRequest::RemovePool { .. }
                | ControlRequest::AddDevice { .. }
                | ControlRequest::RemoveDevice { .. }
                | ControlRequest::AddMember { .. }
                | ControlRequest::ReplaceMember { .. }
                | ControlRequest::Exchanged { .. }
        )
    }

    /// The volume that the request changes.
    pub fn volume(&self) -> Option<&str> {
        match self {
            ControlRequest::SetMode { volume, .. }
            | ControlRequest::SetOff { volume, .. }
            | ControlRequest::ReplaceLog { volume, .. }
            | ControlRequest::Quiesce { volume }
            | ControlRequest::Resume { volume }
            | ControlRequest::Invalidate { volume }
            | ControlRequest::GrowVolume { volume }
            | ControlRequest::TakeOver { volume }
            | ControlRequest::RemoveVolume { volume } => Some(volume),
            _ => None,
        }
    }
}

/// A device that the daemon knows, or a new one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedOrNew {
    /// The name of a device of the configuration.
    Named(String),
    /// The text of a section for a new device.
    New(String),
}

impl NamedOrNew {
    /// The name of the device.
    pub fn name(&self) -> Result<Name, String> {
        match self {
            NamedOrNew::Named(name) => Name::new(name),
            NamedOrNew::New(section) => Ok(Device::parse(section)?.name.value),
        }
    }
}

/// A reply to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request is carried out.
    Done,
    /// The change is made: its effect, the volume's addresses for clients, and the file that keeps
    /// the change, in a line.
    Made(String),
    /// The lines that a change would write.
    Preview(FileDifference),
    /// Name of the change, which waits its turn.
    Accepted(String),
    /// The change has not ended: the number of changes before it; 0 if it is being carried out.
    Waiting(usize),
    /// The result of the change.
    Ended(Box<Reply>),
    /// The report.
    Status(Box<Status>),
    /// The configuration.
    Configuration(RunningConfiguration),
    /// The daemon runs the configuration; a line for each change.
    Reloaded(Vec<String>),
    /// The observations of a volume.
    Observed(Box<Observed>),
    /// The reasons for a volume's cached lines.
    Explained(Box<Explained>),
    /// The recorded requests.
    Records(RecordingPiece),
    /// The request failed, and nothing has changed: cause and remedy. For a reload that fails
    /// halfway, also the changes already made.
    Error(String),
}

impl Reply {
    /// The name of its kind, as the protocol has it.
    pub fn name(&self) -> &'static str {
        match self {
            Reply::Done => "done",
            Reply::Made(_) => "made",
            Reply::Preview(_) => "preview",
            Reply::Accepted(_) => "accepted",
            Reply::Waiting(_) => "waiting",
            Reply::Ended(_) => "ended",
            Reply::Status(_) => "status",
            Reply::Configuration(_) => "configuration",
            Reply::Reloaded(_) => "reloaded",
            Reply::Observed(_) => "observed",
            Reply::Explained(_) => "explained",
            Reply::Records(_) => "records",
            Reply::Error(_) => "error",
        }
    }
}

/// The configuration that a daemon runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunningConfiguration {
    /// All of the configuration as the text of one file, with the changes since.
    pub text: String,
    /// The files that the configuration was read from.
    pub files: Vec<ConfigurationFile>,
}

/// A piece of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordingPiece {
    /// The records as `docs/trace-format.md` encodes them, in base64.
    pub piece: String,
    /// Requests left out for want of room since the recording began.
    pub dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_people_would_write_them() {
        for (text, request) in [
            (r#"{"request":"status"}"#, ControlRequest::Status),
            (
                r#"{"request":"set-mode","volume":"v","mode":"pass-through"}"#,
                ControlRequest::set_mode("v", "pass-through"),
            ),
            (
                r#"{"request":"set-mode","volume":"v","mode":"write-back","log":[{"named":"a"}]}"#,
                ControlRequest::SetMode {
                    volume: "v".into(),
                    mode: "write-back".into(),
                    log: vec![NamedOrNew::Named("a".into())],
                    journal: None,
                },
            ),
            (
                r#"{"request":"add-device","pool":"p","device":{"named":"d"}}"#,
                ControlRequest::AddDevice {
                    pool: "p".into(),
                    device: NamedOrNew::Named("d".into()),
                },
            ),
        ] {
            assert_eq!(
                serde_json::from_str::<ControlRequest>(text).unwrap(),
                request
            );
        }
        serde_json::from_str::<ControlRequest>(
            r#"{"request":"set-mode","volume":"v","mode":"m","x":1}"#,
        )
        .unwrap_err();
        serde_json::from_str::<ControlRequest>(r#"{"request":"explode"}"#).unwrap_err();
    }
}
