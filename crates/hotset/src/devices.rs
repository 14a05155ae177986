//! Opening what the configuration calls a device, and counting what it does.

use crate::claim::{self, Claim};
use crate::model::Stripe;
use block::{
    BoxDevice, Buf, Content, Device, Extent, Fua, Geometry, IoError, IoResult, Kind, Lba, Nanos,
    Sectors, Shared, TargetId,
};
use control::address::NbdUri;
use control::config;
use filter::{Delayed, Meter, Metered, Snapshot};
use nbd::client::{Client, Options};
use nbd::tls::Dialer;
use shard::{Disk, Local};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uring::{DiskOptions, Uring, UringDriver};

/// How long a file or block device may take to be opened.
const OPEN_MAX: Nanos = Nanos::from_secs(10);

/// How long a pool waits for a lost NBD server: the origin has the data too.
const POOL_PATIENCE: Nanos = Nanos::from_secs(2);

/// The longest pause before a lost member's server is sought again.
const MEMBER_RETRY_PAUSE_MAX: Nanos = Nanos::from_millis(500);

/// A device that is counted. Clones are the same device.
///
/// Disks are a case of their own, so that a hit is a direct call.
#[derive(Clone)]
pub enum Leaf {
    Disk(Rc<Metered<Disk<UringDriver>>>),
    Other(Rc<Metered<BoxDevice>>),
}

impl Leaf {
    pub fn meter(&self) -> &Meter {
        match self {
            Leaf::Disk(device) => device.watch(),
            Leaf::Other(device) => device.watch(),
        }
    }
}

impl Device for Leaf {
    fn geometry(&self) -> &Geometry {
        match self {
            Leaf::Disk(device) => device.geometry(),
            Leaf::Other(device) => device.geometry(),
        }
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        match self {
            Leaf::Disk(device) => device.read(at, buf).await,
            Leaf::Other(device) => device.read(at, buf).await,
        }
    }

    async fn write(&self, at: Lba, data: Shared, fua: Fua) -> IoResult {
        match self {
            Leaf::Disk(device) => device.write(at, data, fua).await,
            Leaf::Other(device) => device.write(at, data, fua).await,
        }
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        match self {
            Leaf::Disk(device) => device.zero(extent).await,
            Leaf::Other(device) => device.zero(extent).await,
        }
    }

    async fn flush(&self) -> IoResult {
        match self {
            Leaf::Disk(device) => device.flush().await,
            Leaf::Other(device) => device.flush().await,
        }
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        match self {
            Leaf::Disk(device) => device.discard(extent).await,
            Leaf::Other(device) => device.discard(extent).await,
        }
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        match self {
            Leaf::Disk(device) => device.extents(extent, out).await,
            Leaf::Other(device) => device.extents(extent, out).await,
        }
    }
}

/// What a device is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Origin,
    Pool,
    /// Of an array that takes it for lost after so long.
    Member(Duration),
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Origin => "origin",
            Role::Pool => "pool",
            Role::Member(_) => "member",
        }
    }
}

/// A device in use. Dropping it lets go of the file and its lock, once what is
/// in flight has ended.
pub struct Opened {
    pub leaf: Leaf,
    pub role: Role,
    /// The file or URI behind it.
    pub place: String,
    pub controller: Arc<str>,
    /// The counters when it was opened.
    pub at_first: Snapshot,
    hold: Hold,
}

impl Opened {
    /// Whether it is a file or block device of this machine.
    pub fn is_file(&self) -> bool {
        matches!(self.hold, Hold::File { .. })
    }
}

/// What keeps other users away.
enum Hold {
    /// The members of an array are held.
    Members,
    File {
        _file: OpenFile,
    },
    Export {
        _claim: Claim,
    },
}

/// A file that the host holds open and locked.
struct OpenFile {
    host: Uring,
    target: TargetId,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.host.close(self.target);
    }
}

/// Opens devices on one shard.
#[derive(Clone)]
pub struct Opener {
    pub host: Uring,
    pub local: Local<UringDriver>,
}

