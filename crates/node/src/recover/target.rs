//! The target of a recovered image, instead of its origin.
//!
//! Invariant: a refused target has not changed.

use super::found::said;
use crate::arrays::OpenDevices;
use crate::place::{self, OpenedPlace, RawRole};
use crate::platform::Platform;
use block::{Device, Lba, Sectors};
use control::config::{self, ByteCount};
use control::section::SectionText;
use layout::{PROBE_BYTES, foreign};
use std::path::Path;
use std::rc::Rc;

/// A file or block device for an image.
pub struct RecoverTarget<'a> {
    /// Path of the target.
    pub path: &'a Path,
    /// Makes the target with this number of bytes, if it does not exist.
    pub make: Option<&'a dyn Fn(u64) -> Result<(), String>>,
}

/// Opens the target for an image of `sectors`.
pub(super) async fn open<P: Platform>(
    devices: &Rc<OpenDevices<P>>,
    target: &RecoverTarget<'_>,
    sectors: Sectors,
) -> Result<OpenedPlace<P>, String> {
    let path = target.path.display().to_string();
    let platform = &devices.platform;
    let section = SectionText::default()
        .text("name", "to")
        .text("path", &path);
    let device = config::Device::parse(&section.finish())?;
    match target.make {
        Some(make) => make(sectors.bytes())?,
        None => refuse_configured(devices, &device).await?,
    }
    let opened = place::open(platform, &device, RawRole::Origin).await;
    let opened = opened.map_err(said)?;
    let room = opened.leaf.geometry().sectors;
    if room < sectors {
        return Err(format!(
            "{path} has {}, and the origin {}: give one that is as large",
            ByteCount(room.bytes()),
            ByteCount(sectors.bytes())
        ));
    }
    let probe = platform.local().env().pool.take(PROBE_BYTES);
    let (first, read) = opened.leaf.read(Lba::ZERO, probe).await;
    read.map_err(said)?;
    if let Some(foreign) = foreign(&first) {
        return Err(format!(
            "{path} holds {foreign}: give a blank device, or a file that does not exist yet"
        ));
    }
    Ok(opened)
}

/// Refuses a device that overlaps a place of the configuration.
async fn refuse_configured<P: Platform>(
    devices: &Rc<OpenDevices<P>>,
    device: &config::Device,
) -> Result<(), String> {
    let (config, platform) = (devices.config(), &devices.platform);
    let target = platform.place(device).await;
    for known in &config.devices {
        if platform.place(known).await.overlaps(&target) {
            let path = device.path.as_ref().map(|path| path.value.display());
            return Err(format!(
                "{} is {} of the configuration: give another place",
                path.map_or(String::new(), |path| path.to_string()),
                known.name.value
            ));
        }
    }
    Ok(())
}
