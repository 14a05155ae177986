//! The state of a case that outlives a daemon: the script's progress, the history of its volume,
//! the devices that hold the truth, and the report.

use super::case::{LifeEnd, SECTORS, WriteBackCase};
use super::history::{Earlier, VolumeHistory};
use super::replay::replay;
use super::report::{Landing, Report};
use crate::stamp::{self, Value};
use block::{Nanos, Pool, RangeLock, SECTOR_BYTES, Sectors, TargetId, Timer};
use layout::{BLOCK_SECTORS, LOG_AREA, Uuid};
use sim::{Medium, SimWorld, WorldControl};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use writelog::{Cleaning, LogStanding, Members, NotRecorded, Stages};

/// Memory of a replay, which takes one record at once.
const MEMORY_BYTES: usize = 2 << 20;

pub(super) struct WriteBackBench {
    pub(super) case: WriteBackCase,
    pub(super) origin: TargetId,
    pub(super) copies: [TargetId; 2],
    pub(super) journal: Option<TargetId>,
    pub(super) history: RefCell<VolumeHistory>,
    pub(super) report: RefCell<Report>,
    pub(super) control: WorldControl,
    /// Keeps operations of clients that overlap apart, so that the history knows their order.
    pub(super) lock: RangeLock,
    pub(super) stages: Rc<Stages>,
    medium: Medium,
    journal_medium: Option<Medium>,
    /// The journal that is replayed, known durably.
    journal_uuid: Cell<Option<Uuid>>,
    /// The memory of replays.
    memory: Pool,
    next: Cell<usize>,
    incarnation: Cell<u32>,
    version: Cell<Value>,
    plugged: [Cell<bool>; 2],
    /// The content of the device is not the truth, known durably.
    lost: [Cell<bool>; 2],
    /// The device holds all acknowledged writes, unless it loses its power.
    whole: [Cell<bool>; 2],
    /// In this life a write was acknowledged that the log does not have.
    direct: Cell<bool>,
    /// Such writes went with the origin's power, and no client has read their sectors since.
    unread: Cell<bool>,
    landed: RefCell<Vec<Landing>>,
    /// Clients are served.
    pub(super) serving: Cell<bool>,
}

/// A life, looked at when dropped, before any part of the life is.
pub(super) struct WatchedLife<F> {
    // Fields are dropped in this order.
    _look: LogLastLook,
    work: Pin<Box<F>>,
}

impl<F> WatchedLife<F> {
    pub(super) fn new(bench: Rc<WriteBackBench>, work: F) -> WatchedLife<F> {
        WatchedLife {
            _look: LogLastLook(bench),
            work: Box::pin(work),
        }
    }
}

impl<F: Future> Future for WatchedLife<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.work.as_mut().poll(cx)
    }
}

struct LogLastLook(Rc<WriteBackBench>);

impl Drop for LogLastLook {
    fn drop(&mut self) {
        self.0.look();
    }
}

impl WriteBackBench {
    pub(super) fn new(
        case: WriteBackCase,
        origin: TargetId,
        copies: [TargetId; 2],
        journal: Option<TargetId>,
        world: &SimWorld,
    ) -> WriteBackBench {
        let medium = |disk| world.medium(disk).expect("it keeps bytes");
        WriteBackBench {
            history: RefCell::new(VolumeHistory::new(SECTORS as usize)),
            report: RefCell::default(),
            control: world.control(),
            lock: RangeLock::new(),
            stages: Rc::default(),
            medium: medium(origin),
            journal_medium: journal.map(medium),
            journal_uuid: Cell::new(None),
            memory: Pool::new(MEMORY_BYTES),
            next: Cell::new(0),
            incarnation: Cell::new(0),
            version: Cell::new(0),
            plugged: [Cell::new(true), Cell::new(true)],
            lost: Default::default(),
            whole: [Cell::new(true), Cell::new(true)],
            direct: Cell::new(false),
            unread: Cell::new(false),
            landed: RefCell::default(),
            serving: Cell::new(false),
            case,
            origin,
            copies,
            journal,
        }
    }

    pub(super) fn next_step(&self) -> Option<usize> {
        let next = self.next.get();
        let goes_on = next < self.case.steps.len() && !self.has_failed();
        goes_on.then(|| self.next.replace(next + 1))
    }

    pub(super) fn is_scripted_out(&self) -> bool {
        self.next.get() == self.case.steps.len()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.report.borrow().violation.is_some()
    }

