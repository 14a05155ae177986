//! Events of a node that its operator should know, a line each.
//!
//! Invariant: an event in serialised form has its kind in kebab case, and the names in its line.
//!
//! Not here: the destination of the lines (`Platform::event`).

use crate::seconds;
use block::{Nanos, Peer};
use cache::DeviceFault;
use control::config::{ByteCount, Name};
use derive_more::Display;
use serde::Serialize;

/// An event of a node.
#[derive(Clone, Debug, Display, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the line of each says what it is")]
pub enum NodeEvent {
    #[display(
        "pool {pool} starts without {device}, whose lines are not used again: {why}; once \
         it can be used, `hotset pool readmit {pool} {device}`"
    )]
    PoolDeviceAbsent {
        pool: Name,
        device: Name,
        why: String,
    },
    #[display("pool {pool} starts without the lines of {device}: {why}")]
    PoolDeviceUnusable {
        pool: Name,
        device: String,
        why: String,
    },
    #[display("pool {pool} has lost {device}: its lines are not used again")]
    PoolDeviceLost { pool: Name, device: String },
    #[display("{}", ejected(pool, device, *fault))]
    PoolDeviceEjected {
        pool: Name,
        device: String,
        #[serde(skip)]
        fault: DeviceFault,
    },
    #[display("{device} answers in time again, and pool {pool} has it back with {lines} lines")]
    PoolDeviceReturned {
        pool: Name,
        device: String,
        lines: u64,
    },
    #[display(
        "{origin}, the origin of volume {volume}, fails: {why}; see to it, or to what it is \
         reached by"
    )]
    OriginFails {
        volume: Name,
        origin: Name,
        why: String,
    },
    #[display("{origin}, the origin of volume {volume}, answers without errors again")]
    OriginWell { volume: Name, origin: Name },
    #[display(
        "pool {pool} has not ended within {}: a device, an origin, or its file in \
         `state`, does not answer; the next start does without what it could not keep",
        seconds(*limit)
    )]
    PoolNotClosed {
        pool: Name,
        #[serde(skip)]
        limit: Nanos,
    },
    #[display(
        "volume {volume} was quiesced when hotset ended, and its origin may have been \
         changed since: what pool {pool} had of it is dropped"
    )]
    QuiescedVolumeDropped { pool: Name, volume: String },
    #[display(
        "volume {volume} had {before} and has {now} now: the pool's lines of it are \
         dropped; if its origin {origin} was cut short, restore it before it is used"
    )]
    VolumeResized {
        volume: Name,
        before: ByteCount,
        now: ByteCount,
        origin: String,
    },
    /// An export came back larger than before.
    #[display(
        "{device}: {place} has grown to {now}: what it had is served; `hotset volume \
         grow` of its volume has all of it served"
    )]
    ExportGrown {
        device: Name,
        place: String,
        now: ByteCount,
    },
    #[display("{origin}, the origin of volume {volume}, {why}: what the pool had of it is dropped")]
    OriginSuspect {
        volume: Name,
        origin: String,
        why: String,
    },
    #[display(
        "{origin}, the origin of volume {volume}, is not reserved for this host any more: another \
         host has taken it over, or the device has lost its reservations. The volume is not \
         served, and its lines in the pool are dropped."
    )]
    OriginTakenOver { volume: Name, origin: Name },
    #[display("volume {volume}: its origin may still be reserved for this host: {why}")]
    ReservationStays { volume: Name, why: String },
    #[display("volume {volume} is served")]
    VolumeServed { volume: Name },
    #[display("volume {volume} is not served yet, and tried again: {why}")]
    VolumeNotServed { volume: Name, why: String },
    #[display(
        "the log of volume {volume} goes without {device}: {why}. Dirty data goes to the \
         origin, which answers later writes. Mend the device: it is taken back then. Or \
         `hotset volume replace-log {volume} {device} DEVICE`."
    )]
    LogDeviceAbsent {
        volume: Name,
        device: String,
        why: String,
    },
    #[display(
        "the log of volume {volume} has lost {why}{}", if *is_last { "" } else { ORIGIN_ANSWERS }
    )]
    LogDeviceLost {
        volume: Name,
        device: Name,
        why: String,
        /// The other device is lost too, and data may be dirty.
        is_last: bool,
    },
    #[display(
        "volume {volume}: writes and flushes fail (both devices of its log are lost). \
         Mend one of them: the log is opened again."
    )]
    LogLost { volume: Name },
    #[display("volume {volume}: its log was opened again, and takes writes")]
    LogReopened { volume: Name },
    #[display(
        "volume {volume}: its origin {origin} was opened again, and gets once more what \
         may be lost"
    )]
    OriginReopened { volume: Name, origin: Name },
    #[display(
        "the journal of volume {volume}, {device}, cannot be used: {why}. Dirty data is \
         written back in order; the origin is an earlier state once it has what is dirty \
         now. `hotset volume replace-log {volume} {device} DEVICE` gives another journal."
    )]
    JournalAbsent {
        volume: Name,
        device: String,
        why: String,
    },
    #[display(
        "the journal of volume {volume} is lost: dirty data is written back in order from \
         now on. `hotset volume replace-log {volume} JOURNAL DEVICE` gives another."
    )]
    JournalLost { volume: Name },
    /// The file beside a pool or a log fails, with the reason, or works again.
    #[display("{file} in `state` {}", witness(why.as_deref()))]
    Witness { file: String, why: Option<String> },
    #[display(
        "volume {volume}: {dirty} of dirty data not written back. Its log keeps that for \
         the next start; until then the origin is an earlier state"
    )]
    VolumeDirty { volume: Name, dirty: ByteCount },
    #[display("member {member} can only be read: {why}")]
    MemberReadOnly { member: Name, why: String },
    #[display(
        "array {array} goes without {member}, which belongs to no array; give it with \
         `hotset array add`"
    )]
    MemberBlank { array: Name, member: Name },
    #[display("array {array} starts without {why}")]
    MemberAbsent { array: Name, why: String },
    #[display("array {array} is reassembled")]
    ArrayReassembled { array: Name },
    #[display(
        "array {array}: the configuration file does not say yet how an exchange of members \
         has ended ({why}). It is tried again."
    )]
    ExchangeNotKept { array: Name, why: String },
    #[display("array {array} cannot be reassembled: {why}")]
    ArrayNotReassembled { array: Name, why: String },
    #[display("job {job} was cancelled")]
    JobCancelled { job: String },
    /// A step of a changed configuration.
    #[display("reloaded: {what}")]
    Reloaded {
        #[serde(skip)]
        what: String,
    },
    /// A change of the node, and its client.
    #[display("{what}{}", asked_by(peer.as_ref()))]
    Changed {
        volume: Option<String>,
        #[serde(skip)]
        what: String,
        #[serde(skip)]
        peer: Option<Peer>,
    },
    /// An event of an array.
    #[display("array {what}")]
    Array {
        array: Name,
        #[serde(skip)]
        what: String,
    },
    /// An event of a frontend.
    #[display("{what}")]
    Frontend {
        volume: Option<String>,
        #[serde(skip)]
        what: String,
    },
}

