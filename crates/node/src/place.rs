//! Places of devices, and opening them.
//!
//! Invariant: nobody else has a place while what was opened there lives.

mod again;
mod nbd;
mod raw;

pub(crate) use again::Reopenable;
pub use raw::{CLAIM_ATTEMPTS, CLAIM_PAUSE, Role, claimed, retried};

use crate::leaf::Leaf;
use crate::model::Stripe;
use crate::platform::Platform;
use ::nbd::client::Standing;
use again::raw_of;
use block::{BoxDevice, Device as _, IoError, IoResult, Kind, Nanos, SECTOR_BYTES, Sectors};
use control::config;
use control::status::Wear;
use filter::{Delayed, Snapshot};
use origin::Identity;
use raw::{Bare, Raw};
use shard::Local;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A device in use. Dropping it releases the file and its lock, once what is
/// in flight has ended.
pub struct Opened<P: Platform> {
    /// The device.
    pub leaf: Leaf<P::Driver>,
    /// What for.
    pub role: Role,
    /// The file or URI behind it.
    pub place: String,
    /// Who that is.
    pub identity: Identity,
    /// What it fails with.
    pub controller: Arc<str>,
    /// The counters when it was opened.
    pub at_first: Snapshot,
    /// How worn it is, and when that was asked.
    pub(crate) wear: Cell<(Option<Nanos>, Option<Wear>)>,
    is_file: bool,
    standing: Option<Standing>,
    /// How large an export has become, as far as that was asked.
    grown: Cell<Option<u64>>,
    /// Of a file that a volume with a log may need again, which has the hold too.
    again: Option<Rc<Reopenable<P>>>,
    /// What keeps other users away; the members of an array are held themselves.
    _hold: Option<P::Hold>,
}

impl<P: Platform> Opened<P> {
    /// An array over devices that are open.
    pub(crate) fn array(
        local: &Local<P::Driver>,
        array: BoxDevice,
        role: Role,
        (place, identity): (String, Identity),
        controller: Arc<str>,
    ) -> Opened<P> {
        let timer = local.env().timer;
        let leaf = Leaf::other(array, timer.clone());
        let at_first = leaf.meter().snapshot(timer.now());
        Opened {
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

    /// How it is opened again, if it can be.
    pub(crate) fn again(&self) -> Option<Rc<Reopenable<P>>> {
        self.again.clone()
    }

    /// Whether it is a file or block device of this machine.
    pub(crate) fn is_file(&self) -> bool {
        self.is_file
    }

    /// Whether it comes back only by being opened again: a file or block device of this
    /// machine, or an export that has grown or in whose place another answers.
    pub(crate) fn must_reopen(&self) -> bool {
        let other = self.standing.as_ref().and_then(Standing::other);
        self.is_file || other.is_some() || self.grown().is_some()
    }

    /// How large an export has become since it was opened, if it has grown.
    pub(crate) fn grown(&self) -> Option<u64> {
        self.standing.as_ref().and_then(Standing::grown)
    }

    /// The same, unless that was asked before.
    pub(crate) fn has_grown(&self) -> Option<u64> {
        let now = self.grown();
        let is_new = self.grown.replace(now) != now;
        now.filter(|_| is_new)
    }

    /// How often an export may have forgotten what no flush had covered.
    pub(crate) fn losses(&self) -> raid::Losses {
        match self.standing.clone() {
            Some(standing) => Rc::new(move || standing.losses()),
            None => Rc::new(|| 0),
        }
    }

    /// Why an export does not answer; `None` while it does.
    pub fn trouble(&self) -> Option<String> {
        self.standing.as_ref().and_then(Standing::trouble)
    }
}

/// Opens a device for one use; no other node can open it meanwhile.
pub async fn open<P: Platform>(
    platform: &P,
    device: &config::Device,
    role: Role,
) -> IoResult<Opened<P>> {
    let name = device.name.value.as_str();
    let Raw {
        device: mut bare,
        mut hold,
        place,
        is_file,
        standing,
    } = raw_of(platform, device, role).await?;
    let mut again = None;
    if is_file && matches!(role, Role::Origin | Role::Log) {
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
    Ok(Opened {
        leaf,
        role,
        identity: match role {
            Role::Origin => platform.identity(&place).await,
            Role::Pool | Role::Log | Role::Member(_) => Identity::new(&place),
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

/// Makes `raw` as slow as the model that `device` names.
fn slow_down<P: Platform>(
    platform: &P,
    raw: BoxDevice,
    device: &config::Device,
) -> IoResult<BoxDevice> {
    let model = device.model.as_ref().map_or("", |model| model.as_str());
    let drives = device.model_disks.value;
    let stripe = Sectors(device.model_stripe.value.0 / SECTOR_BYTES);
    let capacity = Stripe::capacity(model, drives, stripe)?;
    if raw.geometry().sectors > capacity {
        let what = format!(
            "is larger than {drives} x {model}; give more `model_disks`, or a larger model"
        );
        return Err(IoError::new(Kind::Invalid, what).on(device.name.value.to_string()));
    }
    let pacer = Stripe::new(model, drives, stripe)?;
    let env = platform.local().env();
    Ok(BoxDevice::new(Delayed::new(raw, pacer, env)))
}
