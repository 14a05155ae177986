//! One life of a node: from its start out of the configuration to its end.

use super::report::{Class, Report};
use super::scenario::{NodeScenario, Spec, path};
use crate::raidsim::ArrayModel;
use crate::stamp::Value;
use block::Env;
use control::protocol::ControlRequest;
use control::status::Status;
use node::NodeEvent;
use simnode::{Direct, RunningNode, SimMachine};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// A volume, over all lives.
pub(super) struct SimVolume {
    pub number: u64,
    pub spec: Spec,
    pub sectors: u64,
    pub model: RefCell<ArrayModel>,
    /// The origin has lost more disks than it can do without, and may fail requests.
    troubled: Cell<bool>,
    /// Number of times that the origin may have lost writes that were not flushed.
    pub losses: Cell<u64>,
    /// Writes that have not ended, each with the losses at its begin.
    writing: RefCell<Vec<(Range<u64>, Value, u64)>>,
}

impl SimVolume {
    pub fn new(number: usize, spec: Spec, model: ArrayModel) -> SimVolume {
        SimVolume {
            number: number as u64,
            spec,
            sectors: (super::scenario::VOLUME_KIB << 10) / block::SECTOR_BYTES,
            model: RefCell::new(model),
            troubled: Cell::new(false),
            losses: Cell::new(0),
            writing: RefCell::default(),
        }
    }

    /// A write begins, of `value` or of a new one.
    pub fn begin(&self, sectors: &Range<u64>, value: Option<Value>) -> Value {
        let mut model = self.model.borrow_mut();
        let value = value.unwrap_or_else(|| model.version());
        model.begin(sectors.clone(), value);
        let losses = self.losses.get();
        let writing = (sectors.clone(), value, losses);
        self.writing.borrow_mut().push(writing);
        value
    }

    /// Ends a write.
    pub fn end(&self, sectors: &Range<u64>, value: Value, good: bool, durable: bool) {
        let mut writing = self.writing.borrow_mut();
        let at = writing
            .iter()
            .position(|(s, v, _)| (s, *v) == (sectors, value));
        let (.., losses) = writing.swap_remove(at.expect("it began"));
        let mut model = self.model.borrow_mut();
        model.end(sectors.clone(), value, good, durable);
        // One disk's part of the write may have gone with that disk while another was waited for.
        if losses != self.losses.get() {
            model.lose_unflushed();
        }
    }

    /// The origin may lose writes that were not flushed, and fail requests.
    pub fn lose(&self) {
        self.troubled.set(true);
        self.losses.set(self.losses.get() + 1);
        self.model.borrow_mut().lose_unflushed();
    }

    /// The origin is whole, and no request to the origin may fail.
    pub fn mend(&self) {
        if self.troubled.replace(false) {
            self.model.borrow_mut().lose_unflushed();
        }
    }

    /// The volume was read. A cached line may be newer than the bytes of an origin that was away,
    /// so that such a read decides nothing.
    pub fn was_read(&self) {
        if self.is_excused() {
            self.model.borrow_mut().lose_unflushed();
        }
    }

    pub fn is_excused(&self) -> bool {
        self.troubled.get()
    }

    /// The node is gone; with `cut`, the power too.
    pub fn orphan(&self, cut: bool) {
        let writing = self.writing.take();
        let mut model = self.model.borrow_mut();
        if cut {
            model.cut(0);
        } else {
            for (sectors, value, _) in writing {
                model.end(sectors, value, false, false);
            }
        }
    }
}

/// A running node, and its observers.
pub(super) struct NodeLife {
    pub number: u64,
    pub scenario: NodeScenario,
    pub env: Env,
    pub machine: Rc<SimMachine>,
    pub volumes: Rc<Vec<SimVolume>>,
    pub frontend: Rc<Direct>,
    pub node: RunningNode,
    pub report: Rc<RefCell<Report>>,
    pub over: Cell<bool>,
}

impl NodeLife {
    pub fn is_over(&self) -> bool {
        self.over.get() || self.report.borrow().violation.is_some()
    }

    pub fn meet(&self, class: Class) {
        self.report.borrow_mut().meet(class);
    }

    pub fn violate(&self, what: String) {
        let at = self.env.timer.now();
        let what = format!("life {}, {at}: {what}", self.number);
        self.report.borrow_mut().violate(what);
    }

    /// Requests a change. Returns true if the change was made.
    pub async fn change(&self, request: ControlRequest) -> bool {
        self.try_change(request).await.is_ok()
    }

    /// As [`NodeLife::change`], with the reason of a refusal.
    pub async fn try_change(&self, request: ControlRequest) -> Result<(), String> {
        let asked = self.node.ask(request).await;
        if asked.is_err() {
            self.meet(Class::Refused);
        }
        asked.map(drop)
    }

    pub async fn status(&self) -> Status {
        self.node.status().await.expect("a status is given")
    }

    /// Number of the disks of `volume` that are unplugged or unresponsive, or were unplugged since
    /// the node opened them. The node need not know of that yet.
    pub fn away(&self, volume: &SimVolume) -> usize {
        let disks = volume.spec.disks.iter();
        let away = |disk: &&String| !self.machine.is_present(&path(disk));
        disks.filter(away).count()
    }

    /// True if every array is served and healthy.
    pub async fn is_whole(&self) -> bool {
        let status = self.status().await;
        let all = status.arrays.len() == self.scenario.arrays.len();
        all && status.arrays.iter().all(|array| array.state == "healthy")
    }

    /// The node is about to be killed. An unplugged disk lost its volatile cache. An array that had
    /// not seen that yet will not know which member lacks the writes.
    pub async fn forget_unseen(&self) {
        for volume in self.volumes.iter().filter(|volume| self.away(volume) > 0) {
            if self.is_whole().await {
                volume.model.borrow_mut().lose_unflushed();
            }
        }
    }

    /// Counts the events of the node.
    pub fn hear(&self) {
        for event in self.machine.take_events() {
            match event {
                NodeEvent::PoolDeviceEjected { .. } => self.meet(Class::PoolDeviceEjected),
                NodeEvent::ArrayReassembled { .. } => self.meet(Class::Reassembled),
                NodeEvent::VolumeNotServed { .. } => self.meet(Class::Waited),
                _ => {}
            }
        }
    }
}
