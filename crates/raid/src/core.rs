//! The parts of an array and its members.
//!
//! Invariants:
//!     a member that missed an acknowledged write is failed in the superblock of
//!         every live member                               (`commit` before `Ok`)
//!     a member is failed only if the others can carry the array on
//!     a member serves reads ⟺ it is in sync

use crate::bitmap::IntentBitmap;
use crate::commit::{Commits, Past, Roster};
use crate::events::ArrayEvent;
use crate::journal::StripeJournal;
use crate::late::LateChanges;
use crate::levels::{ArrayShape, Leg, LegPiece};
use crate::member::{ArrayMember, is_loss};
use crate::replace::MemberReplacement;
use crate::rests::Rests;
use crate::scratch;
use crate::superblock::{Gap, MemberEntry, MemberState, Scrubbed};
use block::{
    Device, Durable, Env, Extent, FlushErrors, Geometry, IoError, IoErrorKind, IoResult, Mutex,
    Nanos, RangeLock, Reserve, Sectors, SeenFailures, Signal, Version,
};
use layout::Uuid;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Longest time for members that take no superblock to recover.
const STUCK_MAX: Nanos = Nanos::from_secs(1);

/// Settings of an array.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time limit of an operation of a member, after which the member is lost. Without one, and for
    /// a member that the array needs, the limit is that of the device itself.
    pub timeout: Option<Nanos>,
    /// Least idle time of a region before its bit in the write-intent bitmap is cleared. The time
    /// grows up to 64 times while writes are spread so that most bits are wanted again at once.
    pub clear_after: Nanos,
    /// Size of the aligned range whose regions are marked in the write-intent bitmap by the first
    /// write to one of them. Later writes there wait for no mark. After a loss of power, and when a
    /// member returns, as much more is copied.
    pub mark_ahead: Sectors,
    /// Bytes a second that a rebuild may move while the array is in use.
    pub rebuild_floor: u64,
    /// Time after the last request for which the array counts as in use.
    pub busy_for: Nanos,
    /// Time that a spare leaves an unresponsive member to come back, since a returning member needs
    /// only the data that it missed. A member that refuses operations gets no such time.
    pub spare_delay: Nanos,
    /// Number of retries of a write that a member's medium refuses, before the member is lost.
    pub rewrites: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: None,
            clear_after: Nanos::from_secs(5),
            mark_ahead: Sectors::from_mib(64),
            rebuild_floor: 10 << 20,
            busy_for: Nanos::from_millis(100),
            spare_delay: Nanos::ZERO,
            rewrites: 0,
        }
    }
}

/// Fields that all superblocks of an array have in common.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub array: Uuid,
    pub data_at: Sectors,
    pub region: Sectors,
    pub journal_slots: u32,
}

pub(crate) struct LegSlot {
    pub member: RefCell<Option<Rc<ArrayMember>>>,
    /// Earliest time at which a spare may take the role, if the member is lost.
    pub spare_at: Cell<Nanos>,
    /// The version of the roster with which every member knows that this one is in sync. Before
    /// that no member may be lost that would count itself as the only one.
    pub known_from: Cell<Version>,
    /// The version of the roster of the last eviction.
    pub lost_from: Cell<Version>,
    /// Messages that were logged of the member since it was last in sync.
    pub logged: RefCell<BTreeSet<String>>,
}

