//! The path of a read.
//!
//! A request is cut into hits (valid runs of one line), runs that an origin read in flight will
//! bring, and runs to be read from the origin. Runs missing from neighbouring lines are one origin
//! read. A hit of one run, the common case, goes straight to the device and allocates nothing; the
//! rest is boxed.
//!
//! Not here: the rest of a volume beyond a multiple of 4 KiB. A request that touches that rest goes
//! to the origin.

use crate::budget::{PromotionBudget, PromotionPermit};
use crate::counters::Counter;
use crate::devices::DeviceId;
use crate::fill;
use crate::hit::{HitBlocks, LostHit};
use crate::inner::CacheShared;
use crate::lines::{
    BLOCK_BYTES, BLOCK_SECTORS, BlockRun, LinePart, bytes_of, covering, extent_of, inside,
};
use crate::state::{CacheState, LinePlace};
use block::{
    BUF_BYTES_MAX, Buf, Device, Extent, IoResult, KeptHits, LOCATED_BLOCK_BYTES,
    LOCATED_BLOCKS_MAX, Lba, LocatedRead, LocatedUnit, MoreBlocks, UNIT_BLOCKS_MAX,
};
use futures_util::future::join_all;
use policy::{PolicyOp, PolicyRequest, SlotNumber};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

pub(crate) async fn read<P: Device>(
    volume: &Rc<CacheShared<P>>,
    at: Lba,
    buf: Buf,
) -> (Buf, IoResult) {
    let extent = match volume.check_transfer(at, buf.len()) {
        Ok(extent) => extent,
        Err(error) => return (buf, Err(error)),
    };
    volume.core.watchdog.note();
    let blocks = covering(extent);
    if !volume.mode.get().caches_reads()
        || extent.end() > volume.cacheable_end
        || bytes_of(&blocks) > BUF_BYTES_MAX
    {
        volume.counters.count(Counter::ReadsPassed);
        return Box::pin(volume.origin.read(at, buf)).await;
    }
    // Off the blocks, whole blocks are read, verified and cut.
    let (whole, part) = if inside(extent) == blocks {
        (buf, None)
    } else {
        (volume.core.env.pool.take(bytes_of(&blocks)), Some(buf))
    };
    let (whole, result) = match plan(volume, &blocks) {
        // As in `HitBlocks::read`, but in this very future: moving another future into this one costs as
        // much as the look-up.
        ReadPlan::Hit(hit) => {
            let mut work = pin!(hit.work(whole));
            match poll_fn(|cx| hit.poll(work.as_mut(), cx)).await {
                Ok(whole) => (whole, Ok(())),
                Err(lost) => Box::pin(recover(volume, blocks, lost)).await,
            }
        }
        ReadPlan::Pieces(pieces) => {
            Box::pin(read_pieces(volume, blocks.start, pieces, whole)).await
        }
    };
    match part {
        None => (whole, result),
        Some(buf) => (cut(extent, &whole, buf), result),
    }
}

const _: () = assert!(BLOCK_BYTES == LOCATED_BLOCK_BYTES);

/// Looks up a read for a reader of the disks. The read is located if the whole of it is hits, on
/// disks of the driver, and then counts as a hit.
pub(crate) fn locate<P: Device>(volume: &CacheShared<P>, extent: Extent) -> Option<LocatedRead> {
    let core = &volume.core;
    let blocks = covering(extent);
    let count = blocks.end - blocks.start;
    if volume.check(extent).is_err()
        || !volume.mode.get().caches_reads()
        || extent.end() > volume.cacheable_end
        || count > LOCATED_BLOCKS_MAX as u64
    {
        return None;
    }
    let state = &mut *core.state.borrow_mut();
    let mut parts = core.shape.parts(volume.id(), blocks.clone());
    let first = parts.next()?;
    let (slot, mut located) = locate_part(state, first)?;
    let mut slots = Vec::new();
    if u64::from(located.blocks) < count {
        let rest = parts.clone().map(|part| locate_part(state, part));
        let rest = rest.collect::<Option<Vec<_>>>()?.into_iter();
        (slots, located.more.get_or_insert_default().rest) = rest.unzip();
    }
    let counters = &volume.counters;
    volume.sequential.borrow_mut().observe(&blocks);
    state.touch(slot, first, bytes_of(&blocks));
    for (slot, part) in slots.into_iter().zip(parts) {
        state.touch(slot, part, bytes_of(&blocks));
    }
    counters.count(Counter::ReadsHit);
    counters.count(Counter::HitsLocated);
    counters.add(Counter::BlocksHit, count);
    located.skip = (extent.start - extent_of(&blocks).start).bytes() as u32;
    Some(located)
}

