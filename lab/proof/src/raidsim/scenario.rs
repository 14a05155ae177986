//! Scenarios and their parts.

use super::kind::ArrayTrouble;
use block::{Nanos, Sectors};
use raid::Level;
use sim::SimRng;

/// Draws the scenarios that have refusals. Seeds that found violations before there were refusals
/// have none.
const REFUSALS: u64 = 905;
/// Draws the scenarios that have slow superblocks.
const SLOW: u64 = 906;
/// Draws the scenarios in which more is marked than is written.
const AHEAD: u64 = 907;

/// Everything that a run is made of.
#[derive(Clone, Debug)]
pub struct ArrayScenario {
    /// Seeds the world and every choice.
    pub seed: u64,
    /// The array's level.
    pub level: Level,
    /// Number of members.
    pub members: usize,
    /// Number of spares.
    pub spares: usize,
    /// Its chunk.
    pub chunk: Sectors,
    /// The logical block of the disks.
    pub block: Sectors,
    /// Sectors of each member that hold data, about.
    pub data: Sectors,
    /// Clients at work at once.
    pub clients: u64,
    /// Operations of each in one life.
    pub operations: u64,
    /// Longest rest of a client, now and then.
    pub rest: Nanos,
    /// Number of flushes in a hundred operations.
    pub flushes: u64,
    /// Lives: each but the last ends with a loss of power.
    pub lives: u64,
    /// Disks are unplugged, one at a time.
    pub losses: bool,
    /// One disk has sectors that cannot be read.
    pub latent: bool,
    /// Members refuse writes, one at a time.
    pub refusals: bool,
    /// Superblocks are written slowly, so that much else happens before the array knows durably of
    /// a member's fate; the power may go then.
    pub slow: bool,
    /// Bytes a second of a rebuild in use.
    pub rebuild_floor: u64,
    /// Time after which bits are cleared.
    pub clear_after: Nanos,
    /// Size of the range that its first write marks.
    pub mark_ahead: Sectors,
    /// The kind of trouble.
    pub trouble: ArrayTrouble,
    /// Clients discard.
    pub discards: bool,
    /// Timeout of a member.
    pub timeout: Option<Nanos>,
    /// Attempts to repeat a refused write.
    pub rewrites: u32,
    /// Time that a spare leaves a lost member to come back.
    pub spare_delay: Nanos,
    /// Number of disks that are no part of the array at first.
    pub extra: usize,
}

impl ArrayScenario {
    /// The scenario of `seed` with losses, refusals and unreadable data alone, as all seeds were
    /// once.
    pub fn plain(seed: u64) -> ArrayScenario {
        let rng = &mut SimRng::fork(seed, 1);
        let (level, members) = match rng.below(16) {
            0 => (Level::Linear, rng.between(1, 3)),
            1 => (Level::Raid0, rng.between(2, 4)),
            2..6 => (Level::Raid1, rng.between(2, 4)),
            6..9 => (Level::Raid10, rng.between(2, 5)),
            _ => (Level::Raid5, rng.between(3, 5)),
        };
        let redundant = level.is_redundant();
        ArrayScenario {
            seed,
            level,
            members: members as usize,
            spares: if redundant && rng.chance(0.4) { 1 } else { 0 },
            chunk: Sectors(8 * rng.between(1, 4)),
            block: Sectors(if rng.chance(0.7) { 1 } else { 8 }),
            data: Sectors(8 * rng.between(16, 96)),
            clients: rng.between(1, 6),
            operations: rng.between(20, 150),
            rest: Nanos::from_millis(if rng.chance(0.7) { 2 } else { 40 }),
            flushes: if rng.chance(0.6) { 8 } else { 1 },
            lives: rng.between(1, 5),
            losses: redundant && rng.chance(0.75),
            latent: redundant && rng.chance(0.25),
            refusals: SimRng::fork(seed, REFUSALS).chance(0.2),
            slow: redundant && SimRng::fork(seed, SLOW).chance(0.5),
            rebuild_floor: 1 << rng.between(20, 26),
            clear_after: Nanos::from_micros(rng.between(500, 100_000)),
            mark_ahead: Sectors(if SimRng::fork(seed, AHEAD).chance(0.1) {
                512
            } else {
                0
            }),
            trouble: ArrayTrouble::None,
            discards: false,
            timeout: None,
            rewrites: 0,
            spare_delay: Nanos::ZERO,
            extra: 0,
        }
    }

    /// The size of a disk, or of an array that stands in its place.
    pub(super) fn unit_sectors(&self, unit: usize) -> Sectors {
        let meta = if self.level == Level::Raid5 {
            4096
        } else {
            2048
        };
        Sectors(meta + self.data.0 + 8 * (unit as u64 % 3))
    }
}
