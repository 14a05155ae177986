//! RAID 1: every sector at the same place on each member.

use super::{LEGS_MAX, Layout, Leg, Piece, Redundancy, Room};
use block::{Extent, Lba, Sectors};

pub(super) struct Raid1;

impl Layout for Raid1 {
    fn name(&self) -> &'static str {
        "raid1"
    }

    fn code(&self) -> u8 {
        2
    }

    fn redundancy(&self) -> Redundancy {
        Redundancy::Copies
    }

    fn is_striped(&self) -> bool {
        false
    }

    fn members(&self) -> (usize, usize) {
        (2, LEGS_MAX)
    }

    fn sectors(&self, room: &Room) -> Sectors {
        room.sizes[0]
    }

    fn width(&self, _: &Room) -> Sectors {
        Sectors(8)
    }

    fn first_piece(&self, room: &Room, extent: Extent) -> Piece {
        let at = extent.start;
        Piece::new(extent, (0..room.members()).map(|member| Leg { member, at }))
    }

    fn sector_at(&self, _: &Room, _: usize, at: Lba) -> Option<Lba> {
        Some(at)
    }

    fn can_run(&self, members: usize, present: &dyn Fn(usize) -> bool) -> bool {
        (0..members).any(present)
    }
}
