//! One kind of trouble a scenario, beside the losses of members and power that most scenarios have.
//!
//! Not here: the effects of the trouble on a life (`chaos`, `strikes`, `between`, `split`).

pub use super::kind::ArrayTrouble;

use super::scenario::ArrayScenario;
use block::{Extent, IoErrorKind, Lba, Nanos, Sectors, TargetId};
use raid::Level;
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, SimRng, When};

/// Draws whether clients discard.
const DISCARDS: u64 = 908;
/// The end of superblocks.
const SUPERBLOCKS: Sectors = Sectors(16);
/// The place of the write-intent bitmap, after two copies of the superblock.
const BITMAP: Extent = Extent {
    start: Lba(16),
    len: Sectors(8),
};

/// Gives `scenario` the trouble of its seed, and takes away the parts that conflict with the
/// trouble.
pub(super) fn add_to(scenario: &mut ArrayScenario) {
    let trouble = ArrayTrouble::of(scenario.seed);
    if trouble.needs_redundancy() && !scenario.level.is_redundant() {
        return;
    }
    let rng = &mut SimRng::fork(scenario.seed, 60);
    let options = &mut SimRng::fork(scenario.seed, 66);
    scenario.rewrites = options.below(6).saturating_sub(3) as u32;
    scenario.spare_delay = Nanos(options.below(3) * 70_000_000);
    scenario.trouble = trouble;
    scenario.discards = SimRng::fork(scenario.seed, DISCARDS).chance(0.15);
    if trouble == ArrayTrouble::None {
        return;
    }
    (scenario.refusals, scenario.latent) = (false, false);
    match trouble {
        ArrayTrouble::Hangs => {
            scenario.timeout = Some(Nanos::from_millis(rng.between(20, 100)));
            // A hung member is lost without being unplugged; two members lost at once are one too
            // many.
            scenario.losses = false;
        }
        ArrayTrouble::Replaces | ArrayTrouble::Forgets => {
            scenario.extra = usize::from(trouble == ArrayTrouble::Replaces);
            scenario.latent = rng.chance(0.5);
            scenario.losses &= !scenario.latent;
        }
        ArrayTrouble::Splits => {
            scenario.spares = 0;
            scenario.slow = true;
            // Boots are cut short only on purpose.
            scenario.lives = 1;
            scenario.operations = rng.between(5, 60);
            match scenario.level {
                Level::Raid10 => scenario.members = scenario.members / 2 * 2,
                _ => (scenario.level, scenario.members) = (Level::Raid1, 2 + rng.below(2) as usize),
            }
        }
        ArrayTrouble::Reshapes => scenario.lives = scenario.lives.max(3),
        ArrayTrouble::Spoils => {
            scenario.lives = scenario.lives.max(2);
            scenario.losses &= rng.chance(0.5);
        }
        ArrayTrouble::Nested => {
            scenario.members = scenario.members.min(4);
            scenario.spares = 0;
            scenario.operations = scenario.operations.min(80);
        }
        ArrayTrouble::Rots | ArrayTrouble::Idles => {
            scenario.lives = scenario.lives.clamp(2, 3);
            scenario.losses = false;
        }
        ArrayTrouble::Memory => {
            scenario.clients = rng.between(12, 40);
            scenario.operations = rng.between(20, 40);
        }
        ArrayTrouble::Pauses => {
            scenario.timeout = Some(Nanos::from_millis(rng.between(50, 200)));
            scenario.losses = false;
        }
        ArrayTrouble::Records => scenario.refusals = true,
        ArrayTrouble::Races => {
            scenario.spares = 1;
            (scenario.losses, scenario.slow) = (true, true);
            scenario.lives = scenario.lives.max(2);
        }
        _ => scenario.lives = scenario.lives.max(2),
    }
}

/// The disk of the troubles of one disk.
pub(super) fn victim(scenario: &ArrayScenario) -> usize {
    SimRng::fork(scenario.seed, 61).below(scenario.members as u64) as usize
}

/// A place of metadata: a copy of the superblock, the bitmap, or some of the journal.
pub(super) fn metadata(rng: &mut SimRng, data_at: u64) -> Extent {
    let journal = data_at > 2048;
    match rng.below(if journal { 6 } else { 3 }) {
        0 => Extent::new(Lba(0), Sectors(8)),
        1 => Extent::new(Lba(8), Sectors(8)),
        2 => BITMAP,
        _ => {
            let blocks = (data_at - 32) / 8;
            let len = 8 * rng.between(1, 4);
            let at = 32 + 8 * rng.below(blocks);
            Extent::new(Lba(at), Sectors(len.min(data_at - at)))
        }
    }
}

/// Adds the trouble of `scenario` to the plan of a life.
pub(super) fn plan(
    scenario: &ArrayScenario,
    life: u64,
    disks: &[TargetId],
    data_at: u64,
    plan: &mut FaultPlan,
) {
    let rng = &mut SimRng::fork(scenario.seed, 6000 + life);
    let disk = disks[victim(scenario)];
    let mut rule = |ops, within, when, effect| {
        plan.rules.push(FaultRule {
            disk,
            ops,
            within,
            when,
            effect,
        });
    };
    let meta = Extent::new(Lba(0), Sectors(data_at));
    if scenario.discards && rng.chance(0.3) {
        let refused = FaultEffect::Fail(IoErrorKind::Unsupported);
        rule(OpFilter::Discards, None, When::Always, refused);
    }
    match scenario.trouble {
        ArrayTrouble::Metadata => {
            if rng.chance(0.7) {
                let chance = [0.02, 0.1, 0.3][rng.below(3) as usize];
                let fail = FaultEffect::Fail(IoErrorKind::Media);
                rule(OpFilter::Reads, Some(meta), When::Chance(chance), fail);
            }
            if rng.chance(0.5) {
                // The same copy of the superblock all along: losing both is another fault.
                let place = metadata(&mut SimRng::fork(scenario.seed, 62), data_at);
                // A loss of power may have torn the other copy since.
                if place.start.0 >= SUPERBLOCKS.0 || life == 0 {
                    plan.latent.push((disk, place));
                }
            }
        }
        ArrayTrouble::Hangs => match rng.below(3) {
            0 => {
                let timeout = scenario.timeout.expect("set with hangs");
                let span = Nanos(timeout.0 * rng.between(3, 30) / 10);
                let (now_and_then, late) = (When::Chance(0.01), FaultEffect::Delay(span));
                rule(OpFilter::All, None, now_and_then, late);
            }
            _ => {
                let nth = When::Nth(rng.between(5, 250));
                rule(OpFilter::Writes, None, nth, FaultEffect::Stick(None));
            }
        },
        ArrayTrouble::Races => {
            let span = Nanos(rng.between(1_000_000, 150_000_000));
            let within = Some(Extent::new(Lba(0), Sectors(16)));
            for disk in disks {
                plan.rules.push(FaultRule {
                    disk: *disk,
                    ops: OpFilter::Reads,
                    within,
                    when: When::Chance(0.4),
                    effect: FaultEffect::Delay(span),
                });
            }
        }
        ArrayTrouble::Spoils => plan.spoiled = 0.3,
        _ => {}
    }
}
