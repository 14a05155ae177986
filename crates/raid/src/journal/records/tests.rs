//! Every short story of a journal: writes of parts of stripes and of whole ones, records that land,
//! that are refused and may have landed all the same, flushes, revocations, and a cut of the power
//! after each step, with any of the writes in flight as they were, torn or landed.
//!
//! The records that a start then finds in the slots, by its own rules (`start`), must be:
//!     of a stripe that was being written, the record, or one of the whole stripe after it
//!     nothing that, done again, would undo a later write
//!     nothing of a write that has failed before a flush that has ended

use super::*;
use crate::start::{FoundSlot, JournalDamage, weigh};
use block::Durable;
use layout::Uuid;
use layout::array::journal::{ChunkRun, JournalEntry, JournalRecord};
use std::collections::{BTreeMap, HashSet};

const STRIPES: u64 = 2;

/// A misuse of the type, for a canary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A stripe is written while its record is.
    InPlaceEarly,
    /// Records are freed that end while the members are flushed.
    FreedLate,
    /// A part is written although a record of the whole stripe is left.
    PartAfterWhole,
    /// Records of writes that have failed are not revoked.
    NotRevoked,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Begin(AnnouncedChange),
    Lands(usize),
    /// The member refuses the record, and has the old bytes, torn ones, or the record.
    Refused(usize, Written),
    /// The write in place ends.
    Ends(usize, bool),
    FlushBegins,
    FlushEnds,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Written {
    Before,
    Torn,
    All,
}

const WRITTEN: [Written; 3] = [Written::Before, Written::Torn, Written::All];

/// State of the write that a record announced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Untouched,
    BeingWritten,
    Written,
    /// Any of it may be there.
    Failed,
}

#[derive(Clone, Debug)]
struct Update {
    announced: AnnouncedChange,
    place: Place,
    /// A flush that began after the end of the write has ended.
    covered: bool,
    ended: bool,
}

/// A record in flight.
#[derive(Clone, Debug)]
struct Writing {
    begun: BegunRecord,
    slot: usize,
    record: JournalRecord,
}

#[derive(Clone, Debug)]
struct Flush {
    done: u64,
    failed: Vec<u64>,
    covers: Vec<u64>,
}

#[derive(Clone, Debug)]
struct World {
    records: JournalRecords,
    slots: Vec<FoundSlot>,
    updates: BTreeMap<u64, Update>,
    writing: Vec<Writing>,
    flush: Option<Flush>,
}

#[derive(Default, Debug)]
struct Seen {
    worlds: usize,
    cuts: usize,
    damaged: [usize; 3],
}

fn entry(announced: AnnouncedChange) -> JournalEntry {
    match announced {
        AnnouncedChange::Part(_) => JournalEntry::Redo {
            runs: vec![ChunkRun::default()],
            sum: 0,
        },
        AnnouncedChange::Whole(_) => JournalEntry::Whole(vec![0]),
        AnnouncedChange::Nothing => JournalEntry::Retire,
    }
}

fn stripe(announced: AnnouncedChange) -> Option<u64> {
    match announced {
        AnnouncedChange::Part(stripe) | AnnouncedChange::Whole(stripe) => Some(stripe),
        AnnouncedChange::Nothing => None,
    }
}

fn record(begun: BegunRecord, stripe: Option<u64>, entry: JournalEntry) -> JournalRecord {
    JournalRecord {
        array: Uuid(1),
        number: begun.number,
        tail: begun.tail,
        durable: begun.durable,
        headers: 1,
        stripe: stripe.unwrap_or(0),
        entry,
    }
}

impl World {
    fn new(slots: u64) -> World {
        World {
            records: JournalRecords::new(slots),
            slots: vec![FoundSlot::Empty; slots as usize],
            updates: BTreeMap::new(),
            writing: Vec::new(),
            flush: None,
        }
    }

    fn is_busy(&self, stripe_at: u64) -> bool {
        let mut updates = self.updates.values();
        updates.any(|u| !u.ended && stripe(u.announced) == Some(stripe_at))
    }

    fn put(&mut self, writing: &Writing, written: Written) {
        match written {
            Written::Before => {}
            Written::Torn => self.slots[writing.slot] = FoundSlot::Torn,
            Written::All => self.slots[writing.slot] = FoundSlot::Record(writing.record.clone()),
        }
    }

    fn end(&mut self, number: u64, good: bool) {
        self.records.end(number, good);
        let update = self.updates.get_mut(&number).expect("it began");
        update.ended = true;
        update.place = match (update.place, good) {
            (Place::Untouched, _) => Place::Untouched,
            (_, true) => Place::Written,
            (_, false) => Place::Failed,
        };
    }

