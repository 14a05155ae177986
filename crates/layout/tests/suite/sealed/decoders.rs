//! Blocks of the write-back log, of its journal and of arrays with any bytes but the right magic,
//! salt and checksum: a decoded value is in bounds, and is read alike after it was encoded.

use block::Sectors;
use layout::array::{bitmap, journal, superblock};
use layout::{
    BLOCK_BYTES, BLOCK_SECTORS, Became, JournalCommit, JournalSuperblock, LogRecord, LogSuperblock,
    RECORD_BLOCKS_MAX, RECORD_EXTENTS_MAX, SEGMENT_BLOCKS, Segment, Uuid, journal_half,
};

/// The salt of all blocks.
pub const OWNER: Uuid = Uuid(0x1234_5678);
/// Members of the array.
pub const MEMBERS: usize = 3;
/// A chunk of the array.
pub const CHUNK: Sectors = Sectors(128);
/// Blocks of the greatest device: their sectors have addresses.
const BLOCKS_MAX: u64 = u64::MAX / BLOCK_SECTORS;

/// The decoders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    LogSuperblock,
    Segment,
    Record,
    JournalSuperblock,
    JournalCommit,
    ArraySuperblock,
    ArrayBitmap,
    ArrayRecord,
}

impl Kind {
    pub const ALL: [Kind; 8] = [
        Kind::LogSuperblock,
        Kind::Segment,
        Kind::Record,
        Kind::JournalSuperblock,
        Kind::JournalCommit,
        Kind::ArraySuperblock,
        Kind::ArrayBitmap,
        Kind::ArrayRecord,
    ];
}

/// Makes `block` claim to be of `kind`, with the right checksum.
pub fn seal(kind: Kind, block: &mut [u8]) {
    match kind {
        Kind::LogSuperblock => superblock_of(*b"WRITEBAK", block),
        Kind::JournalSuperblock => superblock_of(*b"WRITEJNL", block),
        Kind::Segment => page(*b"HSSG", block),
        Kind::Record => page(*b"HSRC", block),
        Kind::JournalCommit => page(*b"HSCM", block),
        Kind::ArraySuperblock => of_array(*b"hotsetAR", 12, None, block),
        Kind::ArrayRecord => of_array(*b"hotsetJR", 8, Some(16), block),
        Kind::ArrayBitmap => {
            for (number, sector) in (0u32..).zip(block.chunks_exact_mut(512)) {
                sector[24..28].copy_from_slice(&number.to_le_bytes());
                of_array(0x6d61_7069u32.to_le_bytes(), 4, Some(8), sector);
            }
        }
    }
}

fn superblock_of(magic: [u8; 8], block: &mut [u8]) {
    block[..8].copy_from_slice(&magic);
    let (body, sum) = block.split_at_mut(BLOCK_BYTES - 4);
    sum.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
}

