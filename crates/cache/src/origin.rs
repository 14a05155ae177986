//! A volume's origin, in the path of requests.
//!
//! Invariant: the origin is changed ⟹ the devices of a pool that remembers have had the regions
//! marked.

use crate::durable::Marking;
use block::{BoxDevice, Buf, Content, Device, Extent, IoResult, Lba, Proof};

/// Proof that the bytes to change are marked. A pool that forgets marks nothing.
pub(crate) struct Marked(#[expect(dead_code, reason = "asked for, never looked at")] Option<Proof>);

impl Marked {
    /// Waits until the pool's devices have the marks.
    pub(crate) async fn known(marking: Option<&Marking>) -> Marked {
        Marked(match marking {
            Some(marking) => Some(marking.known().await),
            None => None,
        })
    }
}

pub(crate) struct CachedOrigin(BoxDevice);

impl CachedOrigin {
    pub(crate) fn new(device: BoxDevice) -> CachedOrigin {
        CachedOrigin(device)
    }

    pub(crate) async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        self.0.read(at, buf).await
    }

    pub(crate) async fn extents(
        &self,
        extent: Extent,
        out: &mut Vec<(Extent, Content)>,
    ) -> IoResult {
        self.0.extents(extent, out).await
    }

    /// The origin to change, given the proof of its marks.
    pub(crate) fn marked(&self, _marked: Marked) -> &BoxDevice {
        &self.0
    }
}
