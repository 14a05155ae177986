//! An opening: turns the result of a `scan` into a log again.
//!
//! An opening writes nothing until its caller has judged every reason to refuse. So any number of
//! refused attempts leave the log unchanged. Before anything is served, records of one copy are
//! written to the other, all copies are flushed, and a fence is durable. From then on records past
//! the hole, and records of a copy that was away, are void. A copy that lacks a record of the log
//! does not count.

use super::copies::{CopyArea, LogCopies};
use super::journal::WriteJournal;
use super::missing::listed;
use super::scan::{FoundRecord, OwnLog, Scan, Scrutiny, scan};
use super::stage::LogStage;
use super::standing::Standings;
use super::state::{CleanerCursor, LiveSegment, LogState, SEGMENTS_MIN};
use super::{Config, Members, WriteBack, WriteBackShared, clean, mark};
use block::{
    BoxDevice, Device, Env, Geometry, IoError, IoErrorKind, IoResult, Nanos, Sectors, Signal,
};
use layout::{BLOCK_BYTES, BLOCK_SECTORS, LOG_NUMBER, SEGMENT_BLOCKS, SummaryWriter};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Reads the remains of a log. A copy that cannot be read is lost, if the other has everything.
async fn scanned<P: Device>(
    config: &Config,
    journal: Option<&WriteJournal<P>>,
    copies: &LogCopies<P>,
    env: &Env,
) -> IoResult<Scan> {
    let mut ours = OwnLog {
        pool: config.log,
        log: LOG_NUMBER,
        incarnation: config.incarnation,
        scrutiny: config.scrutiny,
        asked: config.asked,
        pending_to: pending_to(journal),
    };
    loop {
        match scan(&ours, copies, env).await {
            Ok(scan) => return Ok(scan),
            Err((copy, error)) if copies.has_all(1 - copy) => {
                if copies.is_trusted(copy) {
                    ours.scrutiny = Scrutiny::Alone;
                }
                copies.standing.lose(copy, error);
            }
            Err((_, error)) => return Err(error),
        }
    }
}

impl<P: Device> WriteBack<P> {
    /// Opens a log, or begins one in areas that hold none, in front of `origin`. Nothing is written
    /// before [`WriteBack::establish`]; reads work at once. An absent area is a lost copy, as far
    /// as `members` know.
    pub async fn open(
        mut config: Config,
        env: Env,
        members: Rc<dyn Members>,
        areas: [Option<CopyArea<P>>; 2],
        journal: Option<WriteJournal<P>>,
        origin: BoxDevice,
    ) -> IoResult<WriteBack<P>> {
        check(&config, &areas, &origin)?;
        fits(journal.as_ref(), &config)?;
        let changed = Rc::default();
        let stages = config.stages.clone();
        let copies = LogCopies::new(
            areas,
            members,
            env.clone(),
            Rc::clone(&changed),
            stages.clone(),
        );
        let mut scan = {
            let _under = stages.enter(LogStage::Scan);
            scanned(&config, journal.as_ref(), &copies, &env).await?
        };
        if !config.may_be_dirty {
            scan.forget();
        }
        let missing = std::mem::take(&mut scan.missing);
        if !missing.is_empty() && !config.asked {
            let what = format!(
                "of the write-back log no device that is here has record {}, which was there",
                listed(&missing)
            );
            return Err(IoError::new(IoErrorKind::Corrupt, what));
        }
        let written_at = scan.records.values().map(|found| found.record.written_at);
        // A clock that was set back would make dirty data younger.
        let newest = Nanos(written_at.max().unwrap_or(0));
        config.epoch = config.epoch.max(newest - env.timer.now());
        let state = state(&scan, copies.segments(), config.max_lag);
        let geometry = logged(origin.geometry());
        let log = Rc::new(WriteBackShared {
            config,
            env,
            origin,
            geometry,
            copies,
            journal,
            state: RefCell::new(state),
            changed,
            flushed: Signal::default(),
            stages,
            pace: RefCell::default(),
            turns: Signal::default(),
            read_at: Cell::new(None),
            carried: Cell::new(0),
            pressed: Cell::new(0),
            closing: Cell::new(false),
            retiring: Cell::new(false),
            sealed: Cell::new(false),
            tasks: Cell::new(0),
            found: RefCell::new(Some(scan)),
            missing,
            trouble: RefCell::new(None),
        });
        Ok(WriteBack(log))
    }

    /// Records this incarnation for later ones, and completes each copy from the other. On return
    /// the log may be written.
    pub async fn establish(&self) -> IoResult {
        let log = &self.0;
        if let Some(journal) = &log.journal {
            journal.establish().await?;
        }
        let copies = &log.copies;
        copies
            .standing
            .establish(|copy| copies.is_trusted(copy))
            .await?;
        let found = log.found.take().expect("it is established once");
        {
            let _under = log.stages.enter(LogStage::Double);
            log.double(&found).await?;
        }
        let _under = log.stages.enter(LogStage::Fence);
        log.fence().await
    }