/// Counts hits that were not looked up. The policy hears of each place once, and of no line that has
/// left meanwhile. Streams are not followed: those read blocks that are not resident too.
pub(crate) fn count_kept<P: Device>(volume: &CacheShared<P>, hits: &KeptHits) {
    let counters = &volume.counters;
    for counter in [Counter::ReadsHit, Counter::HitsLocated, Counter::HitsKept] {
        counters.add(counter, hits.requests.count());
    }
    counters.add(Counter::BlocksHit, hits.blocks);
    let state = &mut *volume.core.state.borrow_mut();
    for touch in hits
        .touched
        .iter()
        .filter(|touch| volume.check(touch.extent).is_ok())
    {
        let blocks = covering(touch.extent);
        for part in volume.core.shape.parts(volume.id(), blocks.clone()) {
            if let Some(slot) = state.policy.peek(part.key) {
                state.touch(slot, part, bytes_of(&blocks));
            }
        }
    }
    for (member, reads) in &hits.disks {
        // A device that was removed meanwhile is counted no more.
        if let Some(member) = state.devices.get(DeviceId(*member)) {
            member.health.operations(reads.count());
            member.device.read_elsewhere(reads);
        }
    }
}

/// The place of the unit of the block at `at`.
pub(crate) fn locate_unit<P: Device>(volume: &CacheShared<P>, at: Lba) -> Option<LocatedUnit> {
    let shape = volume.core.shape;
    let state = volume.core.state.borrow();
    let generations = state.contents.generations();
    let (unit, end) = (u64::from(generations.unit_blocks()), volume.cacheable_end);
    let first = at.0 / BLOCK_SECTORS / unit * unit;
    let part = shape.parts(volume.id(), first..first + unit).next()?;
    let slot = state.policy.peek(part.key)?;
    let member = state.devices.of(slot)?;
    let mut located = LocatedUnit {
        extent: extent_of(&(first..first + u64::from(part.run.count))),
        place: member.device.disk_place(member.at(slot, part.run.first))?,
        member: member.id.0,
        generation: generations.of(slot.0),
        valid: 0,
        checksums: [0; UNIT_BLOCKS_MAX as usize],
    };
    for block in 0..part.run.count {
        let run = BlockRun {
            first: part.run.first + block,
            count: 1,
        };
        if state.contents.leading(slot, run).0
            && extent_of(&(first..first + u64::from(block) + 1)).end() <= end
        {
            located.valid |= 1 << block;
            located.checksums[block as usize] = state.contents.crc(slot, run.first);
        }
    }
    Some(located)
}

/// The place of the blocks of a part, if all are valid.
#[inline]
fn locate_part<P: Device>(
    state: &CacheState<P>,
    part: LinePart,
) -> Option<(SlotNumber, LocatedRead)> {
    let (slot, run) = (state.policy.peek(part.key)?, part.run);
    if state.contents.leading(slot, run) != (true, run.count) {
        return None;
    }
    let member = state.devices.of(slot)?;
    let checksum = |block| state.contents.crc(slot, block);
    let read = LocatedRead {
        place: member.device.disk_place(member.at(slot, run.first))?,
        blocks: run.count,
        skip: 0,
        checksum: checksum(run.first),
        member: member.id.0,
        generation: state.contents.generations().of(slot.0),
        more: MoreBlocks::of((run.first + 1..run.first + run.count).map(checksum)),
    };
    Some((slot, read))
}

/// Cuts the requested part out of the blocks around `extent`.
fn cut(extent: Extent, whole: &[u8], mut part: Buf) -> Buf {
    let blocks = covering(extent);
    let from = (extent.start - extent_of(&blocks).start).bytes() as usize;
    part.copy_from_slice(&whole[from..from + extent.len.bytes() as usize]);
    part
}

enum ReadPlan<P: Device> {
    /// The whole request is valid in one slot.
    Hit(HitBlocks<P>),
    /// The sources of the blocks, with the number from each, in order.
    Pieces(Vec<(u64, ReadPiece<P>)>),
}

enum ReadPiece<P: Device> {
    Hit(HitBlocks<P>),
    /// Read from the origin, and if permitted promote into the pool.
    Origin(Option<PromotionPermit>),
    /// With an origin read in flight.
    Join,
}

