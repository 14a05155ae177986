//! Blocks read from the pool straight into the caller's buffer.
//!
//! A hit either delivers bytes that match their checksum and that no pool write
//! touched meanwhile, or says that the origin must be asked.

use crate::core::Core;
use crate::counters::Counter;
use crate::devices::Member;
use crate::health::Fault;
use crate::lines::Run;
use crate::state::State;
use block::{Buf, Device, IoResult};
use policy::Slot;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

/// Valid blocks of one slot, pinned there.
pub(crate) struct Hit<P: Device> {
    core: Rc<Core<P>>,
    member: Rc<Member<P>>,
    id: usize,
    slot: Slot,
    run: Run,
}

/// A hit without a result: the buffer, unless the device still holds it.
pub(crate) struct Lost(pub(crate) Option<Buf>);

impl<P: Device> Hit<P> {
    #[inline]
    pub(crate) fn begin(core: &Rc<Core<P>>, state: &mut State<P>, slot: Slot, run: Run) -> Hit<P> {
        let member = state
            .devices
            .of(slot)
            .expect("a resident line is on a device")
            .clone();
        member.operations.begin();
        Hit {
            core: core.clone(),
            id: state.busy.begin_hit(slot, run),
            member,
            slot,
            run,
        }
    }

    /// Reads the blocks, unless the watchdog finds that late.
    pub(crate) async fn read(self, buf: Buf) -> Result<Buf, Lost> {
        let mut work = pin!(self.work(buf));
        poll_fn(|cx| self.poll(work.as_mut(), cx)).await
    }

    /// The device's part of the read, for [`Hit::poll`].
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
    ) -> Poll<Result<Buf, Lost>> {
        if let Poll::Ready((buf, result)) = work.poll(cx) {
            return Poll::Ready(self.settle(buf, result));
        }
        let mut state = self.core.state.borrow_mut();
        if state.busy.is_late(self.id, cx.waker()) {
            return Poll::Ready(Err(Lost(None)));
        }
        Poll::Pending
    }

    #[inline]
    fn settle(&self, buf: Buf, result: IoResult) -> Result<Buf, Lost> {
        let Hit {
            core,
            member,
            slot,
            run,
            ..
        } = self;
        let state = &mut *core.state.borrow_mut();
        if let Err(error) = result {
            state.contents.invalidate(*slot, *run);
            state.fault(member, Fault::of(error.kind()), core.env.timer.now());
            core.counters.count(Counter::HitsFailed);
            return Err(Lost(Some(buf)));
        }
        if state.busy.is_torn(self.id) {
            core.counters.count(Counter::HitsTorn);
            return Err(Lost(Some(buf)));
        }
        let bad = state.verify(*slot, *run, &buf);
        if bad > 0 {
            core.counters.add(Counter::BlocksCorrupt, bad);
            state.fault(member, Fault::Corrupt, core.env.timer.now());
            return Err(Lost(Some(buf)));
        }
        member.health.operation();
        Ok(buf)
    }
}

impl<P: Device> Drop for Hit<P> {
    fn drop(&mut self) {
        self.core.state.borrow_mut().busy.end_hit(self.id);
        self.member.operations.end();
    }
}
