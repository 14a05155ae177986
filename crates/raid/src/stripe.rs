//! Stripes of RAID 5: their arithmetic, and the memory that changes of stripes need.
//!
//! Memory is needed beside that of callers to change a stripe in part, or to compute the data of a
//! member that cannot be read. Memory is granted before anything is locked, from the array's reserve;
//! see [`block::Reserve`]. An array over others waits for their grants while it holds its own,
//! never the other way round.

use crate::levels::{ArrayShape, ParityStripe};
use block::{
    Access, Acquire, BUF_BYTES_MAX, Buf, Env, Extent, Fua, Grant, IoResult, Lba, Mutex, Nanos,
    Pool, RangeLock, Reserve, SECTOR_BYTES, Sectors, SharedBuf,
};
use layout::BLOCK_BYTES;
use layout::array::journal::ChunkRun;

/// The most bytes that a reconstruction takes at once.
const SCRATCH_BYTES: usize = 1 << 20;

/// Computes `into ^= from`; panics if their lengths differ.
pub fn xor(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    for (a, b) in into.iter_mut().zip(from) {
        *a ^= *b;
    }
}

/// Computes `into` as the XOR of `all`, of its length, while blocks are in the processor's caches.
pub(crate) fn xor_of<'a>(into: &mut [u8], all: impl Iterator<Item = &'a [u8]> + Clone) {
    for (block, into) in into.chunks_mut(BLOCK_BYTES).enumerate() {
        let (at, len) = (block * BLOCK_BYTES, into.len());
        let mut parts = all.clone().map(|part| &part[at..at + len]);
        match parts.next() {
            Some(first) => into.copy_from_slice(first),
            None => into.fill(0),
        }
        parts.for_each(|part| xor(into, part));
    }
}

/// Computes chunk `lost` of `band`, chunks of `len`, from the others.
pub(crate) fn rebuild_in(band: &mut [u8], len: usize, lost: usize) {
    let Some(at) = lost.checked_mul(len).filter(|at| at + len <= band.len()) else {
        return;
    };
    let (before, rest) = band.split_at_mut(at);
    let (into, after) = rest.split_at_mut(len);
    let others = before.chunks_exact(len).chain(after.chunks_exact(len));
    xor_of(into, others);
}

/// The bytes of a write that fall on one data chunk.
pub(crate) struct ChunkPart {
    pub run: ChunkRun,
    pub data: SharedBuf,
}

/// A change of one stripe.
pub(crate) struct StripeUpdate {
    pub stripe: ParityStripe,
    pub parts: Vec<ChunkPart>,
    /// The band of the chunks that changes: the band in which parity changes.
    pub from: Sectors,
    pub len: Sectors,
    pub fua: Fua,
}

impl StripeUpdate {
    pub fn new(
        shape: &ArrayShape,
        stripe: ParityStripe,
        extent: Extent,
        data: &SharedBuf,
        fua: Fua,
    ) -> StripeUpdate {
        let parts = shape.pieces(extent).map(|piece| {
            let leg = piece.legs()[0];
            let run = ChunkRun {
                member: leg.member as u32,
                from: leg.at - stripe.row(),
                len: piece.extent.len,
            };
            let data = data.slice(piece.bytes(extent.start));
            ChunkPart { run, data }
        });
        let parts: Vec<_> = parts.collect();
        let from = parts.iter().map(|p| p.run.from).min().unwrap_or_default();
        let ends = parts.iter().map(|p| p.run.from + p.run.len);
        let end = ends.max().unwrap_or_default();
        StripeUpdate {
            stripe,
            parts,
            from,
            len: end - from,
            fua,
        }
    }

    /// True if every data chunk is new over the whole band.
    pub fn is_complete(&self) -> bool {
        let all = self.parts.iter().all(|part| part.run.len == self.len);
        all && self.parts.len() == self.stripe.columns()
    }

    pub fn parity_run(&self) -> ChunkRun {
        ChunkRun {
            member: self.stripe.parity as u32,
            from: self.from,
            len: self.len,
        }
    }

    /// Returns the memory for the change, with a record of the stripe as a `whole` or of its bytes.
    pub fn memory(&self, whole: bool) -> usize {
        let (data, band) = (self.data_bytes(), bytes(self.len));
        let recorded = if whole { 0 } else { data };
        let old = if self.is_complete() { 0 } else { data };
        update(self.stripe.columns() + 1, recorded, old, band)
    }

    /// True if all of the band is new on the member of `role`.
    pub fn overwrites(&self, role: usize) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| part.run.role() == role && part.run.len == self.len)
    }

    /// Returns the band, of a member's data.
    pub fn band(&self) -> Extent {
        Extent::new(self.stripe.row() + self.from, self.len)
    }

    /// Returns the range of a part's bytes in the band.
    pub fn inside(&self, part: &ChunkPart) -> std::ops::Range<usize> {
        let from = (part.run.from - self.from).bytes() as usize;
        from..from + part.data.len()
    }

    pub fn data_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.data.len()).sum()
    }
}