/// Looks each line up once and decides where every block comes from.
#[inline]
fn plan<P: Device>(volume: &Rc<CacheShared<P>>, blocks: &Range<u64>) -> ReadPlan<P> {
    let (core, counters) = (&volume.core, &volume.counters);
    let bytes = bytes_of(blocks);
    let is_sequential = volume.sequential.borrow_mut().observe(blocks);
    let request = PolicyRequest {
        op: PolicyOp::Read,
        len_bytes: bytes as u32,
        ..PolicyRequest::default()
    };
    let state = &mut *core.state.borrow_mut();
    let may_enter = if is_sequential {
        Err(Counter::RejectedSequential)
    } else {
        state.budget.room(bytes as u64)
    };
    let mut pieces = Vec::new();
    let mut at = blocks.start;
    let mut missing = at..at;
    for part in core.shape.parts(volume.id(), blocks.clone()) {
        let touches = PolicyRequest {
            parts: core.shape.touched(part.run),
            ..request
        };
        let slot = state
            .look_up(part.key, &touches, may_enter, counters)
            .map(LinePlace::slot);
        let mut run = part.run;
        while run.count > 0 {
            let (valid, count) = match slot {
                Some(slot) => state.contents.leading(slot, run),
                None => (false, run.count),
            };
            let here = BlockRun { count, ..run };
            let count = u64::from(count);
            if let (Some(slot), true) = (slot, valid) {
                let hit = HitBlocks::begin(core, state, slot, here);
                if count == blocks.end - blocks.start {
                    counters.count(Counter::ReadsHit);
                    counters.add(Counter::BlocksHit, count);
                    return ReadPlan::Hit(hit);
                }
                cut_missing(
                    volume,
                    &state.budget,
                    missing,
                    may_enter.is_ok(),
                    &mut pieces,
                );
                pieces.push((count, ReadPiece::Hit(hit)));
                missing = at + count..at + count;
            } else {
                missing.end += count;
            }
            at += count;
            run.first += here.count;
            run.count -= here.count;
        }
    }
    cut_missing(
        volume,
        &state.budget,
        missing,
        may_enter.is_ok(),
        &mut pieces,
    );
    count_pieces(volume, &pieces, is_sequential);
    ReadPlan::Pieces(pieces)
}

/// Adds the pieces of a missing run.
fn cut_missing<P: Device>(
    volume: &CacheShared<P>,
    budget: &Rc<PromotionBudget>,
    missing: Range<u64>,
    promote: bool,
    pieces: &mut Vec<(u64, ReadPiece<P>)>,
) {
    volume.flights.split(missing, |run, join| {
        let piece = if join {
            ReadPiece::Join
        } else if promote {
            ReadPiece::Origin(permit(volume, budget, &run))
        } else {
            ReadPiece::Origin(None)
        };
        pieces.push((run.end - run.start, piece));
    });
}

fn permit<P: Device>(
    volume: &CacheShared<P>,
    budget: &Rc<PromotionBudget>,
    blocks: &Range<u64>,
) -> Option<PromotionPermit> {
    budget
        .promote(bytes_of(blocks) as u64)
        .inspect_err(|why| volume.counters.count(*why))
        .ok()
}

fn count_pieces<P: Device>(
    volume: &CacheShared<P>,
    pieces: &[(u64, ReadPiece<P>)],
    streamed: bool,
) {
    let mut missed = false;
    for (count, piece) in pieces {
        let hit = matches!(piece, ReadPiece::Hit(_));
        missed |= !hit;
        let counter = if hit {
            Counter::BlocksHit
        } else {
            Counter::BlocksMissed
        };
        volume.counters.add(counter, *count);
        if streamed && !hit {
            volume.counters.add(Counter::BlocksStreamed, *count);
        }
    }
    let counter = if missed {
        Counter::ReadsMissed
    } else {
        Counter::ReadsHit
    };
    volume.counters.count(counter);
}

/// Carries out all pieces at once and joins their bytes.
async fn read_pieces<P: Device>(
    volume: &Rc<CacheShared<P>>,
    first: u64,
    pieces: Vec<(u64, ReadPiece<P>)>,
    buf: Buf,
) -> (Buf, IoResult) {
    let pool = &volume.core.env.pool;
    let (len, counts) = (buf.len(), pieces.iter().map(|(count, _)| *count));
    let reads = cut_up(first, counts.collect(), buf)
        .zip(pieces)
        .map(|((blocks, part), (_, piece))| read_piece(volume, blocks, piece, part));
    let done = join_all(reads).await;
    let counts = done.iter().map(|(blocks, ..)| blocks.end - blocks.start);
    let counts: Vec<u64> = counts.collect();
    let (mut bufs, mut result) = (Vec::with_capacity(done.len()), Ok(()));
    if done.iter().all(|(_, buf, _)| buf.is_some()) {
        for (_, buf, outcome) in done {
            bufs.extend(buf);
            result = result.and(outcome);
        }
        return (Buf::join(bufs, pool), result);
    }
    // A device keeps all of the memory: one buffer takes its place.
    let copied = cut_up(first, counts, pool.take(len)).zip(done);
    let again = copied.map(
        async |((_, mut part), (blocks, read, outcome))| match read {
            Some(read) => {
                part.copy_from_slice(&read);
                (part, outcome)
            }
            None => retry(volume, blocks, part).await,
        },
    );
    for (buf, outcome) in join_all(again).await {
        bufs.push(buf);
        result = result.and(outcome);
    }
    (Buf::join(bufs, pool), result)
}