    fn begin(&mut self, announced: AnnouncedChange, fault: Fault) -> bool {
        let blocked = match announced {
            AnnouncedChange::Part(stripe) => {
                self.is_busy(stripe)
                    || self.records.has_whole(stripe) && fault != Fault::PartAfterWhole
            }
            AnnouncedChange::Whole(stripe) => self.is_busy(stripe),
            AnnouncedChange::Nothing => !self.writing.is_empty(),
        };
        if blocked || !self.records.has_room() {
            return false;
        }
        let begun = self.records.begin(announced);
        let slot = (begun.number % self.records.slots()) as usize;
        self.writing.push(Writing {
            begun,
            slot,
            record: record(begun, stripe(announced), entry(announced)),
        });
        let place = match fault {
            Fault::InPlaceEarly => Place::BeingWritten,
            _ => Place::Untouched,
        };
        let update = Update {
            announced,
            place,
            covered: false,
            ended: false,
        };
        self.updates.insert(begun.number, update);
        true
    }

    fn end_flush(&mut self, fault: Fault) -> bool {
        let Some(mut flush) = self.flush.take() else {
            return false;
        };
        for number in &flush.covers {
            self.updates.get_mut(number).expect("it began").covered = true;
        }
        if fault == Fault::NotRevoked {
            flush.failed.clear();
        }
        for number in flush.failed {
            if let Some((stripe, begun)) = self.records.revocation(number) {
                let slot = (number % self.records.slots()) as usize;
                let revoked = record(begun, Some(stripe), JournalEntry::Revoked);
                self.slots[slot] = FoundSlot::Record(revoked);
                self.records.revoked(number);
            }
        }
        if fault == Fault::FreedLate {
            flush.done = self.records.done_before();
        }
        let proof = Durable::found((), 0).proof(|()| true);
        self.records
            .free_before(flush.done, &proof.expect("nobody holds it"));
        true
    }

    /// Takes a step; false if the step is impossible.
    fn step(&mut self, step: Step, fault: Fault) -> bool {
        match step {
            Step::Begin(announced) => return self.begin(announced, fault),
            Step::Lands(at) if at < self.writing.len() => {
                let writing = self.writing.remove(at);
                self.put(&writing, Written::All);
                let number = writing.begun.number;
                let _recorded = self.records.written(number);
                let update = self.updates.get_mut(&number).expect("it began");
                update.place = Place::BeingWritten;
                if update.announced == AnnouncedChange::Nothing {
                    self.end(number, true);
                }
            }
            Step::Refused(at, written) if at < self.writing.len() => {
                let writing = self.writing.remove(at);
                if writing.record.entry == JournalEntry::Retire {
                    return false;
                }
                self.put(&writing, written);
                self.end(writing.begun.number, false);
            }
            Step::Ends(at, good) => {
                let placed = |u: &Update| u.place == Place::BeingWritten && !u.ended;
                let mut placed = self.updates.iter().filter(|(_, update)| placed(update));
                let Some((number, _)) = placed.nth(at) else {
                    return false;
                };
                let number = *number;
                if self.writing.iter().any(|w| w.begun.number == number) {
                    return false;
                }
                self.end(number, good);
            }
            Step::FlushBegins if self.flush.is_none() => {
                let ended = self.updates.iter().filter(|(_, update)| update.ended);
                self.flush = Some(Flush {
                    done: self.records.done_before(),
                    failed: self.records.failed(),
                    covers: ended.map(|(number, _)| *number).collect(),
                });
            }
            Step::FlushEnds => return self.end_flush(fault),
            _ => return false,
        }
        true
    }

    /// Returns the violation after a cut of the power, if there is one.
    fn check_cut(&self, outcome: &[Written], seen: &mut Seen) -> Result<(), String> {
        let mut cut = self.clone();
        for (writing, written) in self.writing.iter().zip(outcome) {
            cut.put(writing, *written);
        }
        let found = weigh(&cut.slots, STRIPES);
        seen.cuts += 1;
        seen.damaged[found.damage as usize] += 1;
        if found.damage == JournalDamage::Unknown {
            // Nothing is done again, unless a forced start accepts that.
            return Ok(());
        }
        for at in 0..STRIPES {
            let none = Vec::new();
            let records = found.stripes.get(&at).unwrap_or(&none);
            let updates = || {
                let of = |(_, u): &(&u64, &Update)| stripe(u.announced) == Some(at);
                self.updates.iter().filter(of)
            };
            let has = |number: u64| records.iter().any(|record| record.number == number);
            let is_whole = |record: &JournalRecord| matches!(record.entry, JournalEntry::Whole(_));
            for (number, update) in updates().filter(|(_, u)| u.place > Place::Untouched) {
                let whole = |r: &JournalRecord| r.number > *number && is_whole(r);
                if !update.covered && !has(*number) && !records.iter().any(whole) {
                    return Err(format!("record {number} of stripe {at} is gone"));
                }
                let older = records.iter().find(|record| record.number < *number);
                let done_again = has(*number) || older.is_none_or(is_whole);
                if !done_again {
                    return Err(format!("what record {number} announced is undone"));
                }
                let failed = update.place == Place::Failed && update.covered;
                if failed && has(*number) {
                    return Err(format!("record {number}, which has failed, is done again"));
                }
                let part = |record: &&JournalRecord| record.number > *number && !is_whole(record);
                let whole = matches!(update.announced, AnnouncedChange::Whole(_));
                if whole && !update.covered && records.iter().any(|record| part(&record)) {
                    return Err(format!("a part follows the whole stripe {number}"));
                }
            }
        }
        Ok(())
    }

