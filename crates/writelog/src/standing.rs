//! The standing of a log, by which later incarnations know it: the valid copies, whether data may
//! be dirty, and whether the journal was given up.
//!
//! One task makes the standing durable ([`Standings::run`]). A change states the wanted standing,
//! and waits for that task.
//!
//! Invariants:
//!     a copy fails the write of its superblock ⟹ it is lost, as by any other write
//!     an attempt fails ⟹ another follows, until the wanted standing is durable or no copy is left
//!     a field of `DurableStanding` is set ⟹ every later incarnation finds that
//!
//! Not here: the superblocks (`ledger`).

use super::stage::{LogStage, Stages};
use block::{Env, IoError, IoErrorKind, IoResult, Nanos, Signal};
use futures_util::future::select;
use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::rc::Rc;

/// The pause before the next attempt.
const RETRY: Nanos = Nanos::from_secs(1);

/// The standing for later incarnations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogStanding {
    /// Copies with valid data.
    pub copies: [bool; 2],
    /// True if data may be dirty.
    pub may_be_dirty: bool,
    /// True if the journal will never be replayed.
    pub forsaken: bool,
    /// Number of records of the origin that were set.
    pub watched: u64,
}

/// Reason why a standing is not durable.
#[derive(Debug)]
pub enum NotRecorded {
    /// This copy cannot be written, and is to be left out.
    Copy(usize, IoError),
    /// The durable standing is unchanged.
    Unchanged(IoError),
    /// The change is durable in some places, and not in others.
    Unsure(IoError),
}

impl NotRecorded {
    /// Returns the error.
    pub(super) fn into_error(self) -> IoError {
        match self {
            NotRecorded::Copy(_, error)
            | NotRecorded::Unchanged(error)
            | NotRecorded::Unsure(error) => error,
        }
    }
}

/// The keeper of the durable standing.
pub trait Members {
    /// Records this incarnation for later ones, with those of `copies` that are trusted as valid.
    /// Nothing of this incarnation is written before.
    fn establish(
        &self,
        _copies: [bool; 2],
    ) -> Pin<Box<dyn Future<Output = Result<(), NotRecorded>> + '_>> {
        Box::pin(async { Ok(()) })
    }

    /// Sets the record by which the origin is known; an empty one clears it.
    fn watch(&self, _record: Vec<u8>) {}

    /// Makes `standing` durable for later incarnations, whatever is lost then. One call at a time,
    /// which is carried through.
    fn record(
        &self,
        standing: LogStanding,
    ) -> Pin<Box<dyn Future<Output = Result<(), NotRecorded>> + '_>>;
}

/// Fields that are known to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct DurableStanding {
    copies: Option<[bool; 2]>,
    may_be_dirty: Option<bool>,
    forsaken: Option<bool>,
    watched: Option<u64>,
}

impl DurableStanding {
    fn of(standing: LogStanding) -> DurableStanding {
        DurableStanding {
            copies: Some(standing.copies),
            may_be_dirty: Some(standing.may_be_dirty),
            forsaken: Some(standing.forsaken),
            watched: Some(standing.watched),
        }
    }

    /// Returns the fields that hold while `standing` is being written.
    fn amid(self, standing: LogStanding) -> DurableStanding {
        let next = DurableStanding::of(standing);
        DurableStanding {
            copies: self.copies.filter(|_| self.copies == next.copies),
            may_be_dirty: self
                .may_be_dirty
                .filter(|_| self.may_be_dirty == next.may_be_dirty),
            forsaken: self.forsaken.filter(|_| self.forsaken == next.forsaken),
            watched: self.watched.filter(|_| self.watched == next.watched),
        }
    }
}

pub(super) struct Standings {
    members: Rc<dyn Members>,
    env: Env,
    changed: Rc<Signal>,
    stages: Rc<Stages>,
    wanted: Cell<LogStanding>,
    durable: Cell<DurableStanding>,
    /// Number of failed attempts; `trouble` is the last error.
    failures: Cell<u64>,
    trouble: RefCell<Option<IoError>>,
    /// True if writes may be acknowledged: until then a loss need not be durable.
    begun: Cell<bool>,
    /// True if the task that makes the standing durable has ended.
    ended: Cell<bool>,
    /// Error by which each copy was lost.
    lost_by: RefCell<[Option<IoError>; 2]>,
}

