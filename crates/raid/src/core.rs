//! What an array is made of, who is in it, and how a change of that becomes
//! durable.
//!
//! Invariants:
//!     a member that missed an acknowledged write is failed in the superblock of
//!         every live member                               (`commit` before `Ok`)
//!     a member is failed only if the others can carry the array on
//!     a member serves reads ⟺ it is in sync

use crate::format::{
    BLOCK_BYTES, MemberEntry, MemberState, ROLE_SPARE, SUPERBLOCKS, Superblock, Uuid,
};
use crate::intent::Intent;
use crate::journal::Journal;
use crate::levels::{Leg, Piece, Shape};
use crate::member::{Member, is_loss};
use block::{
    Access, Device, Env, Extent, Geometry, IoError, IoResult, Kind, Lba, Nanos, RangeLock, Sectors,
};
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// How an array behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a member may take for an operation before it is lost. Without one, and
    /// of a member that the array cannot do without, as long as the device itself allows.
    pub patience: Option<Nanos>,
    /// How long a region must be idle, at least, before its mark in the
    /// write-intent map is taken away. Longer, up to 64 times, while writes are
    /// spread so that most marks are wanted again at once.
    pub clear_after: Nanos,
    /// Bytes a second that a rebuild may move while the array is in use.
    pub rebuild_floor: u64,
    /// How long after the last request the array counts as in use.
    pub busy_for: Nanos,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            patience: None,
            clear_after: Nanos::from_secs(5),
            rebuild_floor: 10 << 20,
            busy_for: Nanos::from_millis(100),
        }
    }
}

/// What all superblocks of an array have in common.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub array: Uuid,
    pub data_at: Sectors,
    pub region: Sectors,
    pub journal_slots: u32,
}

/// Something that an administrator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When.
    pub at: Nanos,
    /// One sentence.
    pub what: String,
}

/// The most events that are kept.
const EVENTS_MAX: usize = 64;

pub(crate) struct Slot {
    pub member: RefCell<Option<Rc<Member>>>,
    pub entry: Cell<MemberEntry>,
}

pub(crate) struct Core {
    pub name: Arc<str>,
    pub shape: Shape,
    pub geometry: Geometry,
    pub env: Env,
    pub options: Options,
    pub slots: Vec<Slot>,
    pub spares: RefCell<Vec<Rc<Member>>>,
    /// Devices on their way to become a spare, or to take a place.
    joining: RefCell<BTreeSet<Arc<str>>>,
    pub meta: Option<Meta>,
    pub intent: Option<Intent>,
    /// Of RAID 5, by role.
    pub journals: Vec<Journal>,
    /// Ranges being written, or brought into agreement.
    pub busy: RangeLock,
    /// Regions whose copies may differ, since a crash or a write that failed.
    pub unsynced: RefCell<BTreeSet<usize>>,
    /// Regions in which a write has failed since a rebuild or a resynchronisation
    /// began, which goes over them again.
    pub again: RefCell<BTreeSet<usize>>,
    /// Lost sectors of the array, sorted.
    pub bad: RefCell<Vec<Extent>>,
    /// Why writes are refused.
    pub down: RefCell<Option<String>>,
    pub events: RefCell<Vec<Event>>,
    pub event_count: Cell<u64>,
    pub turn: Cell<u64>,
    pub last_use: Cell<Nanos>,
    pub progress: Cell<crate::recover::Progress>,
    generation: Cell<u64>,
    /// Not every live member has that generation's superblock.
    incomplete: Cell<bool>,
    wanted: Cell<u64>,
    committed: Cell<u64>,
    committing: RangeLock,
    /// How many stripes of RAID 5 are changed at once.
    pub lanes: RangeLock,
    pub closed: Cell<bool>,
}

pub(crate) struct Parts {
    pub name: Arc<str>,
    pub shape: Shape,
    pub block: Sectors,
    pub members: Vec<(Option<Rc<Member>>, MemberEntry)>,
    pub spares: Vec<Rc<Member>>,
    pub meta: Option<Meta>,
    pub generation: u64,
    pub bad: Vec<Extent>,
}