    pub(super) fn violate(&self, what: String) {
        self.report.borrow_mut().violate(what);
    }

    pub(super) fn version(&self) -> Value {
        self.version.set(self.version.get() + 1);
        self.version.get()
    }

    /// The number of the incarnation that begins.
    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation.set(self.incarnation.get() + 1);
        self.incarnation.get()
    }

    pub(super) fn is_plugged(&self, copy: usize) -> bool {
        self.plugged[copy].get()
    }

    pub(super) fn is_trusted(&self, copy: usize) -> bool {
        !self.lost[copy].get()
    }

    /// The journal that is known durably.
    pub(super) fn journal_uuid(&self) -> Option<Uuid> {
        self.journal_uuid.get()
    }

    /// From now on `journal` is the one known durably.
    pub(super) fn begin_journal(&self, journal: Option<Uuid>) {
        self.journal_uuid.set(journal);
    }

    /// Unplugs a device, if the dirty data is elsewhere too.
    pub(super) fn unplug(&self, copy: usize) {
        let other = 1 - copy;
        if self.plugged[copy].get() && self.plugged[other].get() && !self.lost[other].get() {
            self.plugged[copy].set(false);
            self.control.kill(self.copies[copy]);
            self.report.borrow_mut().meet(Landing::Unplugged);
        }
    }

    fn plug(&self, copy: usize) {
        if !self.plugged[copy].replace(true) {
            self.control.revive(self.copies[copy]);
        }
    }

    /// Plugs the devices that the next daemon finds. A missing member is lost durably.
    pub(super) fn between_lives(&self, missing: Option<usize>) {
        self.stages_are_idle();
        (0..2).for_each(|copy| self.plug(copy));
        if let Some(copy) = missing.filter(|copy| !self.lost[1 - copy].get()) {
            self.unplug(copy);
            self.lost[copy].set(true);
            self.report.borrow_mut().meet(Landing::Missing);
        }
    }

    /// Each plugged copy of the log is current, and the daemon serves.
    pub(super) fn opened(&self, copies: usize) {
        for (whole, plugged) in self.whole.iter().zip(&self.plugged) {
            whole.set(plugged.get());
        }
        if copies == 2 {
            self.lost.iter().for_each(|lost| lost.set(false));
        } else {
            self.direct.set(true);
        }
    }

    pub(super) fn write_direct(&self) {
        self.direct.set(true);
    }

    pub(super) fn is_direct(&self) -> bool {
        self.direct.get()
    }

    /// Nothing is dirty: the origin alone has every acknowledged write.
    pub(super) fn drained(&self, dirty_bytes: u64) {
        let lag = self.judge_origin();
        if dirty_bytes > 0 || lag > Nanos::ZERO && !self.is_direct() {
            self.violate(format!("drained, and the origin lacks {lag}"));
        }
    }

    /// Checks the origin once the log has recorded that nothing is dirty: both copies may then be
    /// lost. Writes that an earlier cut took stay in the history until all is read back.
    fn has_nothing_dirty(&self) {
        let mut bytes = vec![0; (SECTORS * SECTOR_BYTES) as usize];
        self.medium.latest(block::Lba::ZERO, &mut bytes);
        match self.judged(&bytes) {
            Ok(earlier) if earlier.lag() == Nanos::ZERO || !self.serving.get() => {}
            Ok(earlier) => {
                let lag = earlier.lag();
                self.violate(format!("nothing is dirty, and the origin lacks {lag}"));
            }
            Err(what) => self.violate(format!("nothing is dirty, and of the origin {what}")),
        }
    }

    /// All sectors of changes that may have been lost have been read.
    pub(super) fn was_read(&self) {
        self.unread.set(false);
    }

    fn look(&self) {
        let mut landed = self.landed.borrow_mut();
        landed.clear();
        landed.extend(self.stages.now().map(Landing::Amid));
    }

    fn stages_are_idle(&self) {
        if let Some(stage) = self.stages.now().next() {
            self.violate(format!("{stage:?} is under way in no daemon"));
        }
    }

    /// The daemon is dead.
    pub(super) fn autopsy(&self, opening: bool) {
        let report = &mut *self.report.borrow_mut();
        report.count("power_cuts", 1);
        self.landed.take().into_iter().for_each(|l| report.meet(l));
        if opening {
            report.meet(Landing::Opening);
        }
    }

    /// Returns true if writes that were acknowledged and not flushed are kept over a loss. A device
    /// has the writes that it lost with its power again once a daemon has opened the log.
    pub(super) fn is_kept(&self, cut: &LifeEnd) -> bool {
        for copy in 0..2 {
            let found = self.plugged[copy].get() && cut.missing != Some(copy);
            if !found || cut.loss.copies[copy] || self.lost[copy].get() {
                self.whole[copy].set(false);
            }
        }
        let sound = |copy: usize| self.whole[copy].get();
        let direct_lost = cut.loss.origin && self.direct.get();
        self.unread.set(self.unread.get() || direct_lost);
        (sound(0) || sound(1)) && !direct_lost
    }

    /// The origin durably has the writes that were acknowledged without the log.
    pub(super) fn origin_flushed(&self) {
        self.direct.set(false);
    }

    /// Judges the origin alone, as if all but the journal were destroyed: the bytes that it reads,
    /// and the bytes left after a loss of its own power. Returns the lag of those bytes.
    pub(super) fn judge_origin(&self) -> Nanos {
        let mut lag = Nanos::ZERO;
        for durable in [false, true] {
            let mut bytes = vec![0; (SECTORS * SECTOR_BYTES) as usize];
            match durable {
                true => self.medium.durable(block::Lba::ZERO, &mut bytes),
                false => self.medium.latest(block::Lba::ZERO, &mut bytes),
            }
            let after = if durable {
                ", after a power cut of its own,"
            } else {
                ""
            };
            let journal = self.journal_medium.as_ref().zip(self.journal_uuid.get());
            let Some((journal, uuid)) = journal else {
                lag = lag.max(self.judge(&bytes, after));
                continue;
            };
            for journal_durable in [false, true] {
                let (mut bytes, memory) = (bytes.clone(), &self.memory);
                let half = self.case.journal.as_ref().map_or(0, |journal| journal.half);
                let sectors = Sectors((LOG_AREA + 2 * half) * BLOCK_SECTORS);
                match replay(
                    journal,
                    sectors,
                    journal_durable,
                    Some(uuid),
                    memory,
                    &mut bytes,
                ) {
                    Ok(true) => self.report.borrow_mut().meet(Landing::Replayed),
                    Ok(false) => {}
                    Err(what) => self.violate(what),
                }
                lag = lag.max(self.judge(&bytes, after));
            }
        }
        if lag > self.case.max_lag {
            let max_lag = self.case.max_lag;
            self.violate(format!(
                "the origin alone lacks {lag}, and may lack {max_lag}"
            ));
        }
        self.report.borrow_mut().count("destroyed", 1);
        lag
    }

    fn judged(&self, bytes: &[u8]) -> Result<Earlier, String> {
        let sectors = bytes.chunks_exact(SECTOR_BYTES as usize);
        let image: Vec<Option<Value>> = sectors
            .zip(0..)
            .map(|(b, sector)| stamp::read(b, sector))
            .collect();
        let history = self.history.borrow();
        match self.case.cleaning {
            Cleaning::Ordered | Cleaning::Journaled => history.judge(&image),
            Cleaning::Coalesced => history.judge_apart(&image),
        }
    }

    fn judge(&self, bytes: &[u8], after: &str) -> Nanos {
        let no = match self.case.cleaning {
            Cleaning::Ordered | Cleaning::Journaled => "no earlier state",
            Cleaning::Coalesced => "nothing that was written",
        };
        match self.judged(bytes) {
            Ok(earlier) if self.direct.get() || self.unread.get() => {
                earlier.lag().min(self.case.max_lag)
            }
            Ok(earlier) => earlier.lag(),
            Err(what) => {
                self.violate(format!("the origin alone{after} is {no}: {what}"));
                Nanos::ZERO
            }
        }
    }
}

/// The bench as the daemon sees it: its records of members are durable after a while.
pub(super) struct BenchLedger(pub(super) Rc<WriteBackBench>, pub(super) Timer);

impl Members for BenchLedger {
    fn record(
        &self,
        standing: LogStanding,
    ) -> Pin<Box<dyn Future<Output = Result<(), NotRecorded>> + '_>> {
        Box::pin(async move {
            self.1.sleep(self.0.case.reporting).await;
            for copy in (0..2).filter(|copy| !standing.copies[*copy]) {
                self.0.lost[copy].set(true);
                self.0.write_direct();
            }
            if standing.forsaken {
                self.0.begin_journal(None);
            }
            if !standing.may_be_dirty {
                self.0.has_nothing_dirty();
            }
            Ok(())
        })
    }
}
