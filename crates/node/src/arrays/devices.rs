//! The devices of a node: every one that can be opened, and those that are.

use super::running::Running;
use crate::leaf::Leaf;
use crate::place::Opened;
use crate::platform::Platform;
use block::{Deadline, Device as _, Env, Nanos};
use control::config::{self, Config, Name};
use control::memory;
use control::plan::Change;
use origin::Identity;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Every device that can be opened, and those that are.
pub struct Devices<P: Platform> {
    pub(crate) platform: P,
    config: RefCell<Rc<Config>>,
    pub(crate) open: RefCell<BTreeMap<Name, Opened<P>>>,
    /// What is being opened or given up.
    pub(super) leased: RefCell<BTreeSet<Name>>,
    pub(crate) running: RefCell<Vec<Rc<Running>>>,
    /// Arrays that could not start when last tried, and why.
    pub(crate) inactive: RefCell<BTreeMap<Name, (config::Array, String)>>,
    pub(super) stopped: Cell<bool>,
    pub(super) itself: Weak<Devices<P>>,
}

/// What a name stands for.
#[derive(Clone)]
pub enum Source {
    /// A device by itself.
    Device(Box<config::Device>),
    /// One made of others.
    Array(Box<config::Array>),
}

impl Source {
    /// Its name in the configuration.
    pub fn name(&self) -> &Name {
        match self {
            Source::Device(device) => &device.name.value,
            Source::Array(array) => &array.name.value,
        }
    }

    /// Whether it is the same place as `device`.
    pub(crate) fn is_at(&self, device: &config::Device) -> bool {
        let place = |d: &config::Device| {
            let path = d.path.as_ref().map(|path| path.value.clone());
            (path, d.nbd.as_ref().map(|uri| uri.value.clone()))
        };
        matches!(self, Source::Device(known) if place(known) == place(device))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Source::Device(device) if device.read_only.value)
    }
}

impl<P: Platform> Devices<P> {
    /// The devices of `config`, none of them open.
    pub fn new(config: &Config, platform: P) -> Rc<Devices<P>> {
        Rc::new_cyclic(|itself| Devices {
            platform,
            config: RefCell::new(Rc::new(config.clone())),
            open: RefCell::default(),
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

    /// The configuration that they are of, as it is now.
    pub(crate) fn config(&self) -> Rc<Config> {
        self.config.borrow().clone()
    }

    /// Whether there is memory for the tables of `pool` on devices of so many `bytes`, beside what
    /// those need that are open. `Err` says what needs less.
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
            Some(problem) => Err(format!("{}; {}", problem.what, problem.remedy)),
        }
    }

    /// They are of `config` from now on, which says what they have become.
    pub fn adopt(&self, config: Config) {
        *self.config.borrow_mut() = Rc::new(config);
    }

    /// Whether an array of that name runs.
    pub(crate) fn runs(&self, name: &Name) -> bool {
        let running = self.running.borrow();
        running
            .iter()
            .any(|running| running.config.name.value == *name)
    }

    /// Opens the place of a device again, which stays in use by whoever has it.
    pub(crate) async fn reopen_place(&self, name: &Name, limit: Nanos) -> Result<(), String> {
        let again = self.open.borrow().get(name).and_then(Opened::again);
        let again = again.ok_or("it cannot be opened again while it is used")?;
        let opening = again.reopen(&self.platform);
        let timer = self.env().timer;
        match Deadline::new(&timer, limit).bound(opening).await {
            Some(opened) => opened.map_err(|error| error.to_string()),
            None => Err(format!("{name} does not answer when it is opened again")),
        }
    }

    /// A device that is open, and what it fails with.
    pub(crate) fn leaf_of(&self, name: &Name) -> Result<(Leaf<P::Driver>, Arc<str>), String> {
        let open = self.open.borrow();
        let opened = open.get(name).ok_or("it is not open")?;
        Ok((opened.leaf.clone(), opened.controller.clone()))
    }

    /// Who a device is that is open.
    pub(crate) fn identity(&self, name: &Name) -> Result<Identity, String> {
        let open = self.open.borrow();
        let opened = open.get(name).ok_or("it is not open")?;
        Ok(opened.identity.clone())
    }

    /// What was known of an array that could not start counts no longer.
    pub(crate) fn forget_inactive(&self, name: &Name) {
        self.inactive.borrow_mut().remove(name);
    }

    /// What they are has been changed.
    pub(crate) fn record(&self, change: &Change) {
        change.record(Rc::make_mut(&mut self.config.borrow_mut()));
    }
}
