//! The places of the device suite's requests.
//!
//! Invariants:
//!     every extent lies on the blocks and inside the device
//!     the extents of one call fit into half of the pool, where each buffer may
//!     take up to twice its length

use super::rng::SuiteRng;
use crate::{BUF_BYTES_MAX, Extent, Geometry, Lba, Pool, SECTOR_BYTES, Sectors};
use std::cell::RefCell;

pub(super) struct Places {
    rng: RefCell<SuiteRng>,
    block: u64,
    /// The size of the device, in blocks.
    blocks: u64,
    /// The most blocks in flight at once.
    flight_max: u64,
}

impl Places {
    pub(super) fn new(geometry: &Geometry, pool: &Pool, seed: u64) -> Places {
        let block = geometry.block.0;
        let flight_max = (pool.total_bytes() / 4).min(BUF_BYTES_MAX) as u64;
        Places {
            rng: RefCell::new(SuiteRng::new(seed)),
            block,
            blocks: geometry.sectors.0 / block,
            flight_max: flight_max / SECTOR_BYTES / block,
        }
    }

    pub(super) fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    /// The longest run to read in one request, in sectors.
    pub(super) fn run_max(&self) -> u64 {
        (self.flight_max * self.block).min(2048)
    }

    /// An extent at random on the device, mostly short, often near the ends.
    pub(super) fn somewhere(&self) -> Extent {
        let most = self.flight_max.min(self.blocks / 2);
        let scale = 1 << self.below(u64::from(most.ilog2()) + 1);
        let len = 1 + self.below(scale);
        let room = self.blocks - len;
        let near = room.min((2 << 11) / self.block);
        let start = match self.below(4) {
            0 | 1 => self.below(near + 1),
            2 => room - self.below(near + 1),
            _ => self.below(room + 1),
        };
        self.extent(start, len)
    }

    /// `n` extents of at most `most` blocks, none of which overlap, in random
    /// order.
    pub(super) fn slots(&self, n: u64, most: u64) -> Vec<Extent> {
        let cell = self.flight_max / n.next_power_of_two();
        let most = most.min(cell).min(self.blocks / n);
        let places = self.blocks / most - n;
        let first = self.below(places.min(1 << 16) + 1) * most;
        let mut slots: Vec<_> = (0..n)
            .map(|i| {
                let len = 1 + self.below(most);
                let start = first + i * most + self.below(most - len + 1);
                self.extent(start, len)
            })
            .collect();
        for i in (1..slots.len()).rev() {
            slots.swap(i, self.below(i as u64 + 1) as usize);
        }
        slots
    }

    /// A part of `outer`.
    pub(super) fn within(&self, outer: Extent) -> Extent {
        let blocks = outer.len.0 / self.block;
        let len = 1 + self.below(blocks);
        let start = outer.start.0 / self.block + self.below(blocks - len + 1);
        self.extent(start, len)
    }

    fn extent(&self, start: u64, len: u64) -> Extent {
        Extent::new(Lba(start * self.block), Sectors(len * self.block))
    }
}
