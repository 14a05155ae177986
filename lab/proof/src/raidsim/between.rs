//! Events of an array that does not run: power is lost, with or without a member, members change
//! their shape, bits flip.

use super::life::ArrayOutside;
use super::report::Class;
use super::trouble::{self, ArrayTrouble};
use block::{Extent, Lba, Sectors};
use sim::{Domain, FaultClass as Fault, SimHost, SimRng};
use std::rc::Rc;

/// The power is gone: counts the situations that the loss met, and may take a member too.
pub(super) fn after_cut(outside: &Rc<ArrayOutside>, twice: bool) {
    let width = outside.refusals.count.get().min(1) * outside.stripe.get();
    outside.model.borrow_mut().cut(width);
    outside.refusals.cut();
    outside.control.power_on(Domain(0));
    outside.meet(Class::Cut);
    if !outside.started.get() && outside.rotten.get() {
        // A member with rotten metadata was not filled again.
        outside.sound.set(false);
    }
    let met = [
        (Class::CutInStart, !outside.started.get()),
        (Class::CutInWrite, outside.writes.replace(0) > 0),
        (
            Class::CutInPartialWrite,
            outside.partial_writes.replace(0) > 0,
        ),
        (
            Class::CutDegraded,
            outside.started.get() && !outside.whole.get(),
        ),
        (Class::CutTwice, twice),
    ];
    for (class, met) in met {
        if met {
            outside.meet(class);
        }
    }
    if let Some(class) = outside.doing.take() {
        outside.meet(class);
    }
    // Hung members answer again. Disks lost within an array are back, and so are members that an
    // array cannot do without.
    let hung = outside.scenario.trouble == ArrayTrouble::Hangs;
    let several = outside.dead.borrow().len() > 1;
    if hung || several || outside.is_nested() {
        let dead = outside.dead.borrow().clone();
        outside.revive_all();
        if outside.is_nested() {
            dead.into_iter().for_each(|unit| outside.kill(unit));
        }
    }
    lose_or_give_back(outside);
}

fn lose_or_give_back(outside: &Rc<ArrayOutside>) {
    let mut rng = outside.rng.borrow_mut();
    let dead = outside.dead.borrow().iter().next().copied();
    if dead.is_some_and(|dead| Some(dead) != outside.reshaped.get())
        && outside.scenario.slow
        && rng.chance(0.75)
    {
        let dead = outside.dead.borrow().clone();
        dead.into_iter().for_each(|dead| outside.revive(dead));
        outside.meet(Class::CutAndBack);
    }
    let may_lose = outside.scenario.losses && outside.started.get() && outside.whole.get();
    if may_lose && rng.chance(0.4) {
        let unit = rng.below(outside.scenario.members as u64) as usize;
        drop(rng);
        outside.kill(unit);
        outside.meet(Class::CutAndLoss);
    }
}

/// Applies the events of members that are at rest before life `number` begins.
pub(super) fn befall(sim: &mut SimHost, outside: &Rc<ArrayOutside>, number: u64) {
    let rng = &mut SimRng::fork(outside.scenario.seed, 5000 + number);
    match outside.scenario.trouble {
        ArrayTrouble::Rots if number > 0 => rot(sim, outside, rng),
        ArrayTrouble::Idles if number > 0 && rng.chance(0.4) => rot(sim, outside, rng),
        ArrayTrouble::Reshapes => reshape(sim, outside, rng, number),
        ArrayTrouble::Images => {
            if let Some((unit, own)) = outside.copied.take() {
                outside.media[unit].restore(&own);
            }
            // Only an array that ended in order has counted the writes since.
            let image = outside.image.take();
            if let Some((unit, image)) = image.filter(|_| outside.rested.get()) {
                outside.media[unit].restore(&image);
                outside.rotten.set(true);
                outside.meet(Class::StartImage);
            }
        }
        ArrayTrouble::Hangs
            if outside.sound.get()
                && number > 0
                && rng.chance(0.3)
                && outside.scenario.level.is_redundant() =>
        {
            let unit = rng.below(outside.units.len() as u64) as usize;
            outside.kill(unit);
            outside.control.revive(outside.units[unit].targets[0]);
            outside.control.hang(outside.units[unit].targets[0]);
            outside.meet(Class::HungAtStart);
        }
        _ => {}
    }
}

