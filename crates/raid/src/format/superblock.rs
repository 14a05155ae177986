//! The superblock: which array a member belongs to, as what, and what is known
//! of the others.

use super::journal::slot_sectors;
use super::map::REGIONS_MAX;
use super::{ALIGNMENT, BLOCK_BYTES, Fields, JOURNAL, NUMBER_MAX, checksum, put};
use crate::levels::{Level, MEMBERS_MAX, Shape};
use block::{BUF_BYTES_MAX, Extent, Lba, Sectors};
use std::fmt;

const MAGIC: &[u8; 8] = b"hotsetAR";
const VERSION: u32 = 1;
/// The role of a spare.
pub const ROLE_SPARE: u16 = u16::MAX;
/// The longest name of an array.
pub const NAME_BYTES_MAX: usize = 32;
/// A member has less than this.
pub const MEMBER_SECTORS_MAX: Sectors = Sectors(1 << 50);
/// The most runs of lost sectors that are remembered.
pub const BAD_MAX: usize = 120;

const AT_CHECKSUM: usize = 12;
const AT_TABLE: usize = 128;
const ENTRY_BYTES: usize = 64;
const AT_BAD: usize = AT_TABLE + MEMBERS_MAX * ENTRY_BYTES;
const BAD_BYTES: usize = 16;
const _: () = assert!(AT_BAD + BAD_MAX * BAD_BYTES == BLOCK_BYTES);

/// Names an array, or a member, for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = matches!(i, 4 | 6 | 8 | 10);
            write!(f, "{}{byte:02x}", if dash { "-" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What is known of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemberState {
    /// It holds everything that was acknowledged.
    #[default]
    InSync,
    /// It is being filled. `whole`: from the start on, up to the entry's
    /// checkpoint so far; else only what the write-intent map marks.
    Rebuilding {
        /// Whether nothing that it held counts.
        whole: bool,
    },
    /// It was lost. `whole`: when it returns, nothing that it holds counts.
    Failed {
        /// Whether nothing that it holds counts.
        whole: bool,
    },
}

impl MemberState {
    /// Whether it was lost.
    pub fn is_failed(self) -> bool {
        matches!(self, MemberState::Failed { .. })
    }

    fn code(self) -> u8 {
        match self {
            MemberState::InSync => 0,
            MemberState::Rebuilding { whole: false } => 1,
            MemberState::Rebuilding { whole: true } => 2,
            MemberState::Failed { whole: false } => 3,
            MemberState::Failed { whole: true } => 4,
        }
    }

    fn from_code(code: u8) -> Option<MemberState> {
        Some(match code {
            0 => MemberState::InSync,
            1 => MemberState::Rebuilding { whole: false },
            2 => MemberState::Rebuilding { whole: true },
            3 => MemberState::Failed { whole: false },
            4 => MemberState::Failed { whole: true },
            _ => return None,
        })
    }
}

/// A role of an array and who has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemberEntry {
    /// Who has it, or had it last.
    pub uuid: Uuid,
    /// What is known of that member.
    pub state: MemberState,
    /// The sectors used of it.
    pub sectors: Sectors,
    /// Of a rebuild from the start on: the sectors of the array that are done.
    pub checkpoint: Sectors,
    /// The event by which it was lost.
    pub failed_at: u64,
}

/// What each member says of its array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The array.
    pub array: Uuid,
    /// This member.
    pub member: Uuid,
    /// This member's role, or [`ROLE_SPARE`].
    pub role: u16,
    /// How often the array has changed; the highest is the truth.
    pub events: u64,
    /// Of one event, how often it was written anew because not every member took it;
    /// the highest is the truth.
    pub revision: u32,
    /// The array's name.
    pub name: String,
    /// The array's level.
    pub level: Level,
    /// The array's logical block.
    pub block: Sectors,
    /// The chunk of striped levels.
    pub chunk: Sectors,
    /// Where data begins on each member.
    pub data_at: Sectors,
    /// The sectors of the array under one bit of the write-intent map.
    pub region: Sectors,
    /// Records that the journal of each member has room for; 0 without one.
    pub journal_slots: u32,
    /// The roles.
    pub table: Vec<MemberEntry>,
    /// Runs of the array's sectors whose data is lost.
    pub bad: Vec<Extent>,
}

fn level_code(level: Level) -> u8 {
    match level {
        Level::Linear => 0,
        Level::Raid0 => 1,
        Level::Raid1 => 2,
        Level::Raid10 => 3,
        Level::Raid5 => 4,
    }
}

