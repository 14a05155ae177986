//! The effect of write-back on a volume, and the size of its log. Sources are the writes and
//! flushes of a trace, in one pass and in bounded memory, or the daemon's counters of a running
//! volume (`volume`).
//!
//! The load of each order of write-back on the origin is played through (`lane`). The limits are
//! those of a volume that is not configured otherwise, above all a `max_lag` of 30 s.
//!
//! Not here: how writes compare in latency, which no trace has; hits of the pool (`sizing`).

mod found;
mod lane;
mod origin;
mod overwritten;
mod rates;
mod shown;
mod verdict;
mod volume;

pub use found::{JournalGain, LogGain, ModeGain, WriteBackGain};
pub use origin::OriginTakes;
pub use rates::{Intervals, Rate};
pub(crate) use shown::section;
pub use shown::{mode_rows, pattern, rate_rows};
pub(crate) use volume::of_volume;

use block::{IoResult, Nanos};
use lane::{CleanerLane, LaneSums, MAX_LAG};
use layout::{BLOCK_BYTES, SEGMENT_BLOCKS};
use origin::CleanedOrigin;
use overwritten::Overwritten;
use rates::{IntervalCounts, WriteRates};
use trace::{RecordOp, TraceRecord};

const BLOCK: u64 = BLOCK_BYTES as u64;
const SEGMENT_BYTES: u64 = SEGMENT_BLOCKS as u64 * BLOCK;
/// Pacing begins at half of the room, and a window takes a quarter of the room: as `writelog`.
const PACED: u64 = 2;
const WINDOWS: u64 = 4;
/// Room beside that for data: the superblocks, four reserved segments, and one segment that is
/// partly done.
const BESIDE_BYTES: u64 = 6 * SEGMENT_BYTES;
/// The smallest device that a log or a journal may have.
const DEVICE_BYTES_MIN: u64 = 9 << 20;
/// A journal has two halves, each with room for the longest window and its notes.
const JOURNAL_BYTES: u64 = 2 * (65 << 20) + SEGMENT_BYTES;
/// Flushes of a journal for a group: of its blocks, and of its commit.
const JOURNAL_FLUSHES: u64 = 2;
const DAY_SECONDS: f64 = 86_400.0;
const VOLUMES_MAX: usize = 64;

/// Takes requests one by one.
pub struct Collector {
    began: Option<Nanos>,
    last: Nanos,
    requests: u64,
    writes: u64,
    forced: u64,
    flushes: u64,
    /// Volumes seen, [`VOLUMES_MAX`] at most.
    volumes: Vec<u32>,
    rates: WriteRates,
    intervals: IntervalCounts,
    overwritten: Overwritten,
    ordered: CleanerLane,
    windows: CleanerLane,
}

impl Collector {
    /// Creates a collector for an origin of such a rate; `Err` if its model has impossible
    /// parameters.
    pub fn new(takes: &OriginTakes) -> IoResult<Collector> {
        Ok(Collector {
            began: None,
            last: Nanos::ZERO,
            requests: 0,
            writes: 0,
            forced: 0,
            flushes: 0,
            volumes: Vec::new(),
            rates: WriteRates::default(),
            intervals: IntervalCounts::default(),
            overwritten: Overwritten::new(MAX_LAG),
            ordered: CleanerLane::new(lane::BatchTakes::Interval, CleanedOrigin::new(takes)?),
            windows: CleanerLane::new(lane::BatchTakes::Window, CleanedOrigin::new(takes)?),
        })
    }

    /// Adds a request or a flush; none is earlier than the one before.
    pub fn add(&mut self, record: &TraceRecord) {
        let began = *self.began.get_or_insert(record.time);
        let now = record.time.since(began);
        self.last = now;
        if record.is_flush() {
            self.flushes += 1;
            self.intervals.close();
            self.ordered.flush();
            return;
        }
        self.requests += 1;
        if record.op == RecordOp::Read {
            return;
        }
        let blocks = record.blocks(BLOCK);
        // Each volume has all block numbers of 64 bits of bytes for itself.
        let base = self.volume(record.volume) << 52;
        let blocks = base + blocks.start()..base + blocks.end() + 1;
        self.writes += 1;
        self.rates.write(now, u64::from(record.len_bytes));
        self.intervals.write(blocks.end - blocks.start);
        for block in blocks.clone() {
            self.overwritten.write(now, block);
        }
        self.windows.write(now, blocks.clone(), record.forced);
        self.ordered.write(now, blocks, record.forced);
        if record.forced {
            self.forced += 1;
            self.intervals.close();
        }
    }

    /// The place of a volume among those seen; volumes beyond the limit share the last.
    fn volume(&mut self, volume: u32) -> u64 {
        let seen = self.volumes.iter().position(|other| *other == volume);
        let place = seen.unwrap_or_else(|| {
            if self.volumes.len() < VOLUMES_MAX {
                self.volumes.push(volume);
            }
            self.volumes.len() - 1
        });
        place as u64
    }

