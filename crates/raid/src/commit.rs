//! How a change of who is in an array becomes durable: its superblocks.
//!
//! Each change is an event; an event that not every live member has taken is written
//! anew, as another revision, so that a member that refuses and cannot be left behind
//! stays at most one event behind.
//!
//! Invariants:
//!     `commit` ends well ⟹ every live member has the superblock of what was so when
//!                            it began
//!     the last whole superblock of a member outlives every write of the next

use crate::core::Core;
use crate::format::{BLOCK_BYTES, ROLE_SPARE, SUPERBLOCKS, Superblock, Uuid};
use crate::member::Member;
use block::{Access, Extent, IoResult, Lba, RangeLock, Sectors};
use futures_util::future::join_all;
use std::cell::Cell;
use std::rc::Rc;

/// Which changes are durable.
pub(crate) struct Commits {
    /// The last event.
    generation: Cell<u64>,
    /// Not every live member has it.
    incomplete: Cell<bool>,
    /// How often it was written anew.
    revision: Cell<u32>,
    wanted: Cell<u64>,
    committed: Cell<u64>,
    committing: RangeLock,
}

impl Commits {
    /// After the event `generation`.
    pub fn new(generation: u64) -> Commits {
        Commits {
            generation: Cell::new(generation),
            incomplete: Cell::new(false),
            revision: Cell::new(0),
            wanted: Cell::new(0),
            committed: Cell::new(0),
            committing: RangeLock::new(),
        }
    }

    /// An event that no member has yet, nor will before what is so now is durable.
    pub fn next_event(&self) -> u64 {
        self.generation.get() + 1
    }

    /// Goes on to the next event, or to the next revision of one that some lack: else
    /// members that refuse and cannot be left behind would fall further and further
    /// behind, and count for members that missed writes.
    fn begin(&self) {
        if self.incomplete.replace(true) {
            self.revision.set(self.revision.get() + 1);
        } else {
            self.generation.set(self.generation.get() + 1);
            self.revision.set(0);
        }
    }
}

impl Core {
    /// The superblock as a member is to have it.
    pub fn superblock(&self, role: u16, member: Uuid) -> Superblock {
        let meta = self.meta();
        Superblock {
            array: meta.array,
            member,
            role,
            events: self.commits.generation.get(),
            revision: self.commits.revision.get(),
            name: self.name.to_string(),
            level: self.shape.level(),
            block: self.geometry.block,
            chunk: self.shape.chunk(),
            data_at: meta.data_at,
            region: meta.region,
            journal_slots: meta.journal_slots,
            table: self.table(),
            bad: self.bad.borrow().clone(),
        }
    }

    /// Makes who is in the array durable on every live member, if that has
    /// changed. `Err`: it may not be; nothing must be acknowledged.
    pub async fn commit(self: &Rc<Core>) -> IoResult {
        if self.is_committed() || self.meta.is_none() {
            return Ok(());
        }
        // Boxed, so that the futures of requests stay small: they are moved.
        Box::pin(self.commit_now()).await
    }

    async fn commit_now(self: &Rc<Core>) -> IoResult {
        let all = Extent::new(Lba::ZERO, Sectors(1));
        let _alone = self.commits.committing.lock(all, Access::Exclusive).await;
        while !self.is_committed() {
            self.check_up()?;
            let wanted = self.commits.wanted.get();
            self.commits.begin();
            let live = self.live();
            let writes = live
                .iter()
                .map(|(role, member)| self.write_superblock(*role as u16, member));
            let results = join_all(writes).await;
            for ((role, _), result) in live.iter().zip(results) {
                if let Err(error) = result
                    && !self.fail(*role, &error)
                {
                    return Err(error);
                }
            }
            self.commits.incomplete.set(false);
            // A member that failed meanwhile has to be left behind as well.
            if self.commits.wanted.get() == wanted {
                self.commits.committed.set(wanted);
            }
        }
        Ok(())
    }

    /// Whether every live member knows durably who is in the array.
    pub fn is_committed(&self) -> bool {
        self.commits.committed.get() == self.commits.wanted.get()
    }

    /// Asks for a commit although no role has changed.
    pub fn want_commit(&self) {
        self.commits.wanted.set(self.commits.wanted.get() + 1);
    }

    /// Gives `member` its superblock, durably.
    pub async fn write_superblock(&self, role: u16, member: &Member) -> IoResult {
        let mut buf = self.env.pool.take(BLOCK_BYTES);
        self.superblock(role, member.uuid).encode(&mut buf);
        // The other copy stays whole whatever becomes of this write: one that is torn
        // is written first.
        let copy = SUPERBLOCKS[(self.commits.generation.get() % 2) as usize];
        let torn = member.torn.take().filter(|torn| *torn != copy);
        let block = buf.share();
        for copy in torn.into_iter().chain([copy]) {
            let written = member.write_meta(copy, block.clone()).await;
            if written.is_err() {
                member.torn.set(Some(copy));
                return written;
            }
        }
        Ok(())
    }

    /// Makes a copy of a member's superblock that cannot be read, or was torn, the
    /// same as the other: the next commit may overwrite that one.
    pub async fn mend_superblocks(&self, member: &Member) -> IoResult {
        let mut found = [None, None];
        for (copy, found) in SUPERBLOCKS.into_iter().zip(&mut found) {
            let buf = self.env.pool.take(BLOCK_BYTES);
            let (buf, result) = member.read_meta(copy, buf).await;
            let legible = result.is_ok() && Superblock::decode(&buf).is_some();
            *found = legible.then_some(buf);
        }
        match found {
            [Some(whole), None] => member.write_meta(SUPERBLOCKS[1], whole.share()).await,
            [None, Some(whole)] => member.write_meta(SUPERBLOCKS[0], whole.share()).await,
            _ => Ok(()),
        }
    }

    /// Makes a device that is blank, or was somebody's, a spare of this array.
    pub async fn write_spare(&self, member: &Member) -> IoResult {
        for copy in SUPERBLOCKS {
            let mut buf = self.env.pool.take(BLOCK_BYTES);
            self.superblock(ROLE_SPARE, member.uuid).encode(&mut buf);
            member.write_meta(copy, buf.share()).await?;
        }
        Ok(())
    }
}
