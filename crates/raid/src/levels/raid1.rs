//! RAID 1: every sector at the same place on each member.

use super::{Leg, Piece, Shape};
use block::{Extent, Sectors};

pub(super) fn sectors(shape: &Shape) -> Sectors {
    shape.sizes[0]
}

pub(super) fn first_piece(shape: &Shape, extent: Extent) -> Piece {
    let at = extent.start;
    Piece::new(
        extent,
        (0..shape.members()).map(|member| Leg { member, at }),
    )
}
