//! A change of one stripe of RAID 5, as far as it is arithmetic.

use crate::core::ArrayCore;
use crate::levels::ParityStripe;
use block::{Extent, Fua, Sectors, SharedBuf};
use layout::array::journal::ChunkRun;

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
        core: &ArrayCore,
        stripe: ParityStripe,
        extent: Extent,
        data: &SharedBuf,
        fua: Fua,
    ) -> StripeUpdate {
        let parts = core.shape.pieces(extent).map(|piece| {
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