    /// True if the log has no room for a fence and a note of `written_back_to`, which it needs to
    /// go on.
    pub fn is_full(&self) -> bool {
        let state = self.0.state.borrow();
        let last = state.segments.back().filter(|_| state.may_resume());
        let rest = last.map_or(0, |last| SEGMENT_BLOCKS - last.used);
        rest < 2 && state.free.is_empty()
    }

    /// Makes durable that the present copies hold the dirty data, and that data may be dirty; then
    /// starts to write back. `Err`: no task runs.
    pub async fn begin(&self) -> IoResult {
        self.0.copies.standing.begin();
        self.run(async |log| log.copies.standing.run(|| log.closing.get()).await);
        let begun = self.0.copies.standing.until(Standings::is_durable).await;
        match begun {
            Ok(()) => {
                self.run(async |log| clean::run(log).await);
                self.run(async |log| mark::run(log).await);
            }
            Err(_) => self.close().await,
        }
        begun
    }

    fn run(&self, work: impl AsyncFnOnce(&Rc<WriteBackShared<P>>) + 'static) {
        let log = self.0.clone();
        log.tasks.set(log.tasks.get() + 1);
        self.0.env.spawn.spawn(async move {
            work(&log).await;
            log.tasks.set(log.tasks.get() - 1);
            log.changed.notify();
        });
    }
}

/// Geometry of a volume with a log, by that of its `origin`.
pub fn logged(origin: &Geometry) -> Geometry {
    Geometry {
        block: Sectors(BLOCK_SECTORS),
        volatile: true,
        ..origin.clone()
    }
}

/// Refuses a configuration that could not keep the promise.
fn check<P: Device>(
    config: &Config,
    areas: &[Option<CopyArea<P>>; 2],
    origin: &BoxDevice,
) -> IoResult {
    let invalid = |what: String| Err(IoError::new(IoErrorKind::Invalid, what));
    let geometry = origin.geometry();
    if !geometry.sectors.0.is_multiple_of(BLOCK_SECTORS) {
        return invalid(format!(
            "{}: write-back needs a size that is a multiple of 4 KiB",
            geometry.name
        ));
    }
    if config.max_lag == Nanos::ZERO || config.dirty_max < 1 << 20 {
        return invalid("write-back needs a `max_lag` over 0 and a `dirty_max` of 1 MiB".into());
    }
    let name = |area: &CopyArea<P>| area.device.geometry().name.to_string();
    if let [Some(a), Some(b)] = areas
        && a.domain == b.domain
    {
        return invalid(format!(
            "write-back needs two controllers; {} and {} have {}",
            name(a),
            name(b),
            a.domain
        ));
    }
    if !areas.iter().flatten().any(|area| area.trusted) {
        return invalid("write-back needs a member that may hold dirty data".into());
    }
    if let Some(small) = areas.iter().flatten().find(|a| a.segments < SEGMENTS_MIN) {
        return invalid(format!(
            "{}: a write-back log needs {SEGMENTS_MIN} MiB",
            name(small)
        ));
    }
    Ok(())
}

/// Refuses a journal of another log.
fn fits<P: Device>(journal: Option<&WriteJournal<P>>, config: &Config) -> IoResult {
    if journal.is_some_and(|journal| journal.superblock().log != config.log) {
        let what = "the journal is of another write-back log; give the journal of this one";
        return Err(IoError::new(IoErrorKind::Invalid, what));
    }
    Ok(())
}

/// Number before which the log has, or had, every record: the journal has them.
fn pending_to<P: Device>(journal: Option<&WriteJournal<P>>) -> u64 {
    let pending = journal.and_then(WriteJournal::pending);
    pending.map_or(0, |pending| pending.to)
}

/// State of the log before its fence.
fn state(scan: &Scan, slots: u32, max_lag: Nanos) -> LogState {
    let mut state = LogState {
        next: scan.written_back_to,
        fence: scan.written_back_to,
        completed_to: scan.written_back_to,
        both_to: 0,
        marked_to: 0,
        durable_to: scan.written_back_to,
        written_back_to: scan.written_back_to,
        last_write_end: 0,
        queue: Default::default(),
        flights: VecDeque::new(),
        segments: VecDeque::new(),
        summary: None,
        free: VecDeque::new(),
        next_segment: scan.next_segment,
        cursor: CleanerCursor {
            segment: 0,
            offset: 1,
            number: scan.written_back_to,
        },
        interval: 0,
        interval_used: false,
        index: Default::default(),
        ages: VecDeque::new(),
        turning: false,
    };
    for (number, found) in &scan.records {
        let record = &found.record;
        if state
            .segments
            .back()
            .is_none_or(|s| s.number != record.segment)
        {
            state.segments.push_back(LiveSegment {
                number: record.segment,
                slot: found.slot,
                first: *number,
                used: found.offset,
                readers: 0,
            });
        }
        if *number == scan.written_back_to {
            (state.cursor.segment, state.cursor.offset) = (record.segment, found.offset);
        }
        state.segments.back_mut().expect("there is one").used = found.offset + record.blocks();
        if !record.extents.is_empty() {
            state.age(*number, Nanos(record.written_at), max_lag);
        }
        state.interval = state.interval.max(record.interval + 1);
        state.next = number + 1;
    }
    if let Some(last) = state.segments.back() {
        let records = scan.records.range(last.first..);
        state.summary = Some(summary(records.map(|(_, found)| found)));
    }
    let data_at = |found: &FoundRecord| found.slot * SEGMENT_BLOCKS + found.offset + 1;
    let records = scan.records.values();
    let records = records.map(|found| (&found.record, data_at(found)));
    state.index.fill(records);
    state.completed_to = state.next;
    state.fence = state.next;
    let live: BTreeSet<u32> = state.segments.iter().map(|live| live.slot).collect();
    state.free = (0..slots).filter(|slot| !live.contains(slot)).collect();
    state
}

