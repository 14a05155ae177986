//! The devices of a write-back log, and trust in each: superblocks on both devices, and in the
//! witness, a file beside them.
//!
//! Invariants:
//!     a record is answered ⟹ `may_be_dirty` is durable on all copies and in the witness
//!     a copy is lost ⟹ that is durable on the others and in the witness, before a write is
//!                      acknowledged without the copy
//!     no data is overwritten that may be dirty
//!
//! Devices are written before the witness, so that a copy in the mask of the newest superblock
//! always has that superblock. A new log is in the witness first, with no copy.

mod choose;
mod journal;
mod look;

use super::copies::CopyArea;
use super::journal::WriteJournal;
use super::pair::PairBlocks;
use super::standing::{LogStanding, Members, NotRecorded};
use block::{BoxDevice, Device, Env, IoError, IoErrorKind, IoResult, Lba, Nanos};
pub use choose::WantedLog;
use choose::{CandidateState, choose};
use layout::{
    BLOCK_SECTORS, LOG_AREA, LOG_SUPERBLOCKS, LogSuperblock, ORIGIN_RECORD_BYTES_MAX,
    SuperblockError, Uuid,
};
use look::look;
pub use look::{LogCandidate, superblock_of, unfit_for_log};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

/// Blocks of both superblocks in the witness.
const WITNESS_BLOCKS: [u64; 2] = [0, 1];

/// The file beside a log.
pub enum LedgerWitness {
    /// A file that exists, or a new one.
    Kept(BoxDevice),
    /// Superblock of the file, for a log that is inspected and never begun.
    Says(Option<Box<LogSuperblock>>),
}

/// An opened ledger. Nothing of it is durable before [`Members::establish`].
pub struct OpenedLog<P> {
    /// The ledger of the members from now on.
    pub ledger: Rc<LogLedger<P>>,
    /// Areas of the copies, present or future.
    pub areas: [Option<CopyArea<P>>; 2],
    /// Names of the devices, by copy.
    pub names: [String; 2],
    /// The journal, if it is online.
    pub journal: Option<WriteJournal<P>>,
    /// UUID of the log.
    pub log: Uuid,
    /// Number of this incarnation.
    pub incarnation: u32,
    /// Zero of the timer, since 1970; no earlier incarnation was opened later.
    pub epoch: Nanos,
    /// Record of the origin; empty if none is known.
    pub record: Vec<u8>,
    /// True if the volume may have dirty data.
    pub may_be_dirty: bool,
    /// True if a copy that counted does so no more.
    pub shrinks: bool,
    /// Devices that are missing, each with the reason.
    pub absent: Vec<(String, String)>,
    /// Reasons to refuse the log that the operator has overridden.
    pub doubts: Vec<String>,
}

/// The durable state of a log.
pub struct LogLedger<P> {
    env: Env,
    /// `None` for a log that is only inspected.
    witness: Option<BoxDevice>,
    witness_pair: PairBlocks,
    devices: [Option<P>; 2],
    pairs: [PairBlocks; 2],
    /// True if the log has never been opened.
    is_new: bool,
    now: RefCell<LogSuperblock>,
    /// True if a change failed, and may be durable in some places.
    unsure: Cell<bool>,
}

