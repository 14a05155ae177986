//! All data written to devices, without any I/O. A pool device:
//!
//! ```text
//! superblock A | bitmap x4 | log (a ring) | map A | map B | hints A | hints B | lines |
//! table A | table B | superblock B
//! ```
//!
//! `docs/format.md` has the offsets. All integers are little-endian. Every block
//! carries a CRC32C, the identity of its device and its own number, so that a
//! torn, flipped, misdirected or stale block is recognised.
//!
//! Invariants:
//!     decode(encode(x)) = x
//!     a single flipped bit in anything encoded here is an error to `decode`
//!     a version other than [`VERSION`] and the one before it is refused, never guessed
//!
//! The log of write-back (`log_superblock`, `segment`, `log_record`, `summary`) and its journal
//! have devices of their own. The metadata of arrays' members is `array`.
//!
//! Not here: the order of writes, and the consequences of damage (`cache`, `raid`).

pub mod array;
mod bitmap;
mod copies;
mod hints;
mod identity;
mod journal;
mod log;
mod log_record;
mod log_superblock;
mod map;
mod name;
mod page;
mod pair;
mod plan;
mod record;
mod segment;
mod signature;
mod summary;
mod superblock;
mod volumes;

pub use bitmap::{BITMAP_BITS, Bitmap, BitmapRow, newest_bitmap};
pub use copies::{
    current_superblock, first_superblock, newest, second_superblock, witness_superblock,
};
pub use hints::{HintRow, decode_hints, encode_hints};
pub use identity::{DeviceIdentity, Fact, IDENTITY_BYTES_MAX, Likeness, likeness};
pub use journal::{
    COMMIT_BLOCKS, JOURNAL_HALF_MIN, JOURNAL_VERSION, JournalCommit, JournalCommitRow,
    JournalSuperblock, JournalSuperblockRow, journal_half,
};
pub use log::{LogBlock, LogReader, SlotChange};
pub use log_record::{
    Became, LogRecord, RECORD_BLOCKS_MAX, RECORD_EXTENTS_MAX, RecordExtent, RecordExtentRow,
    RecordRow, SEGMENT_BLOCKS, block_crc,
};
pub use log_superblock::{
    LOG_AREA, LOG_SUPERBLOCKS, LOG_VERSIONS, LOG_WITNESS_BYTES, LogSuperblock, LogSuperblockRow,
    log_segments,
};
pub use map::{EntryRow, MapEntry, MapPage, Mask, entries_per_page, is_checksum};
pub use name::{NAME_BYTES_MAX, SuperblockError, fitting};
pub use page::{PageError, PageHeader};
pub use pair::{BlockPair, Paired};
pub use plan::{BITMAP_BLOCKS, LayoutPlan, PlanError, PlannedArea, WITNESS_BLOCKS, WITNESS_TABLES};
pub use record::FieldRow;
pub use segment::{LOG_NUMBER, Segment, SegmentCopy, SegmentRow};
pub use signature::{Foreign, PROBE_BYTES, foreign};
pub use summary::{SegmentSummary, SummaryRow, SummaryWriter};
pub use superblock::{
    MEMBERS_MAX, MemberRecord, MemberRow, PoolRole, PoolSuperblock, SuperblockRow,
};
pub use volumes::{
    ORIGIN_RECORD_BYTES_MAX, VOLUME_QUIESCED, VOLUMES_MAX, VolumeRecord, VolumeRow, VolumeTable,
    volumes_fitting,
};

use std::fmt;

/// The version of the format.
pub const VERSION: u32 = 2;
/// Bytes of a block: the unit of every area, of validity and of checksums.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks of each of the two superblocks of a pool device.
pub const SUPERBLOCK_BLOCKS: u64 = 16;
/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = (BLOCK_BYTES / 512) as u64;
/// Bits of a line's key that hold its number; its volume's id is above.
pub const LINE_BITS: u32 = 40;

/// Names a pool or an array, or a device of one, for ever: a random number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub u128);

impl Uuid {
    /// The uuid of bytes in the order in which they are printed, as arrays store them.
    pub const fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(u128::from_be_bytes(bytes))
    }

    /// The bytes in that order.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The part of a device's name that its blocks carry.
    pub fn salt(self) -> u64 {
        (self.0 ^ (self.0 >> 64)) as u64
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        f.write_str(&parts.join("-"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