impl Superblock {
    /// Writes it into `block`, of 4096 bytes.
    pub fn encode(&self, block: &mut [u8]) {
        assert!(block.len() == BLOCK_BYTES && self.table.len() <= MEMBERS_MAX);
        assert!(self.bad.len() <= BAD_MAX && self.name.len() <= NAME_BYTES_MAX);
        block.fill(0);
        put(block, 0, MAGIC);
        put(block, 8, &VERSION.to_le_bytes());
        put(block, 16, &self.array.0);
        put(block, 32, &self.member.0);
        put(block, 48, &self.events.to_le_bytes());
        put(block, 56, &self.data_at.0.to_le_bytes());
        put(block, 64, &self.region.0.to_le_bytes());
        put(block, 72, &(self.chunk.0 as u32).to_le_bytes());
        put(block, 76, &self.journal_slots.to_le_bytes());
        put(block, 80, &self.role.to_le_bytes());
        block[82] = level_code(self.level);
        block[83] = self.table.len() as u8;
        block[84] = self.block.0 as u8;
        block[85] = self.bad.len() as u8;
        put(block, 88, &self.revision.to_le_bytes());
        put(block, 96, self.name.as_bytes());
        for (i, entry) in self.table.iter().enumerate() {
            let at = AT_TABLE + i * ENTRY_BYTES;
            put(block, at, &entry.uuid.0);
            put(block, at + 16, &entry.sectors.0.to_le_bytes());
            put(block, at + 24, &entry.checkpoint.0.to_le_bytes());
            put(block, at + 32, &entry.failed_at.to_le_bytes());
            block[at + 40] = entry.state.code();
        }
        for (i, bad) in self.bad.iter().enumerate() {
            let at = AT_BAD + i * BAD_BYTES;
            put(block, at, &bad.start.0.to_le_bytes());
            put(block, at + 8, &bad.len.0.to_le_bytes());
        }
        let sum = checksum(block, AT_CHECKSUM);
        put(block, AT_CHECKSUM, &sum.to_le_bytes());
    }

    /// Reads one; `None` if `block` holds none, or one that cannot be.
    pub fn decode(block: &[u8]) -> Option<Superblock> {
        let fields = Fields(block.get(..BLOCK_BYTES)?);
        let sound = block[..8] == *MAGIC
            && fields.u32(8) == VERSION
            && fields.u32(AT_CHECKSUM) == checksum(&block[..BLOCK_BYTES], AT_CHECKSUM);
        if !sound {
            return None;
        }
        let level = Level::ALL
            .into_iter()
            .find(|level| level_code(*level) == fields.u8(82))?;
        let (members, bad) = (usize::from(fields.u8(83)), usize::from(fields.u8(85)));
        if members > MEMBERS_MAX || bad > BAD_MAX {
            return None;
        }
        let name = block[96..96 + NAME_BYTES_MAX].split(|byte| *byte == 0);
        let name = String::from_utf8(name.into_iter().next()?.to_vec()).ok()?;
        let entry = |i: usize| {
            let at = AT_TABLE + i * ENTRY_BYTES;
            Some(MemberEntry {
                uuid: fields.uuid(at),
                sectors: Sectors(fields.u64(at + 16)),
                checkpoint: Sectors(fields.u64(at + 24)),
                failed_at: fields.u64(at + 32),
                state: MemberState::from_code(fields.u8(at + 40))?,
            })
        };
        let lost = |i: usize| {
            let at = AT_BAD + i * BAD_BYTES;
            Extent::new(Lba(fields.u64(at)), Sectors(fields.u64(at + 8)))
        };
        let superblock = Superblock {
            array: fields.uuid(16),
            member: fields.uuid(32),
            role: fields.u16(80),
            events: fields.u64(48),
            revision: fields.u32(88),
            name,
            level,
            block: Sectors(u64::from(fields.u8(84))),
            chunk: Sectors(u64::from(fields.u32(72))),
            data_at: Sectors(fields.u64(56)),
            region: Sectors(fields.u64(64)),
            journal_slots: fields.u32(76),
            table: (0..members).map(entry).collect::<Option<_>>()?,
            bad: (0..bad).map(lost).collect(),
        };
        superblock.is_possible().then_some(superblock)
    }

    /// Which of several is the truth: the highest.
    pub fn age(&self) -> (u64, u32) {
        (self.events, self.revision)
    }

