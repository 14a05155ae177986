//! Commits: changes of an array's members become durable in its superblocks.
//!
//! Each change is an event, of which one image is made. The image goes to the worse copy of the
//! superblock of each live member, and once all have it, to the other copies.
//!
//! Invariants:
//!     `commit` ends well ⟹ every live member has the superblock of the state at its
//!                            beginning, in both copies
//!     the newest whole copy of a member's superblock outlives every write of the next
//!     two members have an event ⟹ their images of it are the same, but for identity and role
//!     the members change ⟹ the array is not committed any more (`block::Durable`)
//!     a sealed event is on every member that was live in it, in a copy at least
//!     an event without a member is written ⟹ writes to stripes that the others acknowledged
//!                            before are durable, so that its chunks follow from theirs

use crate::core::ArrayCore;
use crate::member::ArrayMember;
use crate::superblock::{
    ArraySuperblock, Gap, MemberEntry, MemberState, Position, ROLE_SPARE, Scrubbed,
};
use block::{Extent, IoErrorKind, IoResult, Mutex, Proof};
use futures_util::future::join_all;
use layout::array::SUPERBLOCKS;
use layout::{BLOCK_BYTES, Uuid};
use std::cell::Cell;
use std::rc::Rc;

/// The past of an array by its superblocks, at a start.
#[derive(Clone, Default)]
pub(crate) struct Past {
    /// Identity of this start.
    pub generation: Uuid,
    /// The earlier starts.
    pub history: Vec<Position>,
    /// The highest event of any member's superblock.
    pub event: u64,
    /// The last event that is sealed.
    pub sealed: u64,
}

/// The part of a superblock that changes while an array runs. Each image of it is an event.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    /// By role.
    pub table: Vec<MemberEntry>,
    /// Lost sectors of the array, sorted.
    pub bad: Vec<Extent>,
    /// Gaps of single members, sorted by role and place.
    pub gaps: Vec<Gap>,
    pub scrubbed: Scrubbed,
}

/// Position of this start of an array among all starts.
pub(crate) struct Commits {
    generation: Uuid,
    history: Vec<Position>,
    /// The last event that is on every member that was live in it, in a copy at least.
    sealed: Cell<u64>,
    /// The roles without which acknowledged data is durable, a bit each.
    flushed_without: Cell<u64>,
    committing: Mutex,
}

impl Commits {
    pub fn new(past: &Past) -> Commits {
        Commits {
            generation: past.generation,
            history: past.history.clone(),
            sealed: Cell::new(past.sealed),
            flushed_without: Cell::new(0),
            committing: Mutex::default(),
        }
    }

    /// Returns the event after the last that every live member has for certain.
    pub fn after_sealed(&self) -> u64 {
        self.sealed.get() + 1
    }
}

impl Past {
    /// Returns the last event of the past.
    pub fn last_event(&self) -> u64 {
        let parent = self.history.first().map_or(0, |parent| parent.event);
        self.event.max(parent)
    }
}

impl ArrayCore {
    /// Returns the present superblock, of an event that may not be written yet.
    pub fn image(&self) -> ArraySuperblock {
        self.superblock(&self.roster.now(), self.roster.number())
    }

    fn superblock(&self, roster: &Roster, event: u64) -> ArraySuperblock {
        let meta = self.meta();
        ArraySuperblock {
            array: meta.array,
            member: Uuid::default(),
            role: ROLE_SPARE,
            events: event,
            generation: self.commits.generation,
            history: self.commits.history.clone(),
            sealed: self.commits.sealed.get(),
            name: self.name.to_string(),
            level: self.shape.level(),
            block: self.geometry.block,
            chunk: self.shape.chunk(),
            data_at: meta.data_at,
            region: meta.region,
            journal_slots: meta.journal_slots,
            table: roster.table.clone(),
            bad: roster.bad.clone(),
            gaps: roster.gaps.clone(),
            scrubbed: roster.scrubbed,
        }
    }

    /// Makes the roster durable on every live member, if it has changed. `Err`: it may not be
    /// durable; nothing must be acknowledged.
    pub async fn commit(self: &Rc<ArrayCore>) -> IoResult {
        self.committed().await.map(drop)
    }

    /// Does the same, and returns the proof that an acknowledgement of a write needs.
    pub async fn committed(self: &Rc<ArrayCore>) -> IoResult<Proof> {
        match self.proof() {
            Some(proof) => Ok(proof),
            // The write of a superblock is carried through, even if its caller has given up.
            None => self.env.spawn.persist(self.clone().commit_now()).await,
        }
    }

    /// Returns the proof that every live member knows the member of `role` as out of sync, or as
    /// lacking `band`. Fails if neither is so.
    pub async fn commit_without(
        self: &Rc<ArrayCore>,
        role: usize,
        band: Extent,
    ) -> IoResult<Proof> {
        self.commit().await?;
        let out = |roster: &Roster| {
            let lacks = |gap: &Gap| gap.role == role && gap.extent.contains(band);
            roster.table[role].state != MemberState::InSync || roster.gaps.iter().any(lacks)
        };
        if let Some(proof) = self.roster.proof(out) {
            return Ok(proof);
        }
        self.check_up()?;
        Err(self.error(
            IoErrorKind::Busy,
            "a write without a member that is in sync",
        ))
    }

