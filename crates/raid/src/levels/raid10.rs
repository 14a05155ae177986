//! RAID 10, near layout with two copies: the copies of chunk `c` take the slots
//! `2c` and `2c + 1`, and slot `s` is on member `s mod n`, in row `s div n`. The
//! number of members may be odd. It is the layout that Linux md calls `n2`.

use super::{Leg, Piece, Shape, min};
use block::{Extent, Lba, Sectors};

const COPIES: u64 = 2;

pub(super) fn sectors(shape: &Shape) -> Sectors {
    let slots = shape.sizes[0].0 / shape.chunk.0 * shape.members() as u64;
    Sectors(slots / COPIES * shape.chunk.0)
}

/// The data of one row, or of two where a row holds half a pair.
pub(super) fn width(shape: &Shape) -> Sectors {
    let members = shape.members() as u64;
    let chunks = if members.is_multiple_of(COPIES) {
        members / COPIES
    } else {
        members
    };
    Sectors(chunks * shape.chunk.0)
}

pub(super) fn first_piece(shape: &Shape, extent: Extent) -> Piece {
    let (chunk, inside) = (
        extent.start.0 / shape.chunk.0,
        extent.start.0 % shape.chunk.0,
    );
    let members = shape.members() as u64;
    let legs = (chunk * COPIES..).take(COPIES as usize).map(|slot| Leg {
        member: (slot % members) as usize,
        at: Lba(slot / members * shape.chunk.0 + inside),
    });
    let len = min(extent.len, Sectors(shape.chunk.0 - inside));
    Piece::new(Extent::new(extent.start, len), legs)
}

pub(super) fn can_run(members: usize, present: impl Fn(usize) -> bool) -> bool {
    (0..members).all(|chunk| (0..2).any(|copy| present((2 * chunk + copy) % members)))
}
