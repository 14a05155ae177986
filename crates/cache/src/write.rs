//! The path of a write, and of every other change of the origin.
//!
//! Order: the blocks of the write stop being valid, their promotions are put off, then the origin
//! is written. By mode the pool is written in parallel from the same memory, and its copy becomes
//! valid when both writes have succeeded. The client is answered when the origin is done.
//!
//! A block written in part only stops being valid.
//!
//! The devices of a pool that remembers know which region is written before the origin is.

use crate::counters::Counter;
use crate::durable::Marking;
use crate::flights::WriteFlight;
use crate::inner::CacheShared;
use crate::lines::{BLOCK_BYTES, BLOCK_SECTORS, LinePart, covering, extent_of, inside};
use crate::origin::Marked;
use crate::pool_write::PoolWrite;
use crate::state::LinePlace;
use block::{BoxDevice, Device, Extent, Fua, IoErrorKind, IoResult, SeenFailures, SharedBuf};
use futures_util::future::{Either, join_all, select};
use policy::{PolicyOp, PolicyRequest};
use std::pin::pin;
use std::rc::Rc;

pub(crate) async fn write<P: Device>(
    volume: &Rc<CacheShared<P>>,
    extent: Extent,
    data: SharedBuf,
    fua: Fua,
) -> IoResult {
    volume.counters.count(Counter::Writes);
    let begun = begin(volume, extent);
    let updates = if volume.mode.get().updates() {
        begin_updates(volume, extent, &data)
    } else {
        Vec::new()
    };
    let this = volume.clone();
    let spawn = &volume.core.env.spawn;
    let carried = spawn.persist(async move {
        let origin = this.origin.marked(begun.marked().await);
        let origin = origin.write(extent.start, data, fua);
        let result = if updates.is_empty() {
            origin.await
        } else {
            write_both(&this, origin, updates).await
        };
        if let (Fua::Yes, Err(error)) = (fua, &result)
            && error.kind().data_may_have_changed()
        {
            // A flush within the write may be the part that failed.
            this.writes.lost(&this.core, error);
        }
        end(&this, begun, result)
    });
    carried.await
}

/// Changes `extent` of the origin by `work`, which leaves nothing to cache.
pub(crate) async fn change<P: Device>(
    volume: &Rc<CacheShared<P>>,
    extent: Extent,
    work: impl AsyncFnOnce(&BoxDevice) -> IoResult + 'static,
) -> IoResult {
    let begun = begin(volume, extent);
    let this = volume.clone();
    let spawn = &volume.core.env.spawn;
    let carried = spawn.persist(async move {
        let origin = this.origin.marked(begun.marked().await);
        let result = work(origin).await;
        end(&this, begun, result)
    });
    carried.await
}

/// Invalidates `extent` from here on: neither earlier operations nor origin reads before `end` make
/// its blocks valid.
fn begin<P: Device>(volume: &CacheShared<P>, extent: Extent) -> OriginChange {
    volume.core.watchdog.note();
    let blocks = covering(extent);
    let durable = volume.core.durable.as_ref();
    let marking = durable.map(|durable| Marking::begin(durable, volume.id(), &blocks));
    let flight = volume.flights.begin_write(blocks.clone());
    let mut state = volume.core.state.borrow_mut();
    state.invalidate(volume.id(), blocks, &volume.counters);
    OriginChange {
        marking,
        known: volume.writes.begin(),
        _flight: flight,
    }
}

/// A change of the origin from its begin to its end.
struct OriginChange {
    marking: Option<Marking>,
    /// The losses known at its begin.
    known: SeenFailures,
    _flight: WriteFlight,
}

impl OriginChange {
    /// Waits until the pool's devices have the marks.
    async fn marked(&self) -> Marked {
        Marked::known(self.marking.as_ref()).await
    }
}

fn end<P: Device>(volume: &CacheShared<P>, begun: OriginChange, result: IoResult) -> IoResult {
    if let Err(error) = &result {
        volume.counters.count(Counter::OriginWriteErrors);
        if error.kind() == IoErrorKind::Timeout
            && let Some(marking) = &begun.marking
        {
            marking.stay();
        }
    }
    volume.writes.end(begun.known);
    drop(begun);
    result
}