pub(crate) struct ArrayCore {
    pub name: Arc<str>,
    pub shape: ArrayShape,
    pub geometry: Geometry,
    pub env: Env,
    pub options: Options,
    pub slots: Vec<LegSlot>,
    pub spares: RefCell<Vec<Rc<ArrayMember>>>,
    /// All present and former members and spares; see [`ArrayCore::know`].
    pub members: RefCell<Vec<Weak<ArrayMember>>>,
    /// Devices that are about to become a spare, or to take a place.
    pub joining: RefCell<BTreeSet<Arc<str>>>,
    /// Roles that a device is about to take.
    pub claimed: RefCell<BTreeSet<usize>>,
    pub meta: Option<Meta>,
    pub bitmap: Option<IntentBitmap>,
    /// Of RAID 5, by role.
    pub journals: Vec<StripeJournal>,
    /// Ranges being written, or resynced.
    pub busy: RangeLock,
    /// Regions with copies that may differ, since a crash or a write that failed.
    pub unsynced: RefCell<BTreeSet<usize>>,
    /// Regions in which a write has failed since a rebuild or a resync began. That goes over them
    /// again.
    pub again: RefCell<BTreeSet<usize>>,
    /// The members, and the version of them that all members know.
    pub roster: Durable<Roster>,
    /// Reason why writes are refused.
    pub down: RefCell<Option<String>>,
    /// Flushes that failed, whoever asked for them, and the last of them that the user has seen.
    pub flush_errors: FlushErrors,
    pub user: Cell<SeenFailures>,
    pub events: RefCell<Vec<ArrayEvent>>,
    pub event_count: Cell<u64>,
    pub turn: Cell<u64>,
    pub last_use: Cell<Nanos>,
    pub progress: Cell<crate::maintenance::MaintenanceProgress>,
    /// Progress of the running scrub.
    pub scrub: Cell<crate::maintenance::MaintenanceProgress>,
    /// The scrub is to end where it is.
    pub scrub_cancelled: Cell<bool>,
    pub commits: Commits,
    /// Changes in flight, with or without a caller that waits.
    pub late: LateChanges,
    /// The device that takes the place of a member in sync once it is complete.
    pub replacement: RefCell<Option<MemberReplacement>>,
    /// The pauses of rebuilds.
    pub rests: Rests,
    /// Time of the next attempt to fill gaps of members, and the pause after that.
    pub gaps_due: Cell<Nanos>,
    pub gaps_pause: Cell<Nanos>,
    /// Limits the number of RAID 5 stripes that are changed at once.
    pub lanes: RangeLock,
    /// Wakes tasks that watch for a member that does not answer.
    pub watching: Signal,
    /// Zeroes are written by one request at a time.
    pub zeroing: Mutex,
    /// Of RAID 5: memory beside that of its callers.
    pub reserve: Option<Reserve>,
    /// Time since when the roster cannot be recorded.
    pub stuck_since: Cell<Option<Nanos>>,
    pub closed: Cell<bool>,
}

pub(crate) struct CoreParts {
    pub name: Arc<str>,
    pub shape: ArrayShape,
    pub block: Sectors,
    pub members: Vec<(Option<Rc<ArrayMember>>, MemberEntry)>,
    pub spares: Vec<Rc<ArrayMember>>,
    pub meta: Option<Meta>,
    pub past: Past,
    pub bad: Vec<Extent>,
    pub gaps: Vec<Gap>,
    pub scrubbed: Scrubbed,
}

impl CoreParts {
    fn geometry(&self) -> Geometry {
        let mut geometry = Geometry::new(self.name.clone(), self.shape.sectors(), self.block);
        geometry.optimal = self.shape.width();
        let mut devices = self.members.iter().filter_map(|(m, _)| m.as_ref());
        geometry.rotational = devices.clone().any(|m| m.device.geometry().rotational);
        geometry.volatile = devices.any(|m| m.device.geometry().volatile);
        geometry
    }

    fn bitmap(&self) -> Option<IntentBitmap> {
        let redundant = self.shape.level().is_redundant();
        let meta = self.meta.as_ref().filter(|_| redundant)?;
        let sectors = self.shape.sectors();
        Some(IntentBitmap::new(sectors, meta.region, meta.data_at))
    }

    fn journals(&self) -> Vec<StripeJournal> {
        let journaled = self.meta.as_ref().filter(|meta| meta.journal_slots > 0);
        let Some(meta) = journaled else {
            return Vec::new();
        };
        let roles = 0..self.shape.members();
        roles
            .map(|role| StripeJournal::new(role, meta, &self.shape))
            .collect()
    }
}

