//! The members of an array: their states, what each lacks, and the commits that make changes of
//! them durable in its superblocks.
//!
//! Each change is an event, of which one image is made. The image goes to the worse copy of the
//! superblock of each live member, and once all have it, to the other copies.
//!
//! Requests wait for an unresponsive member that the array needs as long as its device does: an
//! error would be worse. An administrator can repair the member, and gets the error instead, as
//! does a start.
//!
//! Invariants:
//!     a member that missed an acknowledged write is failed in the superblock of
//!         every live member                               (`commit` before `Ok`)
//!     a member is failed only if the others can carry the array on
//!     a member serves reads ⟺ it is in sync
//!     `commit` ends well ⟹ every live member has the superblock of the state at its
//!                            beginning, in both copies
//!     the newest whole copy of a member's superblock outlives every write of the next
//!     two members have an event ⟹ their images of it are the same, but for identity and role
//!     the members change ⟹ the array is not committed any more (`block::Durable`)
//!     a sealed event is on every member that was live in it, in a copy at least
//!     an event without a member is written ⟹ writes to stripes that the others acknowledged
//!                            before are durable, so that its chunks follow from theirs
//!     one device at a time is about to take a role, and each device to take one place
//!     work for an administrator or a start has not ended
//!         ⟹ no member has been waited for beyond its time limit
//!     a member is tried again and again without becoming in sync
//!         ⟹ each message about it is logged once, for as long as it fails in the same few ways
//!
//! Not here: the sectors that members lack (`lost`), the work that fills members (`maintenance`).

mod lost;

use crate::levels::{ArrayShape, Leg, LegPiece};
use crate::member::{ArrayMember, MemberCandidate, is_loss};
use crate::membership::KnownMember;
use crate::runs::with;
use crate::stripe::zero_buf;
use crate::superblock::{
    ArraySuperblock, Gap, MemberEntry, MemberState, Position, ROLE_SPARE, Scrubbed,
};
use block::{
    Device, Durable, Env, Extent, FlushErrors, Geometry, IoError, IoErrorKind, IoResult, Mutex,
    Nanos, Proof, Sectors, SeenFailures, Signal, Version,
};
use futures_util::future::join_all;
use layout::array::SUPERBLOCKS;
use layout::{BLOCK_BYTES, Uuid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

/// Longest time for members that take no superblock to recover.
const STUCK_MAX: Nanos = Nanos::from_secs(1);
/// Most events that are kept.
const EVENTS_MAX: usize = 64;
/// Number of remembered sentences of a role.
const LOGGED_MAX: usize = 16;
/// Interval of looking for the answer of a device.
const ASKED_PAUSE: Nanos = Nanos::from_millis(1);

/// Settings of an array.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time limit of an operation of a member, after which the member is lost. Without one, and for
    /// a member that the array needs, the limit is that of the device itself.
    pub timeout: Option<Nanos>,
    /// Least idle time of a region before its bit in the write-intent bitmap is cleared. The time
    /// grows up to 64 times while writes are spread so that most bits are wanted again at once.
    pub clear_after: Nanos,
    /// Size of the aligned range that its first write marks in the write-intent bitmap. Later writes there wait for no mark. After a loss of power, and when a
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

/// The parts of an array, as found or planned.
pub(crate) struct ArrayParts {
    pub name: Arc<str>,
    pub shape: ArrayShape,
    pub block: Sectors,
    /// By role.
    pub members: Vec<Option<Rc<ArrayMember>>>,
    pub spares: Vec<Rc<ArrayMember>>,
    pub meta: Option<Meta>,
    pub past: Past,
    pub roster: Roster,
}

impl ArrayParts {
    fn geometry(&self) -> Geometry {
        let mut geometry = Geometry::new(self.name.clone(), self.shape.sectors(), self.block);
        geometry.optimal = self.shape.width();
        let mut devices = self.members.iter().flatten();
        geometry.rotational = devices.clone().any(|m| m.device.geometry().rotational);
        geometry.volatile = devices.any(|m| m.device.geometry().volatile);
        geometry
    }
}

struct LegSlot {
    member: RefCell<Option<Rc<ArrayMember>>>,
    /// Earliest time at which a spare may take the role, if the member is lost.
    spare_at: Cell<Nanos>,
    /// The version of the roster with which every member knows that this one is in sync. Before
    /// that no member may be lost that would count itself as the only one.
    known_from: Cell<Version>,
    /// The version of the roster of the last eviction.
    lost_from: Cell<Version>,
    /// Messages that were logged of the member since it was last in sync.
    logged: RefCell<BTreeSet<String>>,
}

/// An event for the administrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayEvent {
    /// Time of the event.
    pub at: Nanos,
    /// One sentence.
    pub what: String,
}

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
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    /// By role.
    pub table: Vec<MemberEntry>,
    /// Lost sectors of the array, sorted.
    pub bad: Vec<Extent>,
    /// Gaps of single members, sorted by role and place.
    pub gaps: Vec<Gap>,
    pub scrubbed: Scrubbed,
}

