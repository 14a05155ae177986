//! A machine with a write-back volume: its configuration, and its disks.

use block::{Geometry, Nanos, Sectors};
use control::config::Config;
use node::{OpenDevices, Platform, RecoverAction, RecoverTarget, recover};
use sim::{DiskSpec, ServiceSpan, ServiceTime};
use simnode::SimPlatform;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use writelog::Cleaning;

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

/// The size of each device of the log, and of the journal.
pub(super) const LOG_MIB: u64 = 10;
pub(super) const BUFFER_BYTES: usize = 24 << 20;

/// The volume db of the device `origin`, with the lines `limits` besides.
pub(super) fn configuration(origin: &str, cleaning: Cleaning, limits: &str) -> String {
    let text = TEXT.replace("ORIGIN", origin).replace("LIMITS", limits);
    text.replace("ORDER", cleaning.name())
}

/// A disk that takes `micros` for each request.
pub(super) fn disk(name: &str, mib: u64, micros: u64) -> DiskSpec {
    let geometry = Geometry::new(name, Sectors::from_mib(mib), Sectors(1));
    let mut spec = DiskSpec::new(geometry);
    spec.service = ServiceTime::uniform(ServiceSpan::exactly(Nanos::from_micros(micros)));
    spec
}

type Recovered = Pin<Box<dyn Future<Output = Result<String, String>>>>;

/// Runs `pool recover` on the log of the volume. Returns the output.
pub(super) fn recovered(
    config: Rc<Config>,
    action: RecoverAction,
    to: Option<&'static str>,
) -> impl FnOnce(SimPlatform) -> Recovered {
    move |platform| {
        Box::pin(async move {
            let devices = OpenDevices::new(&config, platform.clone());
            let logs = platform.logs().await.map_err(|error| error.to_string())?;
            let target = to.map(|path| RecoverTarget {
                path: Path::new(path),
                make: None,
            });
            let target = target.as_ref();
            let volume = &config.volumes[0];
            let done = recover(&devices, &platform, volume, &logs, action, target).await;
            let ended = devices.stop().await;
            ended.map_err(|error| error.to_string())?;
            Ok(done?.to_string())
        })
    }
}
