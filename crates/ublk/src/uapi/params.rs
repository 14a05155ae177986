//! The shape of a device.

use super::{UapiDecoder, UapiEncoder};
use block::Sectors;

/// `struct ublk_params`: the shape of a device.
///
/// Every device has a volatile cache and takes FUA. A device keeps its attributes for life, while
/// the needs of its volume may grow: a flush of durable data is cheap, a flush that never comes
/// loses data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// The size.
    pub sectors: Sectors,
    /// The logical block.
    pub block: Sectors,
    /// The physical block, the best unit of the kernel's requests.
    pub physical: Sectors,
    /// Optimal size of requests, for full speed.
    pub optimal: Sectors,
    /// The longest request.
    pub request_max: Sectors,
    /// The longest discard, and zeroing.
    pub discard_max: Sectors,
    /// Writes are refused.
    pub read_only: bool,
    /// Seeks cost time.
    pub rotational: bool,
}

impl Params {
    /// The length of the structure: the header, the basic and the discard parameters,
    /// those of zoned devices, and padding.
    pub const BYTES: usize = 112;

    /// The structure.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        const BASIC: u32 = 1 << 0;
        const DISCARD: u32 = 1 << 1;
        let mut out = UapiEncoder::new();
        out.u32(Self::BYTES as u32);
        out.u32(BASIC | DISCARD);
        out.u32(
            (u32::from(self.read_only) * READ_ONLY)
                | (u32::from(self.rotational) * ROTATIONAL)
                | VOLATILE_AND_FUA,
        );
        out.u8(self.block_shift());
        out.u8(shift(self.physical));
        out.u8(shift(self.optimal));
        out.u8(shift(self.physical));
        out.u32(self.request_max.0 as u32);
        out.u32(0); // No chunks.
        out.u64(self.sectors.0);
        out.u64(0); // No boundary in memory.
        out.u32(self.physical.bytes() as u32);
        out.u32(self.physical.bytes() as u32);
        out.u32(self.discard_max.0 as u32);
        out.u32(self.discard_max.0 as u32);
        out.u16(1);
        out.zeroes(2 + 16 + 32 + 4);
        out.finish()
    }

    /// The logical block, as a power of two of bytes.
    pub fn block_shift(&self) -> u8 {
        shift(self.block)
    }
}

fn shift(sectors: Sectors) -> u8 {
    sectors.bytes().ilog2() as u8
}

/// `UBLK_ATTR_READ_ONLY`.
const READ_ONLY: u32 = 1 << 0;
/// `UBLK_ATTR_ROTATIONAL`.
const ROTATIONAL: u32 = 1 << 1;
/// `UBLK_ATTR_VOLATILE_CACHE` and `UBLK_ATTR_FUA`.
const VOLATILE_AND_FUA: u32 = 0b1100;

/// The shape of an existing device, of `struct ublk_params`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// The size.
    pub sectors: Sectors,
    /// The logical block, as a power of two of bytes.
    pub block_shift: u8,
    /// The kernel sends no writes.
    pub read_only: bool,
    /// The kernel sends flushes and FUA.
    pub flushes: bool,
}

impl Made {
    /// Reads the structure; `None` if `bytes` are too few.
    pub fn decode(bytes: &[u8]) -> Option<Made> {
        let mut from = UapiDecoder(bytes.get(8..32)?);
        let attributes = from.u32();
        let block_shift = u8::from_ne_bytes(from.take());
        from.skip(11);
        Some(Made {
            sectors: Sectors(from.u64()),
            block_shift,
            read_only: attributes & READ_ONLY != 0,
            flushes: attributes & VOLATILE_AND_FUA == VOLATILE_AND_FUA,
        })
    }
}
