//! A log of a volume's writes on two devices: acknowledged writes survive the loss of one.
//!
//! ```text
//! WriteBack ─┬─ write ─> append ──> copy A, copy B ─> index ─> answer
//!            ├─ read ──> index ─┬─> copy A, else copy B
//!            │                  └─> origin
//!            └─ clean ─────────────> origin, interval by interval or window by window
//! ```
//!
//! Invariants, at every instant:
//!     answered ⟹ on both copies, or on the origin
//!     flushed ⟹ durable there
//!     on the origin ⟹ durable in the pool before
//!     of interval k + 1 on the origin ⟹ interval k is durable there (`Cleaning::Ordered`)
//!     a part of a window on the origin ⟹ the journal has the whole window (`Cleaning::Journaled`)
//!     a segment is used again ⟹ a `written_back_to` beyond it is durable ⟹ the origin was flushed
//!     dirty ⟹ no other path touches that block's origin
//!     served ⟹ all dirty data is indexed, on both copies, and fenced
//!     a device is written ⟹ every reason to refuse the opening was judged
//!     newest answer - oldest dirty write <= `max_lag`
//!
//! So, if every copy of a log is lost, the origin has the state of a disk with a volatile cache
//! after a power cut. With an ordered log that holds at once, with a journaled one after
//! [`WriteJournal::replay`]. An interval lies between two flushes, or forced writes, of the volume; time
//! and size may split one.
//!
//! The opener of a log names the areas with valid data (`Members`) and numbers the incarnations:
//! the `ledger`.
//!
//! Not here: overlapping writes of clients, which `block::Gate` keeps apart.

mod append;
mod blocks;
mod clean;
mod cleaning;
mod copies;
mod index;
mod join;
mod journal;
mod journaling;
mod ledger;
mod load;
mod mark;
mod missing;
mod pace;
mod pair;
mod read;
mod records;
mod recover;
mod scan;
mod share;
mod stage;
mod standing;
mod state;
mod unordered;

pub use cleaning::Cleaning;
pub use copies::CopyArea;
pub use journal::WriteJournal;
pub use ledger::{
    LedgerWitness, LogCandidate, LogLedger, OpenedLog, WantedLog, superblock_of, unfit_for_log,
};
pub use recover::logged;
pub use scan::Scrutiny;
pub use stage::{LogStage, Stages};
pub use standing::{LogStanding, Members, NotRecorded};
pub use state::{JOURNAL_BYTES_MIN, LOG_BYTES_MIN};

use block::{
    BoxDevice, Buf, Content, Device, Env, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult,
    Lba, Nanos, Sectors, SharedBuf, Signal,
};
use copies::LogCopies;
use layout::{BLOCK_BYTES, BLOCK_SECTORS, Became, Uuid};
use pace::CleanerPace;
use scan::Scan;
use standing::Standings;
use state::LogState;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// The configuration of a log.
#[derive(Clone)]
pub struct Config {
    /// UUID of the log, by which all its blocks are salted.
    pub log: Uuid,
    /// Number above that of every earlier incarnation, given durably.
    pub incarnation: u32,
    /// The driver's epoch on the clock that all incarnations share.
    pub epoch: Nanos,
    /// Limit of dirty bytes.
    pub dirty_max: u64,
    /// Longest time by which answers may be ahead of the oldest dirty write.
    pub max_lag: Nanos,
    /// Longest time that writes gather before the cleaner starts, without pressure.
    pub clean_after: Nanos,
    /// Order in which the origin gets writes.
    pub cleaning: Cleaning,
    /// True if data may be dirty. Otherwise the origin may be newer than the whole log.
    pub may_be_dirty: bool,
    /// Thoroughness of an opening.
    pub scrutiny: Scrutiny,
    /// True if the operator asks for the remains of the log: missing records refuse nothing.
    pub asked: bool,
    /// Counters of the stages in progress.
    pub stages: Rc<Stages>,
}

/// A volume with its log: writes have the speed of the pool.
pub struct WriteBack<P>(Rc<WriteBackShared<P>>);

impl<P> Clone for WriteBack<P> {
    fn clone(&self) -> WriteBack<P> {
        WriteBack(self.0.clone())
    }
}

/// Keeps the record of the origin with the log, as long as the log is open.
pub struct Watcher<P>(Weak<WriteBackShared<P>>);

impl<P> Clone for Watcher<P> {
    fn clone(&self) -> Watcher<P> {
        Watcher(self.0.clone())
    }
}