    /// Whether its numbers fit each other; a checksum says nothing of that.
    fn is_possible(&self) -> bool {
        let sizes: Vec<_> = self.table.iter().map(|entry| entry.sectors).collect();
        if sizes.iter().any(|size| *size >= MEMBER_SECTORS_MAX) {
            return false;
        }
        let Ok(shape) = Shape::new(self.level, &sizes, self.chunk) else {
            return false;
        };
        let of_entry = |entry: &MemberEntry| {
            entry.checkpoint <= shape.sectors() && entry.failed_at < NUMBER_MAX
        };
        let of_bad = |bad: &Extent| {
            let end = bad.start.0.saturating_add(bad.len.0);
            end <= shape.sectors().0 && !bad.is_empty()
        };
        (self.role == ROLE_SPARE || usize::from(self.role) < sizes.len())
            && self.events < NUMBER_MAX
            && matches!(self.block.0, 1 | 8)
            && self.data_at < MEMBER_SECTORS_MAX
            && self.data_at.0.is_multiple_of(ALIGNMENT.0)
            && self.data_at > Sectors::ZERO
            && self.has_fitting_map(&shape)
            && self.has_fitting_journal(&shape)
            && self.table.iter().all(of_entry)
            && self.bad.iter().all(of_bad)
    }

    fn has_fitting_map(&self, shape: &Shape) -> bool {
        let (region, width) = (self.region.0, shape.width().0);
        let can_tell_apart = |()| {
            region.is_multiple_of(width) && shape.sectors().0.div_ceil(region) <= REGIONS_MAX as u64
        };
        let redundant = self.level.is_redundant().then_some(());
        region > 0 && redundant.is_none_or(can_tell_apart)
    }