impl Roster {
    /// True if all of `extent` is in a gap of `role`.
    fn has_gap(&self, role: usize, extent: Extent) -> bool {
        let mut gaps = self.gaps.iter();
        gaps.any(|gap| gap.role == role && gap.extent.contains(extent))
    }

    /// True if a gap of `role` lies in `extent`.
    fn lacks(&self, role: usize, extent: Extent) -> bool {
        let mut gaps = self.gaps.iter();
        gaps.any(|gap| gap.role == role && gap.extent.overlaps(extent))
    }
}

/// Position of this start of an array among all starts.
struct Commits {
    generation: Uuid,
    history: Vec<Position>,
    /// The last event that is on every member that was live in it, in a copy at least.
    sealed: Cell<u64>,
    /// The roles without which acknowledged data is durable, a bit each.
    flushed_without: Cell<u64>,
    committing: Mutex,
}

impl Commits {
    fn new(past: &Past) -> Commits {
        Commits {
            generation: past.generation,
            history: past.history.clone(),
            sealed: Cell::new(past.sealed),
            flushed_without: Cell::new(0),
            committing: Mutex::default(),
        }
    }
}

impl Past {
    /// Returns the last event of the past.
    fn last_event(&self) -> u64 {
        let parent = self.history.first().map_or(0, |parent| parent.event);
        self.event.max(parent)
    }
}

/// A member that is being filled with the data of a role.
#[derive(Clone)]
pub(crate) struct Filled {
    pub role: usize,
    pub member: Rc<ArrayMember>,
}

/// A device that is to take a role.
struct MemberReplacement {
    filled: Filled,
    /// The present member of the role.
    old: Rc<ArrayMember>,
    /// Regions before this one have been copied.
    done: usize,
    /// Extents that could not be copied.
    gaps: Vec<Extent>,
    /// The replacement was cancelled.
    cancelled: bool,
}

/// The members of an array, and the devices that may become members.
pub(crate) struct ArrayMembers {
    pub name: Arc<str>,
    pub shape: ArrayShape,
    pub geometry: Geometry,
    pub env: Env,
    pub options: Options,
    pub meta: Option<Meta>,
    slots: Vec<LegSlot>,
    spares: RefCell<Vec<Rc<ArrayMember>>>,
    /// All present and former members and spares; see [`ArrayMembers::know`].
    known: RefCell<Vec<Weak<ArrayMember>>>,
    /// Devices that are about to become a spare, or to take a place.
    joining: RefCell<BTreeSet<Arc<str>>>,
    /// Roles that a device is about to take.
    claimed: RefCell<BTreeSet<usize>>,
    /// The device that takes the place of a member in sync once it is complete.
    replacement: RefCell<Option<MemberReplacement>>,
    /// The members, and the version of them that all members know.
    roster: Durable<Roster>,
    commits: Commits,
    /// Number of writes of the write-intent map, including one in flight.
    map_writes: Cell<u32>,
    /// Reason why writes are refused.
    down: RefCell<Option<String>>,
    /// Time since when the roster cannot be recorded.
    stuck_since: Cell<Option<Nanos>>,
    closed: Cell<bool>,
    /// Flushes that failed, whoever asked for them, and the last of them that the user has seen.
    flush_errors: FlushErrors,
    user: Cell<SeenFailures>,
    events: RefCell<Vec<ArrayEvent>>,
    event_count: Cell<u64>,
    /// Wakes tasks that watch for a member that does not answer.
    watching: Signal,
}

