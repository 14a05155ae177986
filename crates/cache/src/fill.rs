//! Promotion: the bytes of a miss are copied into the pool, after the reply.
//!
//! The line got its slot when the read was planned. When its bytes are here, the line may have lost
//! the slot, and a write may have overtaken the read. Both are checked again before the pool write;
//! a later client write poisons the pool write.

use crate::budget::PromotionPermit;
use crate::counters::Counter;
use crate::flights::ReadFlight;
use crate::inner::CacheShared;
use crate::lines::{BLOCK_BYTES, LinePart};
use crate::pool_write::PoolWrite;
use block::{Buf, Device};
use std::ops::Range;
use std::rc::Rc;

/// Starts a promotion for each resident line of `blocks`, with the contents `bytes`. Copies them,
/// waits for nothing.
pub(crate) fn promote<P: Device>(
    volume: &Rc<CacheShared<P>>,
    flight: ReadFlight,
    blocks: Range<u64>,
    bytes: &[u8],
    mut permit: PromotionPermit,
) {
    if flight.is_overwritten() {
        volume.counters.count(Counter::RejectedOverwritten);
        return give_up(volume, blocks);
    }
    let core = &volume.core;
    let flight = Rc::new(flight);
    let mut bytes = bytes;
    for part in core.shape.parts(volume.id(), blocks) {
        let (here, rest) = bytes.split_at(part.run.count as usize * BLOCK_BYTES);
        bytes = rest;
        if core.state.borrow().policy.peek(part.key).is_none() {
            continue;
        }
        let Some(mut copy) = core.env.pool.try_get(here.len()) else {
            let mut state = core.state.borrow_mut();
            state.refuse(part.key, Counter::RejectedMemory, &volume.counters);
            state.drop_if_empty(part.key, &volume.counters);
            continue;
        };
        copy.copy_from_slice(here);
        let permit = permit.split(here.len() as u64);
        let (volume, flight) = (volume.clone(), flight.clone());
        let working = core.background.enter();
        core.env.spawn.spawn(async move {
            match fill(&volume, &flight, part, copy, permit).await {
                Ok(()) => {
                    let blocks = u64::from(part.run.count);
                    volume.counters.count(Counter::Promotions);
                    volume.counters.add(Counter::BlocksPromoted, blocks);
                }
                Err(why) => {
                    let mut state = volume.core.state.borrow_mut();
                    state.refuse(part.key, why, &volume.counters);
                    state.drop_if_empty(part.key, &volume.counters);
                }
            }
            drop(working);
        });
    }
}

/// Writes one line's part to the pool, or returns the reason why not.
async fn fill<P: Device>(
    volume: &Rc<CacheShared<P>>,
    flight: &ReadFlight,
    part: LinePart,
    copy: Buf,
    permit: PromotionPermit,
) -> Result<(), Counter> {
    let core = &volume.core;
    let write = {
        let state = &mut *core.state.borrow_mut();
        if flight.is_overwritten() {
            return Err(Counter::RejectedOverwritten);
        }
        let slot = state
            .policy
            .peek(part.key)
            .ok_or(Counter::RejectedEvicted)?;
        PoolWrite::begin(core, state, slot, part.run, permit).ok_or(Counter::RejectedCollision)?
    };
    if !write.write(copy.share()).await {
        return Err(Counter::PoolWritesFailed);
    }
    if !write.commit() {
        return Err(Counter::PoolWritesPoisoned);
    }
    Ok(())
}

/// Gives up the lines of `blocks` that were to be filled and now hold nothing.
pub(crate) fn give_up<P: Device>(volume: &CacheShared<P>, blocks: Range<u64>) {
    let mut state = volume.core.state.borrow_mut();
    for part in volume.core.shape.parts(volume.id(), blocks) {
        state.drop_if_empty(part.key, &volume.counters);
    }
}
