//! The devices of a node: every one that can be opened, and those that are.

use super::running::Running;
use crate::place::Opened;
use crate::platform::Platform;
use block::Env;
use control::config::{self, Config, Name};
use control::plan::Change;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

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

    /// What was known of an array that could not start counts no longer.
    pub(crate) fn forget_inactive(&self, name: &Name) {
        self.inactive.borrow_mut().remove(name);
    }

    /// What they are has been changed.
    pub(crate) fn record(&self, change: &Change) {
        change.record(Rc::make_mut(&mut self.config.borrow_mut()));
    }
}