impl ArrayMembers {
    pub fn new(parts: ArrayParts, env: Env, options: Options) -> Rc<ArrayMembers> {
        let geometry = parts.geometry();
        // A device that is absent at a start may still appear.
        let spare_at = env.timer.now() + options.spare_delay;
        let slots = parts.members.into_iter().map(|member| LegSlot {
            member: RefCell::new(member),
            spare_at: Cell::new(spare_at),
            known_from: Cell::default(),
            lost_from: Cell::default(),
            logged: RefCell::default(),
        });
        let members = Rc::new(ArrayMembers {
            name: parts.name,
            shape: parts.shape,
            geometry,
            meta: parts.meta,
            slots: slots.collect(),
            spares: RefCell::new(parts.spares),
            known: RefCell::default(),
            joining: RefCell::default(),
            claimed: RefCell::default(),
            replacement: RefCell::default(),
            roster: Durable::found(parts.roster, parts.past.last_event()),
            commits: Commits::new(&parts.past),
            map_writes: Cell::default(),
            down: RefCell::default(),
            stuck_since: Cell::default(),
            closed: Cell::default(),
            flush_errors: FlushErrors::default(),
            user: Cell::default(),
            events: RefCell::default(),
            event_count: Cell::default(),
            watching: Signal::default(),
            env,
            options,
        });
        for slot in &members.slots {
            slot.member.borrow().iter().for_each(|m| members.own(m));
        }
        members.spares.borrow().iter().for_each(|m| members.know(m));
        members
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

    /// Returns the member of a role, whatever its state.
    pub fn member_of(&self, role: usize) -> Option<Rc<ArrayMember>> {
        self.slots[role].member.borrow().clone()
    }

    /// Returns the member of a role that serves reads.
    pub fn in_sync(&self, role: usize) -> Option<Rc<ArrayMember>> {
        let serves = self.is_in_sync(role);
        self.member_of(role).filter(|_| serves)
    }

    /// Returns the member of a role that takes writes.
    pub fn writable(&self, role: usize) -> Option<Rc<ArrayMember>> {
        let failed = self.state(role).is_failed();
        self.member_of(role).filter(|_| !failed)
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

    fn role_of(&self, member: &ArrayMember) -> Option<usize> {
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

    /// True if `member`, which has had a role, was evicted.
    pub fn is_left(&self, member: &ArrayMember) -> bool {
        let role = self.role_of(member);
        role.is_none_or(|role| self.state(role).is_failed())
    }

    /// Returns the spares, and the device that is about to take a member's place.
    pub fn waiting(&self) -> Vec<Rc<ArrayMember>> {
        let replacement = self.replacement.borrow();
        let copied = replacement.iter().map(|now| &now.filled.member);
        self.spares.borrow().iter().chain(copied).cloned().collect()
    }

    pub fn rebuilding(&self) -> Option<usize> {
        let rebuilding = |role: &usize| matches!(self.state(*role), MemberState::Rebuilding { .. });
        (0..self.shape.members()).find(rebuilding)
    }

    /// True if the filled member still has its role and is being filled, or is to take a role.
    pub fn is_filled(&self, filled: &Filled) -> bool {
        let now = self.writable(filled.role);
        let has = now.is_some_and(|now| Rc::ptr_eq(&now, &filled.member));
        let rebuilding = matches!(self.state(filled.role), MemberState::Rebuilding { .. });
        has && rebuilding || self.is_copied(filled)
    }

    /// Makes this array the owner of `member`, which asks its array before it gives up.
    fn own(self: &Rc<ArrayMembers>, member: &Rc<ArrayMember>) {
        self.know(member);
        *member.array.borrow_mut() = Rc::downgrade(self);
    }

    /// Registers a member: its answers may be waited for after its eviction.
    fn know(&self, member: &Rc<ArrayMember>) {
        let mut all = self.known.borrow_mut();
        let it = Rc::as_ptr(member);
        all.retain(|known| known.strong_count() > 0 && known.as_ptr() != it);
        all.push(Rc::downgrade(member));
    }

    /// Makes `member` that of `role`, with a state that the caller sets.
    pub fn appoint(self: &Rc<ArrayMembers>, role: usize, member: Rc<ArrayMember>) {
        self.own(&member);
        *self.slots[role].member.borrow_mut() = Some(member);
    }

    /// Takes the member of `role`, which was evicted. The member is asked again, as one that is
    /// about to take a role.
    pub fn dismiss(&self, role: usize) -> Option<Rc<ArrayMember>> {
        let member = self.slots[role].member.take()?;
        *member.array.borrow_mut() = Weak::new();
        Some(member)
    }

    /// Notes that the member of `role` is lost, by a roster that no member has yet.
    pub fn lost_with_next(&self, role: usize) {
        self.slots[role].lost_from.set(self.roster.version().next());
    }

    /// Notes that not every member knows that the one of `role` is in sync.
    pub fn known_with_next(&self, role: usize) {
        let next = self.roster.version().next();
        self.slots[role].known_from.set(next);
    }

    /// Notes that the members that this start evicted were lost at write `writes` of the map.
    pub fn lost_at(&self, writes: u32) {
        for (role, slot) in self.slots.iter().enumerate() {
            if self.state(role).is_failed() && slot.lost_from.get() > Version::default() {
                self.set_entry(role, |entry| entry.map_writes = writes);
            }
        }
    }

    /// Returns the number of writes of the write-intent map, including one in flight.
    pub fn map_writes(&self) -> u32 {
        self.map_writes.get()
    }

    pub fn set_map_writes(&self, writes: u32) {
        self.map_writes.set(writes);
    }

    /// Logs an event of the array.
    pub fn log(&self, what: String) {
        let what = format!("{}: {what}", self.name);
        let mut events = self.events.borrow_mut();
        if events.len() == EVENTS_MAX {
            events.remove(0);
        }
        events.push(ArrayEvent {
            at: self.env.timer.now(),
            what,
        });
        self.event_count.set(self.event_count.get() + 1);
    }

    /// Logs an event that is not the last one.
    pub fn log_news(&self, what: String) {
        let named = format!("{}: {what}", self.name);
        let is_last = |last: &ArrayEvent| last.what == named;
        let is_known = self.events.borrow().last().is_some_and(is_last);
        if !is_known {
            self.log(what);
        }
    }

    /// Returns the last events, the newest last, and their number since the start.
    pub fn events(&self) -> (Vec<ArrayEvent>, u64) {
        (self.events.borrow().clone(), self.event_count.get())
    }

    /// Logs an event of the member of `role`, unless it has been logged since the member was last
    /// in sync.
    pub fn log_once(&self, role: usize, what: String) {
        let mut logged = self.slots[role].logged.borrow_mut();
        if logged.len() == LOGGED_MAX {
            logged.clear();
        }
        if logged.insert(what.clone()) {
            self.log(what);
        }
    }

    /// Forgets the logged events of the member of `role`, which is in sync: later ones are news.
    pub fn forget_logged(&self, role: usize) {
        self.slots[role].logged.borrow_mut().clear();
    }

    /// Makes an error of the array.
    pub fn error(
        &self,
        kind: IoErrorKind,
        what: impl Into<std::borrow::Cow<'static, str>>,
    ) -> IoError {
        IoError::new(kind, what).on(self.name.to_string())
    }

    /// True if writes are refused.
    pub fn is_down(&self) -> bool {
        self.down.borrow().is_some()
    }

    /// Returns the reason why writes are refused.
    pub fn why_down(&self) -> Option<String> {
        self.down.borrow().clone()
    }

    /// Ends all background work at its next step.
    pub fn close(&self) {
        self.closed.set(true);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.get()
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

    /// Makes the error for a role that the array does not have.
    pub fn no_role(&self, role: usize) -> IoError {
        let what = format!("it has no member {role}; see its status");
        self.error(IoErrorKind::Invalid, what)
    }

    /// Fails once the array no longer serves. The members of a closed array are left alone, as they
    /// may be in other use next.
    pub fn check_serves(&self) -> IoResult {
        self.check_up()?;
        match self.closed.get() {
            false => Ok(()),
            true => {
                let what = "it was closed before its scrub ended; scrub it again";
                Err(self.error(IoErrorKind::Gone, what))
            }
        }
    }

    /// Evicts a member that exceeded its time limit, or may have forgotten writes. The eviction
    /// takes effect at once, so that others that fail at the same time are known to be needed.
    /// Returns false if the array needs this member.
    pub fn evict(self: &Rc<ArrayMembers>, member: &ArrayMember, error: &IoError) -> bool {
        match self.role_of(member) {
            Some(role) => !self.is_needed(role) && self.fail_role(role, error),
            None => true,
        }
    }

    /// Evicts `member` because of the `error` of its answer. The eviction takes effect at once in
    /// memory, and for good with the next [`ArrayMembers::commit`]. Returns false if the array needs the
    /// member, or is down: then the error is the caller's. A member without a role was evicted
    /// before, and its successor is not blamed.
    pub fn fail(self: &Rc<ArrayMembers>, member: &ArrayMember, error: &IoError) -> bool {
        match self.role_of(member) {
            Some(role) => self.fail_role(role, error),
            None => !self.is_down(),
        }
    }

    /// Takes the `result` of an operation of `member`, and evicts the member if that has failed.
    /// Returns true if nothing has failed, and `Err` if the array needs the member.
    pub fn judge(
        self: &Rc<ArrayMembers>,
        member: &ArrayMember,
        result: IoResult,
    ) -> IoResult<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if self.fail(member, &error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Evicts the member of `role` in the same way.
    pub fn fail_role(self: &Rc<ArrayMembers>, role: usize, error: &IoError) -> bool {
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
        let members = self.clone();
        self.env.spawn.spawn(async move {
            // This writes to every other member, so that the loss of a whole controller is noticed
            // at once. A write commits for itself before its acknowledgement, and sees its own
            // error.
            let _ = members.commit().await;
        });
        true
    }

    /// Marks `role` as lost, for good with the next commit. `whole`: no data of its member counts.
    pub fn leave(&self, role: usize, whole: bool) {
        // The event after the last that every live member has for certain.
        let failed_at = self.commits.sealed.get() + 1;
        let slot = &self.slots[role];
        let lacks_map = |m: &Rc<ArrayMember>| m.lacks_map.get();
        let lacks_map = slot.member.borrow().as_ref().is_some_and(lacks_map);
        self.set_entry(role, |entry| {
            entry.state = MemberState::Failed { whole };
            entry.failed_at = failed_at;
            if !lacks_map {
                entry.map_writes = self.map_writes();
            }
        });
        slot.lost_from.set(self.roster.version());
    }

    /// Notes that `error` prevents every further eviction. If that lasts, and the loss of a member
    /// is not recorded, nothing was acknowledged since: the array is to be reassembled with that
    /// member.
    fn check_stuck(&self, error: &IoError) {
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
    fn take_down(&self, why: String) {
        if !self.is_down() {
            self.log(format!("{why}; it is to be reassembled once they are back"));
            *self.down.borrow_mut() = Some(why);
        }
    }

    /// Asks nothing more of any member. An operation in flight on one fails, if only at the end of
    /// its time limit.
    pub fn abandon(&self, why: &str) {
        self.close();
        self.take_down(why.into());
        self.slots.iter().for_each(|slot| drop(slot.member.take()));
        self.replacement.take();
        self.spares.take();
    }

    /// Notes that the array goes on waiting for `member`, which has not answered in time.
    pub fn waits_for(&self, member: &ArrayMember) {
        let overdue = member.overdue.get() + 1;
        member.overdue.set(overdue);
        if overdue == 1 {
            self.log(format!(
                "{} does not answer, and is waited for: no other member holds what it does",
                member.name
            ));
        }
        self.watching.notify();
    }

    /// Returns the error for callers that should not wait: a member that the array needs is
    /// unresponsive.
    pub fn unresponsive(&self) -> Option<IoError> {
        let live = self.live();
        let (role, member) = live.iter().find(|(_, m)| m.overdue.get() > 0)?;
        let what = format!(
            "member {role}, {}, does not answer, and the array cannot do without it; bring it \
             back, and try again",
            member.name
        );
        Some(self.error(IoErrorKind::Timeout, what))
    }

    /// Runs `work`, which can be given up at any step, unless it would wait for a member that does
    /// not answer.
    pub async fn until_unresponsive<T>(
        &self,
        work: impl Future<Output = IoResult<T>>,
    ) -> IoResult<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            if let Some(error) = self.unresponsive() {
                return Poll::Ready(Err(error));
            }
            self.watching.register(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Waits until no earlier operation on the device of `member` can land any more, whichever
    /// member it was then.
    pub async fn late_ended(&self, member: &ArrayMember) -> IoResult {
        // An operation that a caller waits for would be given up after the flush, which waits for
        // operations given up before it.
        while self.is_asked(&member.name) {
            self.env.timer.sleep(ASKED_PAUSE).await;
        }
        member.late_ended().await
    }

    /// True if an operation on the device `name` is waited for.
    fn is_asked(&self, name: &str) -> bool {
        let all = self.known.borrow();
        let mut known = all.iter().filter_map(Weak::upgrade);
        known.any(|known| *known.name == *name && known.in_flight.get() > 0)
    }

    /// Registers a device that is to join, unless it does so already or is here.
    pub fn join(&self, name: &Arc<str>) -> IoResult<Joining<'_>> {
        let serves = self.live().iter().any(|(_, member)| member.name == *name);
        let waits = self.waiting().iter().any(|spare| spare.name == *name);
        if serves || waits || !self.joining.borrow_mut().insert(name.clone()) {
            return Err(self.error(
                IoErrorKind::Busy,
                format!("{name} is in this array already"),
            ));
        }
        Ok(Joining(self, name.clone()))
    }

    /// Returns the role of which `found` is, or was last, the member.
    pub fn role_of_found(&self, found: &KnownMember) -> Option<usize> {
        let ours = self.meta().array == found.newest().array;
        let is_its = |entry: &MemberEntry| entry.uuid == found.member();
        let role = self.roster.now().table.iter().position(is_its);
        role.filter(|_| ours)
    }

    /// Makes a member of a device that comes while the array runs.
    pub fn member(&self, candidate: MemberCandidate, uuid: Uuid) -> Rc<ArrayMember> {
        let (timeout, env) = (self.options.timeout, self.env.clone());
        let member = ArrayMember::new(candidate, uuid, self.meta().data_at, timeout, env);
        let member = Rc::new(member);
        self.know(&member);
        member
    }

    /// Reserves `role` for a device. The role is lost and no other device is about to take it.
    pub fn claim(self: &Rc<ArrayMembers>, role: usize) -> IoResult<RoleClaim> {
        if !self.state(role).is_failed() || !self.claimed.borrow_mut().insert(role) {
            let what = format!("member {role} is in sync or being filled; see its status");
            return Err(self.error(IoErrorKind::Busy, what));
        }
        let members = self.clone();
        Ok(RoleClaim { members, role })
    }

    /// Refuses a spare that could take no member's place.
    pub fn check_spare(&self, geometry: &Geometry) -> IoResult {
        let needed = self.meta().data_at + self.shape.member_sectors(0);
        if geometry.sectors < needed {
            return Err(self.error(
                IoErrorKind::Invalid,
                format!(
                    "{} has {} MiB, a member needs {} MiB; give a larger device",
                    geometry.name,
                    geometry.sectors.bytes() >> 20,
                    needed.bytes().div_ceil(1 << 20)
                ),
            ));
        }
        if geometry.block > self.geometry.block {
            let what = format!("{} has larger logical blocks than the array", geometry.name);
            return Err(self.error(IoErrorKind::Invalid, what));
        }
        Ok(())
    }

    pub fn spares(&self) -> Vec<Rc<ArrayMember>> {
        self.spares.borrow().clone()
    }

    pub fn put_spare(&self, spare: Rc<ArrayMember>) {
        self.spares.borrow_mut().push(spare);
    }

    pub fn take_spare(&self) -> Option<Rc<ArrayMember>> {
        self.spares.borrow_mut().pop()
    }

    /// Takes the spare on the device `name`.
    pub fn take_spare_named(&self, name: &str) -> Option<Rc<ArrayMember>> {
        let mut spares = self.spares.borrow_mut();
        let at = spares.iter().position(|spare| *spare.name == *name)?;
        Some(spares.remove(at))
    }

    /// Claims a lost role that a spare is to take now. A role that its member is about to take
    /// again needs no spare.
    pub fn claim_for_spare(self: &Rc<ArrayMembers>) -> Option<RoleClaim> {
        let now = self.env.timer.now();
        let is_due = |role: &usize| self.slots[*role].spare_at.get() <= now;
        let mut due = (0..self.shape.members()).filter(is_due);
        match self.spares.borrow().is_empty() {
            true => None,
            false => due.find_map(|role| self.claim(role).ok()),
        }
    }

    /// Begins to replace the member in sync of `role` by `member`.
    pub fn begin_replacement(
        self: &Rc<ArrayMembers>,
        role: usize,
        member: Rc<ArrayMember>,
    ) -> IoResult {
        let mut replacement = self.replacement.borrow_mut();
        let old = self.in_sync(role);
        let Some(old) = old.filter(|_| replacement.is_none()) else {
            self.put_spare(member);
            let what = "another member is being replaced, or this one was lost; once that is over \
                        give the device, which is a spare until then, again";
            return Err(self.error(IoErrorKind::Busy, what));
        };
        self.log(format!(
            "member {role} is copied to {}, and serves until then",
            member.name
        ));
        *old.successor.borrow_mut() = Some(member.clone());
        *replacement = Some(MemberReplacement {
            filled: Filled { role, member },
            old,
            done: 0,
            gaps: Vec::new(),
            cancelled: false,
        });
        Ok(())
    }

    /// Returns the role of a member in sync that is being replaced.
    pub fn replaced_role(&self) -> Option<usize> {
        let replacement = self.replacement.borrow();
        replacement.as_ref().map(|now| now.filled.role)
    }

    /// Returns the role that is being replaced, with its new device and the first region that is
    /// not copied. Returns `None` if the replacement is over, which is logged.
    pub fn replaced(&self) -> Option<(Filled, usize)> {
        let replacement = self.replacement.borrow();
        let now = replacement.as_ref()?;
        let member = self.in_sync(now.filled.role);
        let same = member.is_some_and(|member| Rc::ptr_eq(&member, &now.old));
        let gets_all = now.old.successor.borrow().is_some();
        (same && gets_all).then(|| (now.filled.clone(), now.done))
    }

    /// Notes that the regions before `region` have been copied.
    pub fn copied_before(&self, region: usize) {
        if let Some(replacement) = &mut *self.replacement.borrow_mut() {
            replacement.done = region;
        }
    }

    /// Records a gap of a member that is being filled.
    pub fn leave_gap(&self, filled: &Filled, gap: Extent) {
        match &mut *self.replacement.borrow_mut() {
            Some(now) if Rc::ptr_eq(&now.filled.member, &filled.member) => {
                now.gaps = with(&now.gaps, gap);
            }
            _ => self.add_gap(filled.role, gap),
        }
    }

    /// Gives `filled`, which holds all of the data of its role, that role.
    pub fn hand_over(self: &Rc<ArrayMembers>, filled: Filled) {
        let Filled { role, member } = filled;
        if let Some(MemberReplacement { old, gaps, .. }) = self.replacement.take() {
            old.successor.take();
            self.replace_gaps(role, gaps);
        }
        let uuid = member.uuid;
        self.appoint(role, member);
        self.set_entry(role, |entry| entry.uuid = uuid);
    }

    /// Ends the replacement. Returns its device with a claim of the role, if the device is to take
    /// the role of a lost member.
    pub fn end_replacement(self: &Rc<ArrayMembers>) -> Option<(RoleClaim, Rc<ArrayMember>)> {
        let replacement = self.replacement.take()?;
        let Filled { role, member } = replacement.filled;
        let gets_all = replacement.old.successor.take().is_some();
        if gets_all && let Ok(claim) = self.claim(role) {
            return Some((claim, member));
        }
        let why = match replacement.cancelled {
            true => "that was cancelled",
            false => "it refused a write or a flush; give another device",
        };
        self.log(format!(
            "{} does not take the place of member {role}: {why}",
            member.name
        ));
        None
    }

    /// True if `filled` is still to take the place of a member in sync.
    pub fn is_copied(&self, filled: &Filled) -> bool {
        let now = self.replaced();
        now.is_some_and(|(now, _)| {
            now.role == filled.role && Rc::ptr_eq(&now.member, &filled.member)
        })
    }

    /// True if a replacement has begun that cannot go on.
    pub fn replacement_is_over(&self) -> bool {
        self.replacement.borrow().is_some() && self.replaced().is_none()
    }

    /// Takes the result of a write to the new device: one that refuses gets nothing more.
    pub fn copied(&self, result: &IoResult) {
        if result.is_err()
            && let Some(replacement) = &*self.replacement.borrow()
        {
            replacement.old.successor.take();
        }
    }

    /// Cancels the replacement: the new device gets nothing more. Returns that device, if there is
    /// one.
    pub fn cancel_replacement(&self) -> Option<Arc<str>> {
        let mut replacement = self.replacement.borrow_mut();
        let replacement = replacement.as_mut()?;
        replacement.cancelled = true;
        replacement.old.successor.take();
        Some(replacement.filled.member.name.clone())
    }

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
    pub async fn commit(self: &Rc<ArrayMembers>) -> IoResult {
        self.committed().await.map(drop)
    }

    /// Does the same, and returns the proof that an acknowledgement of a write needs.
    pub async fn committed(self: &Rc<ArrayMembers>) -> IoResult<Proof> {
        match self.proof() {
            Some(proof) => Ok(proof),
            // The write of a superblock is carried through, even if its caller has given up.
            None => self.env.spawn.persist(self.clone().commit_now()).await,
        }
    }

    /// Returns the proof that every live member knows the member of `role` as out of sync, or as
    /// lacking `band`. Fails if neither is so.
    pub async fn commit_without(
        self: &Rc<ArrayMembers>,
        role: usize,
        band: Extent,
    ) -> IoResult<Proof> {
        self.commit().await?;
        let out = |roster: &Roster| {
            roster.table[role].state != MemberState::InSync || roster.has_gap(role, band)
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

    async fn commit_now(self: Rc<ArrayMembers>) -> IoResult<Proof> {
        let written = self.write_roster().await;
        match &written {
            Ok(_) => self.stuck_since.set(None),
            Err(error) => self.check_stuck(error),
        }
        written
    }

    async fn write_roster(self: &Rc<ArrayMembers>) -> IoResult<Proof> {
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
        self: &Rc<ArrayMembers>,
        live: &[(usize, Rc<ArrayMember>)],
        table: &[MemberEntry],
    ) -> IoResult<bool> {
        let out = table.iter().enumerate();
        let out = out.filter(|(_, entry)| entry.state != MemberState::InSync);
        let without = out.fold(0, |bits, (role, _)| bits | 1 << role);
        let new = without & !self.commits.flushed_without.get();
        if new == 0 || self.meta().journal_slots == 0 {
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
        self: &Rc<ArrayMembers>,
        live: &[(usize, Rc<ArrayMember>)],
    ) -> IoResult<bool> {
        let mut all = true;
        let flushes = live.iter().map(|(_, member)| member.flush());
        for ((_, member), result) in live.iter().zip(join_all(flushes).await) {
            let judged = self.judge(member, result);
            all &= judged.inspect_err(|error| self.flush_errors.record(error))?;
        }
        Ok(all)
    }

    /// Writes `image` to a copy of the superblock of each of `live`. Returns true if all took it.
    async fn write_copies(
        self: &Rc<ArrayMembers>,
        live: &[(usize, Rc<ArrayMember>)],
        image: &ArraySuperblock,
    ) -> IoResult<bool> {
        let writes = live.iter().map(|(role, member)| {
            let image = image.clone();
            self.write_copy(*role as u16, member, image)
        });
        let mut all = true;
        for ((_, member), result) in live.iter().zip(join_all(writes).await) {
            all &= self.judge(member, result)?;
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

    /// Notes that no member keeps the roster: the array has no superblocks.
    pub fn keep_no_roster(&self) {
        self.roster.no_holders();
    }

    pub fn scrubbed(&self) -> Scrubbed {
        self.roster.now().scrubbed
    }

    /// Records durably the time of the last scrub.
    pub async fn set_scrubbed(self: &Rc<ArrayMembers>, scrubbed: Scrubbed) -> IoResult {
        self.check_serves()?;
        self.roster.change(|roster| roster.scrubbed = scrubbed);
        self.until_unresponsive(self.commit()).await
    }

    /// Completes the `flush` of a user. Each failure of a flush is reported once.
    pub async fn report_flush(&self, flush: impl Future<Output = IoResult>) -> IoResult {
        self.flush_errors.report_to(&self.user, flush).await
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
        let blank = zero_buf(&self.env, BLOCK_BYTES).share();
        for copy in SUPERBLOCKS {
            member.write_meta(copy, blank.clone()).await?;
        }
        for _ in SUPERBLOCKS {
            self.write_copy(ROLE_SPARE, member, self.image()).await?;
        }
        Ok(())
    }
}

/// The right to fill a lost role, which one device has at a time: its holder finds the role
/// unchanged, however long it waits. See [`ArrayMembers::claim`].
pub(crate) struct RoleClaim {
    members: Rc<ArrayMembers>,
    pub role: usize,
}

impl Drop for RoleClaim {
    fn drop(&mut self) {
        self.members.claimed.borrow_mut().remove(&self.role);
    }
}

/// Registration of a device that joins; see [`ArrayMembers::join`].
pub(crate) struct Joining<'a>(&'a ArrayMembers, Arc<str>);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.0.joining.borrow_mut().remove(&self.1);
    }
}
