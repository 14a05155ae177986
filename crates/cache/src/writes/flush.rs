//! Flushing a volume's origin, and the consequences of a failure.

use super::OriginDurability;
use crate::core::CacheCore;
use crate::counters::Counter;
use block::{Device, IoError, IoResult};
use std::rc::Rc;

impl OriginDurability {
    /// Flushes the origin; earlier writes that had ended are durable then. Carried through once
    /// polled, since a failure is reported only once.
    pub(crate) async fn flush<P: Device>(self: &Rc<Self>, core: &Rc<CacheCore<P>>) -> IoResult {
        let (this, core) = (self.clone(), core.clone());
        let spawn = core.env.spawn.clone();
        let flush = async move {
            let covered = this.ended.get();
            let result = this.origin.flush().await;
            match &result {
                Ok(()) => this.flushed.set(this.flushed.get().max(covered)),
                Err(error) => this.lost(&core, error),
            }
            result
        };
        spawn.persist(flush).await
    }

    /// As [`OriginDurability::flush`], for the volume's user, to whom all failures are reported.
    pub(crate) async fn flush_for_user<P: Device>(
        self: &Rc<Self>,
        core: &Rc<CacheCore<P>>,
    ) -> IoResult {
        self.errors.report_to(&self.user, self.flush(core)).await
    }

    /// As [`OriginDurability::flush`], for a snapshot of the origin, in which lost writes would be missing.
    pub(crate) async fn flush_for_back_end<P: Device>(
        self: &Rc<Self>,
        core: &Rc<CacheCore<P>>,
    ) -> IoResult {
        self.errors
            .report_to(&self.back_end, self.flush(core))
            .await
    }

    /// The origin may have lost writes since the last good flush.
    pub(crate) fn lost<P: Device>(&self, core: &CacheCore<P>, error: &IoError) {
        self.errors.record(error);
        core.counters.count(Counter::OriginFlushErrors);
        // Earlier reads are neither joined nor promoted any more.
        drop(self.flights.begin_write(0..u64::MAX));
        let (volume, shift) = (self.id(), core.shape.shift());
        let is_suspect = |line: u64| match &core.durable {
            Some(durable) => durable.is_suspect(volume, line << shift),
            None => true,
        };
        core.state.borrow_mut().distrust(volume, is_suspect);
    }
}