    fn has_fitting_journal(&self, shape: &Shape) -> bool {
        if self.level != Level::Raid5 {
            return self.journal_slots == 0;
        }
        let slot = slot_sectors(shape.members(), self.chunk);
        let end = JOURNAL.0 + u64::from(self.journal_slots) * slot.0;
        self.journal_slots > 0 && slot.bytes() <= BUF_BYTES_MAX as u64 && end <= self.data_at.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn sample() -> Superblock {
        let entry = |i: u8, state| MemberEntry {
            uuid: Uuid([i; 16]),
            state,
            sectors: Sectors(4096),
            checkpoint: Sectors(u64::from(i)),
            failed_at: u64::from(i),
        };
        Superblock {
            array: Uuid([9; 16]),
            member: Uuid([1; 16]),
            role: 1,
            events: 77,
            revision: 3,
            name: "slow".into(),
            level: Level::Raid5,
            block: Sectors(8),
            chunk: Sectors(128),
            data_at: Sectors(8192),
            region: Sectors(1024),
            journal_slots: 16,
            table: vec![
                entry(0, MemberState::InSync),
                entry(1, MemberState::Rebuilding { whole: true }),
                entry(2, MemberState::Failed { whole: false }),
            ],
            bad: vec![Extent::new(Lba(8), Sectors(16))],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut block = vec![0xff; BLOCK_BYTES];
        sample().encode(&mut block);
        assert_eq!(Superblock::decode(&block), Some(sample()));
    }

    fn read_back(superblock: &Superblock) -> Option<Superblock> {
        let mut block = vec![0xff; BLOCK_BYTES];
        superblock.encode(&mut block);
        Superblock::decode(&block)
    }

    #[test]
    fn a_full_one_is_read() {
        let states = (0..5).map(|code| MemberState::from_code(code).unwrap());
        let entries = (1..).zip(states.cycle()).map(|(i, state)| MemberEntry {
            uuid: Uuid([i; 16]),
            state,
            ..sample().table[0]
        });
        let full = Superblock {
            name: "n".repeat(NAME_BYTES_MAX),
            data_at: Sectors(67584),
            region: Sectors(31 * 128),
            table: entries.take(MEMBERS_MAX).collect(),
            bad: vec![Extent::new(Lba(8), Sectors(16)); BAD_MAX],
            ..sample()
        };
        assert_eq!(read_back(&full), Some(full.clone()));
        assert_eq!(
            full.table[1].uuid.to_string(),
            "02020202-0202-0202-0202-020202020202"
        );
        assert_eq!(
            format!("{:?}", full.table[1].uuid),
            full.table[1].uuid.to_string()
        );
    }

    /// A checksum says nothing of what the numbers mean.
    #[test]
    fn numbers_that_cannot_be_are_refused() {
        type Change = fn(&mut Superblock, u64);
        const LIMIT: u64 = 1 << 50;
        let changes: [(Change, &[u64], &[u64]); 18] = [
            (|s, n| s.role = n as u16, &[0, 2, ROLE_SPARE as u64], &[3]),
            (|s, n| s.events = n, &[0, NUMBER_MAX - 1], &[NUMBER_MAX]),
            (|s, n| s.block = Sectors(n), &[1, 8], &[0, 2, 16]),
            (|s, n| s.chunk = Sectors(n), &[64, 128], &[0, 4, 8192]),
            (
                |s, n| s.data_at = Sectors(n),
                &[8192, LIMIT - 2048],
                &[0, 6144, 8193, LIMIT],
            ),
            (|s, n| s.region = Sectors(n), &[256, 1024], &[0, 128, 300]),
            (|s, n| s.journal_slots = n as u32, &[1, 16, 20], &[0, 21]),
            (
                |s, n| s.table[2].sectors = Sectors(n),
                &[LIMIT - 1],
                &[0, LIMIT, u64::MAX],
            ),
            (|s, n| s.table[1].checkpoint = Sectors(n), &[8192], &[8193]),
            (
                |s, n| s.table[2].failed_at = n,
                &[NUMBER_MAX - 1],
                &[NUMBER_MAX],
            ),
            (
                |s, n| s.bad[0].start = Lba(n),
                &[0, 8192 - 16],
                &[8192 - 15, u64::MAX],
            ),
            (
                |s, n| s.bad[0].len = Sectors(n),
                &[1, 8192 - 8],
                &[0, 8192 - 7, u64::MAX],
            ),
            (|s, n| s.table.truncate(n as usize), &[3], &[2]),
            // As many regions as the map has bits.
            (
                |s, n| {
                    let sectors = |entry: &mut MemberEntry| entry.sectors = Sectors(n);
                    s.table.iter_mut().for_each(sectors);
                },
                &[15_728_640],
                &[15_728_640 + 128],
            ),
            // Other levels have no journal.
            (
                |s, n| (s.level, s.journal_slots) = (Level::Raid1, n as u32),
                &[0],
                &[16],
            ),
            // Members one after the other are added up.
            (
                |s, n| {
                    (s.level, s.journal_slots) = (Level::Linear, 0);
                    s.table[2].sectors = Sectors(n);
                },
                &[LIMIT - 8],
                &[u64::MAX],
            ),
            // One without redundancy has no use for a map.
            (
                |s, n| {
                    (s.level, s.journal_slots) = (Level::Raid0, 0);
                    s.region = Sectors(n);
                },
                &[1],
                &[0],
            ),
            // A record has to fit a buffer.
            (
                |s, n| {
                    (s.data_at, s.region) = (Sectors(1 << 30), Sectors(8192));
                    s.chunk = Sectors(n);
                },
                &[2048],
                &[4096],
            ),
        ];
        for (i, (change, possible, impossible)) in changes.into_iter().enumerate() {
            let all = possible.iter().map(|n| (n, true));
            for (n, is_possible) in all.chain(impossible.iter().map(|n| (n, false))) {
                let mut changed = sample();
                change(&mut changed, *n);
                let read = read_back(&changed);
                assert_eq!(read, is_possible.then_some(changed), "change {i} to {n}");
            }
        }
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let mut block = vec![0; BLOCK_BYTES];
        sample().encode(&mut block);
        for at in 0..BLOCK_BYTES {
            block[at] ^= 1;
            assert_eq!(Superblock::decode(&block), None, "byte {at}");
            block[at] ^= 1;
        }
    }

    proptest! {
        #[test]
        fn nonsense_with_a_right_checksum_does_no_harm(
            at in 8..BLOCK_BYTES, bytes in prop::collection::vec(any::<u8>(), 1..16)
        ) {
            let mut block = vec![0; BLOCK_BYTES];
            sample().encode(&mut block);
            let end = (at + bytes.len()).min(BLOCK_BYTES);
            block[at..end].copy_from_slice(&bytes[..end - at]);
            let sum = checksum(&block, AT_CHECKSUM);
            put(&mut block, AT_CHECKSUM, &sum.to_le_bytes());
            if let Some(read) = Superblock::decode(&block) {
                let mut again = vec![0; BLOCK_BYTES];
                read.encode(&mut again);
                prop_assert_eq!(Superblock::decode(&again), Some(read));
            }
        }
    }
}
