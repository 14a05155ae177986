//! The troubles of a daemon: one list, which every report shows.
//!
//! Invariants:
//!     a trouble is listed ⟺ it lasts now
//!     each kind is explained in docs/troubles.md
//!
//! Not here: finding troubles (`node`).

use serde::{Deserialize, Serialize};

/// Kinds of trouble.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = TroubleKind))]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// A volume of the configuration is not served.
    VolumeNotServed,
    /// Another host has reserved the origin of a volume.
    OriginReserved,
    /// Requests to the origin of a volume fail.
    OriginFails,
    /// All devices of a write-back log are lost.
    LogLost,
    /// A device of a write-back log is lost.
    LogCopyLost,
    /// Dirty data is not written back.
    WriteBackHalted,
    /// An array refuses requests.
    ArrayFailed,
    /// An array could not start.
    ArrayInactive,
    /// Bytes of an array are lost.
    ArrayDataLost,
    /// An array lacks members.
    ArrayDegraded,
    /// The filling of a member failed.
    RebuildFailed,
    /// A journal is lost.
    JournalLost,
    /// A device was ejected from its pool.
    PoolDeviceEjected,
    /// A device was not there when its pool was opened.
    PoolDeviceAbsent,
    /// A slow device of a pool is bypassed.
    PoolDeviceLate,
    /// A pool has no device.
    PoolEmpty,
    /// A file in `state` cannot be used.
    StateFails,
    /// The configuration cannot be read any more.
    ConfigurationUnreadable,
    /// An export has grown.
    OriginGrown,
    /// A device has used up its rated endurance, or nearly.
    DeviceWorn,
}

/// Urgency of a trouble.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TroubleSeverity {
    /// At once: clients are failed, or the next fault loses data.
    Critical,
    /// At the next occasion.
    Warning,
}

impl TroubleSeverity {
    /// The name of the severity.
    pub fn name(self) -> &'static str {
        match self {
            TroubleSeverity::Critical => "critical",
            TroubleSeverity::Warning => "warning",
        }
    }
}

