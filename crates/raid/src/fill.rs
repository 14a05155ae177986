//! What a member that is being filled gets, from the one that it replaces or the others.
//!
//! What these cannot give either is lost, durably, and zeroes take its place.

use crate::core::Core;
use crate::levels::{Piece, Stripe};
use crate::member::{Member, is_loss};
use crate::xor::xor;
use block::{Access, Buf, Extent, Fua, Grant, IoResult, Kind, Lba, Sectors};
use layout::BLOCK_BYTES;
use std::rc::Rc;

/// A member that is being filled with what a role holds.
pub(crate) struct Filled {
    pub role: usize,
    pub member: Rc<Member>,
}

impl Core {
    /// Fills what the role holds of `extent`, once copies that may differ agree there.
    pub async fn fill_in_sync(self: &Rc<Core>, filled: &Filled, extent: Extent) -> IoResult {
        if self.is_unsynced(extent) {
            self.clone().resync_extent(extent).await?;
        }
        self.fill(filled, extent).await
    }

    /// Fills what the role holds of `extent`.
    async fn fill(self: &Rc<Core>, filled: &Filled, extent: Extent) -> IoResult {
        if self.shape.level().has_parity() {
            let first = self.shape.stripe_at(extent.start).number;
            let count = extent.len.0.div_ceil(self.shape.width().0);
            for number in first..first + count {
                self.fill_stripe(filled, self.shape.stripe(number)).await?;
            }
            return Ok(());
        }
        self.room_for(extent.len.bytes() as usize).await;
        let _busy = self.busy.lock(extent, Access::Exclusive).await;
        for piece in self.shape.pieces(extent) {
            if !self.is_filled(filled) {
                return Ok(());
            }
            if let Some(leg) = piece.legs().iter().find(|leg| leg.member == filled.role) {
                self.fill_piece(filled, piece, leg.at).await?;
            }
        }
        Ok(())
    }

