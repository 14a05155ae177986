//! The record of an origin, and its encoding.
//!
//! ```text
//! version u8 = 1 | flags u8 = 0 | watched u16 | identity length u16 | block u16
//! sectors u64 | identity, 0 to 64 bytes
//! watched times: what u8 | values u8, 255 for any | sectors u16 | reserved u32
//!                start u64 | values times hash u64
//! ```
//!
//! Integers are little-endian. The keeper of a record protects the bytes with a checksum of its
//! own.

use crate::formats::What;
use block::{Extent, Lba, Sectors};
use layout::{DeviceIdentity, IDENTITY_BYTES_MAX};
use twox_hash::XxHash3_64;

/// Most bytes of a record.
pub const RECORD_BYTES_MAX: usize = 1536;
/// Most hashes allowed in one place; with one more, any content is allowed.
pub const VALUES_MAX: usize = 4;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 16;
const PLACE_BYTES: usize = 16;
const ANY: u8 = u8::MAX;

/// The hash (XXH3, 64 bits) of a place's content. Not a CRC: superblocks end with a CRC32C of
/// themselves, and a second CRC over both is always the same.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// True if the content with this hash is all zeroes or all ones, as on any device.
pub(crate) fn is_plain(value: u64, len: Sectors) -> bool {
    let len = len.bytes() as usize;
    [0, u8::MAX]
        .into_iter()
        .any(|fill| hash(&vec![fill; len]) == value)
}

/// The hashes that a place may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// These hashes alone.
    These(Vec<u64>),
    /// Any: hotset itself has changed the place without known content.
    Any,
}

/// A watched place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedPlace {
    /// Kind of the place.
    pub what: What,
    /// Extent of the place; at most 128 sectors.
    pub extent: Extent,
    /// Permitted content.
    pub allowed: Allowed,
}

/// The identity, the geometry and the watched places of an origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginRecord {
    /// Identity of the origin.
    pub identity: DeviceIdentity,
    /// Size of the origin.
    pub sectors: Sectors,
    /// Logical block of the origin.
    pub block: Sectors,
    /// Watched places, in order of their addresses.
    pub watched: Vec<WatchedPlace>,
}

/// Bytes that are no record of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotARecord;

impl OriginRecord {
    /// The encoding, at most [`RECORD_BYTES_MAX`]. Places without room are left out from the end,
    /// samples first.
    pub fn encode(&self) -> Vec<u8> {
        let mut room = RECORD_BYTES_MAX - HEAD_BYTES - self.identity.bytes().len();
        let mut kept = vec![false; self.watched.len()];
        for sentinels in [true, false] {
            for (place, kept) in self.watched.iter().zip(&mut kept) {
                let bytes = place.bytes();
                if (place.what != What::Sample) == sentinels && bytes <= room {
                    room -= bytes;
                    *kept = true;
                }
            }
        }
        let places = kept.iter().filter(|k| **k).count() as u16;
        let mut out = vec![VERSION, 0];
        out.extend(places.to_le_bytes());
        out.extend((self.identity.bytes().len() as u16).to_le_bytes());
        out.extend((self.block.0 as u16).to_le_bytes());
        out.extend(self.sectors.0.to_le_bytes());
        out.extend(self.identity.bytes());
        for (place, _) in self.watched.iter().zip(kept).filter(|(_, k)| *k) {
            place.encode(&mut out);
        }
        assert!(out.len() <= RECORD_BYTES_MAX);
        out
    }

    /// Decodes the record in `bytes`, which may be anything.
    pub fn decode(bytes: &[u8]) -> Result<OriginRecord, NotARecord> {
        let mut from = RecordReader(bytes);
        let [version, flags] = from.take()?;
        if version != VERSION || flags != 0 {
            return Err(NotARecord);
        }
        let places = u16::from_le_bytes(from.take()?);
        let identity_len = usize::from(u16::from_le_bytes(from.take()?));
        let block = Sectors(u64::from(u16::from_le_bytes(from.take()?)));
        let sectors = Sectors(u64::from_le_bytes(from.take()?));
        if identity_len > IDENTITY_BYTES_MAX {
            return Err(NotARecord);
        }
        let identity = DeviceIdentity::from_bytes(from.run(identity_len)?).ok_or(NotARecord)?;
        let places = (0..places).map(|_| WatchedPlace::decode(&mut from, sectors));
        let record = OriginRecord {
            identity,
            sectors,
            block,
            watched: places.collect::<Result<_, _>>()?,
        };
        let in_order = |w: &[WatchedPlace]| w[0].extent.start <= w[1].extent.start;
        let sound = record.watched.windows(2).all(in_order) && from.0.is_empty();
        sound.then_some(record).ok_or(NotARecord)
    }
}

