//! Reads of every level.
//!
//! Sectors that a member cannot read come from the others, and are rewritten on that member.
//!
//! Not here: the choice of the first member (`balance`), and RAID 5 without a member
//! (`reconstruct`).

use crate::balance;
use crate::core::ArrayCore;
use crate::levels::{LEGS_MAX, Leg, LegPiece, Roles};
use crate::member::{ArrayMember, is_loss};
use arrayvec::ArrayVec;
use block::{Access, Buf, Extent, Fua, IoError, IoErrorKind, IoResult, Lba};
use futures_util::future::join_all;
use std::rc::Rc;

impl ArrayCore {
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
        let whole = first.extent == extent && !self.is_unsynced(extent);
        whole.then(|| self.pick(&first, Roles::default())).flatten()
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
        let index = balance::choose(&legs, turn)?;
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

    /// Rewrites the sectors of `piece` on `role` from another leg. They are read again under a lock
    /// that keeps writers out.
    async fn mend(self: &Rc<ArrayCore>, piece: LegPiece, role: usize) -> IoResult {
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
        // Without memory to spare, the next reader of these sectors finds the error again.
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
}
