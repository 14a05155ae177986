//! Opens the place of a device, and reopens a file or block device for its user. So a past error,
//! or an unplugged device, need not keep the device from its user for ever.
//!
//! Invariants:
//!     the device is reopened ⟹ it is the same device, and all earlier requests have ended
//!     its user has writes acknowledged that no flush covered ⟹ the next flush fails
//!
//! Not here: the times of attempts.

use super::nbd;
use super::raw::{Bare, RawPlace, RawRole, claimed};
use crate::platform::Platform;
use block::{BoxDevice, IoError, IoErrorKind, IoResult};
use control::config;
use filter::Swappable;
use origin::DeviceIdentity;
use std::cell::RefCell;

/// A place that stays with its user while it is reopened.
pub(crate) struct Reopenable<P: Platform> {
    below: Swappable<BoxDevice>,
    hold: RefCell<Option<P::Hold>>,
    identity: DeviceIdentity,
    device: config::Device,
    role: RawRole,
}

/// Holds back requests until dropped.
struct PausedPlace<'a>(&'a Swappable<BoxDevice>);

impl Drop for PausedPlace<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

fn boxed<P: Platform>(device: Bare<P>) -> BoxDevice {
    match device {
        Bare::Disk(disk) => BoxDevice::new(disk),
        Bare::Other(other) => other,
    }
}

impl<P: Platform> Reopenable<P> {
    /// Takes the device `opened` at `place` for `device`.
    pub(super) async fn new(
        platform: &P,
        device: &config::Device,
        role: RawRole,
        opened: (Bare<P>, Option<P::Hold>),
        place: &str,
    ) -> Reopenable<P> {
        Reopenable {
            identity: platform.identity(place).await,
            below: Swappable::new(boxed(opened.0)),
            hold: RefCell::new(opened.1),
            device: device.clone(),
            role,
        }
    }

    pub(super) fn device(&self) -> BoxDevice {
        BoxDevice::new(self.below.clone())
    }

    /// Closes the place, and opens the same place again. Requests after a failure report the reason.
    pub(crate) async fn reopen(&self, platform: &P) -> IoResult {
        let _paused = PausedPlace(&self.below);
        self.below.pause().await;
        self.hold.take();
        let reopened = self.exchange(platform).await;
        if let Err(why) = &reopened {
            self.below.close(why.duplicate());
        }
        reopened
    }

    async fn exchange(&self, platform: &P) -> IoResult {
        let raw = raw_of(platform, &self.device, self.role).await?;
        if !self.identity.stays(&platform.identity(&raw.place).await) {
            let what = "is another device than before; give the former back";
            return Err(IoError::new(IoErrorKind::Invalid, what).on(self
                .device
                .name
                .value
                .to_string()));
        }
        self.below.swap(boxed(raw.device))?;
        self.hold.replace(raw.hold);
        Ok(())
    }
}

/// Opens the place of a device: a file or block device, or an export of an NBD server.
pub(super) async fn raw_of<P: Platform>(
    platform: &P,
    device: &config::Device,
    role: RawRole,
) -> IoResult<RawPlace<P>> {
    let path = match (&device.path, &device.nbd) {
        (Some(path), _) => &path.value,
        (None, Some(uri)) => return nbd::open(platform, device, &uri.value, role).await,
        (None, None) => {
            let what = "no place is given; give `path` or `nbd`";
            return Err(IoError::new(IoErrorKind::Invalid, what).on(device.name.value.to_string()));
        }
    };
    let timer = platform.local().env().timer;
    let open = async || platform.open_disk(device, path).await;
    let (disk, hold) = claimed(&timer, open).await?;
    Ok(RawPlace {
        device: Bare::Disk(disk),
        hold: Some(hold),
        place: path.display().to_string(),
        is_file: true,
        standing: None,
    })
}
