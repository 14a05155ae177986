//! What a member that is being filled gets, from the others.
//!
//! What these cannot give either is lost, durably, and zeroes take its place.

use crate::core::Core;
use crate::format::BLOCK_BYTES;
use crate::levels::{Level, Piece, Stripe};
use crate::xor::xor;
use block::{Access, Extent, Fua, IoResult, Kind, Lba, Sectors};
use std::rc::Rc;

impl Core {
    /// Fills what `role` holds of `extent`.
    pub async fn fill(self: &Rc<Core>, role: usize, extent: Extent) -> IoResult {
        if self.shape.level() == Level::Raid5 {
            let first = self.shape.stripe_at(extent.start).number;
            let count = extent.len.0.div_ceil(self.shape.width().0);
            for number in first..first + count {
                self.fill_stripe(role, self.shape.stripe(number)).await?;
            }
            return Ok(());
        }
        let _busy = self.busy.lock(extent, Access::Exclusive).await;
        for piece in self.shape.pieces(extent) {
            if piece.legs().iter().any(|leg| leg.member == role) {
                self.fill_piece(role, piece).await?;
            }
        }
        Ok(())
    }

    async fn fill_piece(self: &Rc<Core>, role: usize, piece: Piece) -> IoResult {
        let mut buf = self.spare_buf(piece.extent.len.bytes() as usize).await;
        let mut result;
        for (leg, member) in self.readable(&piece) {
            (buf, result) = member.read(leg.at, buf).await;
            match result {
                Ok(()) => {
                    return self.spread(piece, buf.share(), |leg| leg == role).await;
                }
                Err(error) if crate::member::is_loss(&error) => {
                    self.fail(leg.member, &error);
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        drop(buf);
        if piece.extent.len > self.geometry.block {
            // What can be read of it block by block is saved.
            let block = self.geometry.block;
            for at in (piece.extent.start.0..piece.extent.end().0).step_by(block.0 as usize) {
                let part = self.shape.first_piece(Extent::new(Lba(at), block));
                Box::pin(self.fill_piece(role, part)).await?;
            }
            return Ok(());
        }
        self.add_bad(piece.extent);
        self.commit().await?;
        let mut zeroes = self.spare_buf(piece.extent.len.bytes() as usize).await;
        zeroes.fill(0);
        self.spread(piece, zeroes.share(), |_| true).await
    }

    async fn fill_stripe(self: &Rc<Core>, role: usize, stripe: Stripe) -> IoResult {
        let _busy = self.busy.lock(stripe.extent(), Access::Exclusive).await;
        let Some(member) = self.writable(role) else {
            return Ok(());
        };
        let chunk = self.shape.chunk();
        let buf = self.spare_buf(chunk.bytes() as usize).await;
        let (buf, result) = self.reconstruct(stripe, role, Sectors::ZERO, buf).await;
        if result.is_ok() {
            return self.written(role, member.write(stripe.row(), buf.share(), Fua::No).await);
        }
        drop(buf);
        let unit = self.geometry.block;
        for from in (0..chunk.0).step_by(unit.0 as usize).map(Sectors) {
            self.check_can_fill(role)?;
            let buf = self.spare_buf(unit.bytes() as usize).await;
            let (buf, result) = self.reconstruct(stripe, role, from, buf).await;
            if result.is_ok() {
                let at = stripe.row() + from;
                self.written(role, member.write(at, buf.share(), Fua::No).await)?;
            } else {
                drop(buf);
                self.give_up(stripe, role, from, unit).await?;
            }
        }
        Ok(())
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

    fn written(self: &Rc<Core>, role: usize, result: IoResult) -> IoResult {
        if let Err(error) = &result {
            self.fail(role, error);
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
        let mut parity = self.spare_buf(bytes).await;
        parity.fill(0);
        let mut lost = vec![role];
        for column in 0..stripe.columns() {
            let holder = stripe.data(column);
            let Some(member) = self.in_sync(holder).filter(|_| holder != role) else {
                continue;
            };
            let (buf, result) = member.read(at, self.spare_buf(bytes).await).await;
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
        let mut zeroes = self.spare_buf(bytes.max(BLOCK_BYTES)).await;
        zeroes.fill(0);
        let zeroes = zeroes.share().slice(0..bytes);
        for holder in lost.into_iter().chain([stripe.parity]) {
            let data = if holder == stripe.parity {
                &parity
            } else {
                &zeroes
            };
            if let Some(member) = self.writable(holder) {
                self.written(holder, member.write(at, data.clone(), Fua::No).await)?;
            }
        }
        Ok(())
    }
}