impl<P: Device> Watcher<P> {
    /// Sets the record by which the origin is known; an empty one clears it. Durable on return if
    /// the log has begun. An error stops nothing, for the devices of the log come first.
    pub async fn watch(&self, record: Vec<u8>) {
        if let Some(log) = self.0.upgrade() {
            let _ = log.copies.standing.watch(record).await;
        }
    }
}

struct WriteBackShared<P> {
    config: Config,
    env: Env,
    origin: BoxDevice,
    geometry: Geometry,
    copies: LogCopies<P>,
    /// The journal, if the log has one.
    journal: Option<WriteJournal<P>>,
    state: RefCell<LogState>,
    changed: Rc<Signal>,
    /// Signals that more records are durable.
    flushed: Signal,
    stages: Rc<Stages>,
    pace: RefCell<CleanerPace>,
    /// Wakes writes that wait for their turn.
    turns: Signal,
    /// Time at which a client's last read from the origin ended.
    read_at: Cell<Option<Nanos>>,
    /// Blocks written to the origin.
    carried: Cell<u64>,
    /// Writes that wait for the cleaner.
    pressed: Cell<u32>,
    closing: Cell<bool>,
    /// The log is to become empty, though clients write.
    retiring: Cell<bool>,
    /// Changes are refused.
    sealed: Cell<bool>,
    /// Tasks that run: the cleaner, the marks, and the writer of the standing.
    tasks: Cell<u32>,
    /// Result of the scan, until the log is established.
    found: RefCell<Option<Scan>>,
    /// Numbers of records that were in the log, and that no copy has.
    missing: Vec<Range<u64>>,
    /// Error that stops the cleaner.
    trouble: RefCell<Option<IoError>>,
}

/// Status of a log.
#[derive(Debug)]
pub struct WriteBackStatus {
    /// Configured order in which the origin gets writes.
    pub cleaning: Cleaning,
    /// True if the journal is given up, and the origin gets writes in order.
    pub forsaken: bool,
    /// Bytes that differ from the origin's, by data or by a clear.
    pub dirty_bytes: u64,
    /// Bytes written to the origin since the log was opened: a measure of progress.
    pub carried_bytes: u64,
    /// Age of the oldest dirty write.
    pub lag: Nanos,
    /// Bytes a second written back lately, measured while more was dirty.
    pub rate: Option<u64>,
    /// Estimated time to empty the log once retired, if measured.
    pub empty_in: Option<Nanos>,
    /// Number of copies online.
    pub copies: usize,
    /// Error that stops the cleaner, or writes.
    pub trouble: Option<IoError>,
}

impl<P: Device> WriteBackShared<P> {
    fn trouble(&self) -> Option<IoError> {
        let trouble = self.trouble.borrow();
        let trouble = trouble.as_ref().map(IoError::duplicate);
        trouble.or_else(|| self.copies.standing.trouble())
    }

    fn blocks(extent: Extent) -> Range<u64> {
        extent.start.0 / BLOCK_SECTORS..extent.end().0 / BLOCK_SECTORS
    }

    fn extent(blocks: Range<u64>) -> Extent {
        let len = Sectors((blocks.end - blocks.start) * BLOCK_SECTORS);
        Extent::new(Lba(blocks.start * BLOCK_SECTORS), len)
    }

    /// The clock that all incarnations share.
    fn clock(&self) -> Nanos {
        self.config.epoch + self.env.timer.now()
    }

    fn is_drained(&self) -> bool {
        let state = self.state.borrow();
        state.written_back_to >= state.last_write_end
    }
}

impl<P: Device> WriteBack<P> {
    /// Returns the status of the log.
    pub fn status(&self) -> WriteBackStatus {
        let state = self.0.state.borrow();
        let oldest = state.oldest();
        let pace = self.0.pace.borrow();
        let rate = pace.origin_rate();
        WriteBackStatus {
            cleaning: self.0.config.cleaning,
            forsaken: self.0.cleaning() != self.0.config.cleaning,
            dirty_bytes: state.index.dirty() * BLOCK_BYTES as u64,
            carried_bytes: self.0.carried.get() * BLOCK_BYTES as u64,
            lag: oldest.map_or(Nanos::ZERO, |at| self.0.clock() - at),
            rate: rate.map(|blocks| (blocks * BLOCK_BYTES as f64) as u64),
            empty_in: pace.empty_in(state.index.blocks()),
            copies: self.0.copies.online().count(),
            trouble: self.0.trouble(),
        }
    }

    /// Returns once all data is durable at the origin, or the error in the way. Errors of the
    /// origin are waited for.
    pub async fn drain(&self) -> IoResult {
        self.0.drain_to(Nanos::ZERO).await
    }