impl ArrayCore {
    /// Returns `Err(Invalid)` if the memory is too small for the stripes.
    pub fn new(parts: CoreParts, env: Env, options: Options) -> IoResult<Rc<ArrayCore>> {
        let (geometry, bitmap, journals) = (parts.geometry(), parts.bitmap(), parts.journals());
        let shape = parts.shape;
        let who = format!("the array {}", parts.name);
        let parity = shape.level().has_parity();
        let reserve = parity.then(|| Reserve::new(&env.pool, scratch::least(&shape), &who));
        let (members, table): (Vec<_>, Vec<_>) = parts.members.into_iter().unzip();
        let roster = Roster {
            table,
            bad: parts.bad,
            gaps: parts.gaps,
            scrubbed: parts.scrubbed,
        };
        // A device that is absent at a start may still appear.
        let spare_at = env.timer.now() + options.spare_delay;
        let slots = members.into_iter().map(|member| LegSlot {
            member: RefCell::new(member),
            spare_at: Cell::new(spare_at),
            known_from: Cell::default(),
            lost_from: Cell::default(),
            logged: RefCell::default(),
        });
        let core = Rc::new(ArrayCore {
            name: parts.name,
            journals,
            bitmap,
            geometry,
            slots: slots.collect(),
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
            late: LateChanges::default(),
            replacement: RefCell::default(),
            rests: Rests::default(),
            gaps_due: Cell::default(),
            gaps_pause: Cell::default(),
            lanes: RangeLock::new(),
            watching: Signal::default(),
            zeroing: Mutex::default(),
            reserve: reserve.transpose()?,
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

    /// Returns the common fields of superblocks. Only arrays with superblocks call this.
    pub fn meta(&self) -> &Meta {
        self.meta.as_ref().expect("an array with superblocks")
    }

    pub fn state(&self, role: usize) -> MemberState {
        self.roster.now().table[role].state
    }

    pub fn is_in_sync(&self, role: usize) -> bool {
        self.state(role) == MemberState::InSync
    }

    /// True if every role is in sync.
    pub fn is_whole(&self) -> bool {
        (0..self.slots.len()).all(|role| self.is_in_sync(role))
    }

    /// Returns the member of a role that serves reads.
    pub fn in_sync(&self, role: usize) -> Option<Rc<ArrayMember>> {
        let serves = self.is_in_sync(role);
        self.slots[role].member.borrow().clone().filter(|_| serves)
    }

    /// Returns the member of a role that takes writes.
    pub fn writable(&self, role: usize) -> Option<Rc<ArrayMember>> {
        let failed = self.state(role).is_failed();
        self.slots[role].member.borrow().clone().filter(|_| !failed)
    }

    /// Returns the members that take writes.
    pub fn live(&self) -> Vec<(usize, Rc<ArrayMember>)> {
        let roles = 0..self.slots.len();
        roles
            .filter_map(|role| Some((role, self.writable(role)?)))
            .collect()
    }

    /// Returns the legs of a piece that may be read.
    pub fn readable(&self, piece: &LegPiece) -> Vec<(Leg, Rc<ArrayMember>)> {
        let legs = piece.legs().iter();
        legs.filter_map(|leg| Some((*leg, self.in_sync(leg.member)?)))
            .collect()
    }

    /// Makes an error of the array.
    pub fn error(
        &self,
        kind: IoErrorKind,
        what: impl Into<std::borrow::Cow<'static, str>>,
    ) -> IoError {
        IoError::new(kind, what).on(self.name.to_string())
    }

    /// Refuses changes to an array that has lost too many members.
    pub fn check_up(&self) -> IoResult {
        match &*self.down.borrow() {
            None => Ok(()),
            Some(why) => {
                let what = format!("writes are refused: {why}; bring its members back");
                Err(self.error(IoErrorKind::Gone, what))
            }
        }
    }

    /// Makes the error for sectors that no member in service holds.
    pub fn unheld(&self) -> IoError {
        let what = "no member is left that holds these sectors; bring members back, or restore the \
                    sectors from a backup";
        self.error(IoErrorKind::Gone, what)
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

    /// Makes this array the owner of `member`, which asks its array before it gives up.
    pub fn own(self: &Rc<ArrayCore>, member: &Rc<ArrayMember>) {
        self.know(member);
        *member.array.borrow_mut() = Rc::downgrade(self);
    }

    /// Evicts a member that exceeded its time limit, or may have forgotten writes. The eviction
    /// takes effect at once, so that others that fail at the same time are known to be needed.
    /// Returns false if the array needs this member.
    pub fn evict(self: &Rc<ArrayCore>, member: &ArrayMember, error: &IoError) -> bool {
        match self.role_of(member) {
            Some(role) => !self.is_needed(role) && self.fail_role(role, error),
            None => true,
        }
    }

    /// True if `member`, which has had a role, was evicted.
    pub fn is_left(&self, member: &ArrayMember) -> bool {
        let role = self.role_of(member);
        role.is_none_or(|role| self.state(role).is_failed())
    }

    pub fn role_of(&self, member: &ArrayMember) -> Option<usize> {
        let is_it = |slot: &LegSlot| {
            let here = slot.member.borrow();
            here.as_ref().is_some_and(|m| std::ptr::eq(&**m, member))
        };
        self.slots.iter().position(is_it)
    }

    /// True if the array needs this member: it is in sync, and the others cannot carry the array
    /// on. Others count only if all members know that they are in sync.
    pub fn is_needed(&self, role: usize) -> bool {
        let is_known = |other: usize| {
            let from = self.slots[other].known_from.get();
            self.roster.proof_of(from).is_some()
        };
        let others =
            |other: usize| other != role && self.in_sync(other).is_some() && is_known(other);
        self.is_in_sync(role) && !self.shape.can_run(others)
    }

    /// Evicts `member` because of the `error` of its answer. The eviction takes effect at once in
    /// memory, and for good with the next [`ArrayCore::commit`]. Returns false if the array needs the
    /// member, or is down: then the error is the caller's. A member without a role was evicted
    /// before, and its successor is not blamed.
    pub fn fail(self: &Rc<ArrayCore>, member: &ArrayMember, error: &IoError) -> bool {
        match self.role_of(member) {
            Some(role) => self.fail_role(role, error),
            None => self.down.borrow().is_none(),
        }
    }

    /// Does the same to the member of `role`.
    pub fn fail_role(self: &Rc<ArrayCore>, role: usize, error: &IoError) -> bool {
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
            // This writes to every other member, so that the loss of a whole controller is noticed
            // at once. A write commits for itself before its acknowledgement, and sees its own
            // error.
            let _ = core.commit().await;
        });
        true
    }

    /// Marks `role` as lost, for good with the next commit. `whole`: no data of its member counts.
    pub fn leave(&self, role: usize, whole: bool) {
        let failed_at = self.commits.after_sealed();
        let slot = &self.slots[role];
        let lacks_map = |m: &Rc<ArrayMember>| m.lacks_map.get();
        let lacks_map = slot.member.borrow().as_ref().is_some_and(lacks_map);
        let bitmap = self.bitmap.as_ref().filter(|_| !lacks_map);
        self.set_entry(role, |entry| {
            entry.state = MemberState::Failed { whole };
            entry.failed_at = failed_at;
            entry.map_writes = bitmap.map_or(entry.map_writes, IntentBitmap::writes);
        });
        slot.lost_from.set(self.roster.version());
    }

    /// Notes that `error` prevents every further eviction. If that lasts, and the loss of a member
    /// is not recorded, nothing was acknowledged since: the array is to be reassembled with that
    /// member.
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

    /// Asks nothing more of any member. An operation in flight on one fails, if only at the end of
    /// its time limit.
    pub fn abandon(&self, why: &str) {
        self.closed.set(true);
        self.take_down(why.into());
        self.slots.iter().for_each(|slot| drop(slot.member.take()));
        self.replacement.take();
        self.spares.take();
    }

    /// Makes all acknowledged writes of every live member durable.
    pub async fn flush_members(self: &Rc<ArrayCore>) -> IoResult {
        self.check_up()?;
        let done: Vec<u64> = self.journals.iter().map(|j| j.done_before()).collect();
        let failed: Vec<_> = self.journals.iter().map(StripeJournal::failed).collect();
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
