//! The journal: each load is durable on a third device before the origin gets it, all or nothing.
//! Without the log, [`WriteJournal::replay`] writes the rest of a load back.
//!
//! A group goes to one half while the group before it, in the other half, may still be needed:
//! body, flush, commit, forced. So the newest commit always has its whole group.
//!
//! Invariants:
//!     the origin has a part of a group ⟹ the group is committed durably
//!     a commit is written ⟹ its group is durable, and the one before it is at the origin
//!     the origin gets data outside of all groups ⟹ all groups are retired, durably
//!
//! Not here: the contents and times of groups (`journaling`); the choice of the device (`ledger`).

use super::pair::{PairBlocks, block};
use block::{
    Device, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Mutex, Pool, Sectors, SharedBuf,
};
use layout::{
    BLOCK_BYTES, BLOCK_SECTORS, Became, COMMIT_BLOCKS, JournalCommit, JournalSuperblock,
    LOG_SUPERBLOCKS, LogRecord, RECORD_BLOCKS_MAX, SuperblockError,
};
use std::cell::{Cell, RefCell};

/// An open journal.
pub struct WriteJournal<P> {
    device: P,
    memory: Pool,
    pair: PairBlocks,
    superblock: RefCell<JournalSuperblock>,
    /// The newest group, unless it is retired.
    pending: Cell<Option<JournalCommit>>,
    newest: Cell<u64>,
    /// True if the device is not a journal yet.
    is_new: Cell<bool>,
    /// True if the journal takes part in write-back.
    online: Cell<bool>,
    /// Held during changes.
    pub(super) changing: Mutex,
}

impl<P: Device> WriteJournal<P> {
    /// A journal that [`WriteJournal::establish`] writes to the device, whatever that holds.
    pub fn new(device: P, memory: Pool, superblock: JournalSuperblock) -> Self {
        WriteJournal {
            device,
            memory,
            pair: PairBlocks::new(LOG_SUPERBLOCKS),
            newest: Cell::new(superblock.retired),
            superblock: RefCell::new(superblock),
            pending: Cell::new(None),
            is_new: Cell::new(true),
            online: Cell::new(true),
            changing: Mutex::default(),
        }
    }

    /// Makes a device a journal, whatever the device holds.
    pub async fn format(device: P, memory: Pool, superblock: JournalSuperblock) -> IoResult<Self> {
        let journal = WriteJournal::new(device, memory, superblock);
        journal.establish().await?;
        Ok(journal)
    }

    /// Makes the device this journal, durably.
    pub async fn establish(&self) -> IoResult {
        if self.is_new.get() {
            self.write_superblock().await?;
            self.is_new.set(false);
        }
        Ok(())
    }

    /// Reads a journal, and makes its earlier writes durable. The inner error names the contents of
    /// a device that is no journal.
    pub async fn open(device: P, memory: Pool) -> IoResult<Result<Self, SuperblockError>> {
        device.flush().await?;
        let pair = PairBlocks::new(LOG_SUPERBLOCKS);
        let found = pair.read::<JournalSuperblock>(&device, &memory).await?;
        let superblock = match found.newest {
            Ok(superblock) => superblock,
            Err(error) => return Ok(Err(error)),
        };
        let mut newest = None;
        for at in [0, 1].map(|half| superblock.half_at(half)) {
            for at in at..at + COMMIT_BLOCKS {
                let block = block(&device, &memory, at).await?;
                let commit = block.and_then(|b| JournalCommit::decode(&b, superblock.journal).ok());
                newest = newest
                    .into_iter()
                    .chain(commit)
                    .max_by_key(|c: &JournalCommit| c.group);
            }
        }
        let retired = superblock.retired;
        Ok(Ok(WriteJournal {
            device,
            memory,
            pair,
            newest: Cell::new(newest.map_or(retired, |commit| commit.group.max(retired))),
            pending: Cell::new(newest.filter(|commit| commit.group > retired)),
            superblock: RefCell::new(superblock),
            is_new: Cell::new(false),
            online: Cell::new(true),
            changing: Mutex::default(),
        }))
    }

    /// Returns the superblock.
    pub fn superblock(&self) -> JournalSuperblock {
        self.superblock.borrow().clone()
    }

    /// Returns the group that the origin may have in part, or not at all.
    pub fn pending(&self) -> Option<JournalCommit> {
        self.pending.get()
    }

    /// True if the journal takes part in write-back.
    pub(super) fn is_online(&self) -> bool {
        self.online.get()
    }

    /// Takes the journal out of use, after the caller has made that durable.
    pub(super) fn forsaken(&self) {
        self.online.set(false);
        self.pending.set(None);
    }

    /// Limit of blocks and cleared extents of a group, together.
    pub(super) fn room(&self) -> u64 {
        let half = self.superblock.borrow().half;
        // Each record but the last is full of blocks or of extents.
        (half - COMMIT_BLOCKS - 1) / u64::from(RECORD_BLOCKS_MAX + 1) * u64::from(RECORD_BLOCKS_MAX)
    }

    /// Number of the next group, and its first block.
    pub(super) fn next(&self) -> (u64, u64) {
        let group = self.newest.get() + 1;
        (group, self.half_of(group) + COMMIT_BLOCKS)
    }