impl Standings {
    /// A standing that no later incarnation knows for sure.
    pub(super) fn new(
        copies: [bool; 2],
        members: Rc<dyn Members>,
        env: Env,
        changed: Rc<Signal>,
        stages: Rc<Stages>,
    ) -> Standings {
        Standings {
            members,
            env,
            changed,
            stages,
            wanted: Cell::new(LogStanding {
                copies,
                may_be_dirty: true,
                forsaken: false,
                watched: 0,
            }),
            durable: Cell::default(),
            failures: Cell::new(0),
            trouble: RefCell::new(None),
            begun: Cell::new(false),
            ended: Cell::new(false),
            lost_by: RefCell::default(),
        }
    }

    /// Copies that are online.
    pub(super) fn online(&self) -> [bool; 2] {
        self.wanted.get().copies
    }

    /// Takes a copy offline.
    pub(super) fn lose(&self, copy: usize, error: IoError) {
        self.lost_by.borrow_mut()[copy].get_or_insert(error);
        self.want(|wanted| wanted.copies[copy] = false);
    }

    /// Error by which a copy was lost since the log was opened.
    pub(super) fn lost_by(&self, copy: usize) -> Option<IoError> {
        self.lost_by.borrow()[copy].as_ref().map(IoError::duplicate)
    }

    /// Changes the wanted standing.
    pub(super) fn want(&self, change: impl FnOnce(&mut LogStanding)) {
        let mut wanted = self.wanted.get();
        change(&mut wanted);
        self.wanted.set(wanted);
        self.changed.notify();
    }

    /// True if no copy is online.
    pub(super) fn are_gone(&self) -> bool {
        self.online() == [false; 2]
    }

    /// True if no later incarnation trusts a lost copy, or needs any copy.
    pub(super) fn are_losses_durable(&self) -> bool {
        let durable = self.durable.get();
        !self.begun.get() || durable.copies == Some(self.online()) || self.is_settled()
    }

    /// True if later incarnations know for sure that data may be dirty.
    pub(super) fn records_dirty(&self) -> bool {
        !self.begun.get() || self.durable.get().may_be_dirty == Some(true)
    }

    /// True if later incarnations are to know that data may be dirty.
    pub(super) fn wants_dirty(&self) -> bool {
        self.wanted.get().may_be_dirty
    }

    /// True if later incarnations know for sure that nothing is dirty.
    pub(super) fn is_settled(&self) -> bool {
        self.durable.get().may_be_dirty == Some(false)
    }

    /// True if the wanted standing is not durable yet, and can be.
    fn is_due(&self) -> bool {
        !self.is_durable() && !self.are_gone()
    }

    /// Error that delays the wanted standing.
    pub(super) fn trouble(&self) -> Option<IoError> {
        let trouble = self.trouble.borrow();
        let trouble = trouble.as_ref().filter(|_| self.is_due());
        trouble.map(IoError::duplicate)
    }

    /// True if the wanted standing is durable.
    pub(super) fn is_durable(&self) -> bool {
        self.durable.get() == DurableStanding::of(self.wanted.get())
    }

    /// Returns once `holds` is true, or with the error of an attempt that has failed since.
    pub(super) async fn until(&self, holds: impl Fn(&Standings) -> bool) -> IoResult {
        let failures = self.failures.get();
        let ended = || {
            if holds(self) {
                return Some(Ok(()));
            }
            if self.are_gone() {
                return Some(Err(gone()));
            }
            let over = self.ended.get() || self.failures.get() != failures;
            over.then(|| Err(self.last_error()))
        };
        self.changed.until_some(ended).await
    }

    fn last_error(&self) -> IoError {
        let trouble = self.trouble.borrow();
        let trouble = trouble.as_ref().map(IoError::duplicate);
        let what = "the write-back log was closed; try again once its volume is served";
        trouble.unwrap_or_else(|| IoError::new(IoErrorKind::Gone, what))
    }