/// Flips bits of one place of metadata, on a member that is not the only one.
fn rot(sim: &mut SimHost, outside: &ArrayOutside, rng: &mut SimRng) {
    let unit = rng.below(outside.scenario.members as u64) as usize;
    let mut place = trouble::metadata(rng, outside.data_at.get());
    if let Some(stale) = outside.stale.take() {
        let fate = rng.below(4);
        if fate > 0 || unit == stale {
            outside.revive(stale);
        }
        if unit == stale {
            return;
        }
        // One copy of the superblock that records the loss.
        place = Extent::new(Lba(8 * rng.below(2)), Sectors(8));
        outside.meet(match fate {
            0 => Class::RotBesideAway,
            1 => Class::RotBesideBlank,
            _ => Class::RotBesideStale,
        });
        if fate == 1 {
            blank(outside, stale);
        }
    } else if !outside.sound.get() {
        return;
    } else if outside.scenario.trouble == ArrayTrouble::Rots && rng.chance(0.4) {
        return noise(outside, rng, unit);
    }
    let at = Lba(place.start.0 + rng.below(place.len.0));
    for _ in 0..rng.between(1, 3) {
        let bit = rng.below(4096);
        let target = outside.units[unit].targets[0];
        sim.world_mut().flip_bit(target, at, bit);
    }
    outside.rotten.set(true);
    outside.meet(Class::Rot);
}

/// Leaves nothing on a unit that identifies the unit.
pub(super) fn blank(outside: &ArrayOutside, unit: usize) {
    let metadata = vec![0; outside.data_at.get() as usize * 512];
    outside.media[unit].write(Lba::ZERO, &metadata);
    outside.rotten.set(true);
}

/// Puts noise over one superblock of a unit, or over all of its first sectors.
fn noise(outside: &ArrayOutside, rng: &mut SimRng, unit: usize) {
    let (from, to) = match rng.below(4) {
        0 => (0, 8),
        1 => (8, 16),
        2 => (0, 16),
        _ => (0, 24),
    };
    let bytes = (from * 64..to * 64).flat_map(|_| rng.bits().to_le_bytes());
    let bytes: Vec<u8> = bytes.collect();
    outside.media[unit].write(Lba(from), &bytes);
    outside.rotten.set(true);
    outside.meet(match to - from {
        8 => Class::NoiseOneCopy,
        _ => Class::Noise,
    });
}

/// Has a member answer with another shape, for one life.
fn reshape(sim: &mut SimHost, outside: &ArrayOutside, rng: &mut SimRng, number: u64) {
    let shape = |sim: &mut SimHost, unit: usize, sectors: Sectors, block: Sectors| {
        let target = outside.units[unit].targets[0];
        sim.world_mut().reshape(target, sectors, block);
    };
    if let Some(unit) = outside.reshaped.take() {
        let sectors = outside.sectors_of(unit);
        shape(sim, unit, sectors, outside.scenario.block);
        outside.dead.borrow_mut().remove(&unit);
        // The others may have evicted the member, and no life was long enough to fill the member.
        outside.sound.set(false);
        return;
    }
    if !outside.sound.get() || number == 0 || number + 1 >= outside.scenario.lives {
        return;
    }
    let unit = rng.below(outside.scenario.members as u64) as usize;
    let sectors = outside.sectors_of(unit);
    if outside.scenario.block == Sectors(1) && rng.chance(0.5) {
        shape(sim, unit, sectors, Sectors(8));
        outside.meet(Class::OtherBlocks);
    } else {
        let less = Sectors(8 * rng.between(4, outside.scenario.data.0 / 8 - 1));
        shape(sim, unit, sectors - less, outside.scenario.block);
        outside.meet(Class::Shrunk);
    }
    outside.whole.set(false);
    outside.dead.borrow_mut().insert(unit);
    outside.reshaped.set(Some(unit));
}

/// Counts the faults that struck since the first `seen`. Returns the number of all faults so far.
pub(super) fn count(sim: &SimHost, outside: &ArrayOutside, seen: usize) -> usize {
    let world = sim.world();
    let landed = world.tally().landed();
    let trouble = outside.scenario.trouble;
    let victim = outside.units[trouble::victim(&outside.scenario)].targets[0];
    for fault in &landed[seen.min(landed.len())..] {
        if matches!(fault.class, Fault::Stuck | Fault::Delay) {
            // A member may have been evicted since the last look.
            outside.sound.set(false);
        }
        let meta = fault.place < outside.data_at.get();
        let its = fault.target == victim;
        let class = match (fault.class, trouble) {
            (Fault::CutSpoiled, _) => Class::Spoiled,
            (Fault::LatentSector, ArrayTrouble::Metadata) if meta && its => Class::MetadataLost,
            (Fault::Error, ArrayTrouble::Metadata) if meta && its => Class::MetadataError,
            (Fault::Error, _) if outside.scenario.discards => Class::DiscardRefused,
            (Fault::Delay, ArrayTrouble::Hangs) if its => Class::SlowDevice,
            _ => continue,
        };
        outside.meet(class);
    }
    landed.len()
}