impl Core {
    pub fn new(parts: Parts, env: Env, options: Options) -> Rc<Core> {
        let shape = parts.shape;
        let mut geometry = Geometry::new(parts.name.clone(), shape.sectors(), parts.block);
        geometry.optimal = shape.width();
        let devices = parts.members.iter().filter_map(|(m, _)| m.as_ref());
        geometry.rotational = devices.clone().any(|m| m.device.geometry().rotational);
        geometry.volatile = devices.clone().any(|m| m.device.geometry().volatile);
        let redundant = parts.meta.as_ref().filter(|_| shape.level().is_redundant());
        let intent = redundant.map(|meta| Intent::new(shape.sectors(), meta.region));
        let journals = parts.meta.iter().filter(|meta| meta.journal_slots > 0);
        let journals = journals
            .flat_map(|meta| (0..shape.members()).map(|role| Journal::new(role, meta, &shape)));
        let core = Rc::new(Core {
            name: parts.name,
            journals: journals.collect(),
            intent,
            geometry,
            slots: parts
                .members
                .into_iter()
                .map(|(member, entry)| Slot {
                    member: RefCell::new(member),
                    entry: Cell::new(entry),
                })
                .collect(),
            spares: RefCell::new(parts.spares),
            joining: RefCell::default(),
            meta: parts.meta,
            busy: RangeLock::new(),
            unsynced: RefCell::default(),
            again: RefCell::default(),
            bad: RefCell::new(parts.bad),
            down: RefCell::default(),
            events: RefCell::default(),
            event_count: Cell::new(0),
            turn: Cell::new(0),
            last_use: Cell::new(Nanos::ZERO),
            progress: Cell::default(),
            generation: Cell::new(parts.generation),
            incomplete: Cell::new(false),
            wanted: Cell::new(0),
            committed: Cell::new(0),
            committing: RangeLock::new(),
            lanes: RangeLock::new(),
            closed: Cell::new(false),
            shape,
            env,
            options,
        });
        for slot in &core.slots {
            slot.member.borrow().iter().for_each(|m| core.own(m));
        }
        core
    }

    /// What superblocks have in common. Only arrays that have them ask.
    pub fn meta(&self) -> &Meta {
        self.meta.as_ref().expect("an array with superblocks")
    }

    pub fn state(&self, role: usize) -> MemberState {
        self.slots[role].entry.get().state
    }

    pub fn is_in_sync(&self, role: usize) -> bool {
        self.state(role) == MemberState::InSync
    }

    /// Whether every role is in sync.
    pub fn is_whole(&self) -> bool {
        (0..self.slots.len()).all(|role| self.is_in_sync(role))
    }

    /// The member of a role that serves reads.
    pub fn in_sync(&self, role: usize) -> Option<Rc<Member>> {
        let serves = self.is_in_sync(role);
        self.slots[role].member.borrow().clone().filter(|_| serves)
    }

    /// The member of a role that takes writes.
    pub fn writable(&self, role: usize) -> Option<Rc<Member>> {
        let failed = self.state(role).is_failed();
        self.slots[role].member.borrow().clone().filter(|_| !failed)
    }

    /// The members that take writes.
    pub fn live(&self) -> Vec<(usize, Rc<Member>)> {
        let roles = 0..self.slots.len();
        roles
            .filter_map(|role| Some((role, self.writable(role)?)))
            .collect()
    }

    /// The legs of a piece that may be read.
    pub fn readable(&self, piece: &Piece) -> Vec<(Leg, Rc<Member>)> {
        let legs = piece.legs().iter();
        legs.filter_map(|leg| Some((*leg, self.in_sync(leg.member)?)))
            .collect()
    }

    pub fn tell(&self, what: String) {
        let mut events = self.events.borrow_mut();
        if events.len() == EVENTS_MAX {
            events.remove(0);
        }
        events.push(Event {
            at: self.env.timer.now(),
            what,
        });
        self.event_count.set(self.event_count.get() + 1);
    }

    /// An error of the array.
    pub fn error(&self, kind: Kind, what: impl Into<std::borrow::Cow<'static, str>>) -> IoError {
        IoError::new(kind, what).on(self.name.to_string())
    }

    /// Refuses changes to an array that has lost too many members.
    pub fn check_up(&self) -> IoResult {
        match &*self.down.borrow() {
            None => Ok(()),
            Some(why) => Err(self.error(Kind::Gone, format!("writes are refused: {why}"))),
        }
    }

    pub fn set_entry(&self, role: usize, change: impl FnOnce(&mut MemberEntry)) {
        let mut entry = self.slots[role].entry.get();
        change(&mut entry);
        self.slots[role].entry.set(entry);
        self.wanted.set(self.wanted.get() + 1);
    }

    /// From here on `member` asks this array before it gives up.
    pub fn own(self: &Rc<Core>, member: &Member) {
        *member.array.borrow_mut() = Rc::downgrade(self);
    }

    /// A member took longer than it may: it is left behind at once, so that others that
    /// do so at the same time are known to be needed. False if this one is.
    pub fn leave(self: &Rc<Core>, late: &Member, error: &IoError) -> bool {
        let is_it = |slot: &Slot| {
            let member = slot.member.borrow();
            member.as_ref().is_some_and(|m| std::ptr::eq(&**m, late))
        };
        match self.slots.iter().position(is_it) {
            Some(role) => !self.is_needed(role) && self.fail(role, error),
            None => true,
        }
    }

    /// Whether a member holds data that no other in sync has.
    pub fn is_needed(&self, role: usize) -> bool {
        let others = |other: usize| other != role && self.in_sync(other).is_some();
        self.is_in_sync(role) && !self.shape.can_run(others)
    }

