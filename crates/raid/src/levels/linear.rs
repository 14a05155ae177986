//! Linear: one member after the other, each with its own size.

use super::{Leg, Piece, Shape, min};
use block::{Extent, Lba, Sectors};

pub(super) fn sectors(shape: &Shape) -> Sectors {
    Sectors(shape.sizes.iter().map(|size| size.0).sum())
}

pub(super) fn first_piece(shape: &Shape, extent: Extent) -> Piece {
    let mut begin = Lba::ZERO;
    for (member, size) in shape.sizes.iter().enumerate() {
        if extent.start < begin + *size {
            let at = extent.start - begin;
            let len = min(extent.len, *size - at);
            let leg = Leg {
                member,
                at: Lba(at.0),
            };
            return Piece::new(Extent::new(extent.start, len), [leg]);
        }
        begin = begin + *size;
    }
    unreachable!("callers stay inside the array")
}
