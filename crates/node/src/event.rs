//! Events of a node that its operator should know, a line each.
//!
//! Not here: the destination of the lines (`Platform::event`).

use crate::seconds;
use block::{Nanos, Peer};
use cache::DeviceFault;
use control::config::{ByteCount, Name};
use std::fmt;
use std::sync::Arc;

/// An event of a node.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the line of each says what it is")]
pub enum NodeEvent {
    PoolDeviceAbsent {
        pool: Name,
        device: Name,
        why: String,
    },
    PoolDeviceUnusable {
        pool: Name,
        device: String,
        why: String,
    },
    PoolDeviceLost {
        pool: Name,
        device: String,
    },
    PoolDeviceEjected {
        pool: Name,
        device: Arc<str>,
        fault: DeviceFault,
    },
    PoolDeviceReturned {
        pool: Name,
        device: Arc<str>,
        lines: u64,
    },
    OriginFails {
        volume: Name,
        origin: Name,
        why: String,
    },
    OriginWell {
        volume: Name,
        origin: Name,
    },
    PoolNotClosed {
        pool: Name,
        limit: Nanos,
    },
    QuiescedVolumeDropped {
        pool: Name,
        volume: String,
    },
    VolumeResized {
        volume: Name,
        before: ByteCount,
        now: ByteCount,
        origin: String,
    },
    /// An export came back larger than before.
    ExportGrown {
        device: Name,
        place: String,
        now: ByteCount,
    },
    OriginSuspect {
        volume: Name,
        origin: String,
        why: String,
    },
    VolumeServed {
        volume: Name,
    },
    VolumeNotServed {
        volume: Name,
        why: String,
    },
    LogDeviceAbsent {
        volume: Name,
        device: String,
        why: String,
    },
    LogDeviceLost {
        volume: Name,
        device: Name,
        why: String,
        /// The other device is lost too, and data may be dirty.
        is_last: bool,
    },
    LogLost {
        volume: Name,
    },
    LogReopened {
        volume: Name,
    },
    OriginReopened {
        volume: Name,
        origin: Name,
    },
    JournalAbsent {
        volume: Name,
        device: String,
        why: String,
    },
    JournalLost {
        volume: Name,
    },
    /// The file beside a pool or a log fails, with the reason, or works again.
    Witness {
        file: String,
        why: Option<String>,
    },
    VolumeDirty {
        volume: Name,
        dirty: ByteCount,
    },
    MemberReadOnly {
        member: Name,
        why: String,
    },
    MemberBlank {
        array: Name,
        member: Name,
    },
    MemberAbsent {
        array: Name,
        why: String,
    },
    ArrayReassembled {
        array: Name,
    },
    ExchangeNotKept {
        array: Name,
        why: String,
    },
    ArrayNotReassembled {
        array: Name,
        why: String,
    },
    JobCancelled {
        job: String,
    },
    /// A step of a changed configuration.
    Reloaded {
        what: String,
    },
    /// A change of the node, and its client.
    Changed {
        what: String,
        peer: Option<Peer>,
    },
    /// An event of an array.
    Array {
        what: String,
    },
    /// An event of a frontend.
    Frontend {
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

impl fmt::Display for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeEvent::PoolDeviceAbsent { pool, device, why } => write!(
                f,
                "pool {pool} starts without {device}, whose lines are not used again: {why}; once \
                 it can be used, `hotset pool readmit {pool} {device}`"
            ),
            NodeEvent::PoolDeviceUnusable { pool, device, why } => {
                write!(f, "pool {pool} starts without the lines of {device}: {why}")
            }
            NodeEvent::PoolDeviceLost { pool, device } => write!(
                f,
                "pool {pool} has lost {device}: its lines are not used again"
            ),
            NodeEvent::PoolDeviceEjected {
                pool,
                device,
                fault: DeviceFault::Late,
            } => write!(
                f,
                "{device} of pool {pool} is too slow and is gone round: its hits are lost, no data is; \
                 it is taken back with its lines once it answers in time, or by `hotset pool readmit`"
            ),
            NodeEvent::PoolDeviceReturned {
                pool,
                device,
                lines,
            } => write!(
                f,
                "{device} answers in time again, and pool {pool} has it back with {lines} lines"
            ),
            NodeEvent::OriginFails {
                volume,
                origin,
                why,
            } => write!(
                f,
                "{origin}, the origin of volume {volume}, fails: {why}; see to it, or to what it is \
                 reached by"
            ),
            NodeEvent::OriginWell { volume, origin } => write!(
                f,
                "{origin}, the origin of volume {volume}, answers without errors again"
            ),
            NodeEvent::PoolDeviceEjected {
                pool,
                device,
                fault,
            } => write!(
                f,
                "{device} was ejected from pool {pool} ({}): its hits are lost, no data is; check \
                 it, then `hotset pool readmit`",
                fault.name()
            ),
            NodeEvent::PoolNotClosed { pool, limit } => write!(
                f,
                "pool {pool} has not ended within {}: a device, an origin, or its file in \
                 `state`, does not answer; the next start does without what it could not keep",
                seconds(*limit)
            ),
            NodeEvent::QuiescedVolumeDropped { pool, volume } => write!(
                f,
                "volume {volume} was quiesced when hotset ended, and its origin may have been \
                 changed since: what pool {pool} had of it is dropped"
            ),
            NodeEvent::VolumeResized {
                volume,
                before,
                now,
                origin,
            } => write!(
                f,
                "volume {volume} had {before} and has {now} now: the pool's lines of it are \
                 dropped; if its origin {origin} was cut short, restore it before it is used"
            ),
            NodeEvent::ExportGrown { device, place, now } => write!(
                f,
                "{device}: {place} has grown to {now}: what it had is served; `hotset volume \
                 grow` of its volume has all of it served"
            ),
            NodeEvent::OriginSuspect {
                volume,
                origin,
                why,
            } => write!(
                f,
                "{origin}, the origin of volume {volume}, {why}: what the pool had of it is dropped"
            ),
            NodeEvent::VolumeServed { volume } => write!(f, "volume {volume} is served"),
            NodeEvent::VolumeNotServed { volume, why } => write!(
                f,
                "volume {volume} is not served yet, and tried again: {why}"
            ),
            NodeEvent::LogDeviceAbsent {
                volume,
                device,
                why,
            } => write!(
                f,
                "the log of volume {volume} goes without {device}: {why}. Dirty data goes to the \
                 origin, which answers later writes. Mend the device: it is taken back then. Or \
                 `hotset volume replace-log {volume} {device} DEVICE`."
            ),
            NodeEvent::LogDeviceLost {
                volume,
                why,
                is_last: true,
                ..
            } => write!(f, "the log of volume {volume} has lost {why}"),
            NodeEvent::LogDeviceLost {
                volume,
                why,
                is_last: false,
                ..
            } => write!(
                f,
                "the log of volume {volume} has lost {why}. Dirty data goes to the origin, which \
                 answers later writes. Mend the device: it is taken back then."
            ),
            NodeEvent::LogLost { volume } => write!(
                f,
                "volume {volume}: writes and flushes fail (both devices of its log are lost). \
                 Mend one of them: the log is opened again."
            ),
            NodeEvent::LogReopened { volume } => {
                write!(
                    f,
                    "volume {volume}: its log was opened again, and takes writes"
                )
            }
            NodeEvent::OriginReopened { volume, origin } => write!(
                f,
                "volume {volume}: its origin {origin} was opened again, and gets once more what \
                 may be lost"
            ),
            NodeEvent::JournalAbsent {
                volume,
                device,
                why,
            } => write!(
                f,
                "the journal of volume {volume}, {device}, cannot be used: {why}. Dirty data is \
                 written back in order; the origin is an earlier state once it has what is dirty \
                 now. `hotset volume replace-log {volume} {device} DEVICE` gives another journal."
            ),
            NodeEvent::JournalLost { volume } => write!(
                f,
                "the journal of volume {volume} is lost: dirty data is written back in order from \
                 now on. `hotset volume replace-log {volume} JOURNAL DEVICE` gives another."
            ),
            NodeEvent::Witness {
                file,
                why: Some(why),
            } => write!(
                f,
                "{file} in `state` cannot be used ({why}). It is tried again; what has to be \
                 recorded there waits."
            ),
            NodeEvent::Witness { file, why: None } => {
                write!(f, "{file} in `state` can be used again")
            }
            NodeEvent::VolumeDirty { volume, dirty } => write!(
                f,
                "volume {volume}: {dirty} of dirty data not written back. Its log keeps that for \
                 the next start; until then the origin is an earlier state"
            ),
            NodeEvent::MemberReadOnly { member, why } => {
                write!(f, "member {member} can only be read: {why}")
            }
            NodeEvent::MemberBlank { array, member } => write!(
                f,
                "array {array} goes without {member}, which belongs to no array; give it with \
                 `hotset array add`"
            ),
            NodeEvent::MemberAbsent { array, why } => {
                write!(f, "array {array} starts without {why}")
            }
            NodeEvent::ArrayReassembled { array } => {
                write!(f, "array {array} is reassembled")
            }
            NodeEvent::ExchangeNotKept { array, why } => write!(
                f,
                "array {array}: the configuration file does not say yet how an exchange of members \
                 has ended ({why}). It is tried again."
            ),
            NodeEvent::ArrayNotReassembled { array, why } => {
                write!(f, "array {array} cannot be reassembled: {why}")
            }
            NodeEvent::JobCancelled { job } => write!(f, "job {job} was cancelled"),
            NodeEvent::Reloaded { what } => write!(f, "reloaded: {what}"),
            NodeEvent::Changed { what, peer: None } => write!(f, "{what}"),
            NodeEvent::Changed {
                what,
                peer: Some(peer),
            } => write!(f, "{what} (asked by {peer})"),
            NodeEvent::Array { what } => write!(f, "array {what}"),
            NodeEvent::Frontend { what } => write!(f, "{what}"),
        }
    }
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
