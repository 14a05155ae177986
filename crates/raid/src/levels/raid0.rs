//! RAID 0: chunk `c` is on member `c mod n`, in row `c div n`.

use super::{Leg, Piece, Shape, min};
use block::{Extent, Lba, Sectors};

pub(super) fn sectors(shape: &Shape) -> Sectors {
    Sectors(shape.sizes[0].0 * shape.members() as u64)
}

pub(super) fn first_piece(shape: &Shape, extent: Extent) -> Piece {
    let (chunk, inside) = (
        extent.start.0 / shape.chunk.0,
        extent.start.0 % shape.chunk.0,
    );
    let members = shape.members() as u64;
    let leg = Leg {
        member: (chunk % members) as usize,
        at: Lba(chunk / members * shape.chunk.0 + inside),
    };
    let len = min(extent.len, Sectors(shape.chunk.0 - inside));
    Piece::new(Extent::new(extent.start, len), [leg])
}
