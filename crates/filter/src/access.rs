//! A request as filters see it.

use block::{Extent, Fua, Lba, SECTOR_BYTES, Sectors};

/// Operation of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessVerb {
    /// `Device::read`.
    Read,
    /// `Device::write`.
    Write,
    /// `Device::zero`.
    Zero,
    /// `Device::flush`.
    Flush,
    /// `Device::discard`.
    Discard,
    /// `Device::extents`.
    Extents,
}

impl AccessVerb {
    /// Every verb, in the order of their numbers.
    pub const ALL: [AccessVerb; 6] = [
        AccessVerb::Read,
        AccessVerb::Write,
        AccessVerb::Zero,
        AccessVerb::Flush,
        AccessVerb::Discard,
        AccessVerb::Extents,
    ];
}

/// One request, not yet checked: its extent may lie anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawAccess {
    /// Operation of the request.
    pub verb: AccessVerb,
    /// Sectors of the request; empty for a flush. A length in bytes is rounded down.
    pub extent: Extent,
    /// Durability that a write asks for.
    pub fua: Fua,
}

impl RawAccess {
    /// Makes a request for `bytes` from `at` on.
    pub fn transfer(verb: AccessVerb, at: Lba, bytes: usize, fua: Fua) -> RawAccess {
        let extent = Extent::new(at, Sectors(bytes as u64 / SECTOR_BYTES));
        RawAccess { verb, extent, fua }
    }

    /// Makes a request for `extent`.
    pub fn of(verb: AccessVerb, extent: Extent) -> RawAccess {
        let fua = Fua::No;
        RawAccess { verb, extent, fua }
    }

    /// A flush.
    pub const FLUSH: RawAccess = RawAccess {
        verb: AccessVerb::Flush,
        extent: Extent::new(Lba::ZERO, Sectors::ZERO),
        fua: Fua::No,
    };
}