fn page(name: [u8; 4], block: &mut [u8]) {
    block[4..8].copy_from_slice(&name);
    block[8..16].copy_from_slice(&OWNER.salt().to_le_bytes());
    let sum = crc32c::crc32c(&block[4..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
}

fn summarizes_its_bounds(segment: &Segment) {
    let records = segment.summary.as_ref().map(|summary| summary.records(1));
    for (at, record) in records.into_iter().flatten().flatten() {
        assert!(at > 0 && at + record.blocks() <= SEGMENT_BLOCKS);
        in_bounds(&record);
    }
}

fn of_array<const N: usize>(magic: [u8; N], sum_at: usize, uuid: Option<usize>, at: &mut [u8]) {
    at[..N].copy_from_slice(&magic);
    if let Some(uuid) = uuid {
        at[uuid..uuid + 16].copy_from_slice(&OWNER.to_bytes());
    }
    at[sum_at..sum_at + 4].fill(0);
    let sum = crc32c::crc32c(at);
    at[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// True if the decoder of `kind` takes `block`.
///
/// # Panics
///
/// If the decoded value is out of bounds, or another once it was encoded.
pub fn is_taken(kind: Kind, block: &[u8]) -> bool {
    match kind {
        Kind::LogSuperblock => reads_alike(
            block,
            |block| LogSuperblock::decode(block).ok(),
            LogSuperblock::encode,
        )
        .is_some(),
        Kind::Segment => {
            let decode = |block: &[u8]| Segment::decode(block, OWNER).ok();
            let segment = reads_alike(block, decode, |segment, out| segment.encode(OWNER, out));
            segment.inspect(summarizes_its_bounds).is_some()
        }
        Kind::Record => {
            let decode = |block: &[u8]| LogRecord::decode(block, OWNER).ok();
            let record = reads_alike(block, decode, |record, out| record.encode(OWNER, out));
            record.inspect(in_bounds).is_some()
        }
        Kind::JournalSuperblock => {
            let superblock = reads_alike(
                block,
                |block| JournalSuperblock::decode(block).ok(),
                JournalSuperblock::encode,
            );
            superblock
                .inspect(|superblock| {
                    let end = superblock.half_at(2);
                    assert!(end <= BLOCKS_MAX);
                    assert!(journal_half(end) >= Some(superblock.half));
                })
                .is_some()
        }
        Kind::JournalCommit => reads_alike(
            block,
            |block| JournalCommit::decode(block, OWNER).ok(),
            |commit, out| commit.encode(OWNER, out),
        )
        .is_some(),
        Kind::ArraySuperblock => is_superblock(block),
        Kind::ArrayBitmap => is_bitmap(block),
        Kind::ArrayRecord => {
            let decode =
                |block: &[u8]| journal::JournalRecord::decode(block, OWNER, MEMBERS, CHUNK);
            let record = reads_alike(block, decode, journal::JournalRecord::encode);
            record.inspect(in_a_stripe).is_some()
        }
    }
}

fn is_superblock(block: &[u8]) -> bool {
    let found = superblock::open(block);
    if let Some(row) = found.clone() {
        let mut again = vec![0; BLOCK_BYTES];
        row.seal(&mut again);
        // A version that is read is not written.
        if again[8..12] == block[8..12] {
            assert_eq!(again, block);
        }
    }
    found.is_some()
}

fn is_bitmap(block: &[u8]) -> bool {
    let mut marked = Vec::new();
    bitmap::decode(block, OWNER, 0, |region| marked.push(region));
    assert!(marked.iter().all(|region| *region < bitmap::REGIONS));
    let is_legible = bitmap::is_legible(block, OWNER, 0);
    if is_legible {
        let mut again = vec![0; BLOCK_BYTES];
        let writes = bitmap::writes(block, OWNER, 0).expect("it is legible");
        bitmap::encode(&mut again, OWNER, 0, writes, &marked);
        // Each sector has its own count.
        let but_for_that = |block: &[u8]| {
            let sectors = block.chunks(512);
            let parts = sectors.map(|sector| [&sector[8..28], &sector[32..]].concat());
            parts.collect::<Vec<_>>()
        };
        assert_eq!(but_for_that(&again), but_for_that(block));
    }
    is_legible
}

/// The value that `decode` reads from `block`; the same once `encode` has written it.
pub fn reads_alike<T: PartialEq + std::fmt::Debug>(
    block: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T, &mut [u8]),
) -> Option<T> {
    let read = decode(block)?;
    let mut again = vec![0xa5; BLOCK_BYTES];
    encode(&read, &mut again);
    assert_eq!(decode(&again).as_ref(), Some(&read));
    Some(read)
}

fn in_bounds(record: &LogRecord) {
    assert!(record.extents.len() <= RECORD_EXTENTS_MAX as usize);
    assert!(record.blocks() <= 1 + RECORD_BLOCKS_MAX);
    let mut data = 0;
    for extent in &record.extents {
        let end = extent.block + u64::from(extent.count);
        assert!(extent.count > 0 && end <= BLOCKS_MAX);
        data += match extent.became {
            Became::Data => extent.count as usize,
            Became::Zero | Became::Discarded => 0,
        };
    }
    assert_eq!(data, record.crcs.len());
    assert!(!record.has(&vec![0; (data + 1) * BLOCK_BYTES]));
}

fn in_a_stripe(record: &journal::JournalRecord) {
    assert!((1..=2).contains(&record.headers) && record.tail <= record.number);
    if let journal::JournalEntry::Redo { runs, .. } = &record.entry {
        for run in runs {
            assert!(run.role() < MEMBERS && run.len.0 > 0);
            assert!(run.from + run.len <= CHUNK);
        }
    }
}
