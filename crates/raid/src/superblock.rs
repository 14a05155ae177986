//! The superblock: a member's array, its role, and the states of the other members.
//!
//! Version 3 is written; version 2, which had no gaps, is read.

use crate::levels::{ArrayShape, Level};
use block::{BUF_BYTES_MAX, Extent, Lba, Sectors};
use layout::Uuid;
use layout::array::bitmap::{self, REGIONS_MAX};
use layout::array::journal::slot_sectors;
use layout::array::superblock::{
    FieldsRow, LostRow, RoleRow, StartRow, SuperblockRow, claims, open,
};
use layout::array::{ALIGNMENT, JOURNAL, NUMBER_MAX, padded};

pub(crate) use layout::array::superblock::HISTORY_MAX;
pub use layout::array::superblock::{BAD_MAX, NAME_BYTES_MAX, ROLE_SPARE};

/// Upper bound of a member's sectors, exclusive.
pub const MEMBER_SECTORS_MAX: Sectors = Sectors(1 << 50);

/// State of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemberState {
    /// The member holds everything that was acknowledged.
    #[default]
    InSync,
    /// The member is being rebuilt. `whole`: from the start on, up to the entry's checkpoint so
    /// far; otherwise only the regions that the write-intent bitmap marks.
    Rebuilding {
        /// True if no earlier data of the member counts.
        whole: bool,
    },
    /// The member was lost. `whole`: when it returns, none of its data counts.
    Failed {
        /// True if no data of the member counts.
        whole: bool,
    },
}

impl MemberState {
    /// True if the member was lost.
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

/// A role of an array and its member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemberEntry {
    /// Identity of the present or last member.
    pub uuid: Uuid,
    /// State of that member.
    pub state: MemberState,
    /// Sectors that the array uses of the member.
    pub sectors: Sectors,
    /// Sectors of the array that a rebuild from the start on has done.
    pub checkpoint: Sectors,
    /// For a lost member: the event after the last that it had for certain.
    pub failed_at: u64,
    /// For a lost member: the number of writes of the write-intent map, including one that the
    /// member may lack.
    pub map_writes: u32,
}

impl MemberEntry {
    fn row(&self) -> RoleRow {
        RoleRow {
            uuid: self.uuid.to_bytes(),
            sectors: self.sectors.0,
            checkpoint: self.checkpoint.0,
            failed_at: self.failed_at,
            state: self.state.code(),
            map_writes: self.map_writes,
            reserved: [0; 3],
        }
    }

    fn from_row(row: &RoleRow) -> Option<MemberEntry> {
        Some(MemberEntry {
            uuid: Uuid::from_bytes(row.uuid),
            state: MemberState::from_code(row.state)?,
            sectors: Sectors(row.sectors),
            checkpoint: Sectors(row.checkpoint),
            failed_at: row.failed_at,
            map_writes: row.map_writes,
        })
    }
}

/// A point in the life of an array: an event, and the start to which it belongs. One start numbers
/// its events upwards, and never gives two of them one number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position {
    /// Random identity of the start.
    pub generation: Uuid,
    /// Number of the event.
    pub event: u64,
}

impl Position {
    fn row(self) -> StartRow {
        StartRow {
            generation: self.generation.to_bytes(),
            event: self.event,
        }
    }

    fn from_row(row: &StartRow) -> Position {
        Position {
            generation: Uuid::from_bytes(row.generation),
            event: row.event,
        }
    }
}

/// Time from which the interval to the next scrub counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scrubbed {
    /// Seconds since 1970 by the clock of the node that runs the array; 0 if none was set.
    pub since: u64,
    /// True if a scrub of the whole array ended then.
    pub ended: bool,
}

/// Sectors of the data of `role` that its member never got: no other member could be read there
/// during the rebuild.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Role of the member.
    pub role: usize,
    /// Sectors, counted from the beginning of the member's data.
    pub extent: Extent,
}

/// A member's record of its array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArraySuperblock {
    /// Identity of the array.
    pub array: Uuid,
    /// Identity of this member.
    pub member: Uuid,
    /// Role of this member, or [`ROLE_SPARE`].
    pub role: u16,
    /// Number of changes of the array.
    pub events: u64,
    /// The start that wrote this superblock.
    pub generation: Uuid,
    /// The earlier starts, the last first, each with its last event that counts.
    pub history: Vec<Position>,
    /// The last event that is known to be on every member that was to have it, if only in one of
    /// the two copies.
    pub sealed: u64,
    /// Name of the array.
    pub name: String,
    /// Level of the array.
    pub level: Level,
    /// Logical block of the array.
    pub block: Sectors,
    /// Chunk of striped levels.
    pub chunk: Sectors,
    /// Offset of the data on each member.
    pub data_at: Sectors,
    /// Sectors of the array under one bit of the write-intent bitmap.
    pub region: Sectors,
    /// Number of records in the journal of each member; 0 without a journal.
    pub journal_slots: u32,
    /// Roles of the array.
    pub table: Vec<MemberEntry>,
    /// Runs of the array's sectors with lost data.
    pub bad: Vec<Extent>,
    /// Data that single members lack.
    pub gaps: Vec<Gap>,
    /// Time of the last scrub.
    pub scrubbed: Scrubbed,
}

