//! The devices of a node: all of the configuration, and the open ones among them.

use super::running::RunningArray;
use crate::leaf::Leaf;
use crate::place::OpenedPlace;
use crate::platform::Platform;
use block::{Deadline, Device as _, Env, Nanos};
use control::config::{self, Config, Name};
use control::memory;
use control::plan::Change;
use origin::DeviceIdentity;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The devices and arrays of the configuration, and the open ones among them.
pub struct OpenDevices<P: Platform> {
    pub(crate) platform: P,
    config: RefCell<Rc<Config>>,
    pub(crate) open: RefCell<BTreeMap<Name, OpenedPlace<P>>>,
    /// Each device that is or was open, and its name in reports of arrays.
    pub(crate) called: RefCell<BTreeMap<Name, Arc<str>>>,
    /// Names of devices that are being opened or released.
    pub(super) leased: RefCell<BTreeSet<Name>>,
    pub(crate) running: RefCell<Vec<Rc<RunningArray>>>,
    /// Arrays that failed to start at the last attempt, each with the reason.
    pub(crate) inactive: RefCell<BTreeMap<Name, (config::Array, String)>>,
    pub(super) stopped: Cell<bool>,
    pub(super) itself: Weak<OpenDevices<P>>,
}

/// Names of the configuration by the names in reports of arrays.
pub(crate) type DeviceNames = BTreeMap<Arc<str>, Name>;

/// A device or an array of the configuration.
#[derive(Clone)]
pub enum DeviceSource {
    /// A single device.
    Device(Box<config::Device>),
    /// An array.
    Array(Box<config::Array>),
}

impl DeviceSource {
    /// The name in the configuration.
    pub fn name(&self) -> &Name {
        match self {
            DeviceSource::Device(device) => &device.name.value,
            DeviceSource::Array(array) => &array.name.value,
        }
    }

    /// True if this is a device of the same path or URI as `device`.
    pub(crate) fn is_at(&self, device: &config::Device) -> bool {
        let place = |d: &config::Device| {
            let path = d.path.as_ref().map(|path| path.value.clone());
            (path, d.nbd.as_ref().map(|uri| uri.value.clone()))
        };
        matches!(self, DeviceSource::Device(known) if place(known) == place(device))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, DeviceSource::Device(device) if device.read_only.value)
    }
}

impl<P: Platform> OpenDevices<P> {
    /// Makes the devices of `config`, all closed.
    pub fn new(config: &Config, platform: P) -> Rc<OpenDevices<P>> {
        Rc::new_cyclic(|itself| OpenDevices {
            platform,
            config: RefCell::new(Rc::new(config.clone())),
            open: RefCell::default(),
            called: RefCell::default(),
            leased: RefCell::default(),
            running: RefCell::default(),
            inactive: RefCell::default(),
            stopped: Cell::new(false),
            itself: itself.clone(),
        })
    }

    pub(super) fn env(&self) -> Env {
        self.platform.local().env()
    }

    /// The present configuration.
    pub(crate) fn config(&self) -> Rc<Config> {
        self.config.borrow().clone()
    }

    /// Checks that there is memory for the tables of `pool` on devices of `bytes`, beside the needs
    /// of the open devices. `Err` names a remedy.
    pub(crate) fn have_memory(&self, pool: &config::Pool, bytes: u64) -> Result<(), String> {
        let (config, open) = (self.config(), self.open.borrow());
        let size = |name: &Name| {
            let opened = open.get(name)?;
            Some(opened.leaf.geometry().sectors.bytes())
        };
        let promised = memory::needs(&config, size);
        let promised = promised.iter().map(|need| need.bytes).sum();
        let needs = [memory::tables(pool, bytes)];
        match memory::shortage(&needs, self.platform.room(promised)) {
            None => Ok(()),
            Some(problem) => Err(problem.text()),
        }
    }

    /// Makes `config` the present configuration. The devices already are as `config` describes.
    pub fn adopt(&self, config: Config) {
        let devices = config.devices.iter().map(|device| &device.name.value);
        let known: BTreeSet<_> = devices
            .chain(config.arrays.iter().map(|array| &array.name.value))
            .collect();
        let open = self.open.borrow();
        self.called
            .borrow_mut()
            .retain(|name, _| open.contains_key(name) || known.contains(name));
        *self.config.borrow_mut() = Rc::new(config);
    }

    /// The names of all devices that are or were open. Of two names for a device, that of the open
    /// one holds.
    pub(crate) fn names(&self) -> DeviceNames {
        let (open, called) = (self.open.borrow(), self.called.borrow());
        let named = |(name, called): (&Name, &Arc<str>)| (called.clone(), name.clone());
        let (these, former): (Vec<_>, Vec<_>) = called
            .iter()
            .partition(|(name, _)| open.contains_key(*name));
        former.into_iter().chain(these).map(named).collect()
    }

    /// True if an array called `name` runs.
    pub(crate) fn runs(&self, name: &Name) -> bool {
        let running = self.running.borrow();
        running
            .iter()
            .any(|running| running.config.name.value == *name)
    }

    /// Reopens the place of a device, which stays in use.
    pub(crate) async fn reopen_place(&self, name: &Name, limit: Nanos) -> Result<(), String> {
        let again = self.open.borrow().get(name).and_then(OpenedPlace::again);
        let again = again.ok_or("it cannot be opened again while it is used")?;
        let opening = again.reopen(&self.platform);
        let timer = self.env().timer;
        match Deadline::new(&timer, limit).bound(opening).await {
            Some(opened) => opened.map_err(|error| error.to_string()),
            None => Err(format!("{name} does not answer when it is opened again")),
        }
    }

    /// The open device `name`, and its failure domain.
    pub(crate) fn leaf_of(&self, name: &Name) -> Result<(Leaf<P::Driver>, Arc<str>), String> {
        let open = self.open.borrow();
        let opened = open.get(name).ok_or("it is not open")?;
        Ok((opened.leaf.clone(), opened.controller.clone()))
    }

    /// The identity of an open device.
    pub(crate) fn identity(&self, name: &Name) -> Result<DeviceIdentity, String> {
        let open = self.open.borrow();
        let opened = open.get(name).ok_or("it is not open")?;
        Ok(opened.identity.clone())
    }

    /// Forgets the failed start of an array.
    pub(crate) fn forget_inactive(&self, name: &Name) {
        self.inactive.borrow_mut().remove(name);
    }

    /// Applies `change` to the present configuration.
    pub(crate) fn record(&self, change: &Change) {
        change.record(Rc::make_mut(&mut self.config.borrow_mut()));
    }
}
