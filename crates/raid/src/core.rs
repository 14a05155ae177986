//! What an array is made of and who is in it.
//!
//! Invariants:
//!     a member that missed an acknowledged write is failed in the superblock of
//!         every live member                               (`commit` before `Ok`)
//!     a member is failed only if the others can carry the array on
//!     a member serves reads ⟺ it is in sync

use crate::bitmap::Bitmap;
use crate::commit::{Commits, Past, Roster};
use crate::events::Event;
use crate::journal::Journal;
use crate::late::Late;
use crate::levels::{Leg, Piece, Shape};
use crate::member::{Member, is_loss};
use crate::replace::Replacement;
use crate::rests::Rests;
use crate::scratch;
use crate::superblock::{Gap, MemberEntry, MemberState, Scrubbed};
use block::{
    Device, Durable, Env, Extent, FlushErrors, Geometry, IoError, IoResult, Kind, Mutex, Nanos,
    RangeLock, Reserve, Sectors, Seen, Signal, Version,
};
use layout::Uuid;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// How long members that take no superblock may recover.
const STUCK_MAX: Nanos = Nanos::from_secs(1);

/// How an array behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a member may take for an operation before it is lost. Without one, and
    /// of a member that the array cannot do without, as long as the device itself allows.
    pub timeout: Option<Nanos>,
    /// How long a region must be idle, at least, before its bit in the
    /// write-intent bitmap is cleared. Longer, up to 64 times, while writes are
    /// spread so that most bits are wanted again at once.
    pub clear_after: Nanos,
    /// Bytes a second that a rebuild may move while the array is in use.
    pub rebuild_floor: u64,
    /// How long after the last request the array counts as in use.
    pub busy_for: Nanos,
    /// How long a spare leaves a member that does not answer the time to come back, for
    /// then it needs only what it missed. None is left one that refuses what it is given.
    pub spare_delay: Nanos,
    /// How often a write that a member's medium refuses is tried again before the member
    /// is lost.
    pub rewrites: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: None,
            clear_after: Nanos::from_secs(5),
            rebuild_floor: 10 << 20,
            busy_for: Nanos::from_millis(100),
            spare_delay: Nanos::ZERO,
            rewrites: 0,
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

pub(crate) struct Slot {
    pub member: RefCell<Option<Rc<Member>>>,
    /// When a spare may take the role, if it is lost.
    pub spare_at: Cell<Nanos>,
    /// The version of the roster with which every member knows that it is in sync. Before that none may
    /// be lost that would take itself for the only one.
    pub known_from: Cell<Version>,
    /// The version of the roster with which it was left behind last.
    pub lost_from: Cell<Version>,
    /// What has been logged of it since it was last in sync.
    pub logged: RefCell<BTreeSet<String>>,
}

