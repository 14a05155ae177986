//! The devices of a node: every one that can be opened, and those that are.

use super::running::Running;
use crate::place::Opened;
use crate::platform::Platform;
use block::Env;
use control::config::{self, Config, Name};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

/// Every device that can be opened, and those that are.
pub struct Devices<P: Platform> {
    pub(crate) platform: P,
    pub(super) config: Config,
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

    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Source::Device(device) if device.read_only.value)
    }
}

impl<P: Platform> Devices<P> {
    /// The devices of `config`, none of them open.
    pub fn new(config: &Config, platform: P) -> Rc<Devices<P>> {
        Rc::new_cyclic(|itself| Devices {
            platform,
            config: config.clone(),
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

    /// The configuration that they are of.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}