    async fn commit_now(self: Rc<ArrayCore>) -> IoResult<Proof> {
        let written = self.write_roster().await;
        match &written {
            Ok(_) => self.stuck_since.set(None),
            Err(error) => self.check_stuck(error),
        }
        written
    }

    async fn write_roster(self: &Rc<ArrayCore>) -> IoResult<Proof> {
        let _alone = self.commits.committing.lock().await;
        loop {
            if let Some(proof) = self.proof() {
                return Ok(proof);
            }
            self.check_up()?;
            // The image and its receivers are chosen here, before anything is waited for.
            let (event, live) = (self.roster.begin(), self.live());
            if !self.flush_without(&live, &event.table).await? {
                continue;
            }
            let mut image = self.superblock(&event, event.number());
            if !self.write_copies(&live, &image).await? {
                // A failed member counts as live in the image, which stays unsealed.
                continue;
            }
            image.sealed = image.events;
            self.commits.sealed.set(image.events);
            self.write_copies(&live, &image).await?;
            // A member that failed meanwhile has to be evicted as well.
            if event.is_newest() {
                return Ok(event.written());
            }
        }
    }

    /// Makes writes of whole stripes durable on the remaining members. The journal has no bytes of
    /// these writes: without the flush, a loss of power now would take the missing member's chunks.
    /// Returns false if a member failed to flush.
    async fn flush_without(
        self: &Rc<ArrayCore>,
        live: &[(usize, Rc<ArrayMember>)],
        table: &[MemberEntry],
    ) -> IoResult<bool> {
        let out = table.iter().enumerate();
        let out = out.filter(|(_, entry)| entry.state != MemberState::InSync);
        let without = out.fold(0, |bits, (role, _)| bits | 1 << role);
        let new = without & !self.commits.flushed_without.get();
        if new == 0 || self.journals.is_empty() {
            self.commits.flushed_without.set(without);
            return Ok(true);
        }
        let all = self.flush_each(live).await?;
        if all {
            self.commits.flushed_without.set(without);
        }
        Ok(all)
    }

    /// Flushes each of `live`. Returns true if all succeeded. A member that did not is evicted, or
    /// the call fails.
    pub async fn flush_each(
        self: &Rc<ArrayCore>,
        live: &[(usize, Rc<ArrayMember>)],
    ) -> IoResult<bool> {
        let mut all = true;
        let flushes = live.iter().map(|(_, member)| member.flush());
        for ((_, member), result) in live.iter().zip(join_all(flushes).await) {
            if let Err(error) = result {
                all = false;
                if !self.fail(member, &error) {
                    self.flush_errors.record(&error);
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// Writes `image` to a copy of the superblock of each of `live`. Returns true if all took it.
    async fn write_copies(
        self: &Rc<ArrayCore>,
        live: &[(usize, Rc<ArrayMember>)],
        image: &ArraySuperblock,
    ) -> IoResult<bool> {
        let writes = live.iter().map(|(role, member)| {
            let image = image.clone();
            self.write_copy(*role as u16, member, image)
        });
        let (results, mut all) = (join_all(writes).await, true);
        for ((_, member), result) in live.iter().zip(results) {
            if let Err(error) = result {
                all = false;
                if !self.fail(member, &error) {
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// True if every live member has the present roster durably.
    pub fn is_committed(&self) -> bool {
        self.proof().is_some()
    }

    fn proof(&self) -> Option<Proof> {
        self.roster.proof_of(self.roster.version())
    }

    /// Requests a commit although no role has changed.
    pub fn want_commit(&self) {
        self.roster.change(|_| ());
    }

    /// Writes the worse copy of a member's superblock, durably, which makes it the better one.
    async fn write_copy(
        &self,
        role: u16,
        member: &ArrayMember,
        image: ArraySuperblock,
    ) -> IoResult {
        let mut buf = self.env.pool.take(BLOCK_BYTES);
        let superblock = ArraySuperblock {
            role,
            member: member.uuid,
            ..image
        };
        superblock.encode(&mut buf);
        let copy = member.worse_copy.get();
        member.write_meta(SUPERBLOCKS[copy], buf.share()).await?;
        member.worse_copy.set(1 - copy);
        Ok(())
    }

    /// Makes a device that is blank, or had another use, a spare of this array.
    pub async fn write_spare(&self, member: &ArrayMember) -> IoResult {
        self.late_ended(member).await?;
        // Its old superblocks are blanked first, so that no two copies contradict each other.
        let mut blank = self.env.pool.take(BLOCK_BYTES);
        blank.fill(0);
        let blank = blank.share();
        for copy in SUPERBLOCKS {
            member.write_meta(copy, blank.clone()).await?;
        }
        for _ in SUPERBLOCKS {
            self.write_copy(ROLE_SPARE, member, self.image()).await?;
        }
        Ok(())
    }
}