pub(crate) struct Core {
    pub name: Arc<str>,
    pub shape: Shape,
    pub geometry: Geometry,
    pub env: Env,
    pub options: Options,
    pub slots: Vec<Slot>,
    pub spares: RefCell<Vec<Rc<Member>>>,
    /// All of these, and those that were here before; see [`Core::know`].
    pub members: RefCell<Vec<Weak<Member>>>,
    /// Devices on their way to become a spare, or to take a place.
    pub joining: RefCell<BTreeSet<Arc<str>>>,
    /// Roles that a device is on its way to take.
    pub claimed: RefCell<BTreeSet<usize>>,
    pub meta: Option<Meta>,
    pub bitmap: Option<Bitmap>,
    /// Of RAID 5, by role.
    pub journals: Vec<Journal>,
    /// Ranges being written, or brought into agreement.
    pub busy: RangeLock,
    /// Regions whose copies may differ, since a crash or a write that failed.
    pub unsynced: RefCell<BTreeSet<usize>>,
    /// Regions in which a write has failed since a rebuild or a resynchronisation
    /// began, which goes over them again.
    pub again: RefCell<BTreeSet<usize>>,
    /// Who is in the array, and what all members know of that.
    pub roster: Durable<Roster>,
    /// Why writes are refused.
    pub down: RefCell<Option<String>>,
    /// Flushes that failed, whoever asked for them, and which of them the user has had.
    pub flush_errors: FlushErrors,
    pub user: Cell<Seen>,
    pub events: RefCell<Vec<Event>>,
    pub event_count: Cell<u64>,
    pub turn: Cell<u64>,
    pub last_use: Cell<Nanos>,
    pub progress: Cell<crate::maintenance::Progress>,
    /// How far the scrub is that runs.
    pub scrub: Cell<crate::maintenance::Progress>,
    /// It is to end where it is.
    pub scrub_cancelled: Cell<bool>,
    pub commits: Commits,
    /// Changes that are under way, whoever still waits for them.
    pub late: Late,
    /// What takes the place of a member in sync once it is whole.
    pub replacement: RefCell<Option<Replacement>>,
    /// When the filling of members rests.
    pub rests: Rests,
    /// When it is next tried to fill what members lack, and the pause after that.
    pub gaps_due: Cell<Nanos>,
    pub gaps_pause: Cell<Nanos>,
    /// How many stripes of RAID 5 are changed at once.
    pub lanes: RangeLock,
    /// Who is to know that the array waits for a member that does not answer.
    pub watching: Signal,
    /// Zeroes are written by one request at a time.
    pub zeroing: Mutex,
    /// Of RAID 5: memory beside that of its callers.
    pub reserve: Option<Reserve>,
    /// Since when who is in the array cannot be recorded.
    pub stuck_since: Cell<Option<Nanos>>,
    pub closed: Cell<bool>,
}

pub(crate) struct Parts {
    pub name: Arc<str>,
    pub shape: Shape,
    pub block: Sectors,
    pub members: Vec<(Option<Rc<Member>>, MemberEntry)>,
    pub spares: Vec<Rc<Member>>,
    pub meta: Option<Meta>,
    pub past: Past,
    pub bad: Vec<Extent>,
    pub gaps: Vec<Gap>,
    pub scrubbed: Scrubbed,
}

impl Core {
    /// `Err(Invalid)`: the memory is too small for its stripes.
    pub fn new(parts: Parts, env: Env, options: Options) -> IoResult<Rc<Core>> {
        let shape = parts.shape;
        let reserve = match shape.level().has_parity() {
            true => {
                let who = format!("the array {}", parts.name);
                Some(Reserve::new(&env.pool, scratch::least(&shape), &who)?)
            }
            false => None,
        };
        let mut geometry = Geometry::new(parts.name.clone(), shape.sectors(), parts.block);
        geometry.optimal = shape.width();
        let devices = parts.members.iter().filter_map(|(m, _)| m.as_ref());
        geometry.rotational = devices.clone().any(|m| m.device.geometry().rotational);
        geometry.volatile = devices.clone().any(|m| m.device.geometry().volatile);
        let redundant = parts.meta.as_ref().filter(|_| shape.level().is_redundant());
        let bitmap = redundant.map(|meta| Bitmap::new(shape.sectors(), meta.region, meta.data_at));
        let journals = parts.meta.iter().filter(|meta| meta.journal_slots > 0);
        let journals = journals
            .flat_map(|meta| (0..shape.members()).map(|role| Journal::new(role, meta, &shape)));
        let (members, table): (Vec<_>, Vec<_>) = parts.members.into_iter().unzip();
        let roster = Roster {
            table,
            bad: parts.bad,
            gaps: parts.gaps,
            scrubbed: parts.scrubbed,
        };
        let core = Rc::new(Core {
            name: parts.name,
            journals: journals.collect(),
            bitmap,
            geometry,
            slots: members
                .into_iter()
                .map(|member| Slot {
                    member: RefCell::new(member),
                    // What is absent at a start may be on its way.
                    spare_at: Cell::new(env.timer.now() + options.spare_delay),
                    known_from: Cell::default(),
                    lost_from: Cell::default(),
                    logged: RefCell::default(),
                })
                .collect(),
            spares: RefCell::new(parts.spares),
            members: RefCell::default(),
            joining: RefCell::default(),
            claimed: RefCell::default(),
            meta: parts.meta,
            busy: RangeLock::new(),
            unsynced: RefCell::default(),
            again: RefCell::default(),
            roster: Durable::found(roster, parts.past.last_event()),
            down: RefCell::default(),
            flush_errors: FlushErrors::default(),
            user: Cell::default(),
            events: RefCell::default(),
            event_count: Cell::new(0),
            turn: Cell::new(0),
            last_use: Cell::new(Nanos::ZERO),
            progress: Cell::default(),
            scrub: Cell::default(),
            scrub_cancelled: Cell::default(),
            commits: Commits::new(&parts.past),
            late: Late::default(),
            replacement: RefCell::default(),
            rests: Rests::default(),
            gaps_due: Cell::default(),
            gaps_pause: Cell::default(),
            lanes: RangeLock::new(),
            watching: Signal::default(),
            zeroing: Mutex::default(),
            reserve,
            stuck_since: Cell::default(),
            closed: Cell::new(false),
            shape,
            env,
            options,
        });
        for slot in &core.slots {
            slot.member.borrow().iter().for_each(|m| core.own(m));
        }
        core.spares.borrow().iter().for_each(|m| core.know(m));
        Ok(core)
    }