impl ArraySuperblock {
    /// Encodes the superblock into `block`, of 4096 bytes.
    pub fn encode(&self, block: &mut [u8]) {
        let history = self.chain();
        let mut name = [0; NAME_BYTES_MAX];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        let fields = FieldsRow {
            array: self.array.to_bytes(),
            member: self.member.to_bytes(),
            event: self.events,
            data_at: self.data_at.0,
            region: self.region.0,
            chunk: self.chunk.0 as u32,
            journal_slots: self.journal_slots,
            role: self.role,
            level: self.level.code(),
            roles: self.table.len() as u8,
            block: self.block.0 as u8,
            lost: (self.bad.len() + self.gaps.len()) as u8,
            starts: history.len() as u8,
            sealed: self.sealed,
            name,
            ..FieldsRow::ZERO
        };
        let row = SuperblockRow {
            fields,
            roles: padded(self.table.iter().map(MemberEntry::row)),
            history: padded(history.into_iter().map(Position::row)),
            since: self.scrubbed.since,
            ended: u8::from(self.scrubbed.ended),
            lost: padded(self.lost_rows().into_iter()),
            ..SuperblockRow::ZERO
        };
        row.seal(block);
    }

    fn lost_rows(&self) -> Vec<LostRow> {
        let row = |extent: &Extent, role| LostRow::new(extent.start.0, extent.len.0, role);
        let bad = self.bad.iter().map(|bad| row(bad, None));
        let gaps = self.gaps.iter();
        bad.chain(gaps.map(|gap| row(&gap.extent, Some(gap.role))))
            .collect()
    }

    /// Decodes a superblock. Returns `None` if `block` holds none, or an impossible one.
    pub fn decode(block: &[u8]) -> Option<ArraySuperblock> {
        let row = open(block)?;
        let fields = row.fields;
        let level = *Level::ALL.get(usize::from(fields.level))?;
        let name = fields.name.split(|byte| *byte == 0).next()?.to_vec();
        let table = row.roles.get(..usize::from(fields.roles))?.iter();
        let table = table.map(MemberEntry::from_row);
        let history = row.history.get(..usize::from(fields.starts))?;
        let history: Vec<_> = history.iter().map(Position::from_row).collect();
        let (now, history) = history.split_first()?;
        if now.event != fields.event {
            return None;
        }
        let (mut bad, mut gaps) = (Vec::new(), Vec::new());
        for lost in row.lost.get(..usize::from(fields.lost))? {
            let extent = Extent::new(Lba(lost.start), Sectors(lost.length()));
            match lost.role() {
                None => bad.push(extent),
                Some(role) => gaps.push(Gap { role, extent }),
            }
        }
        let superblock = ArraySuperblock {
            array: Uuid::from_bytes(fields.array),
            member: Uuid::from_bytes(fields.member),
            role: fields.role,
            events: fields.event,
            generation: now.generation,
            history: history.to_vec(),
            sealed: fields.sealed,
            name: String::from_utf8(name).ok()?,
            level,
            block: Sectors(u64::from(fields.block)),
            chunk: Sectors(u64::from(fields.chunk)),
            data_at: Sectors(fields.data_at),
            region: Sectors(fields.region),
            journal_slots: fields.journal_slots,
            table: table.collect::<Option<_>>()?,
            bad,
            gaps,
            scrubbed: Scrubbed {
                since: row.since,
                ended: row.ended != 0,
            },
        };
        superblock.is_possible().then_some(superblock)
    }

    /// True if `block` claims to be a superblock, sound or not.
    pub(crate) fn claims(block: &[u8]) -> bool {
        claims(block)
    }

    /// Returns the position in the array's life at which this was written.
    pub fn position(&self) -> Position {
        Position {
            generation: self.generation,
            event: self.events,
        }
    }

    /// Returns the position of this superblock, followed by the earlier starts.
    pub(crate) fn chain(&self) -> Vec<Position> {
        let history = self.history.iter().copied();
        std::iter::once(self.position()).chain(history).collect()
    }

    /// True if the numbers fit each other, which a checksum does not prove.
    fn is_possible(&self) -> bool {
        let sizes: Vec<_> = self.table.iter().map(|entry| entry.sectors).collect();
        if sizes.iter().any(|size| *size >= MEMBER_SECTORS_MAX) {
            return false;
        }
        let Ok(shape) = ArrayShape::new(self.level, &sizes, self.chunk) else {
            return false;
        };
        let of_entry = |entry: &MemberEntry| {
            entry.checkpoint <= shape.sectors() && entry.failed_at < NUMBER_MAX
        };
        let of_bad = |bad: &Extent| {
            let end = bad.start.0.saturating_add(bad.len.0);
            end <= shape.sectors().0 && !bad.is_empty()
        };
        let of_gap = |gap: &Gap| {
            let end = gap.extent.start.0.saturating_add(gap.extent.len.0);
            let size = sizes.get(gap.role);
            size.is_some_and(|size| end <= size.0) && !gap.extent.is_empty()
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
            && self.gaps.iter().all(of_gap)
    }

    fn has_fitting_map(&self, shape: &ArrayShape) -> bool {
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

    fn has_fitting_journal(&self, shape: &ArrayShape) -> bool {
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
