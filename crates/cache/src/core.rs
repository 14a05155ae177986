//! The state that all parts of a cache share.

use crate::config::Config;
use crate::counters::CacheCounters;
use crate::durable::PoolMetadata;
use crate::lines::LineShape;
use crate::state::CacheState;
use crate::watchdog::Watchdog;
use block::{Device, Env, InFlight, Nanos};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Time limit of metadata, as a multiple of the limit for hits: a slower device is ejected.
const METADATA_TIMEOUT_FACTOR: u64 = 10;

pub(crate) struct CacheCore<P: Device> {
    pub(crate) config: Config,
    pub(crate) shape: LineShape,
    pub(crate) env: Env,
    pub(crate) state: RefCell<CacheState<P>>,
    /// The state that belongs to no volume that exists.
    pub(crate) counters: Rc<CacheCounters>,
    /// Counters of the present volumes.
    pub(crate) volume_counters: RefCell<Vec<Rc<CacheCounters>>>,
    pub(crate) watchdog: Watchdog,
    /// Tasks that write to the pool.
    pub(crate) background: Rc<InFlight>,
    /// The metadata of the pool's devices, if any.
    pub(crate) durable: Option<Rc<PoolMetadata>>,
    /// The id of the next volume, if none is kept.
    pub(crate) next_volume: Cell<u32>,
}

impl<P: Device> CacheCore<P> {
    /// The time limit of a device's metadata writes.
    pub(crate) fn metadata_timeout(&self) -> Nanos {
        Nanos(self.config.hit_latency_max.0 * METADATA_TIMEOUT_FACTOR)
    }
}

impl<P: Device> Drop for CacheCore<P> {
    fn drop(&mut self) {
        self.watchdog.wake();
        if let Some(durable) = &self.durable {
            durable.end();
        }
    }
}
