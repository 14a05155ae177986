//! The state that the tasks of a run share.

use super::report::Report;
use super::scenario::CacheScenario;
use crate::model::VolumeModel;
use block::{Env, Gate, Nanos, TargetId};
use cache::Cache;
use futures_util::future::{Either, select};
use shard::{Local, ShardDisk};
use sim::{SimDriver, WorldControl};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

/// No operation may take longer. A client waits for late hits, other clients'
/// overlapping requests and their late hits: some tens of milliseconds here.
pub const STALL_MAX: Nanos = Nanos::from_secs(1);

/// Longest time that stuck operations delay a change of the pool.
const STUCK_MAX: Nanos = Nanos::from_millis(5);

pub(crate) type Leaf = ShardDisk<SimDriver>;

/// A volume, as clients and troublemaker use it.
pub(crate) type Volume = cache::Volume<Leaf>;

/// A volume under test.
pub(crate) struct TestVolume {
    pub(crate) name: String,
    pub(crate) sectors: u64,
    pub(crate) volume: Volume,
    pub(crate) gate: Gate<Volume>,
    pub(crate) model: RefCell<VolumeModel>,
    pub(super) origin: TargetId,
}

/// The state that the tasks of a run share.
pub(crate) struct CacheSimShared {
    pub(crate) scenario: Arc<CacheScenario>,
    pub(crate) env: Env,
    pub(crate) local: Local<SimDriver>,
    pub(crate) control: WorldControl,
    pub(crate) cache: Cache<Leaf>,
    pub(crate) targets: Vec<TestVolume>,
    pub(crate) pool: Vec<TargetId>,
    pub(crate) report: Rc<RefCell<Report>>,
    pub(super) over: Cell<bool>,
    pub(super) hung: Vec<Cell<bool>>,
}

impl CacheSimShared {
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    pub(crate) fn hang(&self, disk: usize) {
        self.hung[disk].set(true);
        self.control.hang(self.pool[disk]);
    }

    pub(crate) fn is_hung(&self, disk: usize) -> bool {
        self.hung[disk].get()
    }

    pub(crate) fn is_any_hung(&self) -> bool {
        self.hung.iter().any(Cell::get)
    }

    /// Lets the operations go on of slow disks, but not of hung ones.
    pub(super) fn release_stuck(&self) {
        for (disk, hung) in self.pool.iter().zip(&self.hung) {
            if !hung.get() {
                self.control.release(*disk);
            }
        }
    }

    /// Runs `work`, releasing the operations that disks hold: a change of the pool waits for these.
    pub(crate) async fn unstuck<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let pause = self.env.timer.sleep(STUCK_MAX);
            match select(&mut work, pin!(pause)).await {
                Either::Left((value, _)) => return value,
                Either::Right(_) => self.release_stuck(),
            }
        }
    }

    pub(crate) fn violate(&self, what: String) {
        let what = format!("{} at {}", what, self.env.timer.now());
        self.report.borrow_mut().violate(what);
    }

    /// A client's operation has ended.
    pub(crate) fn finished(&self, took: Nanos) {
        self.report.borrow_mut().operations += 1;
        if took > STALL_MAX {
            self.violate(format!("a client waited {took}"));
        }
    }
}