    /// As [`WriteBack::drain`], until the origin takes the dirty data within `span`: beside clients
    /// that write, a log is next to never empty.
    pub async fn drain_to(&self, span: Nanos) -> IoResult {
        self.0.drain_to(span).await
    }

    /// Voids the contents of the journal, durably: others may write to the origin, once nothing is
    /// dirty.
    pub async fn retire_journal(&self) -> IoResult {
        self.0.retire_journal().await
    }

    /// Limits client writes to a part of the cleaner's rate, so that the log empties while clients
    /// write. `false` ends that.
    pub fn retire(&self, retiring: bool) {
        self.0.retiring.set(retiring);
        self.0.changed.notify();
    }

    /// Returns a handle that keeps the record of the origin with the log.
    pub fn watcher(&self) -> Watcher<P> {
        Watcher(Rc::downgrade(&self.0))
    }

    /// The copies that are online.
    pub fn online(&self) -> [bool; 2] {
        self.0.copies.standing.online()
    }

    /// Error by which a copy was lost since the log was opened.
    pub fn lost_by(&self, copy: usize) -> Option<IoError> {
        self.0.copies.standing.lost_by(copy)
    }

    /// Kind of the error that stops write-back to the origin.
    pub fn trouble_at_origin(&self) -> Option<IoErrorKind> {
        self.0.trouble.borrow().as_ref().map(IoError::kind)
    }

    /// True if both copies are lost and data may be dirty: the log goes on once opened again.
    pub fn is_stuck(&self) -> bool {
        self.0.copies.are_stuck()
    }

    /// True if it is durable that nothing is dirty, and nothing will be.
    pub fn is_settled(&self) -> bool {
        self.0.copies.standing.is_settled()
    }

    /// True if the origin has all data.
    pub fn is_drained(&self) -> bool {
        self.0.is_drained()
    }

    /// True if a part of `extent` is dirty.
    pub fn is_dirty(&self, extent: Extent) -> bool {
        let blocks = extent.start.0 / BLOCK_SECTORS..extent.end().0.div_ceil(BLOCK_SECTORS);
        self.0.state.borrow().index.has(blocks)
    }

    /// Refuses changes until [`WriteBack::go_on`]. For a log that has not begun, and has no dirty
    /// data.
    pub fn seal(&self) {
        self.0.sealed.set(true);
        self.0
            .copies
            .standing
            .want(|wanted| wanted.may_be_dirty = false);
    }

    /// Refuses changes from now on; returns once it is durable that nothing is dirty. After a
    /// failure, or if the caller gives up, [`WriteBack::go_on`] accepts changes again.
    pub async fn rest(&self) -> IoResult {
        self.0.sealed.set(true);
        self.0.changed.notify();
        self.drain().await?;
        self.retire_journal().await?;
        let standing = &self.0.copies.standing;
        standing.want(|wanted| wanted.may_be_dirty = false);
        standing.until(Standings::is_settled).await
    }

    /// Accepts changes again, each once it is durable that data may be dirty.
    pub fn go_on(&self) {
        self.0.sealed.set(false);
        let both = self.0.copies.are_both();
        // Without one copy no new data becomes dirty.
        let standing = &self.0.copies.standing;
        standing.want(|wanted| wanted.may_be_dirty |= both);
    }

    /// Ends the cleaner. Dirty data stays in the log.
    pub async fn close(&self) {
        self.0.closing.set(true);
        self.0.changed.notify();
        self.0.changed.until(|| self.0.tasks.get() == 0).await;
    }

    /// Carries `work` through once begun: a record stays in flight though its caller is gone.
    async fn carry<T: 'static>(
        &self,
        work: impl AsyncFnOnce(&WriteBackShared<P>) -> T + 'static,
    ) -> T {
        let inner = self.0.clone();
        let spawn = self.0.env.spawn.clone();
        spawn.persist(async move { work(&inner).await }).await
    }
}

impl<P: Device> Device for WriteBack<P> {
    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        match self.0.geometry.transfer(at, buf.len()) {
            Ok(extent) => self.0.read(extent, buf).await,
            Err(error) => (buf, Err(error)),
        }
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let extent = self.0.geometry.transfer(at, data.len())?;
        self.carry(async move |log| log.write(extent, data, fua).await)
            .await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.0.geometry.check(extent)?;
        self.carry(async move |log| log.clear(extent, Became::Zero).await)
            .await
    }

    async fn flush(&self) -> IoResult {
        self.carry(async |log| log.flush().await).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.0.geometry.check(extent)?;
        self.carry(async move |log| log.clear(extent, Became::Discarded).await)
            .await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.0.geometry.check(extent)?;
        self.0.extents(extent, out).await
    }
}