    /// Returns the result.
    pub fn finish(self) -> WriteBackGain {
        let seconds = self.last.as_secs_f64();
        let timed = seconds > 0.0;
        let [mean, busiest_second, busiest_30_seconds] = match timed {
            true => self.rates.finish(seconds),
            false => [Rate::default(); 3],
        };
        let through = ModeGain {
            mode: "write-through",
            origin_writes_per_second: mean.writes_per_second,
            origin_bytes_per_second: mean.bytes_per_second,
            origin_flushes_per_second: (self.flushes + self.forced) as f64 / seconds,
            log: None,
        };
        let ordered = mode("ordered", seconds, self.ordered.finish(), PACED);
        let coalesced = mode("coalesced", seconds, self.windows.finish(), WINDOWS);
        let journaled = journaled(&coalesced);
        let mut write_back = WriteBackGain {
            verdict: String::new(),
            seconds,
            requests: self.requests,
            writes: self.writes,
            forced_writes: self.forced,
            flushes: self.flushes,
            mean,
            busiest_second,
            busiest_30_seconds,
            intervals: self.intervals.finish(),
            overwritten_share: Some(self.overwritten.share()),
            modes: match timed && self.writes > 0 {
                true => vec![through, ordered, journaled, coalesced],
                false => Vec::new(),
            },
            notes: notes(self.writes, self.flushes + self.forced, self.volumes.len()),
        };
        write_back.verdict = verdict::of(&write_back);
        write_back
    }
}

/// A mode of which a batch has `1 / batches` of the room at most.
fn mode(
    name: &'static str,
    seconds: f64,
    (sums, end): (LaneSums, Nanos),
    batches: u64,
) -> ModeGain {
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let carried_bytes = (sums.carried * BLOCK) as f64;
    let busy = sums.busy.as_secs_f64();
    // Data that is dirty at the end is written back after the end.
    let whole = seconds.max(end.as_secs_f64());
    let held_bytes_max = sums.log_dirty_max * BLOCK;
    let batch_bytes_max = sums.log_batch_max * BLOCK;
    ModeGain {
        mode: name,
        origin_writes_per_second: sums.writes as f64 / whole,
        origin_bytes_per_second: carried_bytes / whole,
        origin_flushes_per_second: sums.flushes as f64 / whole,
        log: Some(LogGain {
            unpaced_share: share(sums.answered, sums.asked),
            behind_share: sums.behind.as_secs_f64() / whole,
            origin_busy: busy / whole,
            origin_bytes_per_second_max: if busy > 0.0 {
                carried_bytes / busy
            } else {
                0.0
            },
            absorbed_share: Some(share(sums.changed - sums.carried, sums.changed)),
            held_bytes_max,
            device_bytes: device_bytes(held_bytes_max, batch_bytes_max, batches),
            device_bytes_per_day: (sums.log_written * BLOCK) as f64 / seconds * DAY_SECONDS,
            journal: None,
        }),
    }
}

/// Size of a log device that holds at most so many bytes, of which so many in one batch. A batch
/// has `1 / batches` of the room.
fn device_bytes(held_bytes_max: u64, batch_bytes_max: u64, batches: u64) -> u64 {
    let room = (PACED * held_bytes_max).max(batches * batch_bytes_max);
    let device = room.next_multiple_of(SEGMENT_BYTES) + BESIDE_BYTES;
    device.max(DEVICE_BYTES_MIN)
}

/// As `coalesced`, but with a journal that gets all writes before the origin.
fn journaled(coalesced: &ModeGain) -> ModeGain {
    let mut journaled = ModeGain {
        mode: "journaled",
        ..coalesced.clone()
    };
    let log = journaled.log.as_mut().expect("it is write-back");
    log.journal = Some(JournalGain {
        device_bytes: JOURNAL_BYTES,
        bytes_per_second: coalesced.origin_bytes_per_second,
        flushes_per_second: JOURNAL_FLUSHES as f64 * coalesced.origin_flushes_per_second,
    });
    journaled
}

fn notes(writes: u64, closed: u64, volumes: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if writes == 0 {
        return notes;
    }
    notes.push("write latency is not known: a trace has none".to_owned());
    if closed == 0 {
        notes.push(
            "no flush or forced write is in the trace: if clients send any, `ordered` gives the \
             origin more writes and flushes than this"
                .to_owned(),
        );
    }
    if volumes > 1 {
        let many = if volumes == VOLUMES_MAX {
            " or more"
        } else {
            ""
        };
        notes.push(format!(
            "{volumes}{many} volumes of the trace are taken as one; each needs a log of its own"
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
