//! The frontend boundary of a device: bytes outside, logical blocks inside.
//!
//! A frontend serves any [`Boundary`]: a gate of its own shard, or one that stands for the gate of
//! another shard.
//!
//! Invariants:
//!     two requests inside overlap ⟹ both are reads      (`RangeLock`)
//!     a request that is not on whole blocks becomes a read, a merge and a
//!     write of whole blocks under one exclusive lock ⟹ neighbours keep their
//!     bytes beside any other writer
//!     a block is overwritten whole ⟹ it is not read, and need not be readable
//!     a write holds its range until the device has answered, even if its
//!     future is dropped: an abandoned write never meets a later one
//!     the device's block changes while no change is in flight (`Gate::hold`) ⟹ each
//!     request gets whole blocks of the device as they are when its range is held
//!
//! Not here: requests over [`Gate::BYTES_MAX`], and their limit in number; a frontend splits
//! requests and bounds them, for only the frontend knows its memory.

use crate::buf::{Buf, SharedBuf};
use crate::device::{Content, Device, Geometry};
use crate::env::{Env, Persist};
use crate::error::{IoError, IoErrorKind, IoResult};
use crate::flush_errors::FlushErrors;
use crate::located::{
    AskedRead, Generations, KeptHits, LocatedEnd, LocatedRead, LocatedUnit, ReadTaker,
};
use crate::pool::BUF_BYTES_MAX;
use crate::range_lock::{Access, Acquire, Guard, RangeLock};
use crate::units::{Extent, Fua, Lba, SECTOR_BYTES, Sectors};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// A device from its clients' view, in bytes. Requests of any overlap and alignment are kept apart.
///
/// A change is carried through once polled. Requests are at most [`Gate::BYTES_MAX`] bytes long but
/// for `zero`, `discard`, `extents` and `announce`, and not empty.
///
/// Errors: `Invalid` for an empty request or one past the end, and those of the device.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Boundary: 'static {
    /// The shape of the device.
    fn geometry(&self) -> &Geometry;

    /// The size in bytes.
    fn bytes(&self) -> u64 {
        self.geometry().sectors.bytes()
    }

    /// The failed flushes of the device: each is recorded here before its caller has the answer.
    fn flush_errors(&self) -> &Arc<FlushErrors>;

    /// The `len` bytes at `offset`.
    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf>;

    /// Writes `data` at `offset`.
    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult;

    /// Makes `len` bytes at `offset` read as zeroes.
    async fn zero(&self, offset: u64, len: u64) -> IoResult;

    /// Marks `len` bytes at `offset` as not needed. Parts of blocks are kept.
    async fn discard(&self, offset: u64, len: u64) -> IoResult;

    /// Makes every write acknowledged before this call durable, on whichever shard it was.
    async fn flush(&self) -> IoResult;

    /// Appends the content of the bytes at `offset`, in runs of whole blocks that cover them.
    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult;

    /// A transfer of `len` bytes at `offset` follows in pieces, as of [`Device::announce`].
    async fn announce(&self, offset: u64, len: u64);

    /// Begins a read without a task, if the place of the bytes is known at once. `taker` gets the
    /// result of [`Boundary::read`], at the soonest within this call. False: nothing has begun.
    fn begin_read(&self, read: AskedRead, taker: Rc<dyn ReadTaker>) -> bool {
        let _ = (read, taker);
        false
    }

    /// Looks up a read for a frontend, as [`Device::locate`] does. No range is held: the read
    /// runs at its end, and waits for no change in flight.
    fn locate(&self, offset: u64, len: usize) -> Option<LocatedRead> {
        let _ = (offset, len);
        None
    }

    /// The unit of the byte at `offset`, as of [`Device::locate_unit`].
    fn locate_unit(&self, offset: u64) -> Option<LocatedUnit> {
        let _ = offset;
        None
    }

    /// The generations of located reads, as of [`Device::generations`].
    fn generations(&self) -> Option<Arc<Generations>> {
        None
    }

    /// Counts a located read that has ended.
    fn located(&self, end: &LocatedEnd) {
        let _ = end;
    }

    /// Counts hits that were not looked up.
    fn kept(&self, hits: &KeptHits) {
        let _ = hits;
    }
}

