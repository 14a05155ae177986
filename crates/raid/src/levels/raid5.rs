//! RAID 5, left-symmetric: the parity of stripe `s` is on member
//! `n - 1 - (s mod n)`, and its data begins on the next member and wraps. It is
//! the default layout of Linux md.

use super::{Layout, Leg, MEMBERS_MAX, Piece, Redundancy, Room, min};
use block::{Extent, Lba, Sectors};

/// A stripe: one chunk on each member, one of them parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// Its number, from 0.
    pub number: u64,
    /// The member that holds its parity.
    pub parity: usize,
    members: usize,
    chunk: Sectors,
}

impl Stripe {
    /// The member that holds data chunk `column`.
    pub fn data(&self, column: usize) -> usize {
        (self.parity + 1 + column) % self.members
    }

    /// The data chunk that `member` holds; `None` if it holds the parity.
    pub fn column(&self, member: usize) -> Option<usize> {
        (member + self.members - self.parity - 1)
            .checked_rem(self.members)
            .filter(|_| member != self.parity)
    }

    /// How many data chunks it has.
    pub fn columns(&self) -> usize {
        self.members - 1
    }

    /// Where its chunks begin, on every member.
    pub fn row(&self) -> Lba {
        Lba(self.number * self.chunk.0)
    }

    /// The array's sectors that it holds.
    pub fn extent(&self) -> Extent {
        let width = Sectors(self.columns() as u64 * self.chunk.0);
        Extent::new(Lba(self.number * width.0), width)
    }

    /// The array's sectors of `len` sectors from `from` on in `column`.
    pub fn place(&self, column: usize, from: Sectors, len: Sectors) -> Extent {
        let start = self.extent().start + Sectors(column as u64 * self.chunk.0) + from;
        Extent::new(start, len)
    }
}

pub(super) fn stripe(room: &Room, number: u64) -> Stripe {
    let members = room.members();
    Stripe {
        number,
        parity: members - 1 - (number % members as u64) as usize,
        members,
        chunk: room.chunk,
    }
}

pub(super) struct Raid5;

impl Layout for Raid5 {
    fn name(&self) -> &'static str {
        "raid5"
    }

    fn code(&self) -> u8 {
        4
    }

    fn redundancy(&self) -> Redundancy {
        Redundancy::Parity
    }

    fn is_striped(&self) -> bool {
        true
    }

    fn members(&self) -> (usize, usize) {
        (3, MEMBERS_MAX)
    }

    fn sectors(&self, room: &Room) -> Sectors {
        Sectors(room.sizes[0].0 * (room.members() as u64 - 1))
    }

    fn width(&self, room: &Room) -> Sectors {
        Sectors(room.chunk.0 * (room.members() as u64 - 1))
    }

    fn first_piece(&self, room: &Room, extent: Extent) -> Piece {
        let stripe = stripe(room, extent.start.0 / self.width(room).0);
        let inside = (extent.start - stripe.extent().start).0;
        let (column, from) = (inside / room.chunk.0, inside % room.chunk.0);
        let leg = Leg {
            member: stripe.data(column as usize),
            at: stripe.row() + Sectors(from),
        };
        let len = min(extent.len, Sectors(room.chunk.0 - from));
        Piece::new(Extent::new(extent.start, len), [leg])
    }

    /// None of where parity lies.
    fn sector_at(&self, room: &Room, role: usize, at: Lba) -> Option<Lba> {
        let stripe = stripe(room, at.0 / room.chunk.0);
        let from = at - stripe.row();
        let column = stripe.column(role)?;
        Some(stripe.place(column, from, Sectors(1)).start)
    }

    fn can_run(&self, members: usize, present: &dyn Fn(usize) -> bool) -> bool {
        (0..members).filter(|role| !present(*role)).count() <= 1
    }
}
