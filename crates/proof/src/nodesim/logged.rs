//! A machine with a write-back volume: its configuration, and its disks.

use block::{Geometry, Nanos, Sectors};
use cache::log::Cleaning;
use sim::{DiskSpec, Service, Span};

const TEXT: &str = r#"
[[device]]
name = "ORIGIN"
path = "/ORIGIN"
[[device]]
name = "ssd"
path = "/ssd"
[[device]]
name = "log0"
path = "/log0"
controller = "pcie0"
[[device]]
name = "log1"
path = "/log1"
controller = "pcie1"
[[device]]
name = "journal"
path = "/journal"
controller = "sas0"
[[pool]]
name = "fast"
devices = ["ssd"]
[[volume]]
name = "db"
origin = "ORIGIN"
pool = "fast"
mode = "write-back"
write_back = "ORDER"
log = ["log0", "log1"]
journal = "journal"
LIMITS
[[listen]]
unix = "/nbd"
"#;

/// Of each device of the log, and of the journal.
pub(super) const LOG_MIB: u64 = 10;
pub(super) const BUFFER_BYTES: usize = 24 << 20;

/// The volume db of the device `origin`, with these lines besides.
pub(super) fn configuration(origin: &str, cleaning: Cleaning, limits: &str) -> String {
    let text = TEXT.replace("ORIGIN", origin).replace("LIMITS", limits);
    text.replace("ORDER", cleaning.name())
}

/// A disk whose requests take so long.
pub(super) fn disk(name: &str, mib: u64, micros: u64) -> DiskSpec {
    let geometry = Geometry::new(name, Sectors::from_mib(mib), Sectors(1));
    let mut spec = DiskSpec::new(geometry);
    spec.service = Service::uniform(Span::exactly(Nanos::from_micros(micros)));
    spec
}
