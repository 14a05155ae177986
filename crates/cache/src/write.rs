//! The path of a write, and of whatever else changes the origin.
//!
//! Order: the blocks it touches stop being valid, promotions of them are put
//! off, then the origin is written. Where the mode says so the pool is written
//! beside it from the same memory. The caller is answered when the origin is
//! done; the pool's copy becomes valid when both have succeeded.
//!
//! A block written in part only stops being valid.

use crate::counters::Counter;
use crate::finish::Finish;
use crate::lines::{BLOCK_BYTES, BLOCK_SECTORS, Part, covering, extent_of, inside};
use crate::pool_write::PoolWrite;
use crate::state::Place;
use crate::volume::Inner;
use block::{BoxDevice, Device, Extent, Fua, IoResult, Shared};
use futures_channel::oneshot;
use futures_util::future::join_all;
use policy::{Op, Request};
use std::rc::Rc;

pub(crate) async fn write<P: Device>(
    volume: &Rc<Inner<P>>,
    extent: Extent,
    data: Shared,
    fua: Fua,
) -> IoResult {
    volume.counters.count(Counter::Writes);
    let (landed, known) = oneshot::channel();
    let fate = volume.rules().writes_update.then(|| data.clone());
    let changed = change(volume, extent, async move |origin| {
        let result = origin.write(extent.start, data, fua).await;
        // Nobody waits if there was nothing to write to the pool.
        let _ = landed.send(result.is_ok());
        result
    });
    if let Some(data) = fate {
        update(volume, extent, data, known);
    }
    changed.await
}

/// Changes `extent` of the origin by `work`, carried out even if the caller
/// gives up. The blocks have stopped being valid when this returns.
pub(crate) fn change<P: Device>(
    volume: &Rc<Inner<P>>,
    extent: Extent,
    work: impl AsyncFnOnce(&BoxDevice) -> IoResult + 'static,
) -> Finish<IoResult> {
    volume.core.watchdog.note();
    let blocks = covering(extent);
    let flight = volume.flights.begin_write(blocks.clone());
    let mut state = volume.core.state.borrow_mut();
    state.invalidate(volume.id, blocks, &volume.counters);
    drop(state);
    let this = volume.clone();
    Finish::new(volume.core.env.spawn.clone(), async move {
        let result = work(&this.origin).await;
        if result.is_err() {
            this.counters.count(Counter::OriginWriteErrors);
        }
        drop(flight);
        result
    })
}

/// Starts writing the whole blocks of `extent` to the lines they are in, or are
/// to be in.
fn update<P: Device>(
    volume: &Rc<Inner<P>>,
    extent: Extent,
    data: Shared,
    landed: oneshot::Receiver<bool>,
) {
    let mut blocks = inside(extent);
    blocks.end = blocks.end.min(volume.cacheable_end.0 / BLOCK_SECTORS);
    if blocks.start >= blocks.end {
        return;
    }
    let request = Request {
        op: Op::Write,
        len_bytes: extent.len.bytes() as u32,
        sequential: volume.sequential.borrow_mut().observe(&blocks),
    };
    let mut from = (extent_of(&blocks).start - extent.start).bytes() as usize;
    let mut updates = Vec::new();
    for part in volume.core.shape.parts(volume.id, blocks) {
        let to = from + part.run.count as usize * BLOCK_BYTES;
        if let Some(write) = begin_update(volume, part, &request) {
            updates.push(Update {
                part,
                write,
                data: data.slice(from..to),
            });
        }
        from = to;
    }
    if !updates.is_empty() {
        let (volume, working) = (volume.clone(), volume.core.background.enter());
        volume.core.env.spawn.clone().spawn(async move {
            finish_update(&volume, updates, landed).await;
            drop(working);
        });
    }
}

/// One line's part of a client's write, on its way to the pool.
struct Update<P: Device> {
    part: Part,
    write: PoolWrite<P>,
    data: Shared,
}

/// `None`, counted, if the line is not to have these blocks.
fn begin_update<P: Device>(
    volume: &Inner<P>,
    part: Part,
    request: &Request,
) -> Option<PoolWrite<P>> {
    let (core, counters) = (&volume.core, &volume.counters);
    let state = &mut *core.state.borrow_mut();
    let bytes = u64::from(part.run.count) * BLOCK_BYTES as u64;
    let may_enter = if request.sequential {
        Err(Counter::RejectedSequential)
    } else {
        state.budget.room(bytes)
    };
    let place = state.look_up(part.key, request, may_enter, counters)?;
    let permit = match place {
        Place::Resident(_) => state.budget.update(bytes),
        Place::Entered(_) => state.budget.promote(bytes),
    };
    let begun = permit.and_then(|permit| {
        PoolWrite::begin(core, state, place.slot(), part.run, permit)
            .ok_or(Counter::RejectedCollision)
    });
    begun
        .inspect_err(|why| {
            counters.count(*why);
            state.drop_if_empty(part.key, counters);
        })
        .ok()
}

/// Writes the pool, waits for the origin, and makes valid what both have.
async fn finish_update<P: Device>(
    volume: &Inner<P>,
    updates: Vec<Update<P>>,
    landed: oneshot::Receiver<bool>,
) {
    let mut writing = Vec::with_capacity(updates.len());
    for Update { part, write, data } in updates {
        writing.push(async move { (part, write.write(data).await, write) });
    }
    let written = join_all(writing).await;
    let landed = landed.await.unwrap_or(false);
    for (part, ok, write) in written {
        let problem = if !ok {
            Some(Counter::PoolWritesFailed)
        } else if !landed {
            drop(write);
            None
        } else if write.commit() {
            volume
                .counters
                .add(Counter::BlocksUpdated, u64::from(part.run.count));
            continue;
        } else {
            Some(Counter::PoolWritesPoisoned)
        };
        if let Some(counter) = problem {
            volume.counters.count(counter);
        }
        volume
            .core
            .state
            .borrow_mut()
            .drop_if_empty(part.key, &volume.counters);
    }
}
