//! RAID 10: the near layout with two copies. The number of members may be odd. It is the
//! layout that Linux md calls `n2`.

use super::{Layout, MEMBERS_MAX, Piece, Redundancy, Room, near};
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
        near::sectors(COPIES, room)
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
        near::first_piece(COPIES, room, extent)
    }

    fn sector_at(&self, room: &Room, role: usize, at: Lba) -> Option<Lba> {
        near::sector_at(COPIES, room, role, at)
    }

    fn can_run(&self, members: usize, present: &dyn Fn(usize) -> bool) -> bool {
        near::can_run(COPIES, members, present)
    }
}