    /// Gives the journal up: returns once it will never be replayed, durably. `Err`: no copy is
    /// left, or the log was closed.
    pub(super) async fn forsake(&self) -> IoResult {
        self.want(|wanted| wanted.forsaken = true);
        loop {
            let forsaken = self.until(|all| all.durable.get().forsaken == Some(true));
            let forsaken = forsaken.await;
            if forsaken.is_ok() || self.are_gone() || self.ended.get() {
                return forsaken;
            }
        }
    }

    /// Records this incarnation for later ones. A copy whose superblock cannot be written is lost,
    /// while the other `may` go on alone.
    pub(super) async fn establish(&self, may: impl Fn(usize) -> bool) -> IoResult {
        while let Err(error) = self.members.establish(self.online()).await {
            match error {
                NotRecorded::Copy(copy, why) if may(1 - copy) && self.online()[1 - copy] => {
                    self.lose(copy, why);
                }
                error => return Err(error.into_error()),
            }
        }
        Ok(())
    }

    /// Ends the log durably: nothing is dirty, and no copy counts any more. The next opening begins
    /// a new log.
    pub(super) async fn end(&self, trusted: [bool; 2]) -> IoResult {
        for copies in [trusted, [false; 2]] {
            let standing = LogStanding {
                copies,
                may_be_dirty: false,
                ..self.wanted.get()
            };
            let ended = self.members.record(standing).await;
            ended.map_err(NotRecorded::into_error)?;
        }
        Ok(())
    }

    /// Sets the record by which the origin is known. Once writes may be acknowledged, returns when
    /// the record is durable, or with the error of an attempt.
    pub(super) async fn watch(&self, record: Vec<u8>) -> IoResult {
        self.members.watch(record);
        self.want(|wanted| wanted.watched += 1);
        if !self.begun.get() {
            return Ok(());
        }
        let least = self.wanted.get().watched;
        self.until(|all| all.durable.get().watched >= Some(least))
            .await
    }

    /// Requires from now on that a loss is durable before further acknowledgements.
    pub(super) fn begin(&self) {
        self.begun.set(true);
    }

    /// Makes the wanted standing durable, whenever it is not, until `closing`. A standing that is
    /// due then gets one more attempt.
    pub(super) async fn run(&self, closing: impl Fn() -> bool) {
        loop {
            self.changed.until(|| closing() || self.is_due()).await;
            if !self.is_due() {
                break;
            }
            let loses = self.lost_by.borrow().iter().any(Option::is_some);
            let loses = loses && !self.are_losses_durable();
            let _under = loses.then(|| self.stages.enter(LogStage::Loss));
            if let Err(error) = self.record().await {
                self.trouble.replace(Some(error));
                self.failures.set(self.failures.get() + 1);
                self.changed.notify();
                if closing() {
                    break;
                }
                let pause = self.env.timer.sleep(RETRY);
                let closes = self.changed.until(&closing);
                select(pin!(pause), pin!(closes)).await;
            }
        }
        self.ended.set(true);
        self.changed.notify();
    }

    async fn record(&self) -> IoResult {
        let (wanted, before) = (self.wanted.get(), self.durable.get());
        self.durable.set(before.amid(wanted));
        let recorded = self.members.record(wanted).await;
        let ended = match recorded {
            Ok(()) => {
                self.durable.set(DurableStanding::of(wanted));
                self.trouble.replace(None);
                Ok(())
            }
            // The next attempt leaves that copy out.
            Err(NotRecorded::Copy(copy, error)) => {
                self.lose(copy, error);
                Ok(())
            }
            Err(NotRecorded::Unchanged(error)) => {
                self.durable.set(before);
                Err(error)
            }
            Err(NotRecorded::Unsure(error)) => Err(error),
        };
        self.changed.notify();
        ended
    }
}

/// Error of a log without a copy.
pub(super) fn gone() -> IoError {
    let what = "no copy of the write-back log can be written: its devices are lost; mend one";
    IoError::new(IoErrorKind::Gone, what)
}
