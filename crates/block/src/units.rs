//! Quantities with their unit in the type.
//!
//! Addresses and lengths on a device are counted in 512-byte sectors whatever
//! the device's logical block is, so that one address means one place at every
//! layer. Byte offsets exist only at the frontends (see [`crate::Gate`]).

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in one sector, the unit of [`Lba`] and [`Sectors`].
pub const SECTOR_BYTES: u64 = 512;

/// A point in time, or a span of it, in nanoseconds since the driver's epoch.
///
/// Arithmetic saturates: `Nanos::MAX` means "never".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The epoch, or an empty span.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than every time: a deadline that never comes.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `us` microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// A non-negative number of seconds, rounded to the nearest nanosecond.
    pub fn from_secs_f64(s: f64) -> Nanos {
        Nanos((s * 1e9).round() as u64)
    }

    /// Seconds, for rates and reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The span from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Nanos) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, rhs: Nanos) -> Nanos {
        self.since(rhs)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => write!(f, "never"),
            n if n >= 1_000_000_000 => write!(f, "{:.3}s", n as f64 / 1e9),
            n if n >= 1_000_000 => write!(f, "{:.3}ms", n as f64 / 1e6),
            n if n >= 1_000 => write!(f, "{:.3}us", n as f64 / 1e3),
            n => write!(f, "{n}ns"),
        }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A number of 512-byte sectors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sectors(pub u64);

impl Sectors {
    /// No sectors.
    pub const ZERO: Sectors = Sectors(0);

    /// The sectors that `bytes` fill exactly; `None` if there is a remainder.
    pub const fn from_bytes(bytes: u64) -> Option<Sectors> {
        if bytes.is_multiple_of(SECTOR_BYTES) {
            Some(Sectors(bytes / SECTOR_BYTES))
        } else {
            None
        }
    }

    /// `mib` mebibytes.
    pub const fn from_mib(mib: u64) -> Sectors {
        Sectors(mib * (1 << 20) / SECTOR_BYTES)
    }

    /// The length in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

impl Add for Sectors {
    type Output = Sectors;
    fn add(self, rhs: Sectors) -> Sectors {
        Sectors(self.0 + rhs.0)
    }
}

impl Sub for Sectors {
    type Output = Sectors;
    fn sub(self, rhs: Sectors) -> Sectors {
        Sectors(self.0 - rhs.0)
    }
}

impl AddAssign for Sectors {
    fn add_assign(&mut self, rhs: Sectors) {
        self.0 += rhs.0;
    }
}

impl fmt::Debug for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sectors", self.0)
    }
}

/// The address of a 512-byte sector on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lba(pub u64);

impl Lba {
    /// The first sector.
    pub const ZERO: Lba = Lba(0);

    /// The byte offset of this sector.
    pub const fn byte(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

impl Add<Sectors> for Lba {
    type Output = Lba;
    fn add(self, rhs: Sectors) -> Lba {
        Lba(self.0 + rhs.0)
    }
}

impl Sub<Lba> for Lba {
    type Output = Sectors;
    fn sub(self, rhs: Lba) -> Sectors {
        Sectors(self.0 - rhs.0)
    }
}

impl fmt::Debug for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.0)
    }
}

/// A run of sectors: `start ..  start + len`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extent {
    /// The first sector.
    pub start: Lba,
    /// The number of sectors.
    pub len: Sectors,
}

impl Extent {
    /// The run of `len` sectors from `start`.
    pub const fn new(start: Lba, len: Sectors) -> Extent {
        Extent { start, len }
    }

    /// The first sector after the run.
    pub fn end(self) -> Lba {
        self.start + self.len
    }

    /// True if the run holds no sector.
    pub fn is_empty(self) -> bool {
        self.len == Sectors::ZERO
    }

    /// True if the two runs share a sector.
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// True if `other` lies inside this run.
    pub fn contains(self, other: Extent) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// The sectors that both runs hold; empty if they do not overlap.
    pub fn intersect(self, other: Extent) -> Extent {
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        Extent::new(start, Sectors(end.0.saturating_sub(start.0)))
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sectors {}+{}", self.start.0, self.len.0)
    }
}

/// Force unit access: whether this write must be durable when acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fua {
    /// Durable only after a later flush.
    #[default]
    No,
    /// Durable, with the metadata needed to read it back, on acknowledgement.
    Yes,
}

/// Names a disk, stream, listener or port; valid on every shard of its host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TargetId(pub u32);

impl TargetId {
    /// The target of [`crate::DriverOp::Connect`], which has none yet.
    pub const NONE: TargetId = TargetId(u32::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_never() {
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
        assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
        assert_eq!(format!("{}", Nanos::from_micros(1500)), "1.500ms");
    }

    #[test]
    fn sectors_refuse_a_remainder() {
        assert_eq!(Sectors::from_bytes(1024), Some(Sectors(2)));
        assert_eq!(Sectors::from_bytes(1000), None);
    }

    #[test]
    fn extents_meet_only_where_they_share_sectors() {
        let e = |s, l| Extent::new(Lba(s), Sectors(l));
        assert!(!e(0, 8).overlaps(e(8, 8)));
        assert!(e(0, 9).overlaps(e(8, 8)));
        assert_eq!(e(0, 9).intersect(e(8, 8)), e(8, 1));
        assert!(e(0, 8).intersect(e(9, 2)).is_empty());
        assert!(e(0, 8).contains(e(0, 8)) && !e(0, 8).contains(e(1, 8)));
    }
}
