//! The parts of a case of write-back, drawn from its seed.

use block::{Nanos, Sectors};
use layout::JOURNAL_HALF_MIN;
use sim::{Domain, ServiceSpan, SimRng};
use std::ops::Range;
use writelog::{Cleaning, LogStage};

/// The power domain of the origin.
pub(super) const ORIGIN: Domain = Domain(1);
/// The power domains of the two devices of the pool.
pub(super) const COPIES: [Domain; 2] = [Domain(2), Domain(4)];
/// The power domain of the journal.
pub(super) const JOURNAL: Domain = Domain(5);
/// The daemon's own "power domain": a kill of the process.
pub(super) const DAEMON: Domain = Domain(3);

/// The size of the volume.
pub(super) const SECTORS: u64 = 4096;
/// Segments of each copy of the log: at the least, and where windows are long.
const SEGMENTS: [u32; 2] = [8, 24];
/// Most bytes that the origin may lack, likewise.
const DIRTY_MAX: [u64; 2] = [1 << 20, 8 << 20];

/// Blocks of each half of a journal, at the least and with room.
const HALVES: [u64; 2] = [JOURNAL_HALF_MIN, 3 * JOURNAL_HALF_MIN];

/// One step of a client's script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteBackStep {
    /// Reads sectors.
    Read(Range<u64>),
    /// Writes sectors; `true` forces unit access.
    Write(Range<u64>, bool),
    /// Zeroes sectors.
    Zero(Range<u64>),
    /// Discards sectors.
    Discard(Range<u64>),
    /// Flushes.
    Flush,
    /// Does nothing for a time.
    Pause(Nanos),
    /// Writes back all dirty data.
    Drain,
    /// Unplugs a device of the pool.
    Unplug(usize),
}

/// The parts that stop with the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifeLoss {
    /// The origin loses its power.
    pub origin: bool,
    /// Devices of the pool lose their power.
    pub copies: [bool; 2],
    /// The journal loses its power.
    pub journal: bool,
}

/// The end of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifeEnd {
    /// Disk steps after the life began; with `amid`, microseconds.
    pub after: u64,
    /// The stage that the cut waits for after that.
    pub amid: Option<LogStage>,
    /// The parts that stop.
    pub loss: LifeLoss,
    /// The device of the pool that the next daemon does not find.
    pub missing: Option<usize>,
}

/// A case.
#[derive(Clone, Debug)]
pub struct WriteBackCase {
    /// Seeds the world.
    pub seed: u64,
    /// The order of write-back.
    pub cleaning: Cleaning,
    /// Steps in progress at once.
    pub clients: u64,
    /// The script, over all lives.
    pub steps: Vec<WriteBackStep>,
    /// The end of each life but the last.
    pub cuts: Vec<LifeEnd>,
    /// Service times of the origin.
    pub origin_time: ServiceSpan,
    /// Service times of the pool.
    pub pool_time: ServiceSpan,
    /// The origin has a volatile cache.
    pub volatile: bool,
    /// The probability that a write to the origin fails.
    pub origin_fails: f64,
    /// Segments of each copy of the log.
    pub segments: u32,
    /// The engine's limit of dirty bytes.
    pub dirty_max: u64,
    /// The engine's limit of the lag.
    pub max_lag: Nanos,
    /// The engine's delay before write-back.
    pub clean_after: Nanos,
    /// Time until the loss of a device is known durably.
    pub reporting: Nanos,
    /// The journal, of a log that has one.
    pub journal: Option<JournalCase>,
}

/// A journal.
#[derive(Clone, Debug)]
pub struct JournalCase {
    /// Blocks of each half.
    pub half: u64,
    /// Service times of the journal.
    pub time: ServiceSpan,
    /// The probability that a write to the journal fails.
    pub fails: f64,
}

impl WriteBackCase {
    /// The case of `seed`.
    pub fn new(seed: u64, cleaning: Cleaning) -> WriteBackCase {
        let rng = &mut SimRng::fork(seed, 31);
        let steps = rng.between(300, 700);
        let habits = Habits::draw(rng);
        let loses = rng.chance(0.35);
        let mut script: Vec<WriteBackStep> = (0..steps).map(|_| habits.step(rng)).collect();
        if loses {
            for _ in 0..rng.between(1, 2) {
                let at = rng.below(steps) as usize;
                script[at] = WriteBackStep::Unplug(rng.below(2) as usize);
            }
        }
        let span = |rng: &mut SimRng, least: u64, most: u64| {
            let min = Nanos::from_micros(rng.between(least, most / 2));
            ServiceSpan {
                min,
                max: min + Nanos::from_micros(rng.between(1, most)),
            }
        };
        // Long windows need room and time.
        let long = usize::from(cleaning != Cleaning::Ordered && rng.chance(0.6));
        let lag_max = [20_000, 200_000][long];
        let cuts = rng.between(1, 6);
        WriteBackCase {
            seed,
            cleaning,
            clients: rng.between(1, 6),
            steps: script,
            cuts: (0..cuts).map(|_| cut(rng, loses, cleaning)).collect(),
            origin_time: span(rng, 4, 200),
            pool_time: span(rng, 1, 8),
            volatile: rng.chance(0.8),
            origin_fails: if rng.chance(0.1) { 0.02 } else { 0.0 },
            segments: SEGMENTS[long],
            dirty_max: DIRTY_MAX[long],
            max_lag: Nanos::from_micros(rng.between(500, lag_max)),
            clean_after: Nanos::from_micros(if rng.chance(0.5) { 0 } else { rng.below(5000) }),
            reporting: Nanos::from_micros(rng.between(1, 300)),
            journal: (cleaning == Cleaning::Journaled).then(|| JournalCase {
                half: HALVES[usize::from(rng.chance(0.5))],
                time: span(rng, 4, 200),
                fails: if rng.chance(0.3) { 0.02 } else { 0.0 },
            }),
        }
    }
}