impl<P: Device + Clone + 'static> LogLedger<P> {
    /// Reads the known state of the log, and refuses a log that may not be opened. Nothing is
    /// written.
    pub async fn open(
        wanted: WantedLog,
        env: Env,
        witness: LedgerWitness,
        candidates: [LogCandidate<P>; 2],
        journal: Option<LogCandidate<P>>,
    ) -> IoResult<OpenedLog<P>> {
        let invalid = |what: String| IoError::new(IoErrorKind::Invalid, what);
        let began = env.timer.now();
        let witness_pair = PairBlocks::new(WITNESS_BLOCKS);
        let (witness, remembered) = match witness {
            LedgerWitness::Says(superblock) => (None, superblock.map(|boxed| *boxed)),
            LedgerWitness::Kept(file) => {
                let remembered = remembered(&witness_pair, &file, &env).await?;
                (Some(file), remembered)
            }
        };
        let (found, mut absent) = looked(candidates, remembered.as_ref(), &env).await;
        let names = found.each_ref().map(|copy| copy.candidate.name.clone());
        let seen = found.each_ref().map(|copy| &copy.state);
        let chosen = choose(&wanted, remembered.as_ref(), &names, seen).map_err(invalid)?;
        let journal_name = journal.as_ref().map(|journal| journal.name.clone());
        let journal = journal::choose(&wanted, &chosen, journal, &env);
        let (journal, journal_absent) = journal.await.map_err(invalid)?;
        let mut areas = [None, None];
        for (at, copy) in found.iter().enumerate() {
            match &chosen.without[at] {
                Some(why) => absent.push((names[at].clone(), why.clone())),
                None => areas[at] = copy.area(at, &chosen.superblock),
            }
        }
        let devices = areas
            .each_ref()
            .map(|area| Some(area.as_ref()?.device.clone()));
        let mut superblock = chosen.superblock;
        absent.extend(journal_absent);
        let uuid = journal.as_ref().map(|journal| journal.superblock().journal);
        superblock.journal = uuid.zip(journal_name);
        let opened = (superblock.log, superblock.incarnation, superblock.opened_at);
        let (may_be_dirty, record) = (superblock.may_be_dirty, superblock.record.clone());
        let ledger = LogLedger {
            env,
            witness,
            witness_pair,
            devices,
            pairs: found.map(|copy| copy.pair),
            is_new: chosen.is_new,
            now: RefCell::new(superblock),
            unsure: Cell::new(false),
        };
        Ok(OpenedLog {
            ledger: Rc::new(ledger),
            areas,
            names,
            journal,
            log: opened.0,
            incarnation: opened.1,
            epoch: Nanos(opened.2) - began,
            record,
            may_be_dirty,
            shrinks: chosen.shrinks,
            absent,
            doubts: chosen.doubts,
        })
    }

    async fn write_witness(&self, superblock: &LogSuperblock) -> IoResult {
        let witness = self.witness.as_ref();
        let witness = witness.expect("a log that is looked at is not begun");
        self.witness_pair
            .write(witness, &self.env.pool, superblock)
            .await
    }

    /// Makes a change durable on the copies and in the witness.
    async fn change(&self, change: impl FnOnce(&mut LogSuperblock)) -> Result<(), NotRecorded> {
        let mut next = self.now.borrow().clone();
        let before = next.mask;
        change(&mut next);
        if (0..2).any(|copy| before[copy] && !next.mask[copy]) {
            next.epoch += 1;
        }
        if self.now.borrow().may_be_dirty && !next.may_be_dirty {
            self.try_witness().await?;
        }
        next.sequence += 1;
        // Even after a failure no other change has this number.
        self.now.borrow_mut().sequence = next.sequence;
        self.unsure.set(true);
        for copy in 0..2 {
            if let (true, Some(device)) = (next.mask[copy], &self.devices[copy]) {
                next.copy = Some(copy as u8);
                let written = self.pairs[copy].write(device, &self.env.pool, &next).await;
                written.map_err(|error| NotRecorded::Copy(copy, error))?;
            }
        }
        next.copy = None;
        let written = self.write_witness(&next).await;
        written.map_err(NotRecorded::Unsure)?;
        // Another record may have been set meanwhile.
        let given = std::mem::take(&mut self.now.borrow_mut().record);
        next.record = given;
        *self.now.borrow_mut() = next;
        self.unsure.set(false);
        Ok(())
    }

    /// Rewrites the witness unchanged. If that fails, the standing is not to be changed, and writes
    /// go on.
    async fn try_witness(&self) -> Result<(), NotRecorded> {
        if self.unsure.get() {
            return Ok(());
        }
        let now = self.now.borrow().clone();
        let written = self.write_witness(&now).await;
        written.map_err(NotRecorded::Unchanged)
    }
}

/// A device for a copy, and its superblocks.
struct LookedDevice<P> {
    candidate: LogCandidate<P>,
    state: CandidateState,
    pair: PairBlocks,
}

