//! The layers below a file or block device: partitions, loop devices, md, device mapper and file
//! systems, down to the devices of ublk.
//!
//! A daemon with its own device below one of its devices would wait for itself: the daemon could
//! neither stop nor be killed.

use super::{devices, mounts};
use block::{IoError, IoErrorKind, IoResult};
use control::config::Config;
use control::problem::ConfigurationProblem;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use ublk::uapi::block_device;
use ublk::{UblkState, is_marked};

/// Refuses a place for data of a daemon above a device of that daemon, or above one that waits for
/// a daemon.
pub fn refuse_own(path: &Path) -> IoResult {
    let below = below(path);
    if below.is_empty() {
        return Ok(());
    }
    let own = std::process::id() as i32;
    let all = devices::all()?;
    let found = all.iter().find(|info| {
        let is_own = info.state != UblkState::Live || info.pid == own;
        below.contains(&info.id) && is_marked(info.mark) && is_own
    });
    let Some(info) = found else { return Ok(()) };
    let volume = devices::name(info.id).unwrap_or_default();
    let device = block_device(info.id);
    let what = match info.state {
        UblkState::Live => format!(
            "lies on /dev/{device}, which is volume {volume} of this daemon; choose a device that no \
             volume of this daemon is below"
        ),
        _ => format!(
            "lies on /dev/{device}, which waits for the daemon of volume {volume}; start that first, \
             or choose another device if this is that daemon"
        ),
    };
    Err(IoError::new(IoErrorKind::Invalid, what).on(path.display().to_string()))
}

/// The problems of a configuration with data on block devices of its own volumes.
pub fn problems(config: &Config) -> Vec<ConfigurationProblem> {
    let paths = config
        .devices
        .iter()
        .filter_map(|device| device.path.as_ref());
    let places = paths.chain([&config.daemon.state]);
    let found = places.filter_map(|place| {
        let mut volumes = below(&place.value).into_iter().filter_map(devices::name);
        let is_own = |name: &String| config.attachments.iter().any(|a| a.ublk.as_str() == name);
        let volume = volumes.find(is_own)?;
        let what = format!(
            "{} lies on the block device of volume {volume}, which this configuration attaches",
            place.value.display()
        );
        let remedy = "choose a place that no volume of its own is below";
        Some(ConfigurationProblem::new(place.line, what, remedy))
    });
    found.collect()
}

/// The ublk devices below a file or block device.
pub fn below(path: &Path) -> BTreeSet<u32> {
    let mut walk = Walk::default();
    walk.path(path);
    walk.found
}

#[derive(Default)]
struct Walk {
    found: BTreeSet<u32>,
    seen: BTreeSet<PathBuf>,
}

impl Walk {
    fn path(&mut self, path: &Path) {
        // A file that is still to be made lies where its directory does.
        let Some(path) = path.ancestors().find_map(|path| path.canonicalize().ok()) else {
            return;
        };
        if !self.seen.insert(path.clone()) {
            return;
        }
        let Ok(about) = fs::metadata(&path) else {
            return;
        };
        if about.file_type().is_block_device() {
            self.number(about.rdev());
            return;
        }
        let mount = mounts::of(&path);
        if self.number(about.dev())
            || mount
                .as_ref()
                .is_some_and(|mount| self.known(&mount.number))
        {
            return;
        }
        // The mount names the place of a file system without one device of its own, such as btrfs
        // or an overlay.
        let options = mount.iter().flat_map(|mount| mount.options.split(','));
        let upper = options.filter_map(|option| option.strip_prefix("upperdir="));
        let source = mount.iter().map(|mount| mount.source.as_str());
        for place in source.chain(upper).filter(|place| place.starts_with('/')) {
            self.path(Path::new(place));
        }
    }

    fn number(&mut self, device: u64) -> bool {
        self.known(&format!("{}:{}", libc::major(device), libc::minor(device)))
    }

    /// Visits a device by its number, if sysfs knows the number.
    fn known(&mut self, number: &str) -> bool {
        let about = fs::canonicalize(format!("/sys/dev/block/{number}"));
        about.map(|about| self.device(&about)).is_ok()
    }

    /// Visits the device with this directory of sysfs.
    fn device(&mut self, about: &Path) {
        if !self.seen.insert(about.to_owned()) {
            return;
        }
        let name = about.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("ublkb"));
        self.found
            .extend(number.and_then(|number| number.parse::<u32>().ok()));
        if about.join("partition").exists()
            && let Some(whole) = about.parent()
        {
            self.device(whole);
        }
        for slave in fs::read_dir(about.join("slaves"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Ok(slave) = slave.path().canonicalize() {
                self.device(&slave);
            }
        }
        if let Ok(file) = fs::read_to_string(about.join("loop/backing_file")) {
            self.path(Path::new(file.trim_end()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_this_machine_lie_on_no_device_of_ublk() {
        let place = tempfile::tempdir().unwrap();
        assert!(mounts::of(place.path()).is_some(), "its mount is listed");
        let missing = place.path().join("not/made/yet");
        assert!(below(&missing).is_empty() && below(Path::new("/dev/null")).is_empty());
        refuse_own(&missing).unwrap();
    }
}
