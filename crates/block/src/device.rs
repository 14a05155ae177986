//! The interface of every disk, array, cache, filter and network client.

use crate::buf::{Buf, SharedBuf};
use crate::error::{IoError, IoErrorKind, IoResult};
use crate::located::{
    DiskPlace, Generations, KeptHits, LocatedEnd, LocatedRead, LocatedUnit, ReadTimes,
};
use crate::units::{Extent, Fua, Lba, Sectors};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// The fixed shape of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its name in errors and reports.
    pub name: Arc<str>,
    /// Its size; a multiple of `block`.
    pub sectors: Sectors,
    /// Logical block, of which addresses and lengths are multiples: 1 or 8 sectors.
    pub block: Sectors,
    /// Unit of partition tables and file systems on the device: 8 sectors of a medium without
    /// smaller ones, else 1.
    pub native: Sectors,
    /// A length and alignment that is served at full speed, such as a stripe.
    pub optimal: Sectors,
    /// True if acknowledged writes need a flush to be durable.
    pub volatile: bool,
    /// True if seeks cost time.
    pub rotational: bool,
}

impl Geometry {
    /// A non-rotational device with a volatile cache.
    pub fn new(name: impl Into<Arc<str>>, sectors: Sectors, block: Sectors) -> Geometry {
        assert!(
            block == Sectors(1) || block == Sectors(8),
            "a block of {block:?}"
        );
        assert!(
            sectors.0.is_multiple_of(block.0),
            "{sectors:?} in blocks of {block:?}"
        );
        Geometry {
            name: name.into(),
            sectors,
            block,
            native: Sectors(1),
            optimal: Sectors(8),
            volatile: true,
            rotational: false,
        }
    }

    /// The whole device.
    pub fn extent(&self) -> Extent {
        Extent::new(Lba::ZERO, self.sectors)
    }

    /// Refuses an extent that is empty, off the blocks or past the end.
    #[inline]
    pub fn check(&self, extent: Extent) -> IoResult {
        let end = extent.start.0.checked_add(extent.len.0);
        let fits = end.is_some_and(|e| e <= self.sectors.0);
        let aligned = (extent.start.0 | extent.len.0) & (self.block.0 - 1) == 0;
        if fits && aligned && !extent.is_empty() {
            return Ok(());
        }
        Err(self.refusal(extent, fits))
    }

    #[cold]
    fn refusal(&self, extent: Extent, fits: bool) -> IoError {
        let what = if extent.is_empty() {
            "an empty extent"
        } else if !fits {
            "past the end of the device"
        } else {
            "not on the device's logical blocks"
        };
        self.error(IoErrorKind::Invalid, what).at(extent)
    }

    /// The extent of a transfer of `bytes` at `at`, checked.
    #[inline]
    pub fn transfer(&self, at: Lba, bytes: usize) -> IoResult<Extent> {
        let Some(len) = Sectors::from_bytes(bytes as u64) else {
            return Err(self.error(
                IoErrorKind::Invalid,
                "a length that is no multiple of 512 bytes",
            ));
        };
        let extent = Extent::new(at, len);
        self.check(extent)?;
        Ok(extent)
    }

    /// An error on this device.
    pub fn error(&self, kind: IoErrorKind, what: &'static str) -> IoError {
        IoError::new(kind, what).on(self.name.to_string())
    }
}

/// The content of a run of sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Bytes that must be read to be known.
    Data,
    /// Unallocated, reads as zeroes.
    Hole,
    /// Allocated, reads as zeroes.
    Zero,
}

/// A block device.
///
/// Operations complete in any order. Only `flush` (or `Fua::Yes`) makes
/// acknowledged writes durable; a flush covers the writes acknowledged before
/// it was called. Overlapping writes in flight are the caller's bug: the range
/// lock at the frontend boundary ([`crate::Gate`]) keeps clients' overlaps
/// apart. A read that overlaps a write in flight returns old or new bytes, byte
/// by byte: neither the page cache nor an NBD server promises whole sectors.
///
/// A future does nothing until polled. Dropping it later abandons the wait,
/// never the operation: its buffer returns to the pool when it completes.
///
/// Addresses and lengths lie on the logical blocks and inside the device; else
/// the error is `Invalid` and nothing changes. After an error in a write, each
/// sector holds old, new or unreadable bytes unless the kind says otherwise.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Device: 'static {
    /// Its shape, which never changes.
    fn geometry(&self) -> &Geometry;

    /// Fills `buf` from `at`. After an error the buffer's bytes are unspecified.
    ///
    /// May give back another buffer of the same length: a layer that gives up on a device cannot
    /// have the buffer that the device still holds. [`Buf::join`] joins parts in any buffers.
    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult);

    /// Writes `data` to `at`.
    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult;

    /// Makes `extent` read as zeroes.
    async fn zero(&self, extent: Extent) -> IoResult;

    /// Makes every write acknowledged before this call durable. A leaf, and any layer that goes on
    /// with a change that was given up, first waits until no such change can still undo a later
    /// one. For a layer that gave up on a device takes it back after a flush.
    async fn flush(&self) -> IoResult;

    /// Marks the bytes of `extent` as not needed; reads give any bytes until they are written.
    async fn discard(&self, extent: Extent) -> IoResult;

    /// Appends runs that cover `extent` exactly, in order.
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult;

    /// A transfer of `extent` follows in pieces. A device that judges requests by their length
    /// judges the whole.
    fn announce(&self, extent: Extent) {
        let _ = extent;
    }

    /// Looks up a read of `extent` for a frontend that reads the disk itself, on any shard; `None` if
    /// the device has to be asked for the bytes. Nothing is counted then.
    fn locate(&self, extent: Extent) -> Option<LocatedRead> {
        let _ = extent;
        None
    }

    /// The place of the sectors from `at` on, if this is a disk of the driver.
    fn disk_place(&self, at: Lba) -> Option<DiskPlace> {
        let _ = at;
        None
    }

    /// The unit of the block at `at`, for a shard that keeps its place; `None` if that is not known.
    /// Nothing is counted.
    fn locate_unit(&self, at: Lba) -> Option<LocatedUnit> {
        let _ = at;
        None
    }

    /// Refuses the located reads of `extent`: a log in front has other bytes from now on.
    fn refuse_located(&self, extent: Extent) {
        let _ = extent;
    }

    /// The generations of located reads; `None` if no read is located.
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

    /// Counts reads of this disk by other shards.
    fn read_elsewhere(&self, reads: &ReadTimes) {
        let _ = reads;
    }
}