    /// What superblocks have in common. Only arrays that have them ask.
    pub fn meta(&self) -> &Meta {
        self.meta.as_ref().expect("an array with superblocks")
    }

    pub fn state(&self, role: usize) -> MemberState {
        self.roster.now().table[role].state
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

    pub fn entry(&self, role: usize) -> MemberEntry {
        self.roster.now().table[role]
    }

    pub fn set_entry(&self, role: usize, change: impl FnOnce(&mut MemberEntry)) {
        let before = self.entry(role);
        self.roster.change(|roster| change(&mut roster.table[role]));
        let entry = self.entry(role);
        let is_new = before.uuid != entry.uuid || before.state != entry.state;
        if is_new && self.is_in_sync(role) {
            self.slots[role].known_from.set(self.roster.version());
        }
    }

    /// From here on `member` asks this array before it gives up.
    pub fn own(self: &Rc<Core>, member: &Rc<Member>) {
        self.know(member);
        *member.array.borrow_mut() = Rc::downgrade(self);
    }

    /// A member took longer than it may, or may have forgotten writes: it is left behind at once,
    /// so that others that do so at the same time are known to be needed. False if this one is.
    pub fn evict(self: &Rc<Core>, member: &Member, error: &IoError) -> bool {
        match self.role_of(member) {
            Some(role) => !self.is_needed(role) && self.fail_role(role, error),
            None => true,
        }
    }

    /// Whether `member`, which has had a role, was left behind.
    pub fn is_left(&self, member: &Member) -> bool {
        let role = self.role_of(member);
        role.is_none_or(|role| self.state(role).is_failed())
    }

    pub fn role_of(&self, member: &Member) -> Option<usize> {
        let is_it = |slot: &Slot| {
            let here = slot.member.borrow();
            here.as_ref().is_some_and(|m| std::ptr::eq(&**m, member))
        };
        self.slots.iter().position(is_it)
    }

    /// Whether a member holds data that no other has of which all know that it is in sync.
    pub fn is_needed(&self, role: usize) -> bool {
        let is_known = |other: usize| {
            let from = self.slots[other].known_from.get();
            self.roster.proof_of(from).is_some()
        };
        let others =
            |other: usize| other != role && self.in_sync(other).is_some() && is_known(other);
        self.is_in_sync(role) && !self.shape.can_run(others)
    }

    /// Leaves `member` behind because of the `error` that it answered with. Takes effect at
    /// once here, and for good with the next [`Core::commit`]. False if the array cannot do
    /// without it, or is down: then the error is the caller's. One that has its role no
    /// more was left behind before: its successor is blamed for nothing.
    pub fn fail(self: &Rc<Core>, member: &Member, error: &IoError) -> bool {
        match self.role_of(member) {
            Some(role) => self.fail_role(role, error),
            None => self.down.borrow().is_none(),
        }
    }

    /// The same of whoever has `role`.
    pub fn fail_role(self: &Rc<Core>, role: usize, error: &IoError) -> bool {
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
        self.leave(role, whole);
        let delay = match is_loss(error) {
            true => self.options.spare_delay,
            false => Nanos::ZERO,
        };
        let spare_at = self.env.timer.now() + delay;
        self.slots[role].spare_at.set(spare_at);
        self.log_once(role, format!("member {role} has failed: {error}"));
        let core = self.clone();
        self.env.spawn.spawn(async move {
            // This writes to every other member, so that a controller is missed whole.
            // Whoever acknowledges a write commits for itself and sees its error.
            let _ = core.commit().await;
        });
        true
    }

    /// `role` is lost from here on, for good with the next commit. `whole`: nothing that its
    /// member holds counts.
    pub fn leave(&self, role: usize, whole: bool) {
        let failed_at = self.commits.after_sealed();
        let map_writes = self.bitmap.as_ref().map_or(0, Bitmap::writes);
        self.set_entry(role, |entry| {
            entry.state = MemberState::Failed { whole };
            (entry.failed_at, entry.map_writes) = (failed_at, map_writes);
        });
        self.slots[role].lost_from.set(self.roster.version());
    }

    /// No member may be left behind any more because of `error`. If that lasts, and the loss of
    /// one is not recorded, nothing was acknowledged since: the array is to be assembled again,
    /// with that member.
    pub fn check_stuck(&self, error: &IoError) {
        let now = self.env.timer.now();
        let since = self.stuck_since.get().unwrap_or(now);
        self.stuck_since.set(Some(since));
        if now - since < STUCK_MAX {
            return;
        }
        let is_unrecorded = |role: &usize| {
            let from = self.slots[*role].lost_from.get();
            self.state(*role).is_failed() && self.roster.proof_of(from).is_none()
        };
        if let Some(role) = (0..self.slots.len()).find(is_unrecorded) {
            self.take_down(format!(
                "that member {role} has failed cannot be recorded: {error}"
            ));
        }
    }

    /// Refuses changes from here on.
    pub fn take_down(&self, why: String) {
        if self.down.borrow().is_none() {
            self.log(format!(
                "{}: {why}; it is to be reassembled once they are back",
                self.name
            ));
            *self.down.borrow_mut() = Some(why);
        }
    }

    /// Asks nothing more of any member: what is at work on one fails, if only once that
    /// has taken longer than it may.
    pub fn abandon(&self, why: &str) {
        self.closed.set(true);
        self.take_down(why.into());
        self.slots.iter().for_each(|slot| drop(slot.member.take()));
        self.replacement.take();
        self.spares.take();
    }

    /// Makes what every live member acknowledged durable.
    pub async fn flush_members(self: &Rc<Core>) -> IoResult {
        self.check_up()?;
        let done: Vec<u64> = self.journals.iter().map(|j| j.done_before()).collect();
        let failed: Vec<_> = self.journals.iter().map(Journal::failed).collect();
        self.flush_each(&self.live()).await?;
        self.commit().await?;
        for (journal, failed) in self.journals.iter().zip(failed) {
            journal.revoke(self, &failed).await?;
        }
        let flushed = self.committed().await?;
        for (journal, done) in self.journals.iter().zip(done) {
            journal.free_before(done, &flushed);
        }
        Ok(())
    }
}
