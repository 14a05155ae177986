//! Reads of every level, and writes of the levels that keep copies or nothing.
//!
//! A write goes to every live leg. It is acknowledged once a leg that is in
//! sync has it, and no member that lacks it counts as in sync, durably.
//!
//! Not here: RAID 5's writes and how it reads without a member (`parity`).

use crate::balance;
use crate::core::Core;
use crate::levels::{LEGS_MAX, Leg, Piece, Roles};
use crate::member::{Member, is_loss};
use arrayvec::ArrayVec;
use block::{Access, Buf, Extent, Fua, IoError, IoResult, Kind, Lba, Shared};
use futures_util::future::{join, join_all};
use std::rc::Rc;

/// What is to happen to an extent.
#[derive(Clone)]
pub(crate) enum Change {
    Data(Shared, Fua),
    Zero,
    Discard,
}

/// What came of a change on one leg; without a member that was lost before.
struct Ended {
    role: usize,
    member: Option<Rc<Member>>,
    result: IoResult,
}

/// What came of a change.
#[derive(Default)]
struct Outcome {
    took: Roles,
    failed: Option<IoError>,
}

impl Outcome {
    /// A leg has ended: a member that did not take the change is left behind.
    fn add(&mut self, core: &Rc<Core>, leg: Ended) {
        match (leg.result, leg.member) {
            (Ok(()), _) => self.took.add(leg.role),
            (Err(error), Some(member)) if !core.fail(&member, &error) => self.failed = Some(error),
            (Err(_), _) => {}
        }
    }
}

impl Core {
    /// Reads into `buf` what lies at `at`. Whatever a read seldom needs is boxed, so
    /// that the future stays small: it is moved.
    pub async fn read(self: &Rc<Core>, at: Lba, buf: Buf) -> (Buf, IoResult) {
        self.last_use.set(self.env.timer.now());
        let extent = match self.geometry.transfer(at, buf.len()) {
            Ok(extent) => extent,
            Err(error) => return (buf, Err(error)),
        };
        if let Err(error) = self.check_bad(extent) {
            return (buf, Err(error));
        }
        let (buf, result) = match self.pick_whole(extent) {
            Some((leg, member)) => match member.read(leg.at, buf).await {
                (buf, Err(error)) => {
                    let piece = self.shape.first_piece(extent);
                    let failure = Some((leg.member, member, error));
                    Box::pin(self.read_piece(piece, failure, buf)).await
                }
                done => done,
            },
            None => Box::pin(self.read_pieces(extent, buf)).await,
        };
        // Sectors may have been given up while it waited.
        (buf, result.and_then(|()| self.check_bad(extent)))
    }

    /// The leg that can serve all of `extent` as it is, if there is one.
    fn pick_whole(&self, extent: Extent) -> Option<(Leg, Rc<Member>)> {
        let first = self.shape.first_piece(extent);
        let whole = first.extent == extent && !self.is_unsynced(extent);
        whole.then(|| self.pick(&first, Roles::default())).flatten()
    }

