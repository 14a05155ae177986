//! The superblock: which array a member belongs to, as what, and what is known
//! of the others.
//!
//! Version 2 is written; version 1, which had neither starts nor their history, is read.
//! What it cannot say is filled in so that it counts for as little as it may: its
//! events are those of a start without a name, of which the last but one is sealed.

use super::bitmap::{self, REGIONS_MAX};
use super::journal::slot_sectors;
use super::{ALIGNMENT, BLOCK_BYTES, Fields, JOURNAL, NUMBER_MAX, Uuid, checksum, put};
use crate::levels::{Level, MEMBERS_MAX, Shape};
use block::{BUF_BYTES_MAX, Extent, Lba, Sectors};

const MAGIC: &[u8; 8] = b"hotsetAR";
const VERSION: u32 = 2;
/// The version before starts had names.
const VERSION_PLAIN: u32 = 1;
/// The role of a spare.
pub const ROLE_SPARE: u16 = u16::MAX;
/// The longest name of an array.
pub const NAME_BYTES_MAX: usize = 32;
/// A member has less than this.
pub const MEMBER_SECTORS_MAX: Sectors = Sectors(1 << 50);
/// The most runs of lost sectors that are remembered.
pub const BAD_MAX: usize = 120;
/// The most starts that are remembered, the last one among them.
pub(crate) const HISTORY_MAX: usize = 18;

const AT_CHECKSUM: usize = 12;
const AT_TABLE: usize = 128;
const ENTRY_BYTES: usize = 48;
const ENTRY_BYTES_PLAIN: usize = 64;
const AT_HISTORY: usize = AT_TABLE + MEMBERS_MAX * ENTRY_BYTES;
const POSITION_BYTES: usize = 24;
const AT_SCRUBBED: usize = 2096;
const AT_BAD: usize = 2176;
const BAD_BYTES: usize = 16;
const _: () = assert!(AT_HISTORY + HISTORY_MAX * POSITION_BYTES <= AT_SCRUBBED);
const _: () = assert!(AT_TABLE + MEMBERS_MAX * ENTRY_BYTES_PLAIN == AT_BAD);
const _: () = assert!(AT_BAD + BAD_MAX * BAD_BYTES == BLOCK_BYTES);

/// What is known of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemberState {
    /// It holds everything that was acknowledged.
    #[default]
    InSync,
    /// It is being filled. `whole`: from the start on, up to the entry's
    /// checkpoint so far; else only what the write-intent bitmap marks.
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
    /// Of one that was lost, the event after the last that it had for certain.
    pub failed_at: u64,
}

/// A point in the life of an array: an event, and the start that it belongs to. One
/// start numbers its events upwards, and never gives two of them one number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position {
    /// The random identity of the start; nil for all that version 1 wrote.
    pub generation: Uuid,
    /// The event.
    pub event: u64,
}