/// A device from its clients' view; clones are the same boundary.
pub struct Gate<D>(Rc<GateShared<D>>);

impl<D> Clone for Gate<D> {
    fn clone(&self) -> Gate<D> {
        Gate(self.0.clone())
    }
}

struct GateShared<D> {
    device: D,
    lock: RangeLock,
    env: Env,
    flush_errors: Arc<FlushErrors>,
}

/// The whole blocks that hold a range of bytes.
struct CoveringBlocks {
    blocks: Extent,
    inside: Range<usize>,
}

impl CoveringBlocks {
    fn is_exact(&self) -> bool {
        self.inside.start == 0 && self.inside.end as u64 == self.blocks.len.bytes()
    }

    /// The bytes of whole blocks that are overwritten, between those that have to be read.
    /// None if one read gets all that stays.
    fn between(&self, block: Sectors) -> Range<usize> {
        let block = block.bytes() as usize;
        let (from, to) = (
            self.inside.start.next_multiple_of(block),
            self.inside.end / block * block,
        );
        let end = self.blocks.len.bytes() as usize;
        if from < to { from..to } else { end..end }
    }
}

impl<D: Device> Gate<D> {
    /// The longest request, unaligned ones included.
    pub const BYTES_MAX: usize = BUF_BYTES_MAX / 2;

    /// The boundary of `device`.
    pub fn new(device: D, env: Env) -> Gate<D> {
        Gate(Rc::new(GateShared {
            device,
            lock: RangeLock::new(),
            env,
            flush_errors: Arc::default(),
        }))
    }

    /// The device inside.
    pub fn device(&self) -> &D {
        &self.0.device
    }

    /// Waits until every request begun before has ended, abandoned ones too.
    pub async fn drain(&self) {
        let whole = self.0.device.geometry().extent();
        drop(self.0.lock.lock(whole, Access::Exclusive).await);
    }

    /// Waits until no change is in flight. None begins until the range that is held is released;
    /// reads go on.
    pub fn hold(&self) -> Acquire<'_> {
        let whole = self.0.device.geometry().extent();
        self.0.lock.lock(whole, Access::Shared)
    }

    fn persist(
        &self,
        work: impl AsyncFnOnce(&GateShared<D>) -> IoResult + 'static,
    ) -> Persist<IoResult> {
        let inner = self.0.clone();
        let spawn = &self.0.env.spawn;
        spawn.persist(async move { work(&inner).await })
    }
}

impl<D: Device> Boundary for Gate<D> {
    fn geometry(&self) -> &Geometry {
        self.0.device.geometry()
    }

    fn flush_errors(&self) -> &Arc<FlushErrors> {
        &self.0.flush_errors
    }

