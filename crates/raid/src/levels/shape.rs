//! What levels are given and what they return.

use block::{Extent, Lba, Sectors};

/// The most members of an array.
pub const MEMBERS_MAX: usize = 32;

/// The most copies of a sector.
pub const LEGS_MAX: usize = 4;

/// How an array spreads its data over its members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// One member after the other.
    Linear,
    /// Chunks in turn, no redundancy.
    Raid0,
    /// The same on each of 2 to 4 members.
    Raid1,
    /// Chunks in turn, each on two neighbouring members.
    Raid10,
    /// Chunks in turn, with a chunk of parity in each stripe.
    Raid5,
}

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

/// The geometry of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    pub(super) level: Level,
    /// The sectors used of each member, by role.
    pub(super) sizes: Box<[Sectors]>,
    pub(super) chunk: Sectors,
}

pub(super) fn min(a: Sectors, b: Sectors) -> Sectors {
    if a < b { a } else { b }
}