impl<P: Clone> LookedDevice<P> {
    /// The area of copy `at`, unless the device is absent.
    fn area(&self, at: usize, superblock: &LogSuperblock) -> Option<CopyArea<P>> {
        let present = !matches!(self.state, CandidateState::Absent(_));
        let device = self.candidate.device.as_ref().ok().filter(|_| present)?;
        Some(CopyArea {
            device: device.clone(),
            base: Lba(LOG_AREA * BLOCK_SECTORS),
            segments: superblock.segments,
            member: at as u16,
            domain: self.candidate.domain.clone(),
            trusted: superblock.mask[at],
            holes: self.candidate.holes.clone(),
        })
    }
}

/// Looks at the devices, and returns them by copy, with the absent ones and the reason for each. Of
/// two with the same copy, the current one counts.
async fn looked<P: Device + Clone>(
    candidates: [LogCandidate<P>; 2],
    witness: Option<&LogSuperblock>,
    env: &Env,
) -> ([LookedDevice<P>; 2], Vec<(String, String)>) {
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let pair = PairBlocks::new(LOG_SUPERBLOCKS);
        let state = match &candidate.device {
            Ok(device) => look(&pair, device, env).await,
            Err(why) => CandidateState::Absent(why.clone()),
        };
        if let CandidateState::Absent(why) = &state {
            absent.push((candidate.name.clone(), why.clone()));
        }
        found.push(LookedDevice {
            candidate,
            state,
            pair,
        });
    }
    let logs = [0, 1].map(|at: usize| found[at].state.log());
    let copies = logs.map(|log| log?.copy);
    let is_swapped = match (copies, choose::current(witness, logs)) {
        ([Some(first), Some(second)], Some(at)) if first == second => usize::from(first) != at,
        _ => copies[0] == Some(1) || copies[1] == Some(0),
    };
    if is_swapped {
        found.swap(0, 1);
    }
    let Ok(found) = found.try_into() else {
        unreachable!("one of each candidate")
    };
    (found, absent)
}

/// Reads the superblock of the witness.
async fn remembered(
    pair: &PairBlocks,
    witness: &BoxDevice,
    env: &Env,
) -> IoResult<Option<LogSuperblock>> {
    match pair.read(witness, &env.pool).await?.newest {
        Ok(superblock) => Ok(Some(superblock)),
        Err(SuperblockError::Blank | SuperblockError::Damaged(_)) => Ok(None),
        Err(error) => {
            let what = format!(
                "{}: {error}; remove the file if no volume of this daemon wrote it: the devices \
                 of the log are asked then",
                witness.geometry().name
            );
            Err(IoError::new(IoErrorKind::Invalid, what))
        }
    }
}

impl<P: Device + Clone + 'static> Members for LogLedger<P> {
    /// A new log is in the witness before any device.
    fn establish(
        &self,
        copies: [bool; 2],
    ) -> Pin<Box<dyn Future<Output = Result<(), NotRecorded>> + '_>> {
        Box::pin(async move {
            let trusted = self.now.borrow().mask;
            if !self.is_new {
                let mask = [0, 1].map(|copy| trusted[copy] && copies[copy]);
                return self.change(|next| next.mask = mask).await;
            }
            self.change(|next| next.mask = [false; 2]).await?;
            let begun = self.change(|next| next.mask = trusted).await;
            // Neither copy has the data of the other yet.
            begun.map_err(|error| NotRecorded::Unsure(error.into_error()))
        })
    }

    fn watch(&self, record: Vec<u8>) {
        if record.len() <= ORIGIN_RECORD_BYTES_MAX {
            self.now.borrow_mut().record = record;
        }
    }

    fn record(
        &self,
        standing: LogStanding,
    ) -> Pin<Box<dyn Future<Output = Result<(), NotRecorded>> + '_>> {
        Box::pin(self.change(move |next| {
            (next.mask, next.may_be_dirty) = (standing.copies, standing.may_be_dirty);
            if standing.forsaken {
                next.journal = None;
            }
        }))
    }
}
