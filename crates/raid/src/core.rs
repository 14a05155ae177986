//! An array at work: its reads of every level, and the writes of the levels that keep copies or
//! nothing.
//!
//! Sectors that a member cannot read come from the others, and are rewritten on that member. A
//! write goes to every live leg. Before its acknowledgement a leg in sync has it, and no member
//! that lacks it counts as in sync, durably.
//!
//! Changes go on although their callers have given up: an array carries them through, and a device
//! may still execute a write from long ago.
//!
//! Invariants:
//!     copies of an extent may differ ⟹ data read from it is the data of all copies from then on
//!     a flush of an array has ended ⟹ no earlier change of one that was given up can land
//!
//! Not here: the states of members (`members`), the choice of the first member of a read (`member`),
//! and RAID 5's writes, and reads without a member (`parity`).

use crate::bitmap::IntentBitmap;
use crate::journal::StripeJournal;
use crate::levels::{LEGS_MAX, Leg, LegPiece, Roles};
use crate::member::{ArrayMember, ExtentChange, choose, is_loss};
use crate::members::{ArrayMembers, ArrayParts, Meta, Options};
use crate::progress::BackgroundWork;
use crate::stripe::StripeLimits;
use arrayvec::ArrayVec;
use block::{
    Access, Acquire, Buf, Env, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Nanos, Proof,
    RangeLock, SharedBuf, Signal,
};
use futures_util::future::{join, join_all};
use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

/// Interval of looking for an idle array.
const RELEASED_PAUSE: Nanos = Nanos::from_millis(1);

/// An array: its members, and the changes and the work that are under way on them.
pub(crate) struct ArrayCore {
    members: Rc<ArrayMembers>,
    pub bitmap: Option<Rc<IntentBitmap>>,
    /// Of RAID 5, by role.
    pub journals: Vec<StripeJournal>,
    pub work: BackgroundWork,
    /// Changes in flight, with or without a caller that waits.
    pub late: LateChanges,
    /// Of RAID 5.
    limits: Option<StripeLimits>,
    /// A flush is under way that makes room in the journals; notified of its end.
    pub makes_room: Cell<bool>,
    pub room_made: Signal,
    /// Ranges being written, or resynced.
    busy: RangeLock,
    turn: Cell<u64>,
    last_use: Cell<Nanos>,
}

/// The questions that [`ArrayMembers`] answers are asked of the array.
impl Deref for ArrayCore {
    type Target = Rc<ArrayMembers>;

    fn deref(&self) -> &Rc<ArrayMembers> {
        &self.members
    }
}

/// Number of changes in flight, and of those that a caller waits for.
#[derive(Default)]
pub(crate) struct LateChanges {
    under_way: Cell<u32>,
    waited_for: Cell<u32>,
    flushes: Signal,
}

/// Counts one while it is held.
pub(crate) struct Counted<'a> {
    late: &'a LateChanges,
    count: &'a Cell<u32>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        self.late.flushes.notify();
    }
}

impl LateChanges {
    /// Begins a change.
    pub fn begin(&self) -> Counted<'_> {
        self.counted(&self.under_way)
    }

    /// Counts a caller that waits for a change.
    pub fn wait(&self) -> Counted<'_> {
        self.counted(&self.waited_for)
    }

    fn counted<'a>(&'a self, count: &'a Cell<u32>) -> Counted<'a> {
        count.set(count.get() + 1);
        Counted { late: self, count }
    }

    /// Waits until a caller waits for every change in flight.
    pub async fn ended(&self) {
        let none = || self.under_way.get() <= self.waited_for.get();
        self.flushes.until(none).await;
    }
}

/// Result of a change on one leg; without a member that was lost before.
struct LegOutcome {
    role: usize,
    member: Option<Rc<ArrayMember>>,
    result: IoResult,
}

/// Result of a change.
#[derive(Default)]
struct ChangeOutcome {
    took: Roles,
    failed: Option<IoError>,
}

impl ChangeOutcome {
    /// Adds the result of a leg: a member that did not take the change is evicted.
    fn add(&mut self, core: &Rc<ArrayCore>, leg: LegOutcome) {
        match (leg.result, leg.member) {
            (Ok(()), _) => self.took.add(leg.role),
            (Err(error), Some(member)) if !core.fail(&member, &error) => self.failed = Some(error),
            (Err(_), _) => {}
        }
    }
}

