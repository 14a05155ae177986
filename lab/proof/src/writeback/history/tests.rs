//! The checker beside a disk with a volatile cache that is played through.

use super::*;
use sim::SimRng;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Event {
    Begin(Range<usize>, Value),
    /// The number of the operation, and true for forced unit access.
    Answer(usize, bool),
    BeginFlush,
    EndFlush(usize),
    /// True if answered writes are kept.
    Cut(bool),
    Settle(usize, Value),
}

/// A disk, event by event: the values that its medium may hold at every instant.
#[derive(Default)]
struct Disk {
    /// Sectors, value, answered in which round, certain.
    writes: Vec<(Range<usize>, Value, Option<usize>, bool)>,
    began: Vec<usize>,
    flushes: Vec<usize>,
    /// For each sector the writes that may be on the medium; `usize::MAX` the first zeroes.
    medium: Vec<BTreeSet<usize>>,
    images: BTreeSet<Vec<Value>>,
}

impl Disk {
    fn play(sectors: usize, events: &[Event]) -> BTreeSet<Vec<Value>> {
        let mut disk = Disk {
            medium: vec![BTreeSet::from([usize::MAX]); sectors],
            ..Disk::default()
        };
        disk.photograph();
        for (round, event) in events.iter().enumerate() {
            disk.step(round, event);
            disk.photograph();
        }
        disk.images
    }

    fn step(&mut self, round: usize, event: &Event) {
        match event {
            Event::Begin(range, value) => self.write(round, range.clone(), *value),
            Event::Answer(number, fua) => {
                self.writes[*number].2 = Some(round);
                if *fua {
                    self.persist(*number);
                }
            }
            Event::BeginFlush => self.flushes.push(round),
            Event::EndFlush(flush) => {
                for number in 0..self.writes.len() {
                    let (_, _, answered, certain) = &self.writes[number];
                    if *certain && answered.is_some_and(|at| at < self.flushes[*flush]) {
                        self.persist(number);
                    }
                }
            }
            Event::Cut(kept) => {
                for (_, _, answered, certain) in &mut self.writes {
                    *certain &= answered.is_some() && *kept;
                    answered.get_or_insert(round);
                }
            }
            Event::Settle(sector, value) => {
                self.write(round, *sector..sector + 1, *value);
                let last = self.writes.len() - 1;
                self.writes[last].2 = Some(round);
            }
        }
    }

    fn write(&mut self, round: usize, range: Range<usize>, value: Value) {
        let number = self.writes.len();
        self.writes.push((range.clone(), value, None, true));
        self.began.push(round);
        range.for_each(|sector| {
            self.medium[sector].insert(number);
        });
    }

    /// The write is on the medium for good: writes that were over before its begin cannot come
    /// back.
    fn persist(&mut self, number: usize) {
        let (range, began) = (self.writes[number].0.clone(), self.began[number]);
        for sector in range {
            let writes = &self.writes;
            self.medium[sector].retain(|other| {
                *other != usize::MAX && writes[*other].2.is_none_or(|answered| answered >= began)
            });
        }
    }

    /// Adds every image that may be left if the power goes now.
    fn photograph(&mut self) {
        let mut images = vec![Vec::new()];
        for sector in &self.medium {
            let held = |n: &usize| {
                if *n == usize::MAX {
                    ZERO
                } else {
                    self.writes[*n].1
                }
            };
            let held: BTreeSet<Value> = sector.iter().map(held).collect();
            let longer = |image: &Vec<Value>, value| [&image[..], &[value]].concat();
            images = images
                .iter()
                .flat_map(|image| held.iter().map(|v| longer(image, *v)).collect::<Vec<_>>())
                .collect();
        }
        self.images.extend(images);
    }
}

fn reported(sectors: usize, events: &[Event]) -> VolumeHistory {
    let mut history = VolumeHistory::new(sectors);
    let (mut ops, mut flushes) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Begin(range, value) => ops.push(history.begin(range.clone(), *value)),
            Event::Answer(number, fua) => history.answer(ops[*number], *fua, Nanos(1)),
            Event::BeginFlush => flushes.push(history.begin_flush()),
            Event::EndFlush(number) => history.end_flush(flushes[*number]),
            Event::Cut(kept) => history.cut(*kept),
            Event::Settle(sector, value) => {
                let before = history.ops.len();
                history
                    .settle(*sector, Some(*value))
                    .expect("it was drawn from them");
                ops.extend((before..history.ops.len()).map(HistoryOp));
            }
        }
    }
    history
}