    async fn read_pieces(self: &Rc<Core>, extent: Extent, buf: Buf) -> (Buf, IoResult) {
        if self.is_unsynced(extent) {
            let resync = Box::pin(self.clone().resync_extent(extent));
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

    /// The leg that should serve a read, of those in sync that are not in `but`.
    fn pick(&self, piece: &Piece, but: Roles) -> Option<(Leg, Rc<Member>)> {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        let mut legs = ArrayVec::<_, LEGS_MAX>::new();
        for leg in piece.legs().iter().filter(|leg| !but.has(leg.member)) {
            legs.extend(self.in_sync(leg.member).map(|member| (*leg, member)));
        }
        let index = balance::choose(&legs, turn)?;
        Some(legs.swap_remove(index))
    }

    /// Reads a piece from one leg after the other, `failure` being what the first one
    /// came to if it has been asked.
    async fn read_piece(
        self: &Rc<Core>,
        piece: Piece,
        mut failure: Option<(usize, Rc<Member>, IoError)>,
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
                // That the array lost a member is not the reader's concern.
                if !lost || last.is_none() {
                    last = Some(error);
                }
            }
            // Another may have been filled while this one was asked.
            let Some((leg, member)) = self.pick(&piece, tried) else {
                break;
            };
            let result;
            (buf, result) = member.read(leg.at, buf).await;
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
        let none = || self.error(Kind::Gone, "no member is left that holds these sectors");
        (buf, Err(last.unwrap_or_else(none).at(piece.extent)))
    }

    /// Writes sectors again that some members could not read.
    fn mend_later(self: &Rc<Core>, piece: Piece, failed: Roles) {
        if failed.is_empty() || self.down.borrow().is_some() {
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

    /// Writes the sectors of `piece` on `role` again, from another leg. They
    /// are read again while nobody can write them.
    async fn mend(self: &Rc<Core>, piece: Piece, role: usize) -> IoResult {
        let around = match self.shape.level().has_parity() {
            true => self.shape.stripe_at(piece.extent.start).extent(),
            false => piece.extent,
        };
        let len = piece.extent.len.bytes() as usize;
        let grant = match self.shape.level().has_parity() {
            true => Some(self.grant_reconstruct(1, len).await),
            false => None,
        };
        let buf = match &grant {
            Some(grant) => Some(grant.take(len)),
            None => self.env.pool.try_get(len),
        };
        // Without memory to spare, it is found again by the next who reads there.
        let Some(buf) = buf else { return Ok(()) };
        let _busy = self.busy.lock(around, Access::Exclusive).await;
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
        // Durable, for what it was read from may be written to next.
        match member.write(at, buf.share(), Fua::Yes).await {
            Ok(()) => member.count(|c| c.repaired += piece.extent.len.0),
            Err(error) => {
                self.fail(&member, &error);
                self.commit().await?;
            }
        }
        Ok(())
    }

    /// Reads a piece from any leg that is in sync, but for `role`.
    async fn read_other(&self, piece: &Piece, role: usize, mut buf: Buf) -> (Buf, IoResult) {
        let mut last = Err(self.error(Kind::Gone, "no other member holds these sectors"));
        for (leg, member) in self.readable(piece) {
            if leg.member != role {
                (buf, last) = member.read(leg.at, buf).await;
                if last.is_ok() {
                    break;
                }
            }
        }
        (buf, last)
    }

    /// Changes `extent` on every live leg of a level that keeps copies.
    pub async fn change(self: Rc<Core>, extent: Extent, change: Change) -> IoResult {
        self.last_use.set(self.env.timer.now());
        if matches!(change, Change::Discard) {
            // Members answer it differently, and copies would differ.
            return Ok(());
        }
        let bitmap = self.bitmap.as_ref().expect("copies have superblocks");
        self.check_up()?;
        let _busy = self.busy.lock(extent, Access::Shared).await;
        let marked = bitmap.begin(&self, extent).await;
        let result = match marked {
            Ok(()) => self.change_legs(extent, &change).await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.mark_out_of_sync(extent);
        }
        bitmap.end(extent, self.env.timer.now());
        result
    }

    /// Changes `extent` of a level without redundancy: there is nothing to keep in
    /// agreement.
    pub async fn change_plain(&self, extent: Extent, change: Change) -> IoResult {
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

    /// Changes one leg; says which member that is, which is decided at once.
    fn change_leg(
        &self,
        piece: &Piece,
        index: usize,
        start: Lba,
        change: &Change,
    ) -> impl Future<Output = Ended> + use<> {
        let leg = piece.legs()[index];
        let there = Extent::new(leg.at, piece.extent.len);
        let change = match change {
            Change::Data(data, fua) => Change::Data(data.slice(piece.bytes(start)), *fua),
            other => other.clone(),
        };
        let role = leg.member;
        let member = self.writable(role);
        let member = member.ok_or_else(|| self.error(Kind::Gone, "the member is lost"));
        async move {
            let (member, result) = match member {
                Ok(member) => {
                    let result = member.change(there, change).await;
                    (Some(member), result)
                }
                Err(error) => (None, Err(error)),
            };
            Ended {
                role,
                member,
                result,
            }
        }
    }

    async fn change_legs(self: &Rc<Core>, extent: Extent, change: &Change) -> IoResult {
        let mut outcome = Outcome::default();
        let first = self.shape.first_piece(extent);
        let whole = first.extent == extent;
        if whole {
            self.change_piece(&first, change, &mut outcome).await;
        } else {
            // Boxed, so that the futures of short requests stay small.
            Box::pin(self.change_pieces(extent, change, &mut outcome)).await;
        }
        self.commit().await?;
        self.check_up()?;
        if let Some(error) = outcome.failed {
            return Err(error);
        }
        // A leg that was in sync at the time may have been left behind since.
        let took = |piece: &Piece| {
            let mut legs = piece.legs().iter().map(|leg| leg.member);
            legs.any(|role| outcome.took.has(role) && self.is_in_sync(role))
        };
        let untaken = match whole {
            true => Some(first).filter(|piece| !took(piece)),
            false => self.shape.pieces(extent).find(|piece| !took(piece)),
        };
        if let Some(piece) = untaken {
            let error = self.error(Kind::Gone, "no member took the write");
            return Err(error.at(piece.extent));
        }
        self.clear_bad(extent).await
    }

    /// The legs of `piece` that take writes, by their index.
    fn live_legs(&self, piece: &Piece) -> ArrayVec<usize, LEGS_MAX> {
        let all = 0..piece.legs().len();
        all.filter(|leg| self.writable(piece.legs()[*leg].member).is_some())
            .collect()
    }

    /// Changes an extent of one piece.
    async fn change_piece(self: &Rc<Core>, piece: &Piece, change: &Change, outcome: &mut Outcome) {
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
        self: &Rc<Core>,
        extent: Extent,
        change: &Change,
        outcome: &mut Outcome,
    ) {
        let legs = self.shape.pieces(extent).flat_map(|piece| {
            let live = self.live_legs(&piece).into_iter();
            live.map(move |leg| self.change_leg(&piece, leg, extent.start, change))
        });
        // Who takes part is decided here, before any of them is polled.
        let legs: Vec<_> = legs.collect();
        for ended in join_all(legs).await {
            outcome.add(self, ended);
        }
    }

    /// Whether copies of `extent` may differ.
    pub fn is_unsynced(&self, extent: Extent) -> bool {
        let unsynced = self.unsynced.borrow();
        let Some(bitmap) = self.bitmap.as_ref().filter(|_| !unsynced.is_empty()) else {
            return false;
        };
        unsynced.range(bitmap.region_of(extent)).next().is_some()
    }

    /// Brings the copies of `extent` into agreement: what the first leg that can
    /// be read holds, the others get.
    pub async fn resync_extent(self: Rc<Core>, extent: Extent) -> IoResult {
        let _busy = self.busy.lock(extent, Access::Exclusive).await;
        let pieces = self
            .shape
            .pieces(extent)
            .map(|piece| self.resync_piece(piece));
        // All of them end before the range is unlocked, whatever one meets.
        join_all(pieces).await.into_iter().collect()
    }

    async fn resync_piece(self: &Rc<Core>, piece: Piece) -> IoResult {
        let mut buf = self.env.pool.take(piece.extent.len.bytes() as usize);
        let mut last = Err(self.error(Kind::Gone, "no member is left that holds these sectors"));
        let (mut source, mut tried) = (None, 0);
        let legs = self.readable(&piece);
        if legs.len() == 1 {
            return Ok(());
        }
        for (leg, member) in legs {
            tried += 1;
            (buf, last) = member.read(leg.at, buf).await;
            match &last {
                Ok(()) => {
                    source = Some(leg.member);
                    break;
                }
                // The others may be read without it, or agree as they are.
                Err(error) if is_loss(error) && self.fail(&member, error) => {
                    drop(buf);
                    return Box::pin(self.resync_piece(piece)).await;
                }
                Err(_) => {}
            }
        }
        let Some(source) = source else {
            let lost = last.as_ref().is_err_and(is_loss);
            return match piece.extent.len > self.geometry.block {
                _ if lost => last,
                true => self.resync_blocks(piece.extent).await,
                // What no leg can read is the same on all: unreadable.
                false => Ok(()),
            };
        };
        // As where it is mended.
        let fua = if tried > 1 { Fua::Yes } else { Fua::No };
        self.spread(piece, buf.share(), fua, |role| {
            role != source && self.is_in_sync(role)
        })
        .await
    }

    /// Brings what can be read of `extent` into agreement, block by block.
    async fn resync_blocks(self: &Rc<Core>, extent: Extent) -> IoResult {
        let block = self.geometry.block;
        for at in (extent.start.0..extent.end().0).step_by(block.0 as usize) {
            let piece = self.shape.first_piece(Extent::new(Lba(at), block));
            Box::pin(self.resync_piece(piece)).await?;
        }
        Ok(())
    }

    /// Writes `data` to the legs of `piece` that `wanted` names.
    pub async fn spread(
        self: &Rc<Core>,
        piece: Piece,
        data: Shared,
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
            if let Err(error) = result
                && !self.fail(&member, &error)
            {
                return Err(error);
            }
        }
        self.commit().await
    }
}