impl ArrayCore {
    /// Returns `Err(Invalid)` if the memory is too small for the stripes.
    pub fn new(parts: ArrayParts, env: Env, options: Options) -> IoResult<Rc<ArrayCore>> {
        let members = ArrayMembers::new(parts, env, options);
        let (shape, meta) = (&members.shape, members.meta.as_ref());
        let parity = shape.level().has_parity();
        let limits = parity.then(|| StripeLimits::new(&members.env.pool, shape, &members.name));
        let mapped = meta.filter(|_| shape.level().is_redundant());
        let bitmap = |meta: &Meta| IntentBitmap::new(shape.sectors(), meta.region, meta.data_at);
        Ok(Rc::new(ArrayCore {
            bitmap: mapped.map(|meta| Rc::new(bitmap(meta))),
            journals: StripeJournal::all(meta, shape),
            work: BackgroundWork::default(),
            late: LateChanges::default(),
            limits: limits.transpose()?,
            makes_room: Cell::new(false),
            room_made: Signal::default(),
            busy: RangeLock::new(),
            turn: Cell::new(0),
            last_use: Cell::new(Nanos::ZERO),
            members,
        }))
    }

    /// Returns the limits of changes of stripes. Only RAID 5 calls this.
    pub fn limits(&self) -> &StripeLimits {
        self.limits.as_ref().expect("RAID 5 has them")
    }

