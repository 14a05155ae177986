//! The sectors of a volume that a case uses.

use block::Sectors;
use std::ops::Range;

/// Sectors from the start of one window to that of the next: more than a region
/// that the pool marks as a whole, so that a write in one leaves others alone.
const STRIDE: u64 = 3 * 8192;

/// A volume with its used sectors in a few windows far apart, so that a small case spans much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Number of windows.
    pub windows: u64,
    /// Sectors of each.
    pub each: u64,
}

impl Space {
    /// All of a volume of this size, which is one window.
    pub fn whole(sectors: Sectors) -> Space {
        Space {
            windows: 1,
            each: sectors.0,
        }
    }

    /// The size of the volume.
    pub fn sectors(self) -> Sectors {
        Sectors((self.windows - 1) * STRIDE + self.each)
    }

    /// The sectors of a window.
    pub fn window(self, number: u64) -> Range<u64> {
        number * STRIDE..number * STRIDE + self.each
    }

    /// The number of the window that a sector is in.
    pub fn number(sector: u64) -> u64 {
        sector / STRIDE
    }

    /// The number of a sector among those of all windows.
    pub fn index(self, sector: u64) -> usize {
        assert!(
            self.each <= STRIDE && sector % STRIDE < self.each,
            "sector {sector} is in no window"
        );
        (sector / STRIDE * self.each + sector % STRIDE) as usize
    }
}