/// Priority of a line of the log, by the numbers of syslog (RFC 5424).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// Data, or service, is lost or at risk.
    Error = 3,
    /// A fault that hotset goes round.
    Warning = 4,
    /// A change.
    Notice = 5,
    /// The end of a fault.
    Info = 6,
}

impl NodeEvent {
    /// Priority of the line.
    pub fn priority(&self) -> Priority {
        match self {
            NodeEvent::PoolDeviceLost { .. }
            | NodeEvent::OriginFails { .. }
            | NodeEvent::OriginSuspect { .. }
            | NodeEvent::OriginTakenOver { .. }
            | NodeEvent::VolumeNotServed { .. }
            | NodeEvent::LogDeviceLost { .. }
            | NodeEvent::LogLost { .. }
            | NodeEvent::JournalLost { .. }
            | NodeEvent::ArrayNotReassembled { .. } => Priority::Error,
            NodeEvent::VolumeResized { .. }
            | NodeEvent::ExportGrown { .. }
            | NodeEvent::JobCancelled { .. }
            | NodeEvent::Reloaded { .. }
            | NodeEvent::Changed { .. } => Priority::Notice,
            NodeEvent::PoolDeviceReturned { .. }
            | NodeEvent::OriginWell { .. }
            | NodeEvent::VolumeServed { .. }
            | NodeEvent::LogReopened { .. }
            | NodeEvent::OriginReopened { .. }
            | NodeEvent::ArrayReassembled { .. } => Priority::Info,
            _ => Priority::Warning,
        }
    }
}

/// The end of the line of a log that has one device left.
const ORIGIN_ANSWERS: &str = ". Dirty data goes to the origin, which answers later writes. Mend the \
                              device: it is taken back then.";

fn ejected(pool: &Name, device: &str, fault: DeviceFault) -> String {
    match fault {
        DeviceFault::Late => format!(
            "{device} of pool {pool} is too slow and is gone round: its hits are lost, no data is; \
             it is taken back with its lines once it answers in time, or by `hotset pool readmit`"
        ),
        _ => format!(
            "{device} was ejected from pool {pool} ({}): its hits are lost, no data is; check it, \
             then `hotset pool readmit`",
            fault.name()
        ),
    }
}

fn witness(why: Option<&str>) -> String {
    match why {
        Some(why) => format!(
            "cannot be used ({why}). It is tried again; what has to be recorded there waits."
        ),
        None => "can be used again".into(),
    }
}

fn asked_by(peer: Option<&Peer>) -> String {
    peer.map_or_else(String::new, |peer| format!(" (asked by {peer})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_absent_or_lost_is_replaced_while_the_daemon_runs() {
        let name = |text: &str| Name::new(text).unwrap();
        let why = || "it does not answer".to_owned();
        let (volume, pool) = (name("db"), name("fast"));
        for (event, command) in [
            (
                NodeEvent::LogDeviceAbsent {
                    volume: volume.clone(),
                    device: "log0".into(),
                    why: why(),
                },
                "`hotset volume replace-log db log0 DEVICE`",
            ),
            (
                NodeEvent::JournalAbsent {
                    volume: volume.clone(),
                    device: "hdd9".into(),
                    why: why(),
                },
                "`hotset volume replace-log db hdd9 DEVICE`",
            ),
            (
                NodeEvent::JournalLost { volume },
                "`hotset volume replace-log db JOURNAL DEVICE`",
            ),
            (
                NodeEvent::PoolDeviceAbsent {
                    pool,
                    device: name("ssd"),
                    why: why(),
                },
                "`hotset pool readmit fast ssd`",
            ),
        ] {
            let line = event.to_string();
            assert!(line.contains(command), "{line}");
        }
    }
}
