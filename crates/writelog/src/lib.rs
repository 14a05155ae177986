//! Write-back that outlives its devices: a log of a volume's writes on two of them.
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
//!     a part of a window on the origin ⟹ all of it is in the journal (`Cleaning::Journaled`)
//!     a segment is used again ⟹ a `done_to` beyond it is durable ⟹ the origin was flushed
//!     owed ⟹ no other path touches that block's origin
//!     served ⟹ all that is owed is indexed, on both copies, and fenced
//!     a device is written ⟹ all that an opening may be refused for was judged
//!     newest answer - oldest owed <= `max_lag`
//!
//! So, if every copy of an ordered log is lost, the origin alone is an earlier state, and of a
//! journaled one the origin after [`Journal::replay`]: the state of a disk with a volatile cache
//! after a power cut. An interval lies between two flushes, or forced writes, of the volume; time
//! and size may split one.
//!
//! Who opens a log says which areas hold what is true (`Members`) and numbers the
//! incarnations: the `ledger`. Not here: clients' overlapping writes, which are
//! `block::Gate`'s to keep apart, as everywhere.

mod append;
mod blocks;
mod carry_out;
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

pub use cleaning::Cleaning;
pub use copies::Area;
pub use journal::Journal;
pub use ledger::{Candidate, Ledger, Opened, Wanted, Witness, superblock_of};
pub use recover::logged;
pub use scan::Scrutiny;
pub use stage::{Stage, Stages};
pub use standing::{Members, NotRecorded, Standing};
pub use state::{JOURNAL_BYTES_MIN, LOG_BYTES_MIN};

use block::{
    BoxDevice, Buf, Content, Device, Env, Extent, Fua, Geometry, IoError, IoResult, Kind, Lba,
    Nanos, Sectors, Shared, Signal,
};
use copies::Copies;
use index::Piece;
use layout::{BLOCK_BYTES, BLOCK_SECTORS, Became, Uuid};
use pace::Pace;
use scan::Scan;
use standing::Standings;
use state::State;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

/// The configuration of a log.
#[derive(Clone)]
pub struct Config {
    /// The log, by which all its blocks are salted.
    pub log: Uuid,
    /// Greater than that of any incarnation before, given durably.
    pub incarnation: u32,
    /// The driver's epoch on the clock that all incarnations share.
    pub epoch: Nanos,
    /// Bytes that may be owed.
    pub dirty_max: u64,
    /// How far answers may be ahead of the oldest write that is owed.
    pub max_lag: Nanos,
    /// How long writes may gather before they are cleaned, while nothing presses.
    pub clean_after: Nanos,
    /// What order the origin gets them in.
    pub cleaning: Cleaning,
    /// Something may be dirty. Else the origin may be newer than all that the log has.
    pub owes: bool,
    /// How thoroughly an opening looks.
    pub scrutiny: Scrutiny,
    /// The operator asks for what there is: nothing that is missing refuses it.
    pub asked: bool,
    /// Where it keeps what is under way.
    pub stages: Rc<Stages>,
}

/// A volume with its log: writes go at the speed of the pool.
pub struct WriteBack<P>(Rc<Inner<P>>);

impl<P> Clone for WriteBack<P> {
    fn clone(&self) -> WriteBack<P> {
        WriteBack(self.0.clone())
    }
}

/// Keeps what is watched of the origin with the log, as long as that is open.
pub struct Watcher<P>(Weak<Inner<P>>);

impl<P> Clone for Watcher<P> {
    fn clone(&self) -> Watcher<P> {
        Watcher(self.0.clone())
    }
}

impl<P: Device> Watcher<P> {
    /// The origin is known by this record from now on; none if it is empty. Durably, if the log
    /// has begun; an error keeps nobody from going on, for the devices of the log come first.
    pub async fn watch(&self, record: Vec<u8>) {
        if let Some(log) = self.0.upgrade() {
            let _ = log.copies.standing.watch(record).await;
        }
    }
}

struct Inner<P> {
    config: Config,
    env: Env,
    origin: BoxDevice,
    geometry: Geometry,
    copies: Copies<P>,
    /// Of a log that has one.
    journal: Option<Journal<P>>,
    state: RefCell<State>,
    changed: Rc<Signal>,
    /// More is durable.
    flushed: Signal,
    stages: Rc<Stages>,
    pace: RefCell<Pace>,
    /// Wakes writes that wait for their turn.
    turns: Signal,
    /// When a client's read from the origin last ended.
    read_at: Cell<Option<Nanos>>,
    /// Blocks that the origin has taken.
    carried: Cell<u64>,
    /// Writes that wait for the cleaner.
    pressed: Cell<u32>,
    closing: Cell<bool>,
    /// The log is to be empty in time, though clients write.
    retiring: Cell<bool>,
    /// No change is taken.
    sealed: Cell<bool>,
    /// Tasks that run: the cleaner, and who makes the standing durable.
    tasks: Cell<u32>,
    /// What an opening has found, until it is established.
    found: RefCell<Option<Scan>>,
    /// Records that were there, and that no copy has.
    missing: Vec<Range<u64>>,
    /// What keeps the cleaner from going on.
    trouble: RefCell<Option<IoError>>,
}