pub(crate) fn bytes(sectors: Sectors) -> usize {
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

/// Returns the memory for a change in a band of `band` bytes of a stripe's chunks: the record, of two
/// headers if there is room, with `recorded` bytes of chunks and the new parity; and `old` bytes or
/// those of all members. `old` is 0 where parity follows from the new bytes.
fn update(members: usize, recorded: usize, old: usize, band: usize) -> usize {
    let image = (2 * BLOCK_BYTES + recorded + band).min(BUF_BYTES_MAX);
    let read = match old {
        0 => 0,
        old => Pool::footprint(old) + Pool::footprint(band * members),
    };
    Pool::footprint(image) + read
}

/// Returns the sectors of zeroes that are written at once.
pub(crate) fn zeroes(shape: &ArrayShape) -> Sectors {
    let width = shape.width().0;
    let step = (SCRATCH_BYTES as u64 / SECTOR_BYTES).max(width) / width * width;
    Sectors(step.min(BUF_BYTES_MAX as u64 / SECTOR_BYTES))
}

/// Returns the least memory of an array of `shape`: zeroes and the change of a whole stripe, or
/// filling a chunk.
fn least(shape: &ArrayShape) -> usize {
    let (members, chunk) = (shape.members(), bytes(shape.chunk()));
    let data = chunk * (members - 1);
    let change = update(members, data, data, chunk);
    let fill = 2 * Pool::footprint(chunk) + reconstruct(members, chunk);
    Pool::footprint(bytes(zeroes(shape))) + change.max(fill)
}

/// Limits of the changes of stripes that are under way at once.
pub(crate) struct StripeLimits {
    /// The memory beside that of callers.
    reserve: Reserve,
    members: usize,
    /// Limits the number of stripes that are changed at once.
    lanes: RangeLock,
    /// Zeroes are written by one request at a time.
    zeroing: Mutex,
}

impl StripeLimits {
    /// Returns `Err(Invalid)` if the memory is too small for the stripes of the array `name`.
    pub fn new(pool: &Pool, shape: &ArrayShape, name: &str) -> IoResult<StripeLimits> {
        let user = format!("the array {name}");
        Ok(StripeLimits {
            reserve: Reserve::new(pool, least(shape), &user)?,
            members: shape.members(),
            lanes: RangeLock::new(),
            zeroing: Mutex::default(),
        })
    }

    /// Waits until `stripe` may be changed: fewer of the same parity member are changed at once
    /// than half of the `slots` of its journal.
    pub fn lane(&self, stripe: &ParityStripe, slots: u64) -> Acquire<'_> {
        let lane = Lba(stripe.number % (slots / 2).max(1));
        self.lanes
            .lock(Extent::new(lane, Sectors(1)), Access::Exclusive)
    }

    /// Waits until no other request writes zeroes.
    pub async fn zeroing(&self) -> impl Drop {
        self.zeroing.lock().await
    }

    /// Grants memory for a change of a stripe.
    pub async fn update(&self, change: &StripeUpdate, whole: bool) -> Grant {
        self.reserve.grant(change.memory(whole)).await
    }

    /// Grants memory for `copies` of `len` bytes of a member, one of which is computed at a time.
    pub async fn reconstruct(&self, copies: usize, len: usize) -> Grant {
        let own = copies * Pool::footprint(len);
        self.reserve
            .grant(own + reconstruct(self.members, len))
            .await
    }

    /// Grants memory for zeroes to be written.
    pub async fn zeroes(&self, len: usize) -> Grant {
        self.reserve.grant(Pool::footprint(len)).await
    }

    /// Returns the bytes of each other member that are read at once to compute `len`.
    pub fn step(&self, len: usize) -> usize {
        step(self.members, len)
    }
}

/// Returns `len` zeroes.
pub(crate) fn zero_buf(env: &Env, len: usize) -> Buf {
    let mut zeroes = env.pool.take(len);
    zeroes.fill(0);
    zeroes
}

/// Waits until `len` bytes are free, before background work locks anything. The work then takes
/// them at once, whatever happened meanwhile, since requests wait for its locks.
pub(crate) async fn room_for(env: &Env, len: usize) {
    while env.pool.try_get(len).is_none() {
        env.timer.sleep(Nanos::from_millis(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::Level;

    #[test]
    fn what_is_taken_twice_is_gone() {
        let (a, b): (Vec<u8>, Vec<u8>) = (0..4099_u32).map(|i| (i as u8, (i * 7) as u8)).unzip();
        let mut c = a.clone();
        xor(&mut c, &b);
        assert!(c.iter().zip(&a).zip(&b).all(|((c, a), b)| *c == a ^ b));
        xor(&mut c, &b);
        assert_eq!(c, a);
    }

    #[test]
    fn blocks_are_combined_whatever_the_length() {
        for len in [0, 1, 4095, 4096, 4097, 9000] {
            let of = |factor: usize| (0..len).map(|i| (i * factor) as u8).collect::<Vec<_>>();
            let all = [of(3), of(5), of(11)];
            let mut into = vec![0xA5; len];
            xor_of(&mut into, all.iter().map(|part| &part[..]));
            let at = |i: usize| all[0][i] ^ all[1][i] ^ all[2][i];
            assert!((0..len).all(|i| into[i] == at(i)), "{len} bytes");
            xor_of(&mut into, std::iter::empty());
            assert!(into.iter().all(|byte| *byte == 0));
        }
    }

    /// A change of whole chunks reads nothing, and its record has no bytes of them.
    #[test]
    fn a_stripe_written_whole_needs_memory_for_its_parity_alone() {
        let shape = ArrayShape::new(Level::Raid5, &[Sectors(4096); 4], Sectors(128)).unwrap();
        let data = Pool::new(1 << 20).try_get(3 << 16).unwrap().share();
        let of = |sectors: u64, whole| {
            let extent = Extent::new(Lba::ZERO, Sectors(sectors));
            let data = data.slice(0..bytes(extent.len));
            let update = StripeUpdate::new(&shape, shape.stripe(0), extent, &data, Fua::No);
            update.memory(whole)
        };
        let parity = Pool::footprint((64 << 10) + 2 * BLOCK_BYTES);
        assert_eq!(of(384, true), parity);
        assert_eq!(
            of(384, false),
            Pool::footprint(4 * (64 << 10) + 2 * BLOCK_BYTES)
        );
        assert!(of(376, false) > of(384, false) + Pool::footprint(4 * (64 << 10)));
        assert!(of(376, false) <= least(&shape));
    }
}
