//! Where an array's sectors lie on its members: pure arithmetic, one file a
//! level.
//!
//! Invariants:
//!     the pieces of an extent cover it exactly, in order
//!     two different sectors of an array never share a sector of a member
//!     the legs of a piece lie on different members

mod level;
mod linear;
mod near;
mod raid0;
mod raid1;
mod raid10;
mod raid5;
mod shape;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod triple;

pub use level::Level;
pub(crate) use shape::Layout;
pub use shape::{LEGS_MAX, Leg, Piece, Redundancy};
use shape::{Room, min};

use block::{Extent, IoError, IoResult, Kind, Lba, Sectors};
use layout::array::MEMBERS_MAX;

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

/// The geometry of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    level: Level,
    room: Room,
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
        let sizes: Box<[Sectors]> = if level.layout().takes_all_sizes() {
            sizes.iter().map(whole).collect()
        } else {
            let smallest = sizes.iter().map(whole).min().unwrap_or_default();
            vec![smallest; sizes.len()].into()
        };
        if let Some(role) = sizes.iter().position(|size| *size == Sectors::ZERO) {
            return invalid(format!(
                "member {role} is too small: it has no room for one unit of {} KiB",
                unit / 2
            ));
        }
        let room = Room { sizes, chunk };
        Ok(Shape { level, room })
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// How many members it has.
    pub fn members(&self) -> usize {
        self.room.members()
    }

    /// The sectors used of a member.
    pub fn member_sectors(&self, role: usize) -> Sectors {
        self.room.sizes[role]
    }

    /// The sectors on one member before the next follows.
    pub fn chunk(&self) -> Sectors {
        self.room.chunk
    }

    /// The array's size.
    pub fn sectors(&self) -> Sectors {
        self.level.layout().sectors(&self.room)
    }

    /// The sectors that are best transferred at once: a stripe's data.
    pub fn width(&self) -> Sectors {
        self.level.layout().width(&self.room)
    }

    /// The longest piece from `extent`'s start on.
    pub fn first_piece(&self, extent: Extent) -> Piece {
        self.level.layout().first_piece(&self.room, extent)
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

    /// The sectors of the array whose data lies in `extent` of a member's, chunk by chunk.
    pub(crate) fn sectors_at(&self, role: usize, extent: Extent) -> Vec<Extent> {
        let unit = match self.level.is_striped() {
            true => self.chunk().0,
            false => extent.end().0.max(1),
        };
        let layout = self.level.layout();
        let (mut at, mut found) = (extent.start, Vec::new());
        while at < extent.end() {
            let end = Lba((at.0 / unit + 1) * unit).min(extent.end());
            let start = layout.sector_at(&self.room, role, at);
            found.extend(start.map(|start| Extent::new(start, end - at)));
            at = end;
        }
        found
    }

    /// Whether every sector can be had from the members that are present.
    pub fn can_run(&self, present: impl Fn(usize) -> bool) -> bool {
        self.level.layout().can_run(self.members(), &present)
    }

    /// The stripe with parity that holds a sector.
    pub fn stripe_at(&self, at: Lba) -> Stripe {
        raid5::stripe(&self.room, at.0 / self.width().0)
    }

    /// A stripe with parity.
    pub fn stripe(&self, number: u64) -> Stripe {
        raid5::stripe(&self.room, number)
    }
}

pub use raid5::Stripe;