    fn check(&self, seen: &mut Seen) -> Result<(), String> {
        let cuts = WRITTEN.len().pow(self.writing.len() as u32);
        for cut in 0..cuts {
            let mut rest = cut;
            let outcome = self.writing.iter().map(|_| {
                let written = WRITTEN[rest % WRITTEN.len()];
                rest /= WRITTEN.len();
                written
            });
            let outcome: Vec<_> = outcome.collect();
            self.check_cut(&outcome, seen)
                .map_err(|what| format!("{what}, cut with {outcome:?}"))?;
        }
        Ok(())
    }
}

fn steps() -> Vec<Step> {
    let stripes = 0..STRIPES;
    let begin = stripes.flat_map(|at| [AnnouncedChange::Part(at), AnnouncedChange::Whole(at)]);
    let mut steps: Vec<_> = begin
        .chain([AnnouncedChange::Nothing])
        .map(Step::Begin)
        .collect();
    for at in 0..2 {
        steps.push(Step::Lands(at));
        steps.extend(WRITTEN.map(|written| Step::Refused(at, written)));
        steps.extend([true, false].map(|good| Step::Ends(at, good)));
    }
    steps.extend([Step::FlushBegins, Step::FlushEnds]);
    steps
}

/// Searches all worlds after so many steps; returns the violation in one, with its story.
fn search(slots: u64, depth: usize, fault: Fault) -> Result<Seen, String> {
    let (steps, mut seen, mut known) = (steps(), Seen::default(), HashSet::new());
    let mut worlds = vec![(World::new(slots), Vec::new())];
    for _ in 0..depth {
        let mut next = Vec::new();
        for (world, story) in worlds {
            for step in &steps {
                let mut after = world.clone();
                if !after.step(*step, fault) || !known.insert(format!("{after:?}")) {
                    continue;
                }
                let story: Vec<_> = [&story[..], &[*step]].concat();
                seen.worlds += 1;
                let checked = after.check(&mut seen);
                checked.map_err(|what| format!("{what} after {story:?}"))?;
                next.push((after, story));
            }
        }
        worlds = next;
    }
    Ok(seen)
}

#[test]
fn no_short_story_of_a_journal_leaves_a_stripe_without_its_record() {
    for (slots, depth) in [(2, 8), (3, 7)] {
        let seen = search(slots, depth, Fault::None).unwrap();
        println!("{slots} slots: {seen:?}");
    }
}

#[test]
fn canary_a_story_finds_what_is_done_wrong() {
    for (fault, what) in [
        (Fault::InPlaceEarly, "is gone"),
        (Fault::FreedLate, "is gone"),
        (Fault::PartAfterWhole, "a part follows the whole"),
        (Fault::NotRevoked, "which has failed, is done again"),
    ] {
        let wrong = search(2, 8, fault).expect_err("a fault");
        assert!(wrong.contains(what), "{fault:?}: {wrong}");
    }
}

#[test]
fn open_records_are_known_by_what_became_of_them() {
    let mut records = JournalRecords::new(4);
    records.resume_after(6);
    assert_eq!(records.done_before(), 7);
    let mut records = JournalRecords::new(4);
    for announced in [
        AnnouncedChange::Whole(5),
        AnnouncedChange::Part(6),
        AnnouncedChange::Part(7),
    ] {
        records.begin(announced);
    }
    let _recorded = records.written(1);
    assert_eq!(records.says(9).durable, 2);
    let whole: Vec<_> = (4..9).filter(|stripe| records.has_whole(*stripe)).collect();
    assert_eq!(whole, [5]);
    assert_eq!(records.done_before(), 1);
    records.end(1, true);
    records.end(2, false);
    assert_eq!(records.done_before(), 3);
    assert_eq!(records.failed(), [2]);
    assert!(records.revocation(1).is_none() && records.revocation(3).is_none());
    let (stripe, says) = records.revocation(2).expect("it has failed");
    assert_eq!((stripe, says.number, says.tail), (6, 2, 1));
    let proof = Durable::found((), 0).proof(|()| true).expect("it is so");
    records.free_before(3, &proof);
    assert!(records.failed().is_empty() && records.live.len() == 1);
    assert_eq!(records.done_before(), 3);
    assert!(!records.is_free(3) && !records.is_free(0) && records.is_free(1));
}
