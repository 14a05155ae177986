//! What levels are given and what they return.

use block::{Extent, Lba, Sectors};
use layout::array::MEMBERS_MAX;

/// The most copies of a sector.
pub const LEGS_MAX: usize = 4;

/// A place on a member, counted from where its data begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leg {
    /// The member's role.
    pub member: usize,
    /// The sector of its data.
    pub at: Lba,
}

/// A run of an array's sectors that is one run on each of its legs.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The sectors of the array.
    pub extent: Extent,
    pub(super) legs: [Leg; LEGS_MAX],
    pub(super) copies: usize,
}

impl Piece {
    pub(super) fn new(extent: Extent, legs: impl IntoIterator<Item = Leg>) -> Piece {
        let mut piece = Piece {
            extent,
            legs: [Leg::default(); LEGS_MAX],
            copies: 0,
        };
        for leg in legs {
            piece.legs[piece.copies] = leg;
            piece.copies += 1;
        }
        piece
    }

    /// Where it lies.
    pub fn legs(&self) -> &[Leg] {
        &self.legs[..self.copies]
    }

    /// Its bytes in a transfer that begins at `start`.
    pub fn bytes(&self, start: Lba) -> std::ops::Range<usize> {
        let from = (self.extent.start - start).bytes() as usize;
        from..from + self.extent.len.bytes() as usize
    }
}

/// What an array's members have room for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// The sectors used of each member, by role.
    pub(super) sizes: Box<[Sectors]>,
    pub(super) chunk: Sectors,
}

impl Room {
    pub(super) fn members(&self) -> usize {
        self.sizes.len()
    }
}

/// What a lost member's data is had from, and by what copies that differ are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redundancy {
    /// Nothing.
    None,
    /// The same sectors on other members.
    Copies,
    /// The other chunks of a stripe, one of which is parity.
    Parity,
}

/// Where a level has an array's sectors, and which losses it tolerates: arithmetic alone.
///
/// Invariants, of every `room`:
///     pieces lie below `sectors`, each on legs of different members
///     `can_run` ⟹ each sector can be had from the members that are present
pub(crate) trait Layout: Sync {
    /// As configurations and reports have it.
    fn name(&self) -> &'static str;

    /// Its number in superblocks, for ever.
    fn code(&self) -> u8;

    /// What it is redundant by.
    fn redundancy(&self) -> Redundancy;

    /// Whether data is spread in chunks.
    fn is_striped(&self) -> bool;

    /// The fewest and the most members.
    fn members(&self) -> (usize, usize) {
        (1, MEMBERS_MAX)
    }

    /// Whether each member counts with its own size, and not with the smallest one's.
    fn takes_all_sizes(&self) -> bool {
        false
    }

    /// Whether members with roles next to each other hold the same.
    fn pairs_neighbours(&self) -> bool {
        false
    }

    /// The array's size.
    fn sectors(&self, room: &Room) -> Sectors;

    /// The sectors that are best transferred at once.
    fn width(&self, room: &Room) -> Sectors;

    /// The longest piece from `extent`'s start on.
    fn first_piece(&self, room: &Room, extent: Extent) -> Piece;

    /// The sector of the array whose data lies at `at` of a member; of a level without
    /// redundancy it is not asked.
    fn sector_at(&self, _room: &Room, _role: usize, _at: Lba) -> Option<Lba> {
        None
    }

    /// Whether every sector can be had from the members that are present, of so many.
    fn can_run(&self, members: usize, present: &dyn Fn(usize) -> bool) -> bool;
}

pub(super) fn min(a: Sectors, b: Sectors) -> Sectors {
    if a < b { a } else { b }
}
