//! A request as filters see it.

use block::{Extent, Fua, Lba, SECTOR_BYTES, Sectors};

/// Operation of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
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

impl Verb {
    /// Every verb, in the order of their numbers.
    pub const ALL: [Verb; 6] = [
        Verb::Read,
        Verb::Write,
        Verb::Zero,
        Verb::Flush,
        Verb::Discard,
        Verb::Extents,
    ];
}

/// One request, not yet checked: its extent may lie anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Operation of the request.
    pub verb: Verb,
    /// Sectors of the request; empty for a flush. A length in bytes is rounded down.
    pub extent: Extent,
    /// Durability that a write asks for.
    pub fua: Fua,
}

impl Access {
    /// Makes a request for `bytes` from `at` on.
    pub fn transfer(verb: Verb, at: Lba, bytes: usize, fua: Fua) -> Access {
        let extent = Extent::new(at, Sectors(bytes as u64 / SECTOR_BYTES));
        Access { verb, extent, fua }
    }

    /// Makes a request for `extent`.
    pub fn of(verb: Verb, extent: Extent) -> Access {
        let fua = Fua::No;
        Access { verb, extent, fua }
    }

    /// A flush.
    pub const FLUSH: Access = Access {
        verb: Verb::Flush,
        extent: Extent::new(Lba::ZERO, Sectors::ZERO),
        fua: Fua::No,
    };
}