/// Compares the two on every image of the values. Returns the number of images, and of legal ones.
fn agree(sectors: usize, values: Value, events: &[Event]) -> (u64, u64) {
    let legal = Disk::play(sectors, events);
    let history = reported(sectors, events);
    let count = (values + 1).pow(sectors as u32);
    for number in 0..count {
        let image = (0..sectors as u32).map(|s| number / (values + 1).pow(s) % (values + 1));
        let image: Vec<Value> = image.collect();
        let verdict = history.judge(&image.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(
            verdict.is_ok(),
            legal.contains(&image),
            "{image:?} after {events:#?}: {verdict:?}"
        );
    }
    (count, legal.len() as u64)
}

/// All histories of up to five steps that follow each other on two sectors.
#[test]
fn every_short_history_is_judged_as_a_disk_that_is_played_through() {
    let (mut images, mut legal) = (0, 0);
    for length in 0..=5u32 {
        for number in 0..6u64.pow(length) {
            let (mut events, mut value, mut writes, mut flushes) = (Vec::new(), 0, 0, 0);
            for step in 0..length {
                let kind = number / 6u64.pow(step) % 6;
                let (range, fua) = match kind {
                    0 => (0..1, false),
                    1 => (1..2, false),
                    2 => (0..1, true),
                    3 | 4 => (0..2, false),
                    _ => {
                        events.extend([Event::BeginFlush, Event::EndFlush(flushes)]);
                        flushes += 1;
                        continue;
                    }
                };
                value += u64::from(kind != 4);
                let written = if kind == 4 { ZERO } else { value };
                events.extend([Event::Begin(range, written), Event::Answer(writes, fua)]);
                writes += 1;
            }
            let (all, sound) = agree(2, value, &events);
            images += all;
            legal += sound;
        }
    }
    assert!(
        legal * 5 < images * 4 && images > 100_000,
        "{legal} of {images}"
    );
}

/// Histories in which writes, flushes and cuts overlap.
#[test]
fn random_histories_are_judged_as_a_disk_that_is_played_through() {
    let (mut images, mut legal) = (0, 0);
    for seed in 0..4000 {
        let mut rng = SimRng::new(seed);
        let sectors = rng.between(1, 3) as usize;
        let (mut events, mut value) = (Vec::new(), 0);
        let (mut open, mut writes): (Vec<usize>, usize) = (Vec::new(), 0);
        let (mut flushing, mut flushes): (Vec<usize>, usize) = (Vec::new(), 0);
        while value < 5 && events.len() < 30 {
            match rng.below(12) {
                0..4 => {
                    let start = rng.below(sectors as u64) as usize;
                    let end = rng.between(start as u64 + 1, sectors as u64) as usize;
                    let zero = rng.chance(0.2);
                    value += u64::from(!zero);
                    events.push(Event::Begin(start..end, if zero { ZERO } else { value }));
                    open.push(writes);
                    writes += 1;
                }
                4..8 if !open.is_empty() => {
                    let at = rng.below(open.len() as u64) as usize;
                    events.push(Event::Answer(open.swap_remove(at), rng.chance(0.2)));
                }
                8 | 9 => {
                    events.push(Event::BeginFlush);
                    flushing.push(flushes);
                    flushes += 1;
                }
                10 if !flushing.is_empty() => {
                    let at = rng.below(flushing.len() as u64) as usize;
                    events.push(Event::EndFlush(flushing.swap_remove(at)));
                }
                11 if rng.chance(0.3) => {
                    events.push(Event::Cut(rng.chance(0.5)));
                    open.clear();
                    flushing.clear();
                    for sector in 0..sectors {
                        let allowed = reported(sectors, &events).may_read(sector);
                        if allowed.len() > 1 {
                            let value = allowed[rng.below(allowed.len() as u64) as usize];
                            events.push(Event::Settle(sector, value));
                            writes += 1;
                        }
                    }
                }
                _ => {}
            }
        }
        let (all, sound) = agree(sectors, value, &events);
        images += all;
        legal += sound;
    }
    assert!(
        legal * 2 < images && images > 200_000,
        "{legal} of {images}"
    );
}

fn written(history: &mut VolumeHistory, sector: usize, value: Value, at: u64) {
    let op = history.begin(sector..sector + 1, value);
    history.answer(op, false, Nanos(at));
}

fn flushed(history: &mut VolumeHistory) {
    let flush = history.begin_flush();
    history.end_flush(flush);
}

#[test]
fn canary_a_later_interval_without_an_earlier_one_is_found() {
    let mut history = VolumeHistory::new(2);
    written(&mut history, 0, 1, 10);
    flushed(&mut history);
    written(&mut history, 1, 2, 20);
    assert!(history.judge(&[Some(1), Some(2)]).is_ok());
    assert!(history.judge(&[Some(1), Some(0)]).is_ok());
    assert!(history.judge(&[Some(0), Some(0)]).is_ok());
    let error = history.judge(&[Some(0), Some(2)]).unwrap_err();
    assert!(
        error.contains("sector 1 holds") && error.contains("sector 0 what"),
        "{error}"
    );
    assert!(history.judge(&[Some(0), None]).is_err());
    assert!(
        history.judge(&[Some(2), Some(0)]).is_err(),
        "bytes of another place"
    );
}

#[test]
fn canary_a_lost_forced_write_and_a_half_kept_state_are_found() {
    let mut history = VolumeHistory::new(2);
    let op = history.begin(0..1, 1);
    history.answer(op, true, Nanos(1));
    written(&mut history, 1, 2, 2);
    assert!(history.judge(&[Some(0), Some(2)]).is_err());
    assert!(history.settle(0, Some(0)).is_err());
    history.cut(false);
    assert!(history.settle(0, Some(1)).is_ok());
    assert!(history.settle(1, Some(0)).is_ok(), "nothing had flushed it");
    flushed(&mut history);
    written(&mut history, 0, 3, 3);
    assert!(
        history.judge(&[Some(3), Some(2)]).is_err(),
        "it was lost, and was seen to be"
    );
}

#[test]
fn canary_a_backlog_that_is_too_old_is_reported() {
    let mut history = VolumeHistory::new(2);
    written(&mut history, 0, 1, 10);
    written(&mut history, 1, 2, 45);
    let lag = |image| history.judge(image).unwrap().lag();
    assert_eq!(lag(&[Some(0), Some(2)]), Nanos(35));
    assert_eq!(lag(&[Some(1), Some(0)]), Nanos(0));
    assert_eq!(lag(&[Some(1), Some(2)]), Nanos(0));
}

#[test]
fn canary_what_keeps_no_order_holds_what_was_written_and_lags_sector_by_sector() {
    let mut history = VolumeHistory::new(2);
    written(&mut history, 0, 1, 10);
    flushed(&mut history);
    written(&mut history, 1, 2, 20);
    written(&mut history, 0, 3, 50);
    let lag = |image| history.judge_apart(image).map(|earlier| earlier.lag());
    assert_eq!(lag(&[Some(0), Some(2)]), Ok(Nanos(40)), "the oldest counts");
    assert_eq!(lag(&[Some(1), Some(2)]), Ok(Nanos(0)));
    assert_eq!(lag(&[Some(3), Some(0)]), Ok(Nanos(30)));
    assert!(lag(&[Some(2), Some(0)]).is_err(), "bytes of another place");
    assert!(lag(&[None, Some(0)]).is_err(), "bytes that nobody wrote");
}

#[test]
fn canary_zeroes_of_two_times_that_never_were_together_are_found() {
    let mut history = VolumeHistory::new(2);
    // Both sectors are zero at first, written, and zeroed one after the other.
    for (sector, value) in [(0, 1), (1, 2), (0, ZERO), (0, 3), (1, ZERO)] {
        written(&mut history, sector, value, 1);
        flushed(&mut history);
    }
    assert!(history.judge(&[Some(0), Some(0)]).is_ok());
    assert!(history.judge(&[Some(0), Some(2)]).is_ok());
    assert!(history.judge(&[Some(3), Some(0)]).is_ok());
    assert!(history.judge(&[Some(1), Some(0)]).is_ok());
    let mut history = VolumeHistory::new(3);
    for (sector, value) in [(0, 1), (1, 2), (0, ZERO), (2, 9)] {
        written(&mut history, sector, value, 1);
        flushed(&mut history);
    }
    assert!(history.judge(&[Some(0), Some(0), Some(9)]).is_err());
}

#[test]
fn a_discarded_sector_may_hold_anything_until_it_is_written() {
    let mut history = VolumeHistory::new(1);
    written(&mut history, 0, 1, 1);
    flushed(&mut history);
    written(&mut history, 0, ANYTHING, 2);
    assert!(history.judge(&[None]).is_ok());
    assert!(history.settle(0, None).is_err(), "a client reads bytes");
    assert!(history.settle(0, Some(77)).is_ok());
    written(&mut history, 0, 4, 3);
    flushed(&mut history);
    assert!(history.settle(0, Some(1)).is_err() && history.settle(0, Some(4)).is_ok());
    assert!(
        history.judge(&[None]).is_ok(),
        "as of before it was written"
    );
}