/// Summary of a segment with these records, to be filled further.
fn summary<'a>(records: impl Iterator<Item = &'a FoundRecord> + Clone) -> SummaryWriter {
    let first = records.clone().next().expect("a live segment has one");
    let (segment, number) = (first.record.segment, first.record.number);
    let mut summary = SummaryWriter::new(segment, number, first.offset);
    records.for_each(|found| summary.push(&found.record));
    summary
}

impl<P: Device> WriteBackShared<P> {
    /// Makes every segment of the log whole on all copies, durably.
    async fn double(&self, scan: &Scan) -> IoResult {
        let live: Vec<_> = {
            let state = self.state.borrow();
            let live = state.segments.iter();
            live.map(|s| (s.number, s.slot, s.used)).collect()
        };
        let copies: Vec<usize> = self.copies.online().collect();
        for ((number, slot, used), copy) in live
            .into_iter()
            .flat_map(|segment| copies.iter().map(move |copy| (segment, *copy)))
        {
            let parts = scan.parts[&number].iter();
            let wanting = parts.filter(|part| part.offset < used && !part.sound[copy]);
            for part in wanting {
                let at = slot * SEGMENT_BLOCKS + part.offset;
                if part.sound[1 - copy] {
                    let buf = self.env.pool.take(part.blocks as usize * BLOCK_BYTES);
                    let (buf, read) = self.copies.read(1 - copy, at, buf).await;
                    match read {
                        Ok(()) => self.copies.write_one(copy, at, buf.share()).await,
                        // The copy to be completed had no valid records; the log goes on without
                        // it.
                        Err(error) if !self.copies.has_all(copy) => {
                            self.copies.standing.lose(copy, error);
                        }
                        Err(error) => return Err(error),
                    }
                } else if part.offset == 0 {
                    let mut buf = self.env.pool.take(BLOCK_BYTES);
                    let header = self.segment(number, slot, None);
                    header.encode(self.config.log, &mut buf);
                    self.copies.write_one(copy, at, buf.share()).await;
                }
            }
        }
        self.salvage(scan, &copies).await;
        // The old header would count at a later opening that can read it.
        let free = |slot: &u32| self.state.borrow().free.contains(slot);
        for (slot, copy) in scan.unreadable.iter().filter(|(slot, _)| free(slot)) {
            self.blank(*copy, slot * SEGMENT_BLOCKS).await;
        }
        self.flush_log().await
    }

    /// Takes records that no trusted copy has whole from a copy that is not trusted. A copy that
    /// lacks one too cannot be made whole: the log goes on without it.
    async fn salvage(&self, scan: &Scan, copies: &[usize]) {
        let mut untrusted = copies.iter().filter(|copy| !self.copies.is_trusted(**copy));
        let Some(copy) = untrusted.next().copied() else {
            return;
        };
        for found in scan.damaged() {
            let at = found.slot * SEGMENT_BLOCKS + found.offset;
            let blocks = found.record.blocks() as usize;
            let buf = self.env.pool.take(blocks * BLOCK_BYTES);
            let (buf, read) = self.copies.read(copy, at, buf).await;
            if read.is_ok() && found.is_whole_in(&buf, self.config.log) {
                self.copies.write_one(1 - copy, at, buf.share()).await;
                continue;
            }
            // A void record of that number would count for a cleaner that tries this copy too.
            self.blank(copy, at).await;
            let number = found.record.number;
            let what = format!("no device has record {number} of the write-back log whole");
            let error = IoError::new(IoErrorKind::Corrupt, what);
            self.copies.standing.lose(copy, error);
        }
    }

    /// Zeroes a block of a copy.
    async fn blank(&self, copy: usize, at: u32) {
        let mut buf = self.env.pool.take(BLOCK_BYTES);
        buf.fill(0);
        self.copies.write_one(copy, at, buf.share()).await;
    }

    /// Makes void, durably, all records of earlier incarnations from here on. The fence follows the
    /// last valid record where possible, so that an opening costs a block and no segment.
    async fn fence(&self) -> IoResult {
        let begun = !self.state.borrow().segments.is_empty();
        if !begun {
            self.start_segment().await?;
            let state = &mut *self.state.borrow_mut();
            state.cursor.segment = state.segments[0].number;
        } else if !self.state.borrow().may_resume() {
            self.start_segment().await?;
        }
        let written_back_to = self.state.borrow().written_back_to;
        self.append_note(written_back_to).await;
        self.flush_log().await
    }
}
