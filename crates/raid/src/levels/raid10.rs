//! RAID 10, near layout with two copies: the copies of chunk `c` take the slots
//! `2c` and `2c + 1`, and slot `s` is on member `s mod n`, in row `s div n`. The
//! number of members may be odd. It is the layout that Linux md calls `n2`.

use super::{Layout, Leg, MEMBERS_MAX, Piece, Redundancy, Room, min};
use block::{Extent, Lba, Sectors};

const COPIES: u64 = 2;

pub(super) struct Raid10;

impl Layout for Raid10 {
    fn name(&self) -> &'static str {
        "raid10"
    }

    fn code(&self) -> u8 {
        3
    }

    fn redundancy(&self) -> Redundancy {
        Redundancy::Copies
    }

    fn is_striped(&self) -> bool {
        true
    }

    fn members(&self) -> (usize, usize) {
        (2, MEMBERS_MAX)
    }

    fn pairs_neighbours(&self) -> bool {
        true
    }

    fn sectors(&self, room: &Room) -> Sectors {
        let slots = room.sizes[0].0 / room.chunk.0 * room.members() as u64;
        Sectors(slots / COPIES * room.chunk.0)
    }

    /// The data of one row, or of two where a row holds half a pair.
    fn width(&self, room: &Room) -> Sectors {
        let members = room.members() as u64;
        let chunks = if members.is_multiple_of(COPIES) {
            members / COPIES
        } else {
            members
        };
        Sectors(chunks * room.chunk.0)
    }

    fn first_piece(&self, room: &Room, extent: Extent) -> Piece {
        let (chunk, inside) = (extent.start.0 / room.chunk.0, extent.start.0 % room.chunk.0);
        let members = room.members() as u64;
        let legs = (chunk * COPIES..).take(COPIES as usize).map(|slot| Leg {
            member: (slot % members) as usize,
            at: Lba(slot / members * room.chunk.0 + inside),
        });
        let len = min(extent.len, Sectors(room.chunk.0 - inside));
        Piece::new(Extent::new(extent.start, len), legs)
    }

    fn can_run(&self, members: usize, present: &dyn Fn(usize) -> bool) -> bool {
        (0..members).all(|chunk| (0..2).any(|copy| present((2 * chunk + copy) % members)))
    }
}