    #[inline]
    fn read(&self, offset: u64, len: usize) -> impl Future<Output = IoResult<SharedBuf>> {
        self.0.read(offset, len)
    }

    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        self.persist(async move |gate| gate.write(offset, data, fua).await)
            .await
    }

    async fn zero(&self, offset: u64, len: u64) -> IoResult {
        self.persist(async move |gate| gate.zero(offset, len).await)
            .await
    }

    async fn discard(&self, offset: u64, len: u64) -> IoResult {
        self.persist(async move |gate| gate.discard(offset, len).await)
            .await
    }

    async fn flush(&self) -> IoResult {
        let result = self.0.device.flush().await;
        result.inspect_err(|error| self.0.flush_errors.record(error))
    }

    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.0.bounds(offset, len)?;
        let blocks = self.0.outer_blocks(offset, len);
        self.0.device.extents(blocks, out).await
    }

    async fn announce(&self, offset: u64, len: u64) {
        if self.0.bounds(offset, len).is_ok() {
            self.0.device.announce(self.0.outer_blocks(offset, len));
        }
    }

    #[inline]
    fn locate(&self, offset: u64, len: usize) -> Option<LocatedRead> {
        let cover = self.0.cover(offset, len).ok()?;
        let mut read = self.0.device.locate(cover.blocks)?;
        read.skip += cover.inside.start as u32;
        Some(read)
    }

    fn locate_unit(&self, offset: u64) -> Option<LocatedUnit> {
        self.0.device.locate_unit(Lba(offset / SECTOR_BYTES))
    }

    fn generations(&self) -> Option<Arc<Generations>> {
        self.0.device.generations()
    }

    fn located(&self, end: &LocatedEnd) {
        self.0.device.located(end);
    }

    fn kept(&self, hits: &KeptHits) {
        self.0.device.kept(hits);
    }
}

