//! Linear: one member after the other, each with its own size.

use super::{Layout, Leg, Piece, Redundancy, Room, min};
use block::{Extent, Lba, Sectors};

pub(super) struct Linear;

impl Layout for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn code(&self) -> u8 {
        0
    }

    fn redundancy(&self) -> Redundancy {
        Redundancy::None
    }

    fn is_striped(&self) -> bool {
        false
    }

    fn takes_all_sizes(&self) -> bool {
        true
    }

    fn sectors(&self, room: &Room) -> Sectors {
        Sectors(room.sizes.iter().map(|size| size.0).sum())
    }

    fn width(&self, _: &Room) -> Sectors {
        Sectors(8)
    }

    fn first_piece(&self, room: &Room, extent: Extent) -> Piece {
        let mut begin = Lba::ZERO;
        for (member, size) in room.sizes.iter().enumerate() {
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

    fn can_run(&self, members: usize, present: &dyn Fn(usize) -> bool) -> bool {
        (0..members).all(present)
    }
}
