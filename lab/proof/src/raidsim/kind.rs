//! The kinds of trouble.

use sim::SimRng;

/// Draws the trouble of a seed.
const TROUBLE: u64 = 907;

/// A kind of trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayTrouble {
    /// None but that of every scenario.
    None,
    /// Metadata of one member cannot be read, now and then or until the metadata is written.
    Metadata,
    /// A member is unresponsive, for a while or for ever, or answers slowly; writes land late.
    Hangs,
    /// Members are replaced, sound ones too.
    Replaces,
    /// Legs of a mirror are started apart from each other.
    Splits,
    /// A member comes back with another logical block, or smaller.
    Reshapes,
    /// Several members are lost at a time.
    Several,
    /// Members are arrays.
    Nested,
    /// A loss of power leaves sectors that cannot be read.
    Spoils,
    /// Bits of metadata flip at rest.
    Rots,
    /// Memory is short, and clients hold as much as they may.
    Memory,
    /// Hours pass before the power goes.
    Idles,
    /// A lost member returns while a spare takes its place.
    Races,
    /// Servers are restarted, and forget writes that no flush had covered.
    Forgets,
    /// Members come back as images of themselves, blank, or as copies of others.
    Images,
    /// The process is paused.
    Pauses,
    /// Writes of metadata are refused.
    Records,
}

impl ArrayTrouble {
    /// The trouble of `seed`.
    pub(super) fn of(seed: u64) -> ArrayTrouble {
        match SimRng::fork(seed, TROUBLE).below(100) {
            0..5 => ArrayTrouble::Metadata,
            5..10 => ArrayTrouble::Hangs,
            10..15 => ArrayTrouble::Replaces,
            15..20 => ArrayTrouble::Splits,
            20..24 => ArrayTrouble::Reshapes,
            24..29 => ArrayTrouble::Several,
            29..32 => ArrayTrouble::Nested,
            32..39 => ArrayTrouble::Spoils,
            39..44 => ArrayTrouble::Rots,
            44..48 => ArrayTrouble::Memory,
            48..51 => ArrayTrouble::Idles,
            51..56 => ArrayTrouble::Races,
            56..60 => ArrayTrouble::Forgets,
            60..64 => ArrayTrouble::Images,
            64..66 => ArrayTrouble::Pauses,
            66..70 => ArrayTrouble::Records,
            _ => ArrayTrouble::None,
        }
    }

    pub(super) fn needs_redundancy(self) -> bool {
        use ArrayTrouble::*;
        matches!(
            self,
            Metadata
                | Replaces
                | Several
                | Nested
                | Spoils
                | Rots
                | Races
                | Forgets
                | Images
                | Pauses
                | Records
        )
    }
}
