//! The journal: what the origin is to get at once is durable on a third device before, all of
//! it or nothing. Without the log, [`Journal::replay`] carries the rest of it out.
//!
//! A group goes to one half while the one before it, in the other, may still be wanted: body,
//! flush, commit, forced. So the newest commit always has its whole group.
//!
//! Invariants:
//!     the origin has a part of a group ⟹ the group is committed durably
//!     a commit is written ⟹ its group is durable, and the one before it is at the origin
//!     the origin gets anything that no group has ⟹ all groups are retired, durably
//!
//! Not here: what a group has, and when (`journaling`); which device it may be (`ledger`).

use super::pair::{PairBlocks, block};
use block::{Device, Extent, Fua, IoError, IoResult, Kind, Lba, Mutex, Pool, Sectors, Shared};
use layout::{
    BLOCK_BYTES, BLOCK_SECTORS, Became, COMMIT_BLOCKS, JournalCommit, JournalSuperblock,
    LOG_SUPERBLOCKS, RECORD_BLOCKS_MAX, Record, SuperblockError,
};
use std::cell::{Cell, RefCell};

/// A journal that was opened.
pub struct Journal<P> {
    device: P,
    memory: Pool,
    pair: PairBlocks,
    superblock: RefCell<JournalSuperblock>,
    /// The newest group, unless it is retired.
    pending: Cell<Option<JournalCommit>>,
    newest: Cell<u64>,
    /// Its device is not a journal yet.
    is_new: Cell<bool>,
    /// It takes part.
    online: Cell<bool>,
    /// Held by whoever writes to it.
    pub(super) changing: Mutex,
}

impl<P: Device> Journal<P> {
    /// A device that [`Journal::establish`] makes a journal, whatever it holds.
    pub fn new(device: P, memory: Pool, superblock: JournalSuperblock) -> Self {
        Journal {
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

    /// Makes a device a journal, whatever it held.
    pub async fn format(device: P, memory: Pool, superblock: JournalSuperblock) -> IoResult<Self> {
        let journal = Journal::new(device, memory, superblock);
        journal.establish().await?;
        Ok(journal)
    }

    /// Returns once the device says durably that it is this journal.
    pub async fn establish(&self) -> IoResult {
        if self.is_new.get() {
            self.write_superblock().await?;
            self.is_new.set(false);
        }
        Ok(())
    }

    /// Reads a journal; what was written to it is durable then. The inner error says what the
    /// device is instead.
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
        Ok(Ok(Journal {
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

    /// What it says of itself.
    pub fn superblock(&self) -> JournalSuperblock {
        self.superblock.borrow().clone()
    }

    /// The group that the origin may have in part, or not at all.
    pub fn pending(&self) -> Option<JournalCommit> {
        self.pending.get()
    }

    /// Whether it takes part.
    pub(super) fn is_online(&self) -> bool {
        self.online.get()
    }

    /// It takes no part any more, and that is known durably.
    pub(super) fn forsaken(&self) {
        self.online.set(false);
        self.pending.set(None);
    }

    /// Blocks and cleared extents that a group may have together.
    pub(super) fn room(&self) -> u64 {
        let half = self.superblock.borrow().half;
        // Each record but the last has as many of the one or the other.
        (half - COMMIT_BLOCKS - 1) / u64::from(RECORD_BLOCKS_MAX + 1) * u64::from(RECORD_BLOCKS_MAX)
    }

    /// The number of the next group, and the block that it begins at.
    pub(super) fn next(&self) -> (u64, u64) {
        let group = self.newest.get() + 1;
        (group, self.half_of(group) + COMMIT_BLOCKS)
    }

    fn half_of(&self, group: u64) -> u64 {
        self.superblock.borrow().half_at(group % 2)
    }

    /// Writes blocks.
    pub(super) async fn write(&self, at: u64, data: Shared, fua: Fua) -> IoResult {
        let at = Lba(at * BLOCK_SECTORS);
        self.device.write(at, data, fua).await
    }

    /// What was written is durable.
    pub(super) async fn flush(&self) -> IoResult {
        self.device.flush().await
    }

    /// A group, which is durable, is to be carried out from now on.
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

    /// No group of it is to be carried out any more.
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

    /// Carries out what is pending, durably. If that cannot be read as a whole, `origin` is as
    /// it was.
    pub async fn replay<O: Device>(&self, origin: &O) -> IoResult<Option<JournalCommit>> {
        let Some(commit) = self.pending.get() else {
            return Ok(None);
        };
        self.verify().await?;
        let to_origin = async |record, data| carry_out(origin, &record, data).await;
        self.each(&commit, to_origin).await?;
        origin.flush().await?;
        Ok(Some(commit))
    }

    /// Whether what is pending can be read as a whole.
    pub async fn verify(&self) -> IoResult {
        match self.pending.get() {
            None => Ok(()),
            Some(commit) => self.each(&commit, async |_, _| Ok(())).await,
        }
    }

    /// Has `work` get each record of a group, and its data.
    async fn each(
        &self,
        commit: &JournalCommit,
        mut work: impl AsyncFnMut(Record, Option<Shared>) -> IoResult,
    ) -> IoResult {
        let mut at = self.half_of(commit.group) + COMMIT_BLOCKS;
        for number in 0..commit.records {
            let (record, data) = self.record(commit, number, at).await?;
            at += u64::from(record.blocks());
            work(record, data).await?;
        }
        Ok(())
    }

    /// A record of a group, and its data.
    async fn record(
        &self,
        commit: &JournalCommit,
        number: u64,
        at: u64,
    ) -> IoResult<(Record, Option<Shared>)> {
        let journal = self.superblock.borrow().journal;
        let damaged = || {
            let superblock = self.superblock.borrow();
            let what = format!(
                "this journal of volume {} is damaged (record {number} of group {}), so that nothing \
                 of it is carried out; if the log is whole, `hotset pool recover {0} --keep` does \
                 without it",
                superblock.volume, commit.group
            );
            let device = self.device.geometry().name.to_string();
            IoError::new(Kind::Corrupt, what).on(device)
        };
        let header = block(&self.device, &self.memory, at).await?;
        let record = header.and_then(|header| Record::decode(&header, journal).ok());
        let ours = |record: &Record| {
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

async fn carry_out<O: Device>(origin: &O, record: &Record, data: Option<Shared>) -> IoResult {
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