fn cut(rng: &mut SimRng, loses: bool, cleaning: Cleaning) -> LifeEnd {
    let stages = LogStage::of(cleaning);
    let amid = rng.chance(0.5).then(|| match rng.below(4) {
        0 if loses && cleaning == Cleaning::Journaled => {
            [LogStage::Loss, LogStage::Degraded, LogStage::Retire][rng.below(3) as usize]
        }
        1 if cleaning == Cleaning::Journaled && rng.chance(0.3) => LogStage::Forsake,
        0 if loses => [LogStage::Loss, LogStage::Degraded][rng.below(2) as usize],
        _ => stages[rng.below(stages.len() as u64) as usize],
    });
    // A cut amid a rare stage waits for that stage from early on.
    let common = !matches!(
        amid,
        Some(
            LogStage::Loss
                | LogStage::Degraded
                | LogStage::SegmentStart
                | LogStage::Drain
                | LogStage::Scan
                | LogStage::Double
                | LogStage::Fence
                | LogStage::Retire
                | LogStage::Forsake
                | LogStage::Redo
        )
    );
    let after = match rng.below(4) {
        _ if !common => rng.between(0, 100),
        0 => rng.between(1, 120),
        1 => rng.between(1, 600),
        _ => rng.between(1, 4000),
    };
    let loss = match rng.below(8) {
        0 | 1 => [false, false],
        2 => [true, false],
        3 => [false, true],
        _ => [true, true],
    };
    let mut cut = LifeEnd {
        after,
        amid,
        loss: LifeLoss {
            origin: rng.chance(0.4),
            copies: loss,
            journal: false,
        },
        missing: (loses && rng.chance(0.3)).then(|| rng.below(2) as usize),
    };
    cut.loss.journal = cleaning == Cleaning::Journaled && rng.chance(0.4);
    cut
}

/// The habits of a case's clients.
struct Habits {
    /// The sectors in use, from the first.
    reach: u64,
    flush: f64,
    forced: f64,
    clear: f64,
    pause: f64,
    long: f64,
}

impl Habits {
    fn draw(rng: &mut SimRng) -> Habits {
        let some = |rng: &mut SimRng, most: f64| if rng.chance(0.6) { most } else { most / 8.0 };
        Habits {
            reach: [64, 512, SECTORS][rng.below(3) as usize],
            flush: some(rng, 0.3),
            forced: some(rng, 0.3),
            clear: some(rng, 0.1),
            pause: some(rng, 0.1),
            long: some(rng, 0.2),
        }
    }

    fn range(&self, rng: &mut SimRng) -> Range<u64> {
        let aligned = rng.chance(0.7);
        let most = if rng.chance(self.long) { 1400 } else { 24 };
        let len = rng.between(1, most.min(self.reach));
        let len = if aligned {
            len.next_multiple_of(8)
        } else {
            len
        };
        let start = rng.below(self.reach - len.min(self.reach) + 1);
        let start = if aligned { start / 8 * 8 } else { start };
        start..(start + len).min(SECTORS)
    }

    fn step(&self, rng: &mut SimRng) -> WriteBackStep {
        if rng.chance(self.flush) {
            return WriteBackStep::Flush;
        }
        if rng.chance(self.pause) {
            return WriteBackStep::Pause(Nanos::from_micros(rng.between(1, 2000)));
        }
        if rng.chance(0.01) {
            return WriteBackStep::Drain;
        }
        let range = self.range(rng);
        if rng.chance(self.clear) {
            return match rng.chance(0.6) {
                true => WriteBackStep::Zero(range),
                false => WriteBackStep::Discard(range),
            };
        }
        match rng.chance(0.25) {
            true => WriteBackStep::Read(range),
            false => WriteBackStep::Write(range, rng.chance(self.forced)),
        }
    }
}

/// The size of the volume.
pub(super) fn size() -> Sectors {
    Sectors(SECTORS)
}