    /// Leaves a member behind because of `error`. Takes effect at once here,
    /// and for good with the next [`Core::commit`]. False if the array cannot do
    /// without it: then the error is the caller's.
    pub fn fail(self: &Rc<Core>, role: usize, error: &IoError) -> bool {
        let state = self.state(role);
        if state.is_failed() {
            return true;
        }
        if !self.shape.level().is_redundant() {
            return false;
        }
        if self.is_needed(role) {
            if is_loss(error) {
                self.take_down(format!("too few members are left after {error}"));
            }
            return false;
        }
        let whole = matches!(state, MemberState::Rebuilding { whole: true });
        let failed_at = self.generation.get() + 1;
        self.set_entry(role, |entry| {
            entry.state = MemberState::Failed { whole };
            entry.failed_at = failed_at;
        });
        self.tell(format!("{}: member {role} has failed: {error}", self.name));
        let core = self.clone();
        self.env.spawn.spawn(async move {
            // This writes to every other member, so that a controller is missed whole.
            // Whoever acknowledges a write commits for itself and sees its error.
            let _ = core.commit().await;
        });
        true
    }

    /// Refuses changes from here on.
    pub fn take_down(&self, why: String) {
        if self.down.borrow().is_none() {
            self.tell(format!(
                "{}: {why}; it is to be put together again once they are back",
                self.name
            ));
            *self.down.borrow_mut() = Some(why);
        }
    }

    /// The superblock as a member is to have it.
    pub fn superblock(&self, role: u16, member: Uuid) -> Superblock {
        let meta = self.meta();
        Superblock {
            array: meta.array,
            member,
            role,
            events: self.generation.get(),
            name: self.name.to_string(),
            level: self.shape.level(),
            block: self.geometry.block,
            chunk: self.shape.chunk(),
            data_at: meta.data_at,
            region: meta.region,
            journal_slots: meta.journal_slots,
            table: self.slots.iter().map(|slot| slot.entry.get()).collect(),
            bad: self.bad.borrow().clone(),
        }
    }

    /// Makes who is in the array durable on every live member, if that has
    /// changed. `Err`: it may not be; nothing must be acknowledged.
    pub async fn commit(self: &Rc<Core>) -> IoResult {
        if self.committed.get() == self.wanted.get() || self.meta.is_none() {
            return Ok(());
        }
        // Boxed, so that the futures of requests stay small: they are moved.
        Box::pin(self.commit_now()).await
    }

    async fn commit_now(self: &Rc<Core>) -> IoResult {
        let all = Extent::new(Lba::ZERO, Sectors(1));
        let _alone = self.committing.lock(all, Access::Exclusive).await;
        while self.committed.get() != self.wanted.get() {
            self.check_up()?;
            let wanted = self.wanted.get();
            // Members that refuse and cannot be left behind would fall further and
            // further behind, and count for members that missed writes.
            if !self.incomplete.replace(true) {
                self.generation.set(self.generation.get() + 1);
            }
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
            self.incomplete.set(false);
            // A member that failed meanwhile has to be left behind as well.
            if self.wanted.get() == wanted {
                self.committed.set(wanted);
            }
        }
        Ok(())
    }

    /// Makes what every live member acknowledged durable.
    pub async fn flush_members(self: &Rc<Core>) -> IoResult {
        self.check_up()?;
        let done: Vec<u64> = self.journals.iter().map(|j| j.done_before()).collect();
        let failed: Vec<_> = self.journals.iter().map(Journal::failed).collect();
        let live = self.live();
        let results = join_all(live.iter().map(|(_, member)| member.flush())).await;
        for ((role, _), result) in live.iter().zip(results) {
            if let Err(error) = result
                && !self.fail(*role, &error)
            {
                return Err(error);
            }
        }
        self.commit().await?;
        for (journal, failed) in self.journals.iter().zip(failed) {
            journal.take_back(self, &failed).await?;
        }
        self.commit().await?;
        for (journal, done) in self.journals.iter().zip(done) {
            journal.free_before(done);
        }
        Ok(())
    }

    /// A device is to join, unless it does so already or is here.
    pub fn join(&self, name: &Arc<str>) -> IoResult<Joining<'_>> {
        let serves = self.live().iter().any(|(_, member)| member.name == *name);
        let waits = self.spares.borrow().iter().any(|spare| spare.name == *name);
        if serves || waits || !self.joining.borrow_mut().insert(name.clone()) {
            return Err(self.error(Kind::Busy, format!("{name} is in this array already")));
        }
        Ok(Joining(self, name.clone()))
    }

    /// Asks for a commit although no role has changed.
    pub fn want_commit(&self) {
        self.wanted.set(self.wanted.get() + 1);
    }

    pub async fn write_superblock(&self, role: u16, member: &Member) -> IoResult {
        let mut buf = self.env.pool.get(BLOCK_BYTES).await;
        self.superblock(role, member.uuid).encode(&mut buf);
        // The other copy stays whole whatever becomes of this write: one that is torn
        // is written first.
        let copy = SUPERBLOCKS[(self.generation.get() % 2) as usize];
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
            let buf = self.env.pool.get(BLOCK_BYTES).await;
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
            let mut buf = self.env.pool.get(BLOCK_BYTES).await;
            self.superblock(ROLE_SPARE, member.uuid).encode(&mut buf);
            member.write_meta(copy, buf.share()).await?;
        }
        Ok(())
    }
}

/// While a device joins; see [`Core::join`].
pub(crate) struct Joining<'a>(&'a Core, Arc<str>);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.0.joining.borrow_mut().remove(&self.1);
    }
}
