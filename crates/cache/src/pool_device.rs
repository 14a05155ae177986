//! A device for a pool.

use crate::lines::{BLOCK_SECTORS, LineShape};
use block::{Device, Extent, IoErrorKind, IoResult};
use std::sync::Arc;

/// A device to be put into the pool.
pub struct NewPoolDevice<P> {
    /// The device.
    pub device: P,
    /// The part of the device that holds lines, on 4 KiB; the rest after a whole number of lines
    /// stays unused.
    pub extent: Extent,
    /// Its failure domain: its failure domain.
    pub controller: Arc<str>,
}

impl<P: Device> NewPoolDevice<P> {
    /// All of `device`.
    pub fn whole(device: P, controller: impl Into<Arc<str>>) -> NewPoolDevice<P> {
        NewPoolDevice {
            extent: device.geometry().extent(),
            controller: controller.into(),
            device,
        }
    }

    /// Returns the number of lines on the device; refuses a place too small for one.
    pub(crate) fn lines(&self, shape: LineShape) -> IoResult<u32> {
        let geometry = self.device.geometry();
        geometry.check(self.extent)?;
        let lines = self.extent.len.0 / shape.sectors().0;
        let what = if !self.extent.start.0.is_multiple_of(BLOCK_SECTORS) {
            "a pool device's part must start on 4 KiB"
        } else if lines == 0 {
            "too small for one line: give more room or choose shorter lines"
        } else if lines > u64::from(SLOTS_MAX) {
            "too many lines: choose longer ones"
        } else {
            return Ok(lines as u32);
        };
        Err(geometry.error(IoErrorKind::Invalid, what).at(self.extent))
    }
}

/// Slots that a pool can have: a policy numbers them twice over in 32 bits.
pub(crate) const SLOTS_MAX: u32 = 1 << 30;
