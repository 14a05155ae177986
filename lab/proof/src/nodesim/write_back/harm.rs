//! Faults of the devices of a write-back volume between two lives of its node.
//!
//! Invariants:
//!     one fault at a time ⟹ the next life is served
//!     two at a time ⟹ an attempt comes first, in which a refusal is allowed, and older bytes are
//!                      not; then one of them is mended
//!     an attempt was refused ⟹ it has written nothing

use super::client;
use super::outside::{LOGS, ORIGIN, SECTORS, VOLUME, WriteBackOutside, values};
use super::report::Class;
use crate::nodesim::logged::{LOG_MIB, recovered};
use crate::writeback::VolumeHistory;
use block::{Extent, IoErrorKind, Lba, Nanos, SECTOR_BYTES, Sectors};
use layout::{
    BLOCK_BYTES, BLOCK_SECTORS, DeviceIdentity, LOG_AREA, LOG_SUPERBLOCKS, LOG_WITNESS_BYTES,
    LogRecord, LogSuperblock, Uuid,
};
use node::RecoverAction;
use shard::Local;
use sim::{
    FaultEffect, FaultPlan, FaultRule, Medium, MediumImage, OpFilter, SimDriver, SimHost, SimRng,
    When,
};
use simnode::{Direct, RunningNode, SimPlatform};
use std::collections::BTreeSet;
use std::rc::Rc;
use writelog::Cleaning;

/// Time limit of an attempt.
const SOON: Nanos = Nanos::from_secs(30);
const BLOCKS: u64 = LOG_MIB << 8;

/// A damaged block of one copy.
pub(super) struct DamagedBlock {
    copy: usize,
    at: Lba,
    /// The bytes before rot, and after; none for a block that cannot be read.
    rot: Option<[Vec<u8>; 2]>,
}

impl DamagedBlock {
    /// The rule that makes the block unreadable.
    pub(super) fn rule(&self, outside: &WriteBackOutside) -> Option<FaultRule> {
        self.rot.is_none().then(|| FaultRule {
            disk: outside.machine.target(LOGS[self.copy]),
            ops: OpFilter::Reads,
            within: Some(Extent::new(self.at, Sectors(BLOCK_SECTORS))),
            when: When::Always,
            effect: FaultEffect::Fail(IoErrorKind::Media),
        })
    }
}

/// The outcome of an attempt to serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    Served,
    Refused,
}

pub(super) struct Harms {
    outside: Rc<WriteBackOutside>,
    rng: SimRng,
    blank: MediumImage,
    /// The devices of a discarded log.
    old: Option<[MediumImage; 2]>,
}

fn bytes(medium: &Medium, at: Lba, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    medium.latest(at, &mut bytes);
    bytes
}

/// The records of a log on a device, each with its block.
fn records(medium: &Medium, log: Uuid) -> Vec<(u64, LogRecord)> {
    let record = |block: u64| {
        let bytes = bytes(medium, block_of(block), BLOCK_BYTES);
        Some((block, LogRecord::decode(&bytes, log).ok()?))
    };
    (LOG_AREA..BLOCKS).filter_map(record).collect()
}

fn block_of(block: u64) -> Lba {
    Lba(block * BLOCK_SECTORS)
}

impl Harms {
    /// Harms of devices that are still blank.
    pub(super) fn new(outside: Rc<WriteBackOutside>, rng: SimRng) -> Harms {
        let blank = outside.media.logs[0].save();
        Harms {
            outside,
            rng,
            blank,
            old: None,
        }
    }