/// Since when the time to the next scrub counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scrubbed {
    /// In seconds since 1970 by the clock of whoever runs the array; 0 if nobody has said.
    pub since: u64,
    /// Whether a scrub of all of it ended then.
    pub ended: bool,
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
    /// How often the array has changed.
    pub events: u64,
    /// The start that wrote this; nil in version 1.
    pub generation: Uuid,
    /// The starts before that, the last first, each with its last event that counts.
    pub history: Vec<Position>,
    /// The last event that every member which was to have it is known to have, if only
    /// in one of its two copies.
    pub sealed: u64,
    /// Of version 1: how often this event was rewritten; the highest is the truth.
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
    /// The sectors of the array under one bit of the write-intent bitmap.
    pub region: Sectors,
    /// Records that the journal of each member has room for; 0 without one.
    pub journal_slots: u32,
    /// The roles.
    pub table: Vec<MemberEntry>,
    /// Runs of the array's sectors whose data is lost.
    pub bad: Vec<Extent>,
    /// When it was scrubbed last.
    pub scrubbed: Scrubbed,
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
        block[82] = self.level.layout().code();
        block[83] = self.table.len() as u8;
        block[84] = self.block.0 as u8;
        block[85] = self.bad.len() as u8;
        let history = self.chain();
        assert!(history.len() <= HISTORY_MAX);
        block[86] = history.len() as u8;
        put(block, 88, &self.sealed.to_le_bytes());
        put(block, 96, self.name.as_bytes());
        for (i, position) in history.iter().enumerate() {
            let at = AT_HISTORY + i * POSITION_BYTES;
            put(block, at, &position.generation.0);
            put(block, at + 16, &position.event.to_le_bytes());
        }
        for (i, entry) in self.table.iter().enumerate() {
            let at = AT_TABLE + i * ENTRY_BYTES;
            put(block, at, &entry.uuid.0);
            put(block, at + 16, &entry.sectors.0.to_le_bytes());
            put(block, at + 24, &entry.checkpoint.0.to_le_bytes());
            put(block, at + 32, &entry.failed_at.to_le_bytes());
            block[at + 40] = entry.state.code();
        }
        put(block, AT_SCRUBBED, &self.scrubbed.since.to_le_bytes());
        block[AT_SCRUBBED + 8] = u8::from(self.scrubbed.ended);
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
        let plain = match fields.u32(8) {
            VERSION => false,
            VERSION_PLAIN => true,
            _ => return None,
        };
        let sound = Superblock::claims(block)
            && fields.u32(AT_CHECKSUM) == checksum(&block[..BLOCK_BYTES], AT_CHECKSUM);
        if !sound {
            return None;
        }
        let level = Level::ALL
            .into_iter()
            .find(|level| level.layout().code() == fields.u8(82))?;
        let (members, bad) = (usize::from(fields.u8(83)), usize::from(fields.u8(85)));
        if members > MEMBERS_MAX || bad > BAD_MAX {
            return None;
        }
        let name = block[96..96 + NAME_BYTES_MAX].split(|byte| *byte == 0);
        let name = String::from_utf8(name.into_iter().next()?.to_vec()).ok()?;
        let entry = |i: usize| {
            let at = match plain {
                false => AT_TABLE + i * ENTRY_BYTES,
                true => AT_TABLE + i * ENTRY_BYTES_PLAIN,
            };
            let failed_at = fields.u64(at + 32);
            Some(MemberEntry {
                uuid: fields.uuid(at),
                sectors: Sectors(fields.u64(at + 16)),
                checkpoint: Sectors(fields.u64(at + 24)),
                // Version 1 named the event of the loss, before which one may have been
                // cut short.
                failed_at: failed_at.saturating_sub(u64::from(plain)),
                state: MemberState::from_code(fields.u8(at + 40))?,
            })
        };
        let events = fields.u64(48);
        let mut history = Vec::new();
        let (mut sealed, mut revision) = (events.saturating_sub(1), 0);
        let mut scrubbed = Scrubbed::default();
        if plain {
            revision = fields.u32(88);
            history.push(Position {
                generation: Uuid::default(),
                event: events,
            });
        } else {
            sealed = fields.u64(88);
            scrubbed.since = fields.u64(AT_SCRUBBED);
            scrubbed.ended = fields.u8(AT_SCRUBBED + 8) != 0;
            let starts = usize::from(fields.u8(86));
            if starts > HISTORY_MAX {
                return None;
            }
            history.extend((0..starts).map(|i| {
                let at = AT_HISTORY + i * POSITION_BYTES;
                Position {
                    generation: fields.uuid(at),
                    event: fields.u64(at + 16),
                }
            }));
        }
        let (now, history) = history.split_first()?;
        if now.event != events {
            return None;
        }
        let lost = |i: usize| {
            let at = AT_BAD + i * BAD_BYTES;
            Extent::new(Lba(fields.u64(at)), Sectors(fields.u64(at + 8)))
        };
        let superblock = Superblock {
            array: fields.uuid(16),
            member: fields.uuid(32),
            role: fields.u16(80),
            events,
            generation: now.generation,
            history: history.to_vec(),
            sealed,
            revision,
            name,
            level,
            block: Sectors(u64::from(fields.u8(84))),
            chunk: Sectors(u64::from(fields.u32(72))),
            data_at: Sectors(fields.u64(56)),
            region: Sectors(fields.u64(64)),
            journal_slots: fields.u32(76),
            table: (0..members).map(entry).collect::<Option<_>>()?,
            bad: (0..bad).map(lost).collect(),
            scrubbed,
        };
        superblock.is_possible().then_some(superblock)
    }

    /// Whether `block` says that it is one, be it sound or not.
    pub(crate) fn claims(block: &[u8]) -> bool {
        block.starts_with(MAGIC)
    }

    /// Where in the array's life this was written.
    pub fn position(&self) -> Position {
        Position {
            generation: self.generation,
            event: self.events,
        }
    }

    /// That, and the starts before it.
    pub(crate) fn chain(&self) -> Vec<Position> {
        let history = self.history.iter().copied();
        std::iter::once(self.position()).chain(history).collect()
    }

    /// Of two, which was written later, as far as they have a life in common.
    pub(crate) fn age(&self) -> (u64, u32) {
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
            && self.sealed <= self.events
            && self
                .chain()
                .is_sorted_by(|later, earlier| later.event > earlier.event)
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
        let can_distinguish = |()| {
            let regions = shape.sectors().0.div_ceil(region);
            region.is_multiple_of(width)
                && regions <= REGIONS_MAX as u64
                && bitmap::before_data(regions as usize) + JOURNAL <= self.data_at
        };
        let redundant = self.level.is_redundant().then_some(());
        region > 0 && redundant.is_none_or(can_distinguish)
    }

    fn has_fitting_journal(&self, shape: &Shape) -> bool {
        if !self.level.has_parity() {
            return self.journal_slots == 0;
        }
        let slot = slot_sectors(shape.members(), self.chunk);
        let end = JOURNAL.0 + u64::from(self.journal_slots) * slot.0;
        let regions = shape.sectors().0.div_ceil(self.region.0.max(1));
        let end = end + bitmap::before_data(regions as usize).0;
        self.journal_slots > 0 && slot.bytes() <= BUF_BYTES_MAX as u64 && end <= self.data_at.0
    }
}

#[cfg(test)]
mod tests;