    fn half_of(&self, group: u64) -> u64 {
        self.superblock.borrow().half_at(group % 2)
    }

    /// Writes blocks.
    pub(super) async fn write(&self, at: u64, data: SharedBuf, fua: Fua) -> IoResult {
        let at = Lba(at * BLOCK_SECTORS);
        self.device.write(at, data, fua).await
    }

    /// Makes writes durable.
    pub(super) async fn flush(&self) -> IoResult {
        self.device.flush().await
    }

    /// Commits a durable group: its data is to be written back from now on.
    pub(super) async fn commit(&self, commit: JournalCommit) -> IoResult {
        let mut buf = self.memory.take(COMMIT_BLOCKS as usize * BLOCK_BYTES);
        let journal = self.superblock.borrow().journal;
        for block in buf.chunks_exact_mut(BLOCK_BYTES) {
            commit.encode(journal, block);
        }
        let at = self.half_of(commit.group);
        self.write(at, buf.share(), Fua::Yes).await?;
        self.newest.set(commit.group);
        self.pending.set(Some(commit));
        Ok(())
    }

    /// Retires all groups, durably: none is to be written back any more.
    pub async fn retire(&self) -> IoResult {
        {
            let superblock = &mut *self.superblock.borrow_mut();
            superblock.retired = self.newest.get();
            superblock.sequence += 1;
        }
        self.write_superblock().await?;
        self.pending.set(None);
        Ok(())
    }

    async fn write_superblock(&self) -> IoResult {
        let superblock = self.superblock.borrow().clone();
        self.pair
            .write(&self.device, &self.memory, &superblock)
            .await
    }

    /// Writes the pending group back, durably. If the group cannot be read whole, `origin` is
    /// unchanged.
    pub async fn replay<O: Device>(&self, origin: &O) -> IoResult<Option<JournalCommit>> {
        let Some(commit) = self.pending.get() else {
            return Ok(None);
        };
        self.verify().await?;
        let to_origin = async |record, data| replay_record(origin, &record, data).await;
        self.each(&commit, to_origin).await?;
        origin.flush().await?;
        Ok(Some(commit))
    }

    /// Checks that the pending group can be read whole.
    pub async fn verify(&self) -> IoResult {
        match self.pending.get() {
            None => Ok(()),
            Some(commit) => self.each(&commit, async |_, _| Ok(())).await,
        }
    }

    /// Passes each record of a group, with its data, to `work`.
    async fn each(
        &self,
        commit: &JournalCommit,
        mut work: impl AsyncFnMut(LogRecord, Option<SharedBuf>) -> IoResult,
    ) -> IoResult {
        let mut at = self.half_of(commit.group) + COMMIT_BLOCKS;
        for number in 0..commit.records {
            let (record, data) = self.record(commit, number, at).await?;
            at += u64::from(record.blocks());
            work(record, data).await?;
        }
        Ok(())
    }

    /// Reads a record of a group, and its data.
    async fn record(
        &self,
        commit: &JournalCommit,
        number: u64,
        at: u64,
    ) -> IoResult<(LogRecord, Option<SharedBuf>)> {
        let journal = self.superblock.borrow().journal;
        let damaged = || {
            let superblock = self.superblock.borrow();
            let what = format!(
                "this journal of volume {} is damaged (record {number} of group {}), so that none \
                 of it is replayed; if the log is whole, `hotset pool recover {0} --write-back` \
                 does without it",
                superblock.volume, commit.group
            );
            let device = self.device.geometry().name.to_string();
            IoError::new(IoErrorKind::Corrupt, what).on(device)
        };
        let header = block(&self.device, &self.memory, at).await?;
        let record = header.and_then(|header| LogRecord::decode(&header, journal).ok());
        let ours = |record: &LogRecord| {
            let group = (record.segment, record.incarnation);
            record.number == number && group == (commit.group, commit.incarnation)
        };
        let record = record.filter(ours).ok_or_else(damaged)?;
        if record.crcs.is_empty() {
            return Ok((record, None));
        }
        let buf = self.memory.take(record.crcs.len() * BLOCK_BYTES);
        let (data, read) = self.device.read(Lba((at + 1) * BLOCK_SECTORS), buf).await;
        read?;
        match record.has(&data) {
            true => Ok((record, Some(data.share()))),
            false => Err(damaged()),
        }
    }
}

async fn replay_record<O: Device>(
    origin: &O,
    record: &LogRecord,
    data: Option<SharedBuf>,
) -> IoResult {
    let mut from = 0;
    for extent in &record.extents {
        let at = Lba(extent.block * BLOCK_SECTORS);
        let run = Extent::new(at, Sectors(u64::from(extent.count) * BLOCK_SECTORS));
        match extent.became {
            Became::Data => {
                let data = data.as_ref().expect("a record of data has some");
                let to = from + run.len.bytes() as usize;
                origin.write(at, data.slice(from..to), Fua::No).await?;
                from = to;
            }
            Became::Zero => origin.zero(run).await?,
            Became::Discarded => origin.discard(run).await?,
        }
    }
    Ok(())
}
