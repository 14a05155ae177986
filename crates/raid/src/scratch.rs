//! The memory that RAID 5 needs beside its callers': to change a stripe in part, or to compute the
//! data of a member that cannot be read.
//!
//! Memory is granted before anything is locked, from the array's reserve; see [`block::Reserve`].
//! An array over others waits for their grants while it holds its own, never the other way round.

use crate::core::ArrayCore;
use crate::levels::ArrayShape;
use block::{BUF_BYTES_MAX, Grant, Nanos, Pool, SECTOR_BYTES, Sectors};
use layout::BLOCK_BYTES;

/// The most bytes that a reconstruction takes at once.
const SCRATCH_BYTES: usize = 1 << 20;

fn bytes(sectors: Sectors) -> usize {
    sectors.bytes() as usize
}

/// Returns the bytes of each other member that are read at a time to compute `len` bytes of a
/// member.
fn step(members: usize, len: usize) -> usize {
    let most = (SCRATCH_BYTES / (members - 1) / BLOCK_BYTES).max(1) * BLOCK_BYTES;
    most.min(len)
}

fn reconstruct(members: usize, len: usize) -> usize {
    Pool::footprint(step(members, len) * (members - 1))
}

/// Returns the memory for a change of `data` bytes of a stripe, which lie in a band of `band` bytes
/// of its chunks: the record, of two headers if there is room, and the old bytes or those of all
/// members.
fn update(members: usize, data: usize, band: usize) -> usize {
    Pool::footprint((2 * BLOCK_BYTES + data + band).min(BUF_BYTES_MAX))
        + Pool::footprint(data)
        + Pool::footprint(band * members)
}

/// Returns the sectors of zeroes that are written at once.
pub(crate) fn zeroes(shape: &ArrayShape) -> Sectors {
    let width = shape.width().0;
    let step = (SCRATCH_BYTES as u64 / SECTOR_BYTES).max(width) / width * width;
    Sectors(step.min(BUF_BYTES_MAX as u64 / SECTOR_BYTES))
}

/// Returns the least memory of an array of `shape`: zeroes and the change of a whole stripe, or
/// filling a chunk.
pub(crate) fn least(shape: &ArrayShape) -> usize {
    let (members, chunk) = (shape.members(), bytes(shape.chunk()));
    let change = update(members, chunk * (members - 1), chunk);
    let fill = 2 * Pool::footprint(chunk) + reconstruct(members, chunk);
    Pool::footprint(bytes(zeroes(shape))) + change.max(fill)
}

impl ArrayCore {
    async fn grant(&self, bytes: usize) -> Grant {
        let reserve = self.reserve.as_ref().expect("RAID 5 has one");
        reserve.grant(bytes).await
    }

    /// Grants memory for a change of `data` bytes in a band of `band` bytes of a stripe.
    pub async fn grant_update(&self, data: usize, band: usize) -> Grant {
        self.grant(update(self.shape.members(), data, band)).await
    }

    /// Grants memory for `copies` of `len` bytes of a member, one of which is computed at a time.
    pub async fn grant_reconstruct(&self, copies: usize, len: usize) -> Grant {
        let members = self.shape.members();
        let own = copies * Pool::footprint(len);
        self.grant(own + reconstruct(members, len)).await
    }

    /// Grants memory for zeroes to be written.
    pub async fn grant_zeroes(&self, len: usize) -> Grant {
        self.grant(Pool::footprint(len)).await
    }

    /// Returns the bytes of each other member that are read at once to compute `len`.
    pub fn reconstruct_step(&self, len: usize) -> usize {
        step(self.shape.members(), len)
    }

    /// Waits until `len` bytes are free, before background work locks anything. The work then takes
    /// them at once, whatever happened meanwhile, since requests wait for its locks.
    pub async fn room_for(&self, len: usize) {
        while self.env.pool.try_get(len).is_none() {
            self.env.timer.sleep(Nanos::from_millis(1)).await;
        }
    }
}
