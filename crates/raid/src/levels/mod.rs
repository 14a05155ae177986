//! Where an array's sectors lie on its members: pure arithmetic, one file a
//! level.
//!
//! Invariants:
//!     the pieces of an extent cover it exactly, in order
//!     two different sectors of an array never share a sector of a member
//!     the legs of a piece lie on different members

mod linear;
mod raid0;
mod raid1;
mod raid10;
mod raid5;
mod shape;
#[cfg(test)]
mod tests;

use shape::min;
pub use shape::{LEGS_MAX, Leg, Level, MEMBERS_MAX, Piece, Shape};

use block::{Extent, IoError, IoResult, Kind, Lba, Sectors};

impl Level {
    /// Every level.
    pub const ALL: [Level; 5] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid10,
        Level::Raid5,
    ];

    /// Its name, as configurations and reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid10 => "raid10",
            Level::Raid5 => "raid5",
        }
    }

    /// The level of that name.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Whether a member can be lost.
    pub const fn is_redundant(self) -> bool {
        matches!(self, Level::Raid1 | Level::Raid10 | Level::Raid5)
    }

    /// Whether data is spread in chunks.
    pub const fn is_striped(self) -> bool {
        matches!(self, Level::Raid0 | Level::Raid10 | Level::Raid5)
    }

    /// The fewest and the most members.
    pub const fn members(self) -> (usize, usize) {
        match self {
            Level::Linear | Level::Raid0 => (1, MEMBERS_MAX),
            Level::Raid1 => (2, LEGS_MAX),
            Level::Raid10 => (2, MEMBERS_MAX),
            Level::Raid5 => (3, MEMBERS_MAX),
        }
    }
}

/// Some of an array's roles.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Roles(u32);

const _: () = assert!(MEMBERS_MAX <= u32::BITS as usize);

impl Roles {
    pub fn add(&mut self, role: usize) {
        self.0 |= 1 << role;
    }

    pub fn has(self, role: usize) -> bool {
        self.0 >> role & 1 == 1
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS_MAX).filter(move |role| self.has(*role))
    }
}

impl Shape {
    /// An array over members with room for `sizes`; of striped and mirrored
    /// levels the smallest counts. `chunk` matters to striped levels alone.
    pub fn new(level: Level, sizes: &[Sectors], chunk: Sectors) -> IoResult<Shape> {
        let invalid = |what: String| Err(IoError::new(Kind::Invalid, what));
        let (fewest, most) = level.members();
        if !(fewest..=most).contains(&sizes.len()) {
            return invalid(format!(
                "{} of {} members is not possible: give from {fewest} to {most}",
                level.name(),
                sizes.len()
            ));
        }
        let pages = chunk.0.is_multiple_of(8);
        if level.is_striped() && !(pages && (8..=8192).contains(&chunk.0)) {
            return invalid(format!(
                "a chunk of {} bytes is not possible: give a multiple of 4 KiB up to 4 MiB",
                chunk.bytes()
            ));
        }
        let unit = if level.is_striped() { chunk.0 } else { 8 };
        let whole = |size: &Sectors| Sectors(size.0 / unit * unit);
        let sizes: Box<[Sectors]> = match level {
            Level::Linear => sizes.iter().map(whole).collect(),
            _ => {
                let smallest = sizes.iter().map(whole).min().unwrap_or_default();
                vec![smallest; sizes.len()].into()
            }
        };
        if let Some(role) = sizes.iter().position(|size| *size == Sectors::ZERO) {
            return invalid(format!(
                "member {role} is too small: it has no room for one unit of {} KiB",
                unit / 2
            ));
        }
        Ok(Shape {
            level,
            sizes,
            chunk,
        })
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// How many members it has.
    pub fn members(&self) -> usize {
        self.sizes.len()
    }

    /// The sectors used of a member.
    pub fn member_sectors(&self, role: usize) -> Sectors {
        self.sizes[role]
    }

    /// The sectors on one member before the next follows.
    pub fn chunk(&self) -> Sectors {
        self.chunk
    }

    /// The array's size.
    pub fn sectors(&self) -> Sectors {
        match self.level {
            Level::Linear => linear::sectors(self),
            Level::Raid0 => raid0::sectors(self),
            Level::Raid1 => raid1::sectors(self),
            Level::Raid10 => raid10::sectors(self),
            Level::Raid5 => raid5::sectors(self),
        }
    }

    /// The sectors that are best transferred at once: a stripe's data.
    pub fn width(&self) -> Sectors {
        match self.level {
            Level::Linear | Level::Raid1 => Sectors(8),
            Level::Raid0 => Sectors(self.chunk.0 * self.members() as u64),
            Level::Raid10 => raid10::width(self),
            Level::Raid5 => raid5::width(self),
        }
    }

    /// The longest piece from `extent`'s start on.
    pub fn first_piece(&self, extent: Extent) -> Piece {
        match self.level {
            Level::Linear => linear::first_piece(self, extent),
            Level::Raid0 => raid0::first_piece(self, extent),
            Level::Raid1 => raid1::first_piece(self, extent),
            Level::Raid10 => raid10::first_piece(self, extent),
            Level::Raid5 => raid5::first_piece(self, extent),
        }
    }

    /// The pieces of `extent`, in order.
    pub fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> + '_ {
        let mut left = extent;
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let piece = self.first_piece(left);
            left = Extent::new(piece.extent.end(), left.len - piece.extent.len);
            Some(piece)
        })
    }

    /// Whether every sector can be had from the members that are present.
    pub fn can_run(&self, present: impl Fn(usize) -> bool) -> bool {
        let absent = (0..self.members()).filter(|role| !present(*role)).count();
        match self.level {
            Level::Linear | Level::Raid0 => absent == 0,
            Level::Raid1 => absent < self.members(),
            Level::Raid10 => raid10::can_run(self.members(), present),
            Level::Raid5 => absent <= 1,
        }
    }

    /// The stripe of RAID 5 that holds a sector.
    pub fn stripe_at(&self, at: Lba) -> Stripe {
        raid5::stripe(self, at.0 / self.width().0)
    }

    /// A stripe of RAID 5.
    pub fn stripe(&self, number: u64) -> Stripe {
        raid5::stripe(self, number)
    }
}

pub use raid5::Stripe;
