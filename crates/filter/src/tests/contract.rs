//! Asserts the device contract on both sides of a boundary, so that neither the layer above nor the
//! device below has to.
//!
//! Of the caller:
//!     no two requests in flight that change data overlap
//! Of the device:
//!     a request off the blocks or the device fails with `Invalid`, others not
//!     a read gives back the very buffer it was given
//!     extents are appended, and cover the given extent exactly, in order
//!
//! A breach panics: it is a bug, and going on would risk data.
//!
//! Not here: requests with dropped futures. They may still be in flight below; here they have
//! ended.

use crate::AccessVerb;
use block::{
    Buf, Content, Device, Extent, Fua, Geometry, IoErrorKind, IoResult, Lba, SECTOR_BYTES, Sectors,
    SharedBuf,
};
use std::cell::RefCell;

/// A device with a checked contract.
pub struct Checked<D> {
    inner: D,
    changing: RefCell<Vec<(AccessVerb, Extent)>>,
}

/// A request that changes data, in flight until this is dropped.
struct Change<'a>(&'a RefCell<Vec<(AccessVerb, Extent)>>, Extent);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut changing = self.0.borrow_mut();
        let mine = changing.iter().position(|(_, extent)| *extent == self.1);
        changing.swap_remove(mine.expect("it was added when it began"));
    }
}

impl<D: Device> Checked<D> {
    /// Checks `inner`.
    pub fn new(inner: D) -> Checked<D> {
        Checked {
            inner,
            changing: RefCell::default(),
        }
    }

    fn begin(&self, verb: AccessVerb, extent: Extent, valid: bool) -> Option<Change<'_>> {
        if !valid {
            return None;
        }
        let mut changing = self.changing.borrow_mut();
        let overlap = changing.iter().find(|(_, other)| other.overlaps(extent));
        if let Some((other_verb, other)) = overlap {
            let name = &self.geometry().name;
            panic!("{name}: {verb:?} of {extent:?} while {other_verb:?} of {other:?} is in flight");
        }
        changing.push((verb, extent));
        Some(Change(&self.changing, extent))
    }

    fn is_valid(&self, at: Lba, bytes: usize) -> (Extent, bool) {
        let extent = Extent::new(at, Sectors(bytes as u64 / SECTOR_BYTES));
        (extent, self.geometry().transfer(at, bytes).is_ok())
    }

    fn answered(&self, verb: AccessVerb, extent: Extent, valid: bool, result: &IoResult) {
        let refused = matches!(result, Err(error) if error.kind() == IoErrorKind::Invalid);
        let name = &self.geometry().name;
        assert!(
            valid != refused,
            "{name}: {verb:?} of {extent:?}, which is {}, ends with {result:?}",
            if valid { "valid" } else { "invalid" }
        );
    }

    async fn change(
        &self,
        verb: AccessVerb,
        extent: Extent,
        valid: bool,
        work: impl Future<Output = IoResult>,
    ) -> IoResult {
        let change = self.begin(verb, extent, valid);
        let result = work.await;
        drop(change);
        self.answered(verb, extent, valid, &result);
        result
    }
}

impl<D: Device> Device for Checked<D> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let (extent, valid) = self.is_valid(at, buf.len());
        let given = (buf.as_ptr(), buf.len());
        let (buf, result) = self.inner.read(at, buf).await;
        let name = &self.geometry().name;
        assert!(
            (buf.as_ptr(), buf.len()) == given,
            "{name}: a read of {extent:?} gives back another buffer"
        );
        self.answered(AccessVerb::Read, extent, valid, &result);
        (buf, result)
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let (extent, valid) = self.is_valid(at, data.len());
        let work = self.inner.write(at, data, fua);
        self.change(AccessVerb::Write, extent, valid, work).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let valid = self.geometry().check(extent).is_ok();
        let work = self.inner.zero(extent);
        self.change(AccessVerb::Zero, extent, valid, work).await
    }

    async fn flush(&self) -> IoResult {
        let result = self.inner.flush().await;
        self.answered(AccessVerb::Flush, Extent::default(), true, &result);
        result
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let valid = self.geometry().check(extent).is_ok();
        let work = self.inner.discard(extent);
        self.change(AccessVerb::Discard, extent, valid, work).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        let valid = self.geometry().check(extent).is_ok();
        let before = out.len();
        let result = self.inner.extents(extent, out).await;
        self.answered(AccessVerb::Extents, extent, valid, &result);
        if result.is_ok() {
            let runs = out.get(before..).unwrap_or_default();
            let mut next = extent.start;
            for (run, _) in runs {
                let name = &self.geometry().name;
                assert!(
                    run.start == next && !run.is_empty(),
                    "{name}: extents of {extent:?} give {run:?} where {next:?} is due"
                );
                next = run.end();
            }
            let name = &self.geometry().name;
            assert!(
                next == extent.end(),
                "{name}: extents of {extent:?} end at {next:?}"
            );
        }
        result
    }
}