impl TroubleKind {
    /// Every kind, the most urgent first.
    pub const ALL: [TroubleKind; 20] = [
        TroubleKind::VolumeNotServed,
        TroubleKind::OriginReserved,
        TroubleKind::OriginFails,
        TroubleKind::LogLost,
        TroubleKind::LogCopyLost,
        TroubleKind::WriteBackHalted,
        TroubleKind::ArrayFailed,
        TroubleKind::ArrayInactive,
        TroubleKind::ArrayDataLost,
        TroubleKind::ArrayDegraded,
        TroubleKind::RebuildFailed,
        TroubleKind::JournalLost,
        TroubleKind::PoolDeviceEjected,
        TroubleKind::PoolDeviceAbsent,
        TroubleKind::PoolDeviceLate,
        TroubleKind::PoolEmpty,
        TroubleKind::StateFails,
        TroubleKind::ConfigurationUnreadable,
        TroubleKind::OriginGrown,
        TroubleKind::DeviceWorn,
    ];

    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            TroubleKind::VolumeNotServed => "volume-not-served",
            TroubleKind::OriginReserved => "origin-reserved",
            TroubleKind::OriginFails => "origin-fails",
            TroubleKind::LogLost => "log-lost",
            TroubleKind::LogCopyLost => "log-copy-lost",
            TroubleKind::WriteBackHalted => "write-back-halted",
            TroubleKind::ArrayFailed => "array-failed",
            TroubleKind::ArrayInactive => "array-inactive",
            TroubleKind::ArrayDataLost => "array-data-lost",
            TroubleKind::ArrayDegraded => "array-degraded",
            TroubleKind::RebuildFailed => "rebuild-failed",
            TroubleKind::JournalLost => "journal-lost",
            TroubleKind::PoolDeviceEjected => "pool-device-ejected",
            TroubleKind::PoolDeviceAbsent => "pool-device-absent",
            TroubleKind::PoolDeviceLate => "pool-device-late",
            TroubleKind::PoolEmpty => "pool-empty",
            TroubleKind::StateFails => "state-fails",
            TroubleKind::ConfigurationUnreadable => "configuration-unreadable",
            TroubleKind::OriginGrown => "origin-grown",
            TroubleKind::DeviceWorn => "device-worn",
        }
    }

    /// The effect of the trouble while it lasts.
    pub fn cost(self) -> &'static str {
        match self {
            TroubleKind::VolumeNotServed | TroubleKind::OriginReserved => {
                "its clients cannot reach it"
            }
            TroubleKind::OriginFails => {
                "reads that miss fail or wait, and so do writes that are not logged"
            }
            TroubleKind::LogLost => {
                "its writes and flushes fail; what only the log had may be lost"
            }
            TroubleKind::LogCopyLost => {
                "the origin answers writes; dirty data has one copy until it is written back"
            }
            TroubleKind::WriteBackHalted => "the origin is an earlier state, and the log fills",
            TroubleKind::ArrayFailed => "requests to it fail; no data is given up",
            TroubleKind::ArrayInactive => "what lies on it is not served",
            TroubleKind::ArrayDataLost => "reads of these bytes fail until they are written again",
            TroubleKind::ArrayDegraded => "the next lost member may cost its data",
            TroubleKind::RebuildFailed => "the array stays without the member",
            TroubleKind::JournalLost => {
                "the origin is consistent only once all that was dirty at the loss is written back"
            }
            TroubleKind::PoolDeviceEjected | TroubleKind::PoolDeviceAbsent => {
                "its hits are lost; no data is, and reads go to the origins"
            }
            TroubleKind::PoolDeviceLate => "its hits are misses for the time; no data is lost",
            TroubleKind::PoolEmpty => "nothing is cached; every read goes to an origin",
            TroubleKind::StateFails => {
                "what has to be recorded there waits, writes to new regions too"
            }
            TroubleKind::ConfigurationUnreadable => {
                "nothing yet; a restart would fail, and so do changes that are to last"
            }
            TroubleKind::OriginGrown => "clients do not see what was added",
            TroubleKind::DeviceWorn => "nothing yet; the device may fail soon",
        }
    }

    /// The urgency of the kind.
    pub fn severity(self) -> TroubleSeverity {
        match self {
            TroubleKind::VolumeNotServed
            | TroubleKind::OriginReserved
            | TroubleKind::OriginFails
            | TroubleKind::LogLost
            | TroubleKind::LogCopyLost
            | TroubleKind::WriteBackHalted
            | TroubleKind::ArrayFailed
            | TroubleKind::ArrayInactive
            | TroubleKind::ArrayDataLost
            | TroubleKind::ArrayDegraded
            | TroubleKind::RebuildFailed => TroubleSeverity::Critical,
            TroubleKind::JournalLost
            | TroubleKind::PoolDeviceEjected
            | TroubleKind::PoolDeviceAbsent
            | TroubleKind::PoolDeviceLate
            | TroubleKind::PoolEmpty
            | TroubleKind::StateFails
            | TroubleKind::ConfigurationUnreadable
            | TroubleKind::OriginGrown
            | TroubleKind::DeviceWorn => TroubleSeverity::Warning,
        }
    }
}

/// A current trouble.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Trouble {
    /// Kind of the trouble.
    pub kind: TroubleKind,
    /// Urgency of the trouble.
    pub severity: TroubleSeverity,
    /// Subject, such as `volume data`.
    pub subject: String,
    /// Description of the trouble.
    pub what: String,
    /// Time since the daemon noticed the trouble.
    pub for_s: f64,
    /// Effect of the trouble while it lasts.
    pub cost: String,
    /// Remedy, with commands in backquotes.
    pub remedy: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, severity and cost of each row of the page that explains troubles.
    fn explained(page: &str) -> Vec<[String; 3]> {
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
        let known =
            |cells: Vec<&str>| [cells[1].trim_matches('`'), cells[2], cells[4]].map(str::to_owned);
        cells.map(known).collect()
    }

    #[test]
    fn the_page_explains_every_kind_and_no_other() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubles.md");
        let page = std::fs::read_to_string(path).unwrap();
        let known = TroubleKind::ALL
            .map(|kind| [kind.name(), kind.severity().name(), kind.cost()].map(str::to_owned));
        assert_eq!(explained(&page), known);
        // A canary: a page without one of the kinds is found.
        let lacks = page.replacen("| `origin-fails`", "| origin-fails", 1);
        assert_ne!(explained(&lacks), known);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for kind in TroubleKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert!(TroubleKind::ALL.is_sorted());
    }
}
