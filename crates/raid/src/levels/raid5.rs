//! RAID 5, left-symmetric: the parity of stripe `s` is on member
//! `n - 1 - (s mod n)`, and its data begins on the next member and wraps. It is
//! the default layout of Linux md.

use super::{Leg, Piece, Shape, min};
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

pub(super) fn sectors(shape: &Shape) -> Sectors {
    Sectors(shape.sizes[0].0 * (shape.members() as u64 - 1))
}

pub(super) fn width(shape: &Shape) -> Sectors {
    Sectors(shape.chunk.0 * (shape.members() as u64 - 1))
}

pub(super) fn stripe(shape: &Shape, number: u64) -> Stripe {
    let members = shape.members();
    Stripe {
        number,
        parity: members - 1 - (number % members as u64) as usize,
        members,
        chunk: shape.chunk,
    }
}

pub(super) fn first_piece(shape: &Shape, extent: Extent) -> Piece {
    let stripe = stripe(shape, extent.start.0 / width(shape).0);
    let inside = (extent.start - stripe.extent().start).0;
    let (column, from) = (inside / shape.chunk.0, inside % shape.chunk.0);
    let leg = Leg {
        member: stripe.data(column as usize),
        at: stripe.row() + Sectors(from),
    };
    let len = min(extent.len, Sectors(shape.chunk.0 - from));
    Piece::new(Extent::new(extent.start, len), [leg])
}