    async fn fill_piece(self: &Rc<Core>, filled: &Filled, piece: Piece, at: Lba) -> IoResult {
        let mut buf = self.env.pool.take(piece.extent.len.bytes() as usize);
        let mut result;
        let mut legs = self.readable(&piece);
        legs.sort_by_key(|(leg, _)| leg.member != filled.role);
        for (leg, member) in legs {
            (buf, result) = member.read(leg.at, buf).await;
            match result {
                Ok(()) => {
                    let written = filled.member.write(at, buf.share(), Fua::No).await;
                    return self.filled(filled, written);
                }
                Err(error) if is_loss(&error) => {
                    self.fail(&member, &error);
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        drop(buf);
        if piece.extent.len > self.geometry.block {
            // What can be read of it block by block is saved.
            let block = self.geometry.block;
            for from in (0..piece.extent.len.0).step_by(block.0 as usize) {
                let from = Sectors(from);
                let part = Extent::new(piece.extent.start + from, block);
                let part = self.shape.first_piece(part);
                Box::pin(self.fill_piece(filled, part, at + from)).await?;
            }
            return Ok(());
        }
        self.add_bad(piece.extent);
        self.commit().await?;
        let mut zeroes = self.env.pool.take(piece.extent.len.bytes() as usize);
        zeroes.fill(0);
        self.spread(piece, zeroes.share(), Fua::No, |_| true).await
    }

    async fn fill_stripe(self: &Rc<Core>, filled: &Filled, stripe: Stripe) -> IoResult {
        let chunk = self.shape.chunk();
        let grant = self.grant_reconstruct(1, chunk.bytes() as usize).await;
        let _busy = self.busy.lock(stripe.extent(), Access::Exclusive).await;
        if !self.is_filled(filled) {
            return Ok(());
        }
        let (role, member) = (filled.role, &filled.member);
        let buf = grant.take(chunk.bytes() as usize);
        let (buf, result) = self.fetch(stripe, role, Sectors::ZERO, buf, &grant).await;
        if result.is_ok() {
            let written = member.write(stripe.row(), buf.share(), Fua::No).await;
            return self.filled(filled, written);
        }
        drop(buf);
        let unit = self.geometry.block;
        for from in (0..chunk.0).step_by(unit.0 as usize).map(Sectors) {
            self.check_can_fill(role)?;
            let buf = self.env.pool.take(unit.bytes() as usize);
            let (buf, result) = self.fetch(stripe, role, from, buf, &grant).await;
            if result.is_ok() {
                let at = stripe.row() + from;
                self.filled(filled, member.write(at, buf.share(), Fua::No).await)?;
            } else {
                drop(buf);
                self.give_up(stripe, role, from, unit).await?;
            }
        }
        Ok(())
    }

    /// What `role` holds from `from` on in its chunk of `stripe`: of a member in sync that is
    /// to be replaced its own, else what follows from the others.
    async fn fetch(
        self: &Rc<Core>,
        stripe: Stripe,
        role: usize,
        from: Sectors,
        mut buf: Buf,
        grant: &Grant,
    ) -> (Buf, IoResult) {
        if let Some(old) = self.in_sync(role) {
            let result;
            (buf, result) = old.read(stripe.row() + from, buf).await;
            self.judge_read(&old, &result);
            if result.as_ref().err().is_none_or(is_loss) {
                return (buf, result);
            }
        }
        self.reconstruct(stripe, role, from, buf, grant).await
    }

    fn check_can_fill(&self, role: usize) -> IoResult {
        let others = (0..self.shape.members()).filter(|other| *other != role);
        match others
            .into_iter()
            .all(|other| self.in_sync(other).is_some())
        {
            true => Ok(()),
            false => Err(self.error(Kind::Gone, "another member was lost")),
        }
    }

    /// What a member that is being filled got was written, or it takes no more part.
    fn filled(self: &Rc<Core>, filled: &Filled, result: IoResult) -> IoResult {
        match self.is_copied(filled) {
            true => self.copied(&result),
            false => return self.written(&filled.member, result),
        }
        result
    }

    fn written(self: &Rc<Core>, member: &Member, result: IoResult) -> IoResult {
        if let Err(error) = &result {
            self.fail(member, error);
        }
        result
    }

    /// Two chunks of a stripe cannot be read in `from .. from + len`: their
    /// data is lost. Zeroes take its place, with a parity that fits.
    async fn give_up(
        self: &Rc<Core>,
        stripe: Stripe,
        role: usize,
        from: Sectors,
        len: Sectors,
    ) -> IoResult {
        self.check_can_fill(role)?;
        let at = stripe.row() + from;
        let bytes = len.bytes() as usize;
        let mut parity = self.env.pool.take(bytes);
        parity.fill(0);
        let mut lost = vec![role];
        for column in 0..stripe.columns() {
            let holder = stripe.data(column);
            let Some(member) = self.in_sync(holder).filter(|_| holder != role) else {
                continue;
            };
            let (buf, result) = member.read(at, self.env.pool.take(bytes)).await;
            match result {
                Ok(()) => xor(&mut parity, &buf),
                Err(_) => lost.push(holder),
            }
        }
        for holder in &lost {
            if let Some(column) = stripe.column(*holder) {
                self.add_bad(stripe.place(column, from, len));
            }
        }
        self.commit().await?;
        // No record may bring back a parity that goes with what is lost.
        self.flush_members().await?;
        for journal in &self.journals {
            journal.retire(self).await?;
        }
        let parity = parity.share();
        let mut zeroes = self.env.pool.take(bytes.max(BLOCK_BYTES));
        zeroes.fill(0);
        let zeroes = zeroes.share().slice(0..bytes);
        for holder in lost.into_iter().chain([stripe.parity]) {
            let data = if holder == stripe.parity {
                &parity
            } else {
                &zeroes
            };
            if let Some(member) = self.writable(holder) {
                self.written(&member, member.write(at, data.clone(), Fua::No).await)?;
            }
        }
        Ok(())
    }
}