    /// Locks `extent`: changes share a range, other work has its range alone.
    pub fn lock(&self, extent: Extent, access: Access) -> Acquire<'_> {
        self.busy.lock(extent, access)
    }

    /// Returns the time of the last request.
    pub fn last_use(&self) -> Nanos {
        self.last_use.get()
    }

    /// Begins a change.
    pub fn begin_change(&self) -> Counted<'_> {
        self.last_use.set(self.env.timer.now());
        self.late.begin()
    }

    /// Reads the data at `at` into `buf`. Rare paths are boxed, so that the future stays small: it
    /// is moved.
    pub async fn read(self: &Rc<ArrayCore>, at: Lba, buf: Buf) -> (Buf, IoResult) {
        self.last_use.set(self.env.timer.now());
        let extent = match self.geometry.transfer(at, buf.len()) {
            Ok(extent) => extent,
            Err(error) => return (buf, Err(error)),
        };
        if let Err(error) = self.check_bad(extent) {
            return (buf, Err(error));
        }
        let (buf, result) = match self.pick_whole(extent) {
            Some((leg, member)) => match self.read_of(leg.member, &member, leg.at, buf).await {
                (buf, Err(error)) => {
                    let piece = self.shape.first_piece(extent);
                    let failure = Some((leg.member, member, error));
                    Box::pin(self.read_piece(piece, failure, buf)).await
                }
                done => done,
            },
            None => Box::pin(self.read_pieces(extent, buf)).await,
        };
        // Sectors may have been given up while the read waited.
        (buf, result.and_then(|()| self.check_bad(extent)))
    }

    /// Returns the leg that can serve all of `extent` as it is, if there is one.
    fn pick_whole(&self, extent: Extent) -> Option<(Leg, Rc<ArrayMember>)> {
        let first = self.shape.first_piece(extent);
        if first.extent != extent || self.is_unsynced(extent) {
            return None;
        }
        match first.legs() {
            [only] => Some((*only, self.in_sync(only.member)?)),
            _ => self.pick(&first, Roles::default()),
        }
    }

    async fn read_pieces(self: &Rc<ArrayCore>, extent: Extent, buf: Buf) -> (Buf, IoResult) {
        if self.is_unsynced(extent) {
            let resync = Box::pin(self.clone().resync_extent(extent, Fua::Yes));
            if let Err(error) = self.env.spawn.persist(resync).await {
                return (buf, Err(error));
            }
        }
        let first = self.shape.first_piece(extent);
        if first.extent == extent {
            return self.read_piece(first, None, buf).await;
        }
        let (mut reads, mut rest) = (Vec::new(), buf);
        for piece in self.shape.pieces(extent) {
            let (part, tail) = rest.split_at(piece.extent.len.bytes() as usize);
            reads.push(self.read_piece(piece, None, part));
            rest = tail;
        }
        let (mut parts, mut failed) = (Vec::with_capacity(reads.len()), Ok(()));
        for (part, result) in join_all(reads).await {
            failed = failed.and(result);
            parts.push(part);
        }
        // The tail that is left is empty, and a neighbour of nothing.
        drop(rest);
        (Buf::join(parts, &self.env.pool), failed)
    }

    /// Chooses the leg for a read, of those in sync that are not in `but`.
    fn pick(&self, piece: &LegPiece, but: Roles) -> Option<(Leg, Rc<ArrayMember>)> {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        let mut legs = ArrayVec::<_, LEGS_MAX>::new();
        for leg in piece.legs().iter().filter(|leg| !but.has(leg.member)) {
            legs.extend(self.in_sync(leg.member).map(|member| (*leg, member)));
        }
        let index = choose(&legs, turn)?;
        Some(legs.swap_remove(index))
    }

    /// Reads a piece from one leg after the other. `failure` is the result of the first one, if it
    /// has been asked.
    async fn read_piece(
        self: &Rc<ArrayCore>,
        piece: LegPiece,
        mut failure: Option<(usize, Rc<ArrayMember>, IoError)>,
        mut buf: Buf,
    ) -> (Buf, IoResult) {
        let (mut to_mend, mut tried) = (Roles::default(), Roles::default());
        let mut last = None;
        loop {
            if let Some((role, member, error)) = failure.take() {
                tried.add(role);
                let lost = is_loss(&error);
                if !lost || !self.fail(&member, &error) {
                    to_mend.add(role);
                }
                // The array's loss of a member is not the reader's concern.
                if !lost || last.is_none() {
                    last = Some(error);
                }
            }
            // Another may have been filled while this one was asked.
            let Some((leg, member)) = self.pick(&piece, tried) else {
                break;
            };
            let result;
            (buf, result) = self.read_of(leg.member, &member, leg.at, buf).await;
            match result {
                Ok(()) => {
                    self.mend_later(piece, to_mend);
                    return (buf, Ok(()));
                }
                Err(error) => failure = Some((leg.member, member, error)),
            }
        }
        if self.shape.level().has_parity() {
            let result;
            (buf, result) = Box::pin(self.read_from_others(piece, last.is_none(), buf)).await;
            return match result {
                Ok(()) => {
                    self.mend_later(piece, to_mend);
                    (buf, Ok(()))
                }
                Err(error) => {
                    let own = last.filter(|last| !is_loss(last));
                    (buf, Err(own.unwrap_or(error.at(piece.extent))))
                }
            };
        }
        let error = last.unwrap_or_else(|| self.unheld());
        (buf, Err(error.at(piece.extent)))
    }

    /// Rewrites sectors that some members could not read.
    fn mend_later(self: &Rc<ArrayCore>, piece: LegPiece, failed: Roles) {
        if failed.is_empty() || self.is_down() {
            return;
        }
        let core = self.clone();
        self.env.spawn.spawn(async move {
            for role in failed.iter() {
                // A member that cannot be mended has been failed by now.
                let _ = core.mend(piece, role).await;
            }
        });
    }

    /// Rewrites the sectors of `piece` on `role` from another leg. They are read again under a lock
    /// that keeps writers out.
    async fn mend(self: &Rc<ArrayCore>, piece: LegPiece, role: usize) -> IoResult {
        let around = match self.shape.level().has_parity() {
            true => self.shape.stripe_at(piece.extent.start).extent(),
            false => piece.extent,
        };
        let len = piece.extent.len.bytes() as usize;
        let grant = match self.shape.level().has_parity() {
            true => Some(self.limits().reconstruct(1, len).await),
            false => None,
        };
        let buf = match &grant {
            Some(grant) => Some(grant.take(len)),
            None => self.env.pool.try_get(len),
        };
        // Without memory to spare, the next reader of these sectors finds the error again.
        let Some(buf) = buf else { return Ok(()) };
        let _busy = self.lock(around, Access::Exclusive).await;
        let Some(member) = self.in_sync(role) else {
            return Ok(());
        };
        let (buf, result) = match &grant {
            Some(grant) => {
                let stripe = self.shape.stripe_at(piece.extent.start);
                let from = piece.legs()[0].at - stripe.row();
                self.reconstruct(stripe, role, from, buf, grant).await
            }
            None => self.read_other(&piece, role, buf).await,
        };
        result?;
        let leg = piece.legs().iter().find(|leg| leg.member == role);
        let at = leg.expect("a leg of the piece").at;
        // Durable, since a write to the source may follow.
        match member.write(at, buf.share(), Fua::Yes).await {
            Ok(()) => {
                member.count(|c| c.repaired += piece.extent.len.0);
                let there = Extent::new(at, piece.extent.len);
                self.clear_lost(None, [(role, there)].into_iter()).await
            }
            Err(error) => {
                self.fail(&member, &error);
                self.commit().await
            }
        }
    }

    /// Reads a piece from any leg that is in sync, but for `role`.
    async fn read_other(&self, piece: &LegPiece, role: usize, mut buf: Buf) -> (Buf, IoResult) {
        let mut last = Err(self.error(IoErrorKind::Gone, "no other member holds these sectors"));
        for (leg, member) in self.readable(piece) {
            if leg.member != role {
                (buf, last) = self.read_of(leg.member, &member, leg.at, buf).await;
                if last.is_ok() {
                    break;
                }
            }
        }
        (buf, last)
    }

    /// Changes `extent` on every live leg of a level that keeps copies.
    pub async fn change(self: Rc<ArrayCore>, extent: Extent, change: ExtentChange) -> IoResult {
        let _under_way = self.begin_change();
        if matches!(change, ExtentChange::Discard) {
            // Members would answer a discard differently, and copies would differ.
            return Ok(());
        }
        let bitmap = self.bitmap.as_ref().expect("copies have superblocks");
        self.check_up()?;
        let _busy = self.lock(extent, Access::Shared).await;
        let marked = bitmap.begin(&self, extent).await;
        let result = match marked {
            Ok(marked) => self.change_legs(extent, &change, marked).await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.mark_out_of_sync(extent);
        }
        bitmap.end(extent, self.env.timer.now());
        // The write is acknowledged.
        result.map(drop)
    }

    /// Changes `extent` of a level without redundancy: there is nothing to keep in agreement.
    pub async fn change_plain(&self, extent: Extent, change: ExtentChange) -> IoResult {
        self.last_use.set(self.env.timer.now());
        let first = self.shape.first_piece(extent);
        if first.extent == extent {
            return self
                .change_leg(&first, 0, extent.start, &change)
                .await
                .result;
        }
        let pieces = self.shape.pieces(extent);
        let changes = pieces.map(|piece| self.change_leg(&piece, 0, extent.start, &change));
        let ended = Box::pin(join_all(changes)).await;
        ended.into_iter().try_for_each(|leg| leg.result)
    }

    /// Changes one leg, and returns its member, which is chosen at once.
    fn change_leg(
        &self,
        piece: &LegPiece,
        index: usize,
        start: Lba,
        change: &ExtentChange,
    ) -> impl Future<Output = LegOutcome> + use<> {
        let leg = piece.legs()[index];
        let there = Extent::new(leg.at, piece.extent.len);
        let change = match change {
            ExtentChange::Data(data, fua) => {
                ExtentChange::Data(data.slice(piece.bytes(start)), *fua)
            }
            other => other.clone(),
        };
        let role = leg.member;
        let member = self.writable(role);
        let member = member.ok_or_else(|| self.error(IoErrorKind::Gone, "the member is lost"));
        async move {
            let (member, result) = match member {
                Ok(member) => {
                    let result = member.change(there, change).await;
                    (Some(member), result)
                }
                Err(error) => (None, Err(error)),
            };
            LegOutcome {
                role,
                member,
                result,
            }
        }
    }

    async fn change_legs(
        self: &Rc<ArrayCore>,
        extent: Extent,
        change: &ExtentChange,
        _marked: Proof,
    ) -> IoResult<Proof> {
        let mut outcome = ChangeOutcome::default();
        let first = self.shape.first_piece(extent);
        let whole = first.extent == extent;
        if whole {
            self.change_piece(&first, change, &mut outcome).await;
        } else {
            // Boxed, so that the futures of short requests stay small.
            Box::pin(self.change_pieces(extent, change, &mut outcome)).await;
        }
        let known = self.committed().await?;
        self.check_up()?;
        if let Some(error) = outcome.failed {
            return Err(error);
        }
        // A leg that was in sync at the time may have been evicted since.
        let took = |piece: &LegPiece| {
            let mut legs = piece.legs().iter().map(|leg| leg.member);
            legs.any(|role| outcome.took.has(role) && self.is_in_sync(role))
        };
        let untaken = match whole {
            true => Some(first).filter(|piece| !took(piece)),
            false => self.shape.pieces(extent).find(|piece| !took(piece)),
        };
        if let Some(piece) = untaken {
            let error = self.error(IoErrorKind::Gone, "no member took the write");
            return Err(error.at(piece.extent));
        }
        let legs = |piece: LegPiece| {
            let legs = piece.legs().to_vec().into_iter();
            legs.map(move |leg| (leg.member, Extent::new(leg.at, piece.extent.len)))
        };
        let written = self.shape.pieces(extent).flat_map(legs);
        self.clear_lost(Some(extent), written).await?;
        Ok(known)
    }

    /// Returns the legs of `piece` that take writes, by their index.
    fn live_legs(&self, piece: &LegPiece) -> ArrayVec<usize, LEGS_MAX> {
        let all = 0..piece.legs().len();
        all.filter(|leg| self.writable(piece.legs()[*leg].member).is_some())
            .collect()
    }

    /// Changes an extent of one piece.
    async fn change_piece(
        self: &Rc<ArrayCore>,
        piece: &LegPiece,
        change: &ExtentChange,
        outcome: &mut ChangeOutcome,
    ) {
        let of = |leg: usize| self.change_leg(piece, leg, piece.extent.start, change);
        match self.live_legs(piece)[..] {
            [one] => outcome.add(self, of(one).await),
            [one, other] => {
                let (one, other) = join(of(one), of(other)).await;
                outcome.add(self, one);
                outcome.add(self, other);
            }
            ref legs => {
                let ended = Box::pin(join_all(legs.iter().map(|leg| of(*leg)))).await;
                ended.into_iter().for_each(|leg| outcome.add(self, leg));
            }
        }
    }

    async fn change_pieces(
        self: &Rc<ArrayCore>,
        extent: Extent,
        change: &ExtentChange,
        outcome: &mut ChangeOutcome,
    ) {
        let legs = self.shape.pieces(extent).flat_map(|piece| {
            let live = self.live_legs(&piece).into_iter();
            live.map(move |leg| self.change_leg(&piece, leg, extent.start, change))
        });
        // The members that take part are chosen here, before any of them is polled.
        let legs: Vec<_> = legs.collect();
        for ended in join_all(legs).await {
            outcome.add(self, ended);
        }
    }

    /// Clears lost sectors: `extent` has been rewritten, on `written` of the members. The sectors
    /// count as lost, or as gaps, until the rewritten data is durable. They stay so, with an `Err`,
    /// if clearing them would leave too many runs.
    pub async fn clear_lost(
        self: &Rc<ArrayCore>,
        extent: Option<Extent>,
        written: impl Iterator<Item = (usize, Extent)>,
    ) -> IoResult {
        let Some((extent, lacked)) = self.lost_of(extent, written) else {
            return Ok(());
        };
        Box::pin(self.flush_members()).await?;
        self.forget_lost(extent, &lacked)?;
        self.commit().await
    }

    /// Makes durable that every record of `journal` so far is done with; a flush has covered them.
    pub async fn retire(self: &Rc<ArrayCore>, journal: &StripeJournal) -> IoResult {
        let flush = async || self.flush_members().await;
        journal.retire(&self.members, flush).await
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

    /// Waits until no task but the caller's uses the array, and thus its members. The caller has
    /// the last handle. An unresponsive member is given up.
    pub async fn released(self: &Rc<ArrayCore>) {
        // Commits, and writes of the map, hold the members alone.
        while Rc::strong_count(self) + Rc::strong_count(&self.members) > 2 {
            if self.unresponsive().is_some() {
                self.abandon("it was given up");
            }
            self.env.timer.sleep(RELEASED_PAUSE).await;
        }
    }

    /// Marks `extent` as out of sync: a write failed, and some members may have taken it.
    pub fn mark_out_of_sync(&self, extent: Extent) {
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let suspects = &self.work.suspects;
        suspects.add_again(bitmap.region_of(extent));
        if self.journals.is_empty() {
            suspects.add(bitmap.region_of(extent));
        }
    }

    /// True if copies of `extent` may differ.
    pub fn is_unsynced(&self, extent: Extent) -> bool {
        let suspects = &self.work.suspects;
        let bitmap = self.bitmap.as_ref().filter(|_| !suspects.is_empty());
        bitmap.is_some_and(|bitmap| suspects.has_any(bitmap.region_of(extent)))
    }

    /// Brings the copies of `extent` into agreement: the data of the first leg that can be read
    /// goes to the others. The result is durable at once with `fua`, otherwise with the next flush.
    pub async fn resync_extent(self: Rc<ArrayCore>, extent: Extent, fua: Fua) -> IoResult {
        let _busy = self.lock(extent, Access::Exclusive).await;
        let pieces = self
            .shape
            .pieces(extent)
            .map(|piece| self.resync_piece(piece, fua));
        // All of them end before the range is unlocked, whatever one meets.
        join_all(pieces).await.into_iter().collect()
    }

    async fn resync_piece(self: &Rc<ArrayCore>, piece: LegPiece, fua: Fua) -> IoResult {
        let mut buf = self.env.pool.take(piece.extent.len.bytes() as usize);
        let mut last = Err(self.unheld());
        let (mut source, mut tried) = (None, 0);
        let legs = self.readable(&piece);
        if legs.len() == 1 {
            return Ok(());
        }
        for (leg, member) in legs {
            tried += 1;
            (buf, last) = self.read_of(leg.member, &member, leg.at, buf).await;
            match &last {
                Ok(()) => {
                    source = Some(leg.member);
                    break;
                }
                // The others may be read without it, or agree as they are.
                Err(error) if is_loss(error) && self.fail(&member, error) => {
                    drop(buf);
                    return Box::pin(self.resync_piece(piece, fua)).await;
                }
                Err(_) => {}
            }
        }
        let Some(source) = source else {
            let lost = last.as_ref().is_err_and(is_loss);
            return match piece.extent.len > self.geometry.block {
                _ if lost => last,
                true => self.resync_blocks(piece.extent, fua).await,
                // Sectors that no leg can read are the same on all: unreadable.
                false => Ok(()),
            };
        };
        // As where a read mends sectors.
        let fua = if tried > 1 { Fua::Yes } else { fua };
        self.spread(piece, buf.share(), fua, |role| {
            role != source && self.is_in_sync(role)
        })
        .await
    }

    /// Brings the readable blocks of `extent` into agreement, one by one.
    async fn resync_blocks(self: &Rc<ArrayCore>, extent: Extent, fua: Fua) -> IoResult {
        let block = self.geometry.block;
        for at in (extent.start.0..extent.end().0).step_by(block.0 as usize) {
            let piece = self.shape.first_piece(Extent::new(Lba(at), block));
            Box::pin(self.resync_piece(piece, fua)).await?;
        }
        Ok(())
    }

    /// Writes `data` to the legs of `piece` that `wanted` names.
    pub async fn spread(
        self: &Rc<ArrayCore>,
        piece: LegPiece,
        data: SharedBuf,
        fua: Fua,
        wanted: impl Fn(usize) -> bool,
    ) -> IoResult {
        let targets = piece.legs().iter().filter(|leg| wanted(leg.member));
        let writes = targets.filter_map(|leg| {
            let member = self.writable(leg.member)?;
            let data = data.clone();
            Some(async move {
                let result = member.write(leg.at, data, fua).await;
                (member, result)
            })
        });
        let writes: Vec<_> = writes.collect();
        for (member, result) in join_all(writes).await {
            self.judge(&member, result)?;
        }
        let there = |leg: &Leg| (leg.member, Extent::new(leg.at, piece.extent.len));
        let written = piece.legs().iter().filter(|leg| wanted(leg.member));
        let written: Vec<_> = written.map(there).collect();
        match self.clear_lost(None, written.into_iter()).await {
            // The legs have more than before in any case.
            Err(error) if error.kind() == IoErrorKind::Media => self.commit().await,
            cleared => cleared.and(self.commit().await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn only_what_nobody_waits_for_is_late() {
        let late = LateChanges::default();
        let is_late = || {
            let mut context = Context::from_waker(Waker::noop());
            pin!(late.ended()).as_mut().poll(&mut context) == Poll::Pending
        };
        let (waits, first) = (late.wait(), late.begin());
        let (waits_too, second) = (late.wait(), late.begin());
        assert!(!is_late());
        drop(waits);
        assert!(is_late());
        drop((second, waits_too));
        assert!(is_late());
        drop(first);
        assert!(!is_late());
    }
}