/// Cuts `buf` into runs of `counts` blocks, the first of which begins at `first`.
fn cut_up(first: u64, counts: Vec<u64>, buf: Buf) -> impl Iterator<Item = (Range<u64>, Buf)> {
    let (mut at, mut rest) = (first, Some(buf));
    counts.into_iter().map(move |count| {
        let blocks = at..at + count;
        at = blocks.end;
        let buf = rest.take().expect("as many blocks as there are bytes");
        let (part, tail) = buf.split_at(bytes_of(&blocks));
        rest = Some(tail);
        (blocks, part)
    })
}

/// Reads one piece. Returns no buffer if a device keeps it: the piece is to be read again then.
async fn read_piece<P: Device>(
    volume: &Rc<CacheShared<P>>,
    blocks: Range<u64>,
    piece: ReadPiece<P>,
    buf: Buf,
) -> (Range<u64>, Option<Buf>, IoResult) {
    let (buf, result) = match piece {
        ReadPiece::Hit(hit) => match hit.read(buf).await {
            Ok(buf) => (buf, Ok(())),
            Err(LostHit(None)) => return (blocks, None, Ok(())),
            Err(LostHit(Some(buf))) => retry(volume, blocks.clone(), buf).await,
        },
        ReadPiece::Origin(permit) => read_origin(volume, blocks.clone(), permit, buf).await,
        ReadPiece::Join => read_joined(volume, blocks.clone(), buf).await,
    };
    (blocks, Some(buf), result)
}

/// Joins an origin read in flight, or else reads the origin.
async fn read_joined<P: Device>(
    volume: &Rc<CacheShared<P>>,
    blocks: Range<u64>,
    buf: Buf,
) -> (Buf, IoResult) {
    let buf = match volume.flights.join(blocks.clone(), buf) {
        Ok(answer) => {
            volume.counters.count(Counter::ReadsJoined);
            let answer = answer.await;
            let (buf, filled) = answer.expect("a flight answers all who joined");
            if filled {
                return (buf, Ok(()));
            }
            buf
        }
        Err(buf) => buf,
    };
    volume.counters.count(Counter::JoinsFailed);
    retry(volume, blocks, buf).await
}

/// Serves from the origin the bytes that a hit did not deliver.
async fn recover<P: Device>(
    volume: &Rc<CacheShared<P>>,
    blocks: Range<u64>,
    LostHit(buf): LostHit,
) -> (Buf, IoResult) {
    // In place of the buffer that the device keeps.
    let buf = buf.unwrap_or_else(|| volume.core.env.pool.take(bytes_of(&blocks)));
    retry(volume, blocks, buf).await
}

async fn retry<P: Device>(
    volume: &Rc<CacheShared<P>>,
    blocks: Range<u64>,
    buf: Buf,
) -> (Buf, IoResult) {
    let permit = permit(volume, &volume.core.state.borrow().budget, &blocks);
    read_origin(volume, blocks, permit, buf).await
}

async fn read_origin<P: Device>(
    volume: &Rc<CacheShared<P>>,
    blocks: Range<u64>,
    permit: Option<PromotionPermit>,
    buf: Buf,
) -> (Buf, IoResult) {
    volume.counters.count(Counter::OriginReads);
    let flight = volume.flights.begin_read(blocks.clone());
    let (buf, result) = volume.origin.read(extent_of(&blocks).start, buf).await;
    match &result {
        Ok(()) => {
            flight.deliver(&buf);
            match permit {
                Some(permit) => fill::promote(volume, flight, blocks, &buf, permit),
                None => drop(flight),
            }
        }
        Err(_) => {
            volume.counters.count(Counter::OriginReadErrors);
            drop(flight);
            fill::give_up(volume, blocks);
        }
    }
    (buf, result)
}