impl<D: Device> GateShared<D> {
    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        let (cover, _guard) = self.locked(offset, len, Access::Shared).await?;
        let buf = self.memory(&cover);
        let (buf, result) = self.device.read(cover.blocks.start, buf).await;
        result?;
        let data = buf.share();
        Ok(if cover.is_exact() {
            data
        } else {
            data.slice(cover.inside)
        })
    }

    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        let exclusive = Access::Exclusive;
        let (cover, _guard) = self.locked(offset, data.len(), exclusive).await?;
        if cover.is_exact() {
            return self.device.write(cover.blocks.start, data, fua).await;
        }
        self.merge(&cover, fua, |inside| inside.copy_from_slice(&data))
            .await
    }

    async fn zero(&self, offset: u64, len: u64) -> IoResult {
        self.bounds(offset, len)?;
        let _guard = self.locked_blocks(offset, len, Access::Exclusive).await;
        let inner = self.inner_blocks(offset, len);
        for cover in self.edges(offset, len, inner) {
            self.merge(&cover, Fua::No, |inside| inside.fill(0)).await?;
        }
        match inner {
            Some(extent) => self.device.zero(extent).await,
            None => Ok(()),
        }
    }

    async fn discard(&self, offset: u64, len: u64) -> IoResult {
        self.bounds(offset, len)?;
        let _guard = self.locked_blocks(offset, len, Access::Exclusive).await;
        match self.inner_blocks(offset, len) {
            Some(extent) => self.device.discard(extent).await,
            None => Ok(()),
        }
    }

    /// The whole blocks of a range of bytes, held.
    #[inline]
    async fn locked(
        &self,
        offset: u64,
        len: usize,
        access: Access,
    ) -> IoResult<(CoveringBlocks, Guard<'_>)> {
        loop {
            let cover = self.cover(offset, len)?;
            let guard = self.lock.lock(cover.blocks, access).await;
            // The device's block may have become another while this waited.
            if self.outer_blocks(offset, len as u64) == cover.blocks {
                return Ok((cover, guard));
            }
        }
    }

    /// As `locked`, for the blocks of a range of any length.
    async fn locked_blocks(&self, offset: u64, len: u64, access: Access) -> Guard<'_> {
        loop {
            let blocks = self.outer_blocks(offset, len);
            let guard = self.lock.lock(blocks, access).await;
            if self.outer_blocks(offset, len) == blocks {
                return guard;
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.device.geometry().sectors.bytes()
    }

    /// Memory for whole blocks, which the frontend has accounted for.
    fn memory(&self, cover: &CoveringBlocks) -> Buf {
        self.env.pool.take(cover.blocks.len.bytes() as usize)
    }

    /// Reads the bytes that stay of the blocks at the ends, lets `change` write the bytes inside,
    /// writes them all back. The caller holds the range.
    async fn merge(
        &self,
        cover: &CoveringBlocks,
        fua: Fua,
        change: impl FnOnce(&mut [u8]),
    ) -> IoResult {
        let overwritten = cover.between(self.device.geometry().block);
        let mut parts = Vec::new();
        let (head, rest) = self.memory(cover).split_at(overwritten.start);
        let (between, tail) = rest.split_at(overwritten.len());
        let mut at = cover.blocks.start;
        for (part, stays) in [(head, true), (between, false), (tail, true)] {
            let len = Sectors(part.len() as u64 / SECTOR_BYTES);
            if len == Sectors::ZERO {
                continue;
            }
            parts.push(match stays {
                true => {
                    let (part, result) = self.device.read(at, part).await;
                    result?;
                    part
                }
                false => part,
            });
            at = at + len;
        }
        let mut buf = Buf::join(parts, &self.env.pool);
        change(&mut buf[cover.inside.clone()]);
        self.device
            .write(cover.blocks.start, buf.share(), fua)
            .await
    }

    /// The parts of blocks at the ends of a range with the whole blocks `inner`.
    fn edges(&self, offset: u64, len: u64, inner: Option<Extent>) -> Vec<CoveringBlocks> {
        let (end, outer) = (offset + len, self.outer_blocks(offset, len));
        let cover = |blocks: Extent, from: u64, to: u64| {
            let start = blocks.start.byte();
            CoveringBlocks {
                blocks,
                inside: (from - start) as usize..(to - start) as usize,
            }
        };
        let Some(inner) = inner else {
            return vec![cover(outer, offset, end)];
        };
        let mut edges = Vec::new();
        if offset < inner.start.byte() {
            let head = extent(outer.start.byte(), inner.start.byte());
            edges.push(cover(head, offset, inner.start.byte()));
        }
        if end > inner.end().byte() {
            let tail = extent(inner.end().byte(), outer.end().byte());
            edges.push(cover(tail, inner.end().byte(), end));
        }
        edges
    }

    #[inline]
    fn cover(&self, offset: u64, len: usize) -> IoResult<CoveringBlocks> {
        self.bounds(offset, len as u64)?;
        if len > Gate::<D>::BYTES_MAX {
            let error = self
                .device
                .geometry()
                .error(IoErrorKind::Invalid, "a request over 2 MiB");
            return Err(error);
        }
        let blocks = self.outer_blocks(offset, len as u64);
        let start = (offset - blocks.start.byte()) as usize;
        Ok(CoveringBlocks {
            blocks,
            inside: start..start + len,
        })
    }

    #[inline]
    fn bounds(&self, offset: u64, len: u64) -> IoResult {
        if len > 0
            && offset
                .checked_add(len)
                .is_some_and(|end| end <= self.bytes())
        {
            return Ok(());
        }
        Err(self.outside(offset, len))
    }

    #[cold]
    fn outside(&self, offset: u64, len: u64) -> IoError {
        let name = self.device.geometry().name.to_string();
        let size = self.bytes();
        let what = format!("bytes {offset}+{len} are empty or past the end at {size}");
        IoError::new(IoErrorKind::Invalid, what).on(name)
    }

    #[inline]
    fn outer_blocks(&self, offset: u64, len: u64) -> Extent {
        // A power of two, so that no division is needed.
        let rest = self.device.geometry().block.bytes() - 1;
        extent(offset & !rest, (offset + len + rest) & !rest)
    }

    fn inner_blocks(&self, offset: u64, len: u64) -> Option<Extent> {
        let block = self.device.geometry().block.bytes();
        let (start, end) = (
            offset.next_multiple_of(block),
            (offset + len) / block * block,
        );
        (start < end).then(|| extent(start, end))
    }
}

fn extent(start: u64, end: u64) -> Extent {
    Extent::new(
        Lba(start / SECTOR_BYTES),
        Sectors((end - start) / SECTOR_BYTES),
    )
}