/// A device of a type unknown here, shared; for topologies built at run time. Costs a boxed future
/// a request, so the miss path is its place.
#[derive(Clone)]
pub struct BoxDevice(Rc<dyn DynDevice>);

/// The future of an operation of a [`BoxDevice`].
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

trait DynDevice {
    fn geometry(&self) -> &Geometry;
    fn read(&self, at: Lba, buf: Buf) -> Fut<'_, (Buf, IoResult)>;
    fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> Fut<'_, IoResult>;
    fn zero(&self, extent: Extent) -> Fut<'_, IoResult>;
    fn flush(&self) -> Fut<'_, IoResult>;
    fn discard(&self, extent: Extent) -> Fut<'_, IoResult>;
    fn extents<'a>(
        &'a self,
        extent: Extent,
        out: &'a mut Vec<(Extent, Content)>,
    ) -> Fut<'a, IoResult>;
    fn announce(&self, extent: Extent);
    fn refuse_located(&self, extent: Extent);
}

impl<D: Device> DynDevice for D {
    fn geometry(&self) -> &Geometry {
        Device::geometry(self)
    }
    fn read(&self, at: Lba, buf: Buf) -> Fut<'_, (Buf, IoResult)> {
        Box::pin(Device::read(self, at, buf))
    }
    fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> Fut<'_, IoResult> {
        Box::pin(Device::write(self, at, data, fua))
    }
    fn zero(&self, extent: Extent) -> Fut<'_, IoResult> {
        Box::pin(Device::zero(self, extent))
    }
    fn flush(&self) -> Fut<'_, IoResult> {
        Box::pin(Device::flush(self))
    }
    fn discard(&self, extent: Extent) -> Fut<'_, IoResult> {
        Box::pin(Device::discard(self, extent))
    }
    fn extents<'a>(
        &'a self,
        extent: Extent,
        out: &'a mut Vec<(Extent, Content)>,
    ) -> Fut<'a, IoResult> {
        Box::pin(Device::extents(self, extent, out))
    }
    fn announce(&self, extent: Extent) {
        Device::announce(self, extent);
    }
    fn refuse_located(&self, extent: Extent) {
        Device::refuse_located(self, extent);
    }
}

impl BoxDevice {
    /// Hides the type of `device`.
    pub fn new(device: impl Device) -> BoxDevice {
        BoxDevice(Rc::new(device))
    }
}

// Futures are handed on here, not awaited: one more would be moved and polled with
// each request.
#[expect(refining_impl_trait, reason = "whoever holds one may name its futures")]
impl Device for BoxDevice {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }
    fn read(&self, at: Lba, buf: Buf) -> Fut<'_, (Buf, IoResult)> {
        self.0.read(at, buf)
    }
    fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> Fut<'_, IoResult> {
        self.0.write(at, data, fua)
    }
    fn zero(&self, extent: Extent) -> Fut<'_, IoResult> {
        self.0.zero(extent)
    }
    fn flush(&self) -> Fut<'_, IoResult> {
        self.0.flush()
    }
    fn discard(&self, extent: Extent) -> Fut<'_, IoResult> {
        self.0.discard(extent)
    }
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.0.extents(extent, out).await
    }
    fn announce(&self, extent: Extent) {
        self.0.announce(extent);
    }
    fn refuse_located(&self, extent: Extent) {
        self.0.refuse_located(extent);
    }
}

impl<D: Device> Device for Rc<D> {
    fn geometry(&self) -> &Geometry {
        D::geometry(self)
    }
    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        D::read(self, at, buf)
    }
    fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> impl Future<Output = IoResult> {
        D::write(self, at, data, fua)
    }
    fn zero(&self, extent: Extent) -> impl Future<Output = IoResult> {
        D::zero(self, extent)
    }
    fn flush(&self) -> impl Future<Output = IoResult> {
        D::flush(self)
    }
    fn discard(&self, extent: Extent) -> impl Future<Output = IoResult> {
        D::discard(self, extent)
    }
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        D::extents(self, extent, out).await
    }
    fn announce(&self, extent: Extent) {
        D::announce(self, extent);
    }
    fn locate(&self, extent: Extent) -> Option<LocatedRead> {
        D::locate(self, extent)
    }
    fn disk_place(&self, at: Lba) -> Option<DiskPlace> {
        D::disk_place(self, at)
    }
    fn locate_unit(&self, at: Lba) -> Option<LocatedUnit> {
        D::locate_unit(self, at)
    }
    fn refuse_located(&self, extent: Extent) {
        D::refuse_located(self, extent);
    }
    fn generations(&self) -> Option<Arc<Generations>> {
        D::generations(self)
    }
    fn located(&self, end: &LocatedEnd) {
        D::located(self, end);
    }
    fn kept(&self, hits: &KeptHits) {
        D::kept(self, hits);
    }
    fn read_elsewhere(&self, reads: &ReadTimes) {
        D::read_elsewhere(self, reads);
    }
}
