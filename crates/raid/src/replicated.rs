//! Reads of every level, and writes of the levels that keep copies or nothing.
//!
//! A write goes to every live leg. It is acknowledged once a leg that is in
//! sync has it, and no member that lacks it counts as in sync, durably.
//!
//! Not here: RAID 5's writes and how it reads without a member (`parity`).

use crate::balance;
use crate::core::Core;
use crate::levels::{Level, Piece};
use crate::member::is_loss;
use block::{Access, Buf, Extent, Fua, IoError, IoResult, Kind, Lba, Shared};
use futures_util::future::join_all;
use std::rc::Rc;

/// What is to happen to an extent.
#[derive(Clone)]
pub(crate) enum Change {
    Data(Shared, Fua),
    Zero,
    Discard,
}

impl Core {
    /// Reads `extent`, which is inside the array, into `buf`.
    pub async fn read(self: &Rc<Core>, extent: Extent, buf: Buf) -> (Buf, IoResult) {
        self.last_use.set(self.env.timer.now());
        if let Err(error) = self.check_bad(extent) {
            return (buf, Err(error));
        }
        let (buf, result) = self.read_pieces(extent, buf).await;
        // Sectors may have been given up while it waited.
        (buf, result.and_then(|()| self.check_bad(extent)))
    }

    async fn read_pieces(self: &Rc<Core>, extent: Extent, buf: Buf) -> (Buf, IoResult) {
        if self.is_unsynced(extent) {
            let agree = Box::pin(self.clone().agree(extent));
            if let Err(error) = self.env.spawn.persist(agree).await {
                return (buf, Err(error));
            }
        }
        let first = self.shape.first_piece(extent);
        if first.extent == extent {
            return self.read_piece(first, buf).await;
        }
        let (mut reads, mut rest) = (Vec::new(), buf);
        for piece in self.shape.pieces(extent) {
            let (part, tail) = rest.split_at(piece.extent.len.bytes() as usize);
            reads.push(self.read_piece(piece, part));
            rest = tail;
        }
        let mut whole = None;
        let mut failed = Ok(());
        for (part, result) in join_all(reads).await {
            failed = failed.and(result);
            whole = match whole {
                None => Some(part),
                Some(head) => Some(Buf::join(head, part, &self.env.pool).await),
            };
        }
        // The tail that is left is empty, and a neighbour of nothing.
        drop(rest);
        (whole.expect("an extent has pieces"), failed)
    }