    fn noise(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.rng.bits() as u8).collect()
    }

    /// Harms a device before life `number`. Returns the damage that is there during that life.
    pub(super) fn befall(&mut self, sim: &mut SimHost, number: u64) -> Option<DamagedBlock> {
        if number == 0 {
            return None;
        }
        self.looks(sim);
        let both = self.outside.has_both();
        match self.rng.below(10) {
            0 if both => self.spoil_a_superblock(),
            1 if both => self.lose_witness(),
            2 if both => return self.damaged_beside(),
            3 | 4 => self.damaged_alone(sim),
            // The other copy alone may have the writes that a cut took from one copy.
            5 if both && !self.outside.was_cut.get() => self.restore_an_image(),
            6 => self.other_origin(sim),
            7 | 8 if both => match self.old.is_some() {
                true => self.old_log(sim),
                false => self.give_up(sim),
            },
            _ => {}
        }
        None
    }

    /// After a kill, dirty data is counted without a daemon.
    fn looks(&mut self, sim: &mut SimHost) {
        let outside = self.outside.clone();
        if !self.rng.chance(0.2) || outside.was_cut.get() || !outside.is_dirty() {
            return;
        }
        match self.recover(sim, RecoverAction::Inspect) {
            Ok(said) if said.contains("no dirty data for origin") => {
                outside.violate(format!("data are dirty, and it is said: {said}"));
            }
            Ok(_) => outside.meet(Class::Looked),
            Err(why) => outside.violate(format!("it cannot be looked at: {why}")),
        }
    }

    fn recover(&self, sim: &mut SimHost, action: RecoverAction) -> Result<String, String> {
        let work = recovered(self.outside.config.clone(), action, None);
        let machine = self.outside.machine.clone();
        let done = self.outside.boot(sim, FaultPlan::default(), move |local| {
            work(SimPlatform::new(machine, local))
        });
        done.unwrap_or_else(|| Err("the power went".into()))
    }

    /// One superblock of a pair is noise; the other is the same, unless the last life ended between
    /// the writes of both.
    fn spoil_a_superblock(&mut self) {
        let outside = self.outside.clone();
        let nth = self.rng.below(2) as usize;
        let (medium, pair) = match self.rng.below(4) {
            copy @ 0..2 => (&outside.media.logs[copy as usize], LOG_SUPERBLOCKS),
            2 if outside.cleaning == Cleaning::Journaled => {
                (&outside.media.journal, LOG_SUPERBLOCKS)
            }
            _ => (&outside.media.witness, [0, 1]),
        };
        let [first, second] = pair.map(|block| bytes(medium, block_of(block), BLOCK_BYTES));
        if first != second {
            return;
        }
        let len = [SECTOR_BYTES as usize, BLOCK_BYTES][self.rng.below(2) as usize];
        let noise = self.noise(len);
        medium.write(block_of(pair[nth]), &noise);
        outside.meet(Class::Noise);
    }

    fn lose_witness(&self) {
        let zeroes = vec![0; LOG_WITNESS_BYTES as usize];
        self.outside.media.witness.write(Lba::ZERO, &zeroes);
        self.outside.meet(Class::NoWitness);
    }

    /// Blocks of records that no other record marks as durable or complete. Rot there looks like a
    /// write that a power cut tore, or that the device acknowledged and lost. A sole copy shows no
    /// difference.
    fn unproved(&self, medium: &Medium, log: Uuid) -> BTreeSet<u64> {
        let mut records = records(medium, log);
        let newest = records.iter().map(|(_, record)| record.incarnation).max();
        records.retain(|(_, record)| Some(record.incarnation) == newest);
        let proved = |(_, r): &(u64, LogRecord)| r.fence.max(r.durable_to).max(r.complete_to);
        let proved = records.iter().map(proved).max().unwrap_or(0);
        let last = records.iter().filter(|(_, r)| r.number >= proved);
        last.flat_map(|(block, r)| *block..block + u64::from(r.blocks()))
            .collect()
    }

    /// Blocks of records that no other record marks as durable, and that an `overtaken` copy lacks.
    /// A power cut may have taken the same records from the current copy.
    fn unflushed(
        &self,
        medium: &Medium,
        overtaken: &Medium,
        known: &LogSuperblock,
    ) -> BTreeSet<u64> {
        let mut records = records(medium, known.log);
        let newest = records.iter().map(|(_, record)| record.incarnation).max();
        records.retain(|(_, record)| Some(record.incarnation) == newest);
        let durable = records.iter().map(|(_, r)| r.fence.max(r.durable_to));
        let durable = durable.max().unwrap_or(0);
        let is_there = |block: u64, record: &LogRecord| {
            let len = record.blocks() as usize * BLOCK_BYTES;
            let [one, two] = [medium, overtaken].map(|m| bytes(m, block_of(block), len));
            let is_last = record.incarnation == known.incarnation;
            is_last && one == two && record.has(&two[BLOCK_BYTES..])
        };
        let lost = records.iter();
        let lost = lost.filter(|(block, r)| r.number >= durable && !is_there(*block, r));
        lost.flat_map(|(block, r)| *block..block + u64::from(r.blocks()))
            .collect()
    }

    /// Number of the volume's blocks that the log writes back, at the most, or that were changed
    /// in the last life: no sample there distinguishes disks for sure.
    fn unsure_blocks(&self) -> usize {
        let mut unsure = self.outside.changed.borrow().clone();
        let Some(known) = self.outside.known() else {
            return unsure.len();
        };
        let media = self.outside.media.logs.iter();
        let records: Vec<_> = media.flat_map(|log| records(log, known.log)).collect();
        let written_back = records.iter().map(|(_, r)| r.written_back_to).max();
        let left = records
            .iter()
            .filter(|(_, r)| Some(r.number) >= written_back);
        let extents = left.flat_map(|(_, record)| &record.extents);
        unsure.extend(extents.flat_map(|e| e.block..e.block + u64::from(e.count)));
        unsure.len()
    }

    /// Damages a used block of a current copy. A copy that is to be `alone` gets no damage in a
    /// record that may never have been whole.
    fn damage(&mut self, alone: bool) -> Option<DamagedBlock> {
        let known = self.outside.known()?;
        let mask = known.mask;
        let copy = match mask {
            [true, true] => self.rng.below(2) as usize,
            [first, _] => usize::from(!first),
        };
        let medium = self.outside.media.logs[copy].clone();
        let unproved = match alone {
            true => self.unproved(&medium, known.log),
            false => BTreeSet::new(),
        };
        let used = |block: &u64| {
            let there = bytes(&medium, block_of(*block), BLOCK_BYTES);
            there.iter().any(|byte| *byte != 0) && !unproved.contains(block)
        };
        let used: Vec<u64> = (LOG_AREA..BLOCKS).filter(used).collect();
        if used.is_empty() {
            return None;
        }
        let block = used[self.rng.below(used.len() as u64) as usize];
        let overtaken = &self.outside.media.logs[1 - copy];
        let is_overtaken = alone && mask != [true; 2];
        if is_overtaken && self.unflushed(&medium, overtaken, &known).contains(&block) {
            return None;
        }
        let at = block_of(block);
        let rot = self.rng.chance(0.5).then(|| {
            let at = Lba(at.0 + self.rng.below(BLOCK_SECTORS));
            let noise = self.noise(SECTOR_BYTES as usize);
            (at, [bytes(&medium, at, SECTOR_BYTES as usize), noise])
        });
        let (at, rot) = match rot {
            Some((at, rot)) => (at, Some(rot)),
            None => (at, None),
        };
        match &rot {
            Some([_, noise]) => {
                medium.write(at, noise);
                self.outside.meet(Class::Rot);
            }
            None => self.outside.meet(Class::Unreadable),
        }
        Some(DamagedBlock { copy, at, rot })
    }

    /// Undoes damage that no write has replaced.
    pub(super) fn mend(&self, damage: Option<DamagedBlock>) {
        let Some(DamagedBlock { copy, at, rot }) = damage else {
            return;
        };
        let medium = &self.outside.media.logs[copy];
        if let Some([was, noise]) = rot
            && bytes(medium, at, noise.len()) == noise
        {
            medium.write(at, &was);
        }
    }

    fn damaged_beside(&mut self) -> Option<DamagedBlock> {
        let damage = self.damage(false);
        if damage.is_some() {
            self.outside.meet(Class::Beside);
        }
        damage
    }

    /// A copy is damaged, and the other stale already, or away or blank for one start.
    fn damaged_alone(&mut self, sim: &mut SimHost) {
        let both = self.outside.has_both();
        let Some(damage) = self.damage(true) else {
            return;
        };
        let outside = self.outside.clone();
        let (log, path) = (&outside.media.logs[1 - damage.copy], LOGS[1 - damage.copy]);
        let was = log.save();
        let class = match (both, self.rng.chance(0.4)) {
            (false, _) => Class::BesideStale,
            (true, true) => {
                log.restore(&self.blank);
                Class::BesideBlank
            }
            (true, false) => {
                // Makes the other copy durable, so that pulling its device loses nothing.
                log.restore(&was);
                outside.machine.pull(path);
                Class::Sole
            }
        };
        outside.meet(class);
        let attempt = self.attempt(sim, damage.rule(&outside), SOON, true);
        outside.machine.give_back(path);
        match attempt {
            Attempt::Served => outside.meet(Class::DamageServed),
            Attempt::Refused => {
                outside.meet(Class::DamageRefused);
                log.restore(&was);
            }
        }
        self.mend(Some(damage));
    }

    /// A device of the log goes back to the middle of the life before.
    fn restore_an_image(&mut self) {
        let copy = self.rng.below(2) as usize;
        if let Some(image) = self.outside.images.borrow_mut()[copy].take() {
            self.outside.media.logs[copy].restore(&image);
            self.outside.meet(Class::Image);
        }
    }

    /// Another disk takes the origin's place for a while, and must not be written. A disk with the
    /// origin's serial number is recognised only by blocks that have not changed lately.
    fn other_origin(&mut self, sim: &mut SimHost) {
        let outside = self.outside.clone();
        let dirty = outside.is_dirty() && !outside.was_cut.get();
        let few = self.unsure_blocks() <= (SECTORS / BLOCK_SECTORS / 4) as usize;
        let comparable = few && !outside.was_cut.get() && !outside.was_zeroed.get();
        let was = outside.media.origin.save();
        let other = self.noise((SECTORS * SECTOR_BYTES) as usize);
        outside.media.origin.write(Lba::ZERO, &other);
        let renamed = self.rng.chance(0.5) || !comparable;
        let another = renamed.then(|| DeviceIdentity::new("another"));
        outside.machine.identify(ORIGIN, another);
        let span = Nanos::from_secs(self.rng.between(1, 600));
        let attempt = self.attempt(sim, None, span, false);
        if outside.image(false) != other {
            outside.violate("another disk than the origin was written".into());
        }
        match (attempt, dirty) {
            (Attempt::Served, true) => {
                outside.violate("it is served on another disk than its origin, and dirty".into());
            }
            (_, true) => outside.meet(Class::OtherOrigin),
            (_, false) => outside.meet(Class::OtherOriginClean),
        }
        outside.machine.identify(ORIGIN, None);
        outside.media.origin.restore(&was);
    }

    /// The log is discarded while data is dirty: the origin goes on as the earlier state that it
    /// is.
    fn give_up(&mut self, sim: &mut SimHost) {
        let outside = self.outside.clone();
        if !outside.is_dirty() || outside.was_cut.get() {
            return;
        }
        self.old = Some(outside.media.logs.each_ref().map(Medium::save));
        if let Err(why) = self.recover(sim, RecoverAction::Discard) {
            return outside.violate(format!("it cannot be given up: {why}"));
        }
        self.lose_witness();
        outside.judge();
        // The origin's power is not cut in between, so its content counts as durable.
        outside.media.origin.restore(&outside.media.origin.save());
        let image = values(&outside.image(false));
        outside.history.replace(VolumeHistory::from_image(&image));
        outside.images.take();
        outside.meet(Class::GivenUp);
    }

    /// Devices of the discarded log are back for one start.
    fn old_log(&mut self, sim: &mut SimHost) {
        let outside = self.outside.clone();
        let Some(old) = self.old.take() else {
            return;
        };
        let (logs, before) = (&outside.media.logs, outside.image(false));
        let was = logs.each_ref().map(Medium::save);
        let both = self.rng.chance(0.5);
        let copies = match both {
            true => 0..2,
            false => {
                let copy = self.rng.below(2) as usize;
                copy..copy + 1
            }
        };
        copies
            .clone()
            .for_each(|copy| logs[copy].restore(&old[copy]));
        let attempt = self.attempt(sim, None, SOON, !both);
        outside.meet([Class::OldCopy, Class::OldLog][usize::from(both)]);
        if both && (attempt == Attempt::Served || outside.image(false) != before) {
            outside.violate("a log that was given up is served".into());
        }
        if attempt == Attempt::Refused {
            copies.for_each(|copy| logs[copy].restore(&was[copy]));
        }
    }

    /// Starts a node without clients. Checks all that the node serves within `span` if its reads
    /// are to be `judged`.
    fn attempt(
        &self,
        sim: &mut SimHost,
        rule: Option<FaultRule>,
        span: Nanos,
        judged: bool,
    ) -> Attempt {
        let outside = self.outside.clone();
        let media = &outside.media;
        let all = [
            &media.logs[0],
            &media.logs[1],
            &media.journal,
            &media.origin,
        ];
        let look = || {
            let sizes = [LOG_MIB, LOG_MIB, LOG_MIB, 1];
            let media = all.iter().zip(sizes);
            let media = media.map(|(medium, mib)| bytes(medium, Lba::ZERO, (mib as usize) << 20));
            media.collect::<Vec<_>>()
        };
        let before = look();
        let plan = FaultPlan::of(rule.into_iter().collect());
        let given = outside.clone();
        let served = outside.boot(sim, plan, move |local| serve(given, local, span, judged));
        outside.machine.take_events();
        match served {
            Some(true) => {
                if judged {
                    outside.judge();
                }
                Attempt::Served
            }
            _ => {
                if look() != before {
                    outside.violate("a refused attempt has written something".into());
                }
                Attempt::Refused
            }
        }
    }
}

/// Returns true if the volume is served within `span`; ends the node in order then.
async fn serve(
    outside: Rc<WriteBackOutside>,
    local: Local<SimDriver>,
    span: Nanos,
    judged: bool,
) -> bool {
    let env = local.env();
    env.timer.sleep(Nanos(1)).await;
    let frontend = Direct::new(&local);
    let platform = SimPlatform::new(outside.machine.clone(), local);
    let started = RunningNode::start(&outside.config, platform, frontend.clone()).await;
    let Ok(node) = started else {
        return false;
    };
    let end = env.timer.now() + span;
    let client = loop {
        match frontend.client(VOLUME) {
            Some(client) => break client,
            None if env.timer.now() >= end => return false,
            None => env.timer.sleep(Nanos::from_millis(500)).await,
        }
    };
    if judged {
        client::look(&outside, &client).await;
    }
    drop(client);
    let _ = node.stop().await;
    true
}
