//! The near layout of k copies: those of chunk `c` take the slots `kc` to `kc + k - 1`, and
//! slot `s` is on member `s mod n`, in row `s div n`.

use super::{Leg, Piece, Room, min};
use block::{Extent, Lba, Sectors};

/// What an array holds.
pub(super) fn sectors(copies: u64, room: &Room) -> Sectors {
    let slots = room.sizes[0].0 / room.chunk.0 * room.members() as u64;
    Sectors(slots / copies * room.chunk.0)
}

/// The beginning of `extent`, as far as it is in one chunk.
pub(super) fn first_piece(copies: u64, room: &Room, extent: Extent) -> Piece {
    let (chunk, inside) = (extent.start.0 / room.chunk.0, extent.start.0 % room.chunk.0);
    let members = room.members() as u64;
    let legs = (chunk * copies..).take(copies as usize).map(|slot| Leg {
        member: (slot % members) as usize,
        at: Lba(slot / members * room.chunk.0 + inside),
    });
    let len = min(extent.len, Sectors(room.chunk.0 - inside));
    Piece::new(Extent::new(extent.start, len), legs)
}

/// The sector of the array that lies at `at` of a member; `None` behind the last chunk.
pub(super) fn sector_at(copies: u64, room: &Room, role: usize, at: Lba) -> Option<Lba> {
    let (row, inside) = (at.0 / room.chunk.0, at.0 % room.chunk.0);
    let slot = row * room.members() as u64 + role as u64;
    let sector = Lba(slot / copies * room.chunk.0 + inside);
    (sector.0 < sectors(copies, room).0).then_some(sector)
}

/// Whether each chunk has a copy on a member that is present.
pub(super) fn can_run(copies: u64, members: usize, present: &dyn Fn(usize) -> bool) -> bool {
    let copies = copies as usize;
    (0..members).all(|chunk| (0..copies).any(|copy| present((copies * chunk + copy) % members)))
}