impl WatchedPlace {
    fn bytes(&self) -> usize {
        match &self.allowed {
            Allowed::These(values) => PLACE_BYTES + 8 * values.len(),
            Allowed::Any => PLACE_BYTES,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (count, values) = match &self.allowed {
            Allowed::These(values) => (values.len() as u8, &values[..]),
            Allowed::Any => (ANY, &[][..]),
        };
        out.extend([self.what as u8, count]);
        out.extend((self.extent.len.0 as u16).to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.extent.start.0.to_le_bytes());
        for value in values {
            out.extend(value.to_le_bytes());
        }
    }

    fn decode(from: &mut RecordReader, sectors: Sectors) -> Result<WatchedPlace, NotARecord> {
        let [what, count] = from.take()?;
        let len = Sectors(u64::from(u16::from_le_bytes(from.take()?)));
        let reserved: [u8; 4] = from.take()?;
        let start = Lba(u64::from_le_bytes(from.take()?));
        let end = start.0.checked_add(len.0);
        let inside = end.is_some_and(|end| end <= sectors.0);
        let few = count == ANY || usize::from(count) <= VALUES_MAX;
        if !inside || !few || !(1..=128).contains(&len.0) || reserved != [0; 4] {
            return Err(NotARecord);
        }
        let allowed = if count == ANY {
            Allowed::Any
        } else {
            let values = (0..count).map(|_| from.take().map(u64::from_le_bytes));
            Allowed::These(values.collect::<Result<_, _>>()?)
        };
        Ok(WatchedPlace {
            what: What::from_code(what).ok_or(NotARecord)?,
            extent: Extent::new(start, len),
            allowed,
        })
    }
}

struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn run(&mut self, len: usize) -> Result<&'a [u8], NotARecord> {
        let (run, rest) = self.0.split_at_checked(len).ok_or(NotARecord)?;
        self.0 = rest;
        Ok(run)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], NotARecord> {
        Ok(self.run(N)?.try_into().expect("of that length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(start: u64, what: What, allowed: Allowed) -> WatchedPlace {
        WatchedPlace {
            what,
            extent: Extent::new(Lba(start), Sectors(8)),
            allowed,
        }
    }

    pub(crate) fn record() -> OriginRecord {
        OriginRecord {
            identity: DeviceIdentity::new("disk-a"),
            sectors: Sectors(1 << 20),
            block: Sectors(1),
            watched: vec![
                place(0, What::BtrfsSuperblock, Allowed::These(vec![1, 2, 3])),
                place(64, What::Sample, Allowed::Any),
                place(800, What::Sample, Allowed::These(vec![7])),
            ],
        }
    }

    #[test]
    fn a_record_comes_back() {
        assert_eq!(OriginRecord::decode(&record().encode()), Ok(record()));
    }

    #[test]
    fn too_many_places_cost_samples_first() {
        let mut all = record();
        all.watched = (0..200)
            .map(|i| place(i * 8, What::Sample, Allowed::These(vec![1])))
            .collect();
        all.watched
            .push(place(1 << 16, What::XfsLog, Allowed::These(vec![9; 4])));
        let bytes = all.encode();
        assert!(bytes.len() <= RECORD_BYTES_MAX);
        let back = OriginRecord::decode(&bytes).unwrap();
        assert_eq!(back.watched.last(), all.watched.last());
        assert!(back.watched.len() > 40);
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_record_are_refused(
            cut in 0usize..200, at in 0usize..120, bit in 0u8..8,
        ) {
            let mut bytes = record().encode();
            if cut < bytes.len() {
                prop_assert!(OriginRecord::decode(&bytes[..cut]).is_err());
            }
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            // A record decoded from damaged bytes encodes to the same bytes again.
            if let Ok(other) = OriginRecord::decode(&bytes) {
                prop_assert_eq!(other.encode(), bytes);
            }
        }
    }
}
