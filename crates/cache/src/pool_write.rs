//! Blocks written to the pool, by a promotion or beside a client's write.
//!
//! The blocks are not valid from `begin` on. `commit` makes them valid, unless a client's write or
//! the loss of the device has poisoned them meanwhile.

use crate::budget::PromotionPermit;
use crate::core::CacheCore;
use crate::devices::PoolMember;
use crate::health::DeviceFault;
use crate::lines::{BLOCK_BYTES, BlockRun};
use crate::state::CacheState;
use block::{Device, Fua, SharedBuf};
use policy::SlotNumber;
use std::rc::Rc;

/// A run of one slot under a write, pinned there.
pub(crate) struct PoolWrite<P: Device> {
    core: Rc<CacheCore<P>>,
    member: Rc<PoolMember<P>>,
    id: usize,
    slot: SlotNumber,
    run: BlockRun,
}

impl<P: Device> PoolWrite<P> {
    /// Begins a write to `run`; `None` if another is in flight there.
    pub(crate) fn begin(
        core: &Rc<CacheCore<P>>,
        state: &mut CacheState<P>,
        slot: SlotNumber,
        run: BlockRun,
        permit: PromotionPermit,
    ) -> Option<PoolWrite<P>> {
        if state.busy.is_written(slot, run) {
            return None;
        }
        let member = state
            .devices
            .of(slot)
            .expect("a resident line is on a device")
            .clone();
        member.operations.begin();
        state.contents.invalidate(slot, run);
        Some(PoolWrite {
            core: core.clone(),
            id: state
                .busy
                .begin_write(slot, run, permit, member.health.answered()),
            member,
            slot,
            run,
        })
    }

    /// Writes the blocks. Returns true if that succeeded.
    pub(crate) async fn write(&self, data: SharedBuf) -> bool {
        self.record_checksums(&data);
        let at = self.member.at(self.slot, self.run.first);
        let begun = self.core.env.timer.now();
        let result = self.member.device.write(at, data, Fua::No).await;
        let now = self.core.env.timer.now();
        self.core.state.borrow_mut().busy.answered(self.id);
        self.member.health.answer();
        match result {
            Ok(()) => {
                self.member.health.operation();
                self.member.health.wrote(now.since(begun));
                true
            }
            Err(error) => {
                let mut state = self.core.state.borrow_mut();
                state.fault(&self.member, DeviceFault::of(error.kind()), now);
                false
            }
        }
    }

    /// Sets the checksums of the blocks, which are not valid and have no other writer.
    fn record_checksums(&self, data: &[u8]) {
        let mut state = self.core.state.borrow_mut();
        for (block, bytes) in (self.run.first..).zip(data.chunks_exact(BLOCK_BYTES)) {
            state
                .contents
                .set_crc(self.slot, block, crc_fast::crc32_iscsi(bytes));
        }
    }

    /// Makes the blocks valid, unless they were poisoned. Returns true if they are valid.
    pub(crate) fn commit(self) -> bool {
        let mut state = self.core.state.borrow_mut();
        let good = !state.busy.is_poisoned(self.id);
        if good {
            state.contents.validate(self.slot, self.run);
            if let Some(durable) = &state.durable {
                durable.note();
            }
        }
        good
    }
}

impl<P: Device> Drop for PoolWrite<P> {
    fn drop(&mut self) {
        self.core.state.borrow_mut().busy.end_write(self.id);
        self.member.operations.end();
    }
}