impl Opener {
    /// Opens a device for one use; no other daemon can open it meanwhile.
    pub async fn open(&self, device: &config::Device, role: Role) -> IoResult<Opened> {
        let name = device.name.value.as_str();
        let (leaf, hold, place) = match (&device.path, &device.nbd) {
            (Some(path), _) => {
                let timer = self.local.env().timer;
                let open = async || self.open_file(device, &path.value).await;
                let (disk, file) = claim::pause(&timer, open).await?;
                let leaf = match device.model {
                    None => Leaf::Disk(self.metered(disk)),
                    Some(_) => Leaf::Other(self.metered(self.slow_down(disk, device)?)),
                };
                let hold = Hold::File { _file: file };
                (leaf, hold, path.value.display().to_string())
            }
            (None, Some(uri)) => {
                let timer = self.local.env().timer;
                let claim = claim::pause(&timer, async || Claim::new(&uri.value)).await;
                let claim = claim.map_err(|error| error.on(format!("{name} ({})", uri.value)))?;
                let authority = device.tls_ca.as_ref().map(|file| file.value.as_path());
                let client = self.connect(&uri.value, authority, role).await?;
                let device = match device.model {
                    None => BoxDevice::new(client),
                    Some(_) => self.slow_down(client, device)?,
                };
                let leaf = Leaf::Other(self.metered(device));
                let hold = Hold::Export { _claim: claim };
                (leaf, hold, uri.value.to_string())
            }
            (None, None) => {
                let what = "no place is given; give `path` or `nbd`";
                return Err(IoError::new(Kind::Invalid, what).on(name.to_owned()));
            }
        };
        let controller = match device.controller.as_str() {
            "" => name.into(),
            controller => controller.into(),
        };
        let at_first = leaf.meter().snapshot(self.local.env().timer.now());
        Ok(Opened {
            leaf,
            role,
            place,
            controller,
            at_first,
            hold,
        })
    }

    /// An array over devices that are open.
    pub fn array(
        &self,
        array: BoxDevice,
        role: Role,
        place: String,
        controller: Arc<str>,
    ) -> Opened {
        let leaf = Leaf::Other(self.metered(array));
        let at_first = leaf.meter().snapshot(self.local.env().timer.now());
        Opened {
            leaf,
            role,
            place,
            controller,
            at_first,
            hold: Hold::Members,
        }
    }

    fn metered<D: Device>(&self, device: D) -> Rc<Metered<D>> {
        Rc::new(Metered::meter(device, self.local.env().timer))
    }

    async fn open_file(
        &self,
        device: &config::Device,
        path: &Path,
    ) -> IoResult<(Disk<UringDriver>, OpenFile)> {
        let options = DiskOptions {
            buffered: device.buffered.value,
            read_only: device.read_only.value,
            exclusive: true,
            block: None,
            name: Some(format!("{} ({})", device.name.value, path.display())),
        };
        let timer = self.local.env().timer;
        let opening = self.host.open_disk_aside(path, &options);
        let opened = timer.timeout(OPEN_MAX, opening).await.unwrap_or_else(|| {
            let what = "does not answer when it is opened; see to its file system or controller";
            let name = options.name.clone().unwrap_or_default();
            Err(IoError::new(Kind::Timeout, what).on(name))
        });
        let (target, _) = opened?;
        let file = OpenFile {
            host: self.host.clone(),
            target,
        };
        Ok((self.local.disk(target)?, file))
    }

    async fn connect(
        &self,
        uri: &NbdUri,
        authority: Option<&Path>,
        role: Role,
    ) -> IoResult<Client> {
        let mut options = Options::new(uri.address.clone(), uri.export.as_str());
        if let Some(authority) = authority {
            options.tls = Some(Dialer::new(uri.host(), &read(authority)?, None)?);
        }
        match role {
            Role::Origin => (),
            Role::Pool => {
                options.give_up_after = POOL_PATIENCE;
                options.reply_timeout = POOL_PATIENCE;
                // Marks that are undone would have stale lines trusted.
                options.repeat_durable_writes = false;
            }
            Role::Member(detection) => {
                let nanos = u64::try_from(detection.as_nanos()).unwrap_or(u64::MAX);
                options.give_up_after = Nanos(nanos / 2);
                options.connect_timeout = Nanos(nanos / 2);
                // It may take twice this to see that there is no reply.
                options.reply_timeout = Nanos(nanos / 5 * 2);
                options.retry_pause_max = MEMBER_RETRY_PAUSE_MAX;
            }
        }
        let env = self.local.env();
        Client::connect(env, self.local.connector(), options).await
    }

    /// Makes `raw` as slow as the model that `device` names.
    fn slow_down(&self, raw: impl Device, device: &config::Device) -> IoResult<BoxDevice> {
        let model = device.model.as_ref().map_or("", |model| model.as_str());
        let drives = device.model_disks.value;
        let stripe = Sectors(device.model_stripe.value.0 / block::SECTOR_BYTES);
        let capacity = Stripe::capacity(model, drives, stripe)?;
        if raw.geometry().sectors > capacity {
            let what = format!(
                "is larger than {drives} x {model}; give more `model_disks`, or a larger model"
            );
            return Err(IoError::new(Kind::Invalid, what).on(device.name.value.to_string()));
        }
        let pacer = Stripe::new(model, drives, stripe)?;
        Ok(BoxDevice::new(Delayed::new(raw, pacer, self.local.env())))
    }
}

/// The bytes of a file of certificates or a key.
pub fn read(file: &Path) -> IoResult<Vec<u8>> {
    std::fs::read(file).map_err(|cause| {
        let what = "cannot be read; correct the path, or let this user read it";
        let error = IoError::new(Kind::Denied, what).on(file.display().to_string());
        error.because(cause)
    })
}