/// How a log stands.
#[derive(Debug)]
pub struct Status {
    /// What order the origin gets writes in.
    pub cleaning: Cleaning,
    /// Its journal takes no part, and the origin gets them in order.
    pub forsaken: bool,
    /// Bytes that differ from the origin's, be it by data or since they were cleared.
    pub dirty_bytes: u64,
    /// Bytes that the origin has taken since the log was opened: more of them is progress.
    pub carried_bytes: u64,
    /// The age of the oldest.
    pub lag: Nanos,
    /// Bytes a second that the origin takes of it, as lately measured while more was owed.
    pub rate: Option<u64>,
    /// How long it takes to get empty once it is given up, as far as that was measured.
    pub empty_in: Option<Nanos>,
    /// Copies that take part.
    pub copies: usize,
    /// What keeps the cleaner, or writes, from going on.
    pub trouble: Option<IoError>,
}

impl<P: Device> Inner<P> {
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
        state.done_to >= state.owed_to
    }
}

impl<P: Device> WriteBack<P> {
    /// How it stands.
    pub fn status(&self) -> Status {
        let state = self.0.state.borrow();
        let oldest = state.oldest();
        let pace = self.0.pace.borrow();
        let rate = pace.origin_rate();
        Status {
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

    /// Returns once the origin has everything, durably, or the error that is in the way.
    /// Errors of the origin are waited for.
    pub async fn drain(&self) -> IoResult {
        self.0.drain_to(Nanos::ZERO).await
    }

    /// As [`WriteBack::drain`], until so little is owed that the origin takes it within `span`:
    /// beside clients that write, a log is next to never empty.
    pub async fn drain_to(&self, span: Nanos) -> IoResult {
        self.0.drain_to(span).await
    }

    /// What the journal has is void from now on, durably: others may write to the origin, once
    /// nothing is owed.
    pub async fn retire_journal(&self) -> IoResult {
        self.0.retire_journal().await
    }

    /// Leaves writes of clients a part of the cleaner's rate alone from now on, so that the log
    /// gets empty though they go on; or no more.
    pub fn retire(&self, retiring: bool) {
        self.0.retiring.set(retiring);
        self.0.changed.notify();
    }

    /// Keeps with the log what is watched of the origin.
    pub fn watcher(&self) -> Watcher<P> {
        Watcher(Rc::downgrade(&self.0))
    }

    /// The copies that take part.
    pub fn online(&self) -> [bool; 2] {
        self.0.copies.standing.online()
    }

    /// What a copy was lost by since the log was opened.
    pub fn lost_by(&self, copy: usize) -> Option<IoError> {
        self.0.copies.standing.lost_by(copy)
    }

    /// What keeps the cleaner from writing to the origin.
    pub fn trouble_at_origin(&self) -> Option<Kind> {
        self.0.trouble.borrow().as_ref().map(IoError::kind)
    }

    /// Whether it has lost both copies, and something may be owed: it goes on once it is opened
    /// again.
    pub fn is_stuck(&self) -> bool {
        self.0.copies.are_stuck()
    }

    /// Whether it is known durably that nothing is dirty, and nothing will be.
    pub fn is_settled(&self) -> bool {
        self.0.copies.standing.is_settled()
    }

    /// Whether the origin lacks nothing.
    pub fn is_drained(&self) -> bool {
        self.0.is_drained()
    }

    /// Whether the origin lacks something of `extent`.
    pub fn owes(&self, extent: Extent) -> bool {
        let blocks = extent.start.0 / BLOCK_SECTORS..extent.end().0.div_ceil(BLOCK_SECTORS);
        let pieces = self.0.state.borrow().index.pieces(blocks);
        pieces
            .iter()
            .any(|piece| !matches!(piece, Piece::Origin(_)))
    }

    /// Takes no change before [`WriteBack::go_on`]. The log has not begun, and nothing is dirty.
    pub fn seal(&self) {
        self.0.sealed.set(true);
        self.0.copies.standing.want(|wanted| wanted.owes = false);
    }

    /// Takes no change from now on; returns once nothing is owed, durably. If that fails, or is
    /// given up, [`WriteBack::go_on`] takes changes again.
    pub async fn rest(&self) -> IoResult {
        self.0.sealed.set(true);
        self.0.changed.notify();
        self.drain().await?;
        self.retire_journal().await?;
        let standing = &self.0.copies.standing;
        standing.want(|wanted| wanted.owes = false);
        standing.until(Standings::is_settled).await
    }

    /// Takes changes again, each once it is durable that something may be owed.
    pub fn go_on(&self) {
        self.0.sealed.set(false);
        let both = self.0.copies.are_both();
        // Without one copy nothing new is owed.
        let standing = &self.0.copies.standing;
        standing.want(|wanted| wanted.owes |= both);
    }

    /// Ends the cleaner. What is owed stays in the log.
    pub async fn close(&self) {
        self.0.closing.set(true);
        self.0.changed.notify();
        self.0.changed.until(|| self.0.tasks.get() == 0).await;
    }

    /// Carried through once begun: a record that nobody waits for is on its way all the same.
    async fn carry<T: 'static>(&self, work: impl AsyncFnOnce(&Inner<P>) -> T + 'static) -> T {
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

    async fn write(&self, at: Lba, data: Shared, fua: Fua) -> IoResult {
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