/// Begins to write the whole blocks of `extent` to their present or future lines.
fn begin_updates<P: Device>(
    volume: &Rc<CacheShared<P>>,
    extent: Extent,
    data: &SharedBuf,
) -> Vec<LineUpdate<P>> {
    let mut blocks = inside(extent);
    blocks.end = blocks.end.min(volume.cacheable_end.0 / BLOCK_SECTORS);
    let mut updates = Vec::new();
    if blocks.start >= blocks.end {
        return updates;
    }
    let is_sequential = volume.sequential.borrow_mut().observe(&blocks);
    let request = PolicyRequest {
        op: PolicyOp::Write,
        len_bytes: extent.len.bytes() as u32,
        ..PolicyRequest::default()
    };
    let mut from = (extent_of(&blocks).start - extent.start).bytes() as usize;
    for part in volume.core.shape.parts(volume.id(), blocks) {
        let to = from + part.run.count as usize * BLOCK_BYTES;
        let touches = PolicyRequest {
            parts: volume.core.shape.touched(part.run),
            ..request
        };
        if let Some(write) = begin_update(volume, part, &touches, is_sequential) {
            updates.push(LineUpdate {
                part,
                write,
                data: data.slice(from..to),
            });
        }
        from = to;
    }
    updates
}

/// One line's part of a client's write, in flight to the pool.
struct LineUpdate<P: Device> {
    part: LinePart,
    write: PoolWrite<P>,
    data: SharedBuf,
}

/// `None`, counted, if the line is not to have these blocks.
fn begin_update<P: Device>(
    volume: &CacheShared<P>,
    part: LinePart,
    request: &PolicyRequest,
    is_sequential: bool,
) -> Option<PoolWrite<P>> {
    let (core, counters) = (&volume.core, &volume.counters);
    let state = &mut *core.state.borrow_mut();
    let bytes = u64::from(part.run.count) * BLOCK_BYTES as u64;
    let may_enter = if is_sequential {
        Err(Counter::RejectedSequential)
    } else {
        state.budget.room(bytes)
    };
    let place = state.look_up(part.key, request, may_enter, counters)?;
    let permit = match place {
        LinePlace::Resident(_) => state.budget.update(bytes),
        LinePlace::Entered(_) => state.budget.promote(bytes),
    };
    let begun = permit.and_then(|permit| {
        PoolWrite::begin(core, state, place.slot(), part.run, permit)
            .ok_or(Counter::RejectedCollision)
    });
    begun
        .inspect_err(|why| {
            state.refuse(part.key, *why, counters);
            state.drop_if_empty(part.key, counters);
        })
        .ok()
}

/// Writes the origin and the pool at once, and makes blocks valid that both have.
///
/// Never waits for the pool: a pool write that ends after the origin's makes its blocks valid
/// later, unless another write has come by then.
async fn write_both<P: Device>(
    volume: &Rc<CacheShared<P>>,
    origin: impl Future<Output = IoResult>,
    updates: Vec<LineUpdate<P>>,
) -> IoResult {
    let working = volume.core.background.enter();
    let writing = volume.core.env.spawn.persist(async move {
        let written = join_all(updates.into_iter().map(LineUpdate::write)).await;
        (written, working)
    });
    match select(pin!(origin), writing).await {
        Either::Left((Ok(()), writing)) => {
            let volume = volume.clone();
            volume.core.env.spawn.clone().spawn(async move {
                let (written, _working) = writing.await;
                settle(&volume, written, &Ok(()));
            });
            Ok(())
        }
        Either::Left((failed, _)) => failed,
        Either::Right(((written, _working), origin)) => {
            let result = origin.await;
            settle(volume, written, &result);
            result
        }
    }
}

/// Makes blocks valid that both have, by the outcome at the origin.
fn settle<P: Device>(volume: &CacheShared<P>, written: Vec<Written<P>>, result: &IoResult) {
    for (part, write, done) in written {
        let committed = done && result.is_ok() && write.commit();
        if committed {
            let blocks = u64::from(part.run.count);
            volume.counters.add(Counter::BlocksUpdated, blocks);
            continue;
        }
        let why_not = match (done, result) {
            (false, _) => Counter::PoolWritesFailed,
            (true, Err(_)) => Counter::PoolWritesInVain,
            (true, Ok(())) => Counter::PoolWritesPoisoned,
        };
        let mut state = volume.core.state.borrow_mut();
        state.refuse(part.key, why_not, &volume.counters);
        state.drop_if_empty(part.key, &volume.counters);
    }
}

/// A line's part, its write to the pool, and whether that succeeded.
type Written<P> = (LinePart, PoolWrite<P>, bool);

impl<P: Device> LineUpdate<P> {
    async fn write(self) -> Written<P> {
        let done = self.write.write(self.data).await;
        (self.part, self.write, done)
    }
}
