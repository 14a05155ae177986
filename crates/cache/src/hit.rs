//! Blocks read from the pool straight into the caller's buffer.
//!
//! A hit either delivers bytes that match their checksum and that no pool write
//! touched meanwhile, or says that the origin must be asked.

use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::PoolMember;
use crate::health::DeviceFault;
use crate::lines::BlockRun;
use crate::state::CacheState;
use block::{Buf, Device, IoResult};
use policy::SlotNumber;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

/// Valid blocks of one slot, pinned there.
pub(crate) struct HitBlocks<P: Device> {
    core: Rc<CacheCore<P>>,
    member: Rc<PoolMember<P>>,
    id: usize,
    slot: SlotNumber,
    run: BlockRun,
}

/// A hit without a result: the buffer, unless the device still holds it.
pub(crate) struct LostHit(pub(crate) Option<Buf>);

impl<P: Device> HitBlocks<P> {
    #[inline]
    pub(crate) fn begin(
        core: &Rc<CacheCore<P>>,
        state: &mut CacheState<P>,
        slot: SlotNumber,
        run: BlockRun,
    ) -> HitBlocks<P> {
        let member = state
            .devices
            .of(slot)
            .expect("a resident line is on a device")
            .clone();
        member.operations.begin();
        HitBlocks {
            core: core.clone(),
            id: state.busy.begin_hit(slot, run),
            member,
            slot,
            run,
        }
    }

    /// Reads the blocks, unless the watchdog finds that late.
    pub(crate) async fn read(self, buf: Buf) -> Result<Buf, LostHit> {
        let mut work = pin!(self.work(buf));
        poll_fn(|cx| self.poll(work.as_mut(), cx)).await
    }

    /// The device's part of the read, for [`HitBlocks::poll`].
    #[inline]
    pub(crate) fn work(&self, buf: Buf) -> impl Future<Output = (Buf, IoResult)> + use<'_, P> {
        let at = self.member.at(self.slot, self.run.first);
        self.member.device.read(at, buf)
    }

    /// Returns the blocks once `work` has read them, or the loss of the hit.
    #[inline]
    pub(crate) fn poll(
        &self,
        work: Pin<&mut impl Future<Output = (Buf, IoResult)>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Buf, LostHit>> {
        if let Poll::Ready((buf, result)) = work.poll(cx) {
            return Poll::Ready(self.settle(buf, result));
        }
        let mut state = self.core.state.borrow_mut();
        if state.busy.is_late(self.id, cx.waker()) {
            return Poll::Ready(Err(LostHit(None)));
        }
        Poll::Pending
    }

    #[inline]
    fn settle(&self, buf: Buf, result: IoResult) -> Result<Buf, LostHit> {
        let HitBlocks {
            core,
            member,
            slot,
            run,
            ..
        } = self;
        let state = &mut *core.state.borrow_mut();
        if let Err(error) = result {
            state.contents.invalidate(*slot, *run);
            state.fault(member, DeviceFault::of(error.kind()), core.env.timer.now());
            core.counters.count(Counter::HitsFailed);
            return Err(LostHit(Some(buf)));
        }
        if state.busy.is_torn(self.id) {
            core.counters.count(Counter::HitsTorn);
            return Err(LostHit(Some(buf)));
        }
        let bad = state.verify(*slot, *run, &buf);
        if bad > 0 {
            core.counters.add(Counter::BlocksCorrupt, bad);
            state.fault(member, DeviceFault::Corrupt, core.env.timer.now());
            return Err(LostHit(Some(buf)));
        }
        member.health.operation();
        Ok(buf)
    }
}

impl<P: Device> Drop for HitBlocks<P> {
    fn drop(&mut self) {
        self.core.state.borrow_mut().busy.end_hit(self.id);
        self.member.operations.end();
    }
}
