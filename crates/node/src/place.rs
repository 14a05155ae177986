//! Places of devices, and opening them.
//!
//! Invariant: a place has no other user while the device opened there lives.

mod again;
mod nbd;
mod raw;

pub(crate) use again::Reopenable;
pub use raw::{CLAIM_ATTEMPTS, CLAIM_PAUSE, RawRole, claimed, retried};

use crate::leaf::Leaf;
use crate::model::StripeModel;
use crate::platform::Platform;
use ::nbd::client::ExportStanding;
use again::raw_of;
use block::{BoxDevice, Device as _, IoError, IoErrorKind, IoResult, Nanos, SECTOR_BYTES, Sectors};
use control::config;
use control::status::WearReport;
use filter::{Delayed, StatsSnapshot};
use origin::DeviceIdentity;
use raw::{Bare, RawPlace};
use shard::Local;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A device in use. Dropping it releases the file and its lock, once requests in flight have ended.
pub struct OpenedPlace<P: Platform> {
    /// The device.
    pub leaf: Leaf<P::Driver>,
    /// Use of the device.
    pub role: RawRole,
    /// File or URI behind the device.
    pub place: String,
    /// Identity of the device.
    pub identity: DeviceIdentity,
    /// Failure domain of the device.
    pub controller: Arc<str>,
    /// Counters as of the opening.
    pub at_first: StatsSnapshot,
    /// Wear of the device, and the time of that reading.
    pub(crate) wear: Cell<(Option<Nanos>, Option<WearReport>)>,
    is_file: bool,
    standing: Option<ExportStanding>,
    /// Size of a grown export, as last asked.
    grown: Cell<Option<u64>>,
    /// Reopens a file for a volume with a log; has the hold too.
    again: Option<Rc<Reopenable<P>>>,
    /// Keeps other users away; the members of an array have holds of their own.
    _hold: Option<P::Hold>,
}

impl<P: Platform> OpenedPlace<P> {
    /// Makes an array over open devices.
    pub(crate) fn array(
        local: &Local<P::Driver>,
        array: BoxDevice,
        role: RawRole,
        (place, identity): (String, DeviceIdentity),
        controller: Arc<str>,
    ) -> OpenedPlace<P> {
        let timer = local.env().timer;
        let leaf = Leaf::other(array, timer.clone());
        let at_first = leaf.meter().snapshot(timer.now());
        OpenedPlace {
            leaf,
            role,
            place,
            identity,
            controller,
            at_first,
            wear: Cell::default(),
            is_file: false,
            standing: None,
            grown: Cell::default(),
            again: None,
            _hold: None,
        }
    }

    /// The means to reopen the device, if there are any.
    pub(crate) fn again(&self) -> Option<Rc<Reopenable<P>>> {
        self.again.clone()
    }

    /// True for a file or block device of this machine.
    pub(crate) fn is_file(&self) -> bool {
        self.is_file
    }

    /// True if the device comes back only by being reopened: a file or block device of this
    /// machine, or an export that has grown or was replaced by another.
    pub(crate) fn must_reopen(&self) -> bool {
        let other = self.standing.as_ref().and_then(ExportStanding::other);
        self.is_file || other.is_some() || self.grown().is_some()
    }

    /// The present size of an export that has grown since it was opened.
    pub(crate) fn grown(&self) -> Option<u64> {
        self.standing.as_ref().and_then(ExportStanding::grown)
    }

    /// As [`OpenedPlace::grown`]; `None` if the size was returned before.
    pub(crate) fn has_grown(&self) -> Option<u64> {
        let now = self.grown();
        let is_new = self.grown.replace(now) != now;
        now.filter(|_| is_new)
    }

    /// Counts the times that an export may have lost writes not covered by a flush.
    pub(crate) fn losses(&self) -> raid::Losses {
        match self.standing.clone() {
            Some(standing) => Rc::new(move || standing.losses()),
            None => Rc::new(|| 0),
        }
    }

    /// The reason why an export does not answer; `None` while it does.
    pub fn trouble(&self) -> Option<String> {
        self.standing.as_ref().and_then(ExportStanding::trouble)
    }
}

/// Opens a device for one use; no other node can open the device meanwhile.
pub async fn open<P: Platform>(
    platform: &P,
    device: &config::Device,
    role: RawRole,
) -> IoResult<OpenedPlace<P>> {
    let name = device.name.value.as_str();
    let RawPlace {
        device: mut bare,
        mut hold,
        place,
        is_file,
        standing,
    } = raw_of(platform, device, role).await?;
    let mut again = None;
    if is_file && matches!(role, RawRole::Origin | RawRole::Log) {
        let opened = (bare, hold.take());
        let below = Reopenable::new(platform, device, role, opened, &place).await;
        bare = Bare::Other(below.device());
        again = Some(Rc::new(below));
    }
    let timer = platform.local().env().timer;
    let leaf = match (bare, &device.model) {
        (Bare::Disk(disk), None) => Leaf::disk(disk, timer.clone()),
        (Bare::Other(other), None) => Leaf::other(other, timer.clone()),
        (Bare::Disk(disk), Some(_)) => {
            let slow = slow_down(platform, BoxDevice::new(disk), device)?;
            Leaf::other(slow, timer.clone())
        }
        (Bare::Other(other), Some(_)) => {
            Leaf::other(slow_down(platform, other, device)?, timer.clone())
        }
    };
    let controller = match device.controller.as_str() {
        "" => name.into(),
        controller => controller.into(),
    };
    let at_first = leaf.meter().snapshot(timer.now());
    Ok(OpenedPlace {
        leaf,
        role,
        identity: match role {
            RawRole::Origin => platform.identity(&place).await,
            RawRole::Pool | RawRole::Log | RawRole::Member(_) => DeviceIdentity::new(&place),
        },
        place,
        controller,
        at_first,
        wear: Cell::default(),
        is_file,
        standing,
        grown: Cell::default(),
        again,
        _hold: hold,
    })
}

/// Makes `raw` as slow as the drive model of `device`.
fn slow_down<P: Platform>(
    platform: &P,
    raw: BoxDevice,
    device: &config::Device,
) -> IoResult<BoxDevice> {
    let model = device.model.as_ref().map_or("", |model| model.as_str());
    let drives = device.model_disks.value;
    let stripe = Sectors(device.model_stripe.value.0 / SECTOR_BYTES);
    let capacity = StripeModel::capacity(model, drives, stripe)?;
    if raw.geometry().sectors > capacity {
        let what = format!(
            "is larger than {drives} x {model}; give more `model_disks`, or a larger model"
        );
        return Err(IoError::new(IoErrorKind::Invalid, what).on(device.name.value.to_string()));
    }
    let pacer = StripeModel::new(model, drives, stripe)?;
    let env = platform.local().env();
    Ok(BoxDevice::new(Delayed::new(raw, pacer, env)))
}
