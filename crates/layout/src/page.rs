//! The header of a page: one block of bitmap, log or map.

use crate::record::record;
use crate::{BLOCK_BYTES, Uuid};

record! {
    /// The start of every block of bitmap, log and map, and of headers in the write-back log
    /// and its journal.
    PageHeader, 32 {
        0 crc: u32, "CRC32C of the rest of the block";
        4 kind: u32, "what the block is: `HSMK` bitmap, `HSLG` log, `HSMP` map, `HSSG` segment, `HSRC` record, `HSCM` commit";
        8 salt: u64, "the two halves of the device's uuid, of segments, records and commits the log's or the journal's, exclusive-or";
        16 number: u64, "bitmap: its version; log: the sequence number; map: the page; segment, record, commit: its number";
        24 used: u32, "bytes in use after this header";
        28 generation: u32, "map: which checkpoint; log, segment, record, commit: which incarnation of the pool or log; bitmap: 0";
    }
}

/// The reason for which a block is not the expected one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageError {
    /// The checksum does not match: torn, flipped, or never written.
    Checksum,
    /// Sound, but of another kind or another device.
    Foreign,
    /// Sound, but of another place or time.
    Misplaced,
    /// Sound, but its content makes no sense.
    Nonsense,
}

/// Bytes after the header.
pub(crate) const BODY_BYTES: usize = BLOCK_BYTES - PageHeader::BYTES;

pub(crate) const fn kind(name: [u8; 4]) -> u32 {
    u32::from_le_bytes(name)
}

/// Seals a block: the header first, then the bytes of `body`.
pub(crate) fn seal(
    out: &mut [u8],
    kind: u32,
    device: Uuid,
    number: u64,
    used: usize,
    generation: u32,
) {
    assert!(out.len() == BLOCK_BYTES && used <= BODY_BYTES);
    out[PageHeader::BYTES + used..].fill(0);
    let mut header = PageHeader {
        crc: 0,
        kind,
        salt: device.salt(),
        number,
        used: used as u32,
        generation,
    };
    header.encode(out);
    header.crc = crc_fast::crc32_iscsi(&out[4..]);
    header.encode(out);
}

/// The header and the bytes in use of a block of `kind` on `device`.
pub(crate) fn open(
    block: &[u8],
    kind: u32,
    device: Uuid,
) -> Result<(PageHeader, &[u8]), PageError> {
    let header = PageHeader::decode(block);
    if header.crc != crc_fast::crc32_iscsi(&block[4..BLOCK_BYTES]) {
        return Err(PageError::Checksum);
    }
    if header.kind != kind || header.salt != device.salt() {
        return Err(PageError::Foreign);
    }
    let used = header.used as usize;
    if used > BODY_BYTES {
        return Err(PageError::Nonsense);
    }
    Ok((header, &block[PageHeader::BYTES..][..used]))
}
