//! RAID 0: chunk `c` is on member `c mod n`, in row `c div n`.

use super::{Layout, Leg, Piece, Redundancy, Room, min};
use block::{Extent, Lba, Sectors};

pub(super) struct Raid0;

impl Layout for Raid0 {
    fn name(&self) -> &'static str {
        "raid0"
    }

    fn code(&self) -> u8 {
        1
    }

    fn redundancy(&self) -> Redundancy {
        Redundancy::None
    }

    fn is_striped(&self) -> bool {
        true
    }

    fn sectors(&self, room: &Room) -> Sectors {
        Sectors(room.sizes[0].0 * room.members() as u64)
    }

    fn width(&self, room: &Room) -> Sectors {
        Sectors(room.chunk.0 * room.members() as u64)
    }

    fn first_piece(&self, room: &Room, extent: Extent) -> Piece {
        let (chunk, inside) = (extent.start.0 / room.chunk.0, extent.start.0 % room.chunk.0);
        let members = room.members() as u64;
        let leg = Leg {
            member: (chunk % members) as usize,
            at: Lba(chunk / members * room.chunk.0 + inside),
        };
        let len = min(extent.len, Sectors(room.chunk.0 - inside));
        Piece::new(Extent::new(extent.start, len), [leg])
    }

    fn can_run(&self, members: usize, present: &dyn Fn(usize) -> bool) -> bool {
        (0..members).all(present)
    }
}