    async fn read_piece(self: &Rc<Core>, piece: Piece, mut buf: Buf) -> (Buf, IoResult) {
        let mut legs = self.readable(&piece);
        let (mut failed, mut tried) = (Vec::new(), Vec::new());
        let mut last = None;
        loop {
            let turn = self.turn.get();
            self.turn.set(turn + 1);
            let Some(index) = balance::choose(&legs, turn) else {
                // Another may have been filled while this one was asked.
                legs = self.readable(&piece);
                legs.retain(|(leg, _)| !tried.contains(&leg.member));
                if legs.is_empty() {
                    break;
                }
                continue;
            };
            let (leg, member) = legs.swap_remove(index);
            let result;
            (buf, result) = member.read(leg.at, buf).await;
            match result {
                Ok(()) => {
                    self.mend_later(piece, failed);
                    return (buf, Ok(()));
                }
                Err(error) => {
                    tried.push(leg.member);
                    let lost = is_loss(&error);
                    if !lost || !self.fail(leg.member, &error) {
                        failed.push(leg.member);
                    }
                    // That the array lost a member is not the reader's concern.
                    if !lost || last.is_none() {
                        last = Some(error);
                    }
                }
            }
        }
        if self.shape.level() == Level::Raid5 {
            let result;
            (buf, result) = Box::pin(self.read_from_others(piece, last.is_none(), buf)).await;
            return match result {
                Ok(()) => {
                    self.mend_later(piece, failed);
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
    fn mend_later(self: &Rc<Core>, piece: Piece, failed: Vec<usize>) {
        if failed.is_empty() || self.down.borrow().is_some() {
            return;
        }
        let core = self.clone();
        self.env.spawn.spawn(async move {
            for role in failed {
                // A member that cannot be mended has been failed by now.
                let _ = core.mend(piece, role).await;
            }
        });
    }

    /// Writes the sectors of `piece` on `role` again, from another leg. They
    /// are read anew while nobody can write them.
    async fn mend(self: &Rc<Core>, piece: Piece, role: usize) -> IoResult {
        let around = match self.shape.level() {
            Level::Raid5 => self.shape.stripe_at(piece.extent.start).extent(),
            _ => piece.extent,
        };
        let _busy = self.busy.lock(around, Access::Exclusive).await;
        let Some(member) = self.in_sync(role) else {
            return Ok(());
        };
        let buf = self.env.pool.get(piece.extent.len.bytes() as usize).await;
        let (buf, result) = match self.shape.level() {
            Level::Raid5 => {
                let stripe = self.shape.stripe_at(piece.extent.start);
                let from = piece.legs()[0].at - stripe.row();
                self.reconstruct(stripe, role, from, buf).await
            }
            _ => self.read_other(&piece, role, buf).await,
        };
        result?;
        let leg = piece.legs().iter().find(|leg| leg.member == role);
        let at = leg.expect("a leg of the piece").at;
        match member.write(at, buf.share(), Fua::No).await {
            Ok(()) => member.count(|c| c.repaired += piece.extent.len.0),
            Err(error) => {
                self.fail(role, &error);
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

    /// Changes `extent` on every live leg.
    pub async fn change(self: Rc<Core>, extent: Extent, change: Change) -> IoResult {
        self.last_use.set(self.env.timer.now());
        let Some(intent) = &self.intent else {
            return self.change_plain(extent, &change).await;
        };
        self.check_up()?;
        let _busy = self.busy.lock(extent, Access::Shared).await;
        let marked = intent.begin(&self, extent).await;
        let result = match marked {
            Ok(()) => self.change_legs(extent, &change).await,
            Err(error) => Err(error),
        };
        intent.end(extent, self.env.timer.now());
        result
    }

    /// Without redundancy there is nothing to keep in agreement.
    async fn change_plain(&self, extent: Extent, change: &Change) -> IoResult {
        let pieces = self.shape.pieces(extent);
        let changes = pieces.map(|piece| self.change_leg(piece, 0, extent.start, change));
        for (_, result) in join_all(changes).await {
            result?;
        }
        Ok(())
    }

    /// Changes one leg; says which member that is.
    async fn change_leg(
        &self,
        piece: Piece,
        index: usize,
        start: Lba,
        change: &Change,
    ) -> (usize, IoResult) {
        let leg = piece.legs()[index];
        let Some(member) = self.writable(leg.member) else {
            return (
                leg.member,
                Err(self.error(Kind::Gone, "the member is lost")),
            );
        };
        let there = Extent::new(leg.at, piece.extent.len);
        let result = match change {
            Change::Data(data, fua) => {
                member
                    .write(leg.at, data.slice(piece.bytes(start)), *fua)
                    .await
            }
            Change::Zero => member.zero(there).await,
            Change::Discard => member.discard(there).await,
        };
        (leg.member, result)
    }

    async fn change_legs(self: &Rc<Core>, extent: Extent, change: &Change) -> IoResult {
        let pieces: Vec<_> = self.shape.pieces(extent).collect();
        let legs = pieces.iter().flat_map(|piece| {
            let live = (0..piece.legs().len())
                .filter(|leg| self.writable(piece.legs()[*leg].member).is_some());
            live.map(|leg| self.change_leg(*piece, leg, extent.start, change))
        });
        // Who takes part is decided here, before any of them is polled.
        let legs: Vec<_> = legs.collect();
        let mut failed: Option<IoError> = None;
        let mut took = Vec::new();
        for (role, result) in join_all(legs).await {
            match result {
                Ok(()) => took.push(role),
                Err(error) => {
                    if !self.fail(role, &error) {
                        failed = Some(error);
                    }
                }
            }
        }
        self.commit().await?;
        self.check_up()?;
        if let Some(error) = failed {
            return Err(error);
        }
        // A leg that was in sync at the time may have been left behind since.
        for piece in &pieces {
            let mut legs = piece.legs().iter().map(|leg| leg.member);
            if !legs.any(|role| took.contains(&role) && self.is_in_sync(role)) {
                return Err(self
                    .error(Kind::Gone, "no member took the write")
                    .at(piece.extent));
            }
        }
        if matches!(change, Change::Data(..) | Change::Zero) {
            self.heal(extent).await?;
        }
        Ok(())
    }

    /// Whether members may differ in `extent` since a crash.
    pub fn is_unsynced(&self, extent: Extent) -> bool {
        let unsynced = self.unsynced.borrow();
        let Some(intent) = self.intent.as_ref().filter(|_| !unsynced.is_empty()) else {
            return false;
        };
        unsynced.range(intent.region_of(extent)).next().is_some()
    }

    /// Brings the copies of `extent` into agreement: what the first leg that can
    /// be read holds, the others get.
    pub async fn agree(self: Rc<Core>, extent: Extent) -> IoResult {
        let _busy = self.busy.lock(extent, Access::Exclusive).await;
        let pieces = self
            .shape
            .pieces(extent)
            .map(|piece| self.agree_piece(piece));
        // All of them end before the range is let go of, whatever one meets.
        join_all(pieces).await.into_iter().collect()
    }

    async fn agree_piece(self: &Rc<Core>, piece: Piece) -> IoResult {
        let mut buf = self.env.pool.get(piece.extent.len.bytes() as usize).await;
        let mut last = Err(self.error(Kind::Gone, "no member is left that holds these sectors"));
        let mut source = None;
        let legs = self.readable(&piece);
        if legs.len() == 1 {
            return Ok(());
        }
        for (leg, member) in legs {
            (buf, last) = member.read(leg.at, buf).await;
            match &last {
                Ok(()) => {
                    source = Some(leg.member);
                    break;
                }
                Err(error) if is_loss(error) => {
                    self.fail(leg.member, error);
                }
                Err(_) => {}
            }
        }
        let Some(source) = source else {
            let lost = last.as_ref().is_err_and(is_loss);
            return match piece.extent.len > self.geometry.block {
                _ if lost => last,
                true => self.agree_blocks(piece.extent).await,
                // What no leg can read is the same on all: unreadable.
                false => Ok(()),
            };
        };
        self.spread(piece, buf.share(), |role| {
            role != source && self.is_in_sync(role)
        })
        .await
    }

    /// Brings what can be read of `extent` into agreement, block by block.
    async fn agree_blocks(self: &Rc<Core>, extent: Extent) -> IoResult {
        let block = self.geometry.block;
        for at in (extent.start.0..extent.end().0).step_by(block.0 as usize) {
            let piece = self.shape.first_piece(Extent::new(Lba(at), block));
            Box::pin(self.agree_piece(piece)).await?;
        }
        Ok(())
    }

    /// Writes `data` to the legs of `piece` that `wanted` names.
    pub async fn spread(
        self: &Rc<Core>,
        piece: Piece,
        data: Shared,
        wanted: impl Fn(usize) -> bool,
    ) -> IoResult {
        let targets = piece.legs().iter().filter(|leg| wanted(leg.member));
        let writes = targets.filter_map(|leg| {
            let member = self.writable(leg.member)?;
            let data = data.clone();
            Some(async move { (leg.member, member.write(leg.at, data, Fua::No).await) })
        });
        let writes: Vec<_> = writes.collect();
        for (role, result) in join_all(writes).await {
            if let Err(error) = result
                && !self.fail(role, &error)
            {
                return Err(error);
            }
        }
        self.commit().await
    }
}
