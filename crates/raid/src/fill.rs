//! Filling a member, from the one that it replaces or from the others.
//!
//! A read that fails is tried again after pauses that rise, sector by sector. Sectors that no other
//! member can read by then, though each of them answers elsewhere, are left out: they are a gap of
//! the filled member (`lost`). Nothing is ever written to a member that is read from.
//!
//! Invariants:
//!     a sector becomes a gap      ⟹ a read that it depends on failed at the last try
//!     more than may be left out in a row cannot be read   ⟹ the filling pauses

use crate::core::ArrayCore;
use crate::levels::{LegPiece, ParityStripe};
use crate::member::{ArrayMember, is_loss};
use crate::runs::with;
use block::{Access, Buf, Extent, Fua, Grant, IoErrorKind, IoResult, Lba, Nanos, Sectors};
use layout::BLOCK_BYTES;
use layout::array::SUPERBLOCKS;
use std::rc::Rc;

/// The pauses after failed reads, but for the last try.
const PAUSES_MS: [u64; 4] = [20, 40, 80, 160];

/// A member that is being filled with the data of a role.
pub(crate) struct Filled {
    pub role: usize,
    pub member: Rc<ArrayMember>,
}

impl ArrayCore {
    /// Fills the role's data of `extent`, once copies that may differ agree there.
    pub async fn fill_in_sync(self: &Rc<ArrayCore>, filled: &Filled, extent: Extent) -> IoResult {
        if self.is_unsynced(extent) {
            self.clone().resync_extent(extent, Fua::No).await?;
        }
        let mut left = self.parts_of(filled.role, extent);
        for pause in PAUSES_MS {
            left = self.fill_parts(filled, left, false).await?;
            if left.is_empty() {
                self.rests.end();
                return Ok(());
            }
            self.env.timer.sleep(Nanos::from_millis(pause)).await;
        }
        self.check_answers().await?;
        self.fill_parts(filled, left, true).await?;
        self.commit().await
    }

    /// Returns the role's data of `extent`, as extents of its member.
    fn parts_of(&self, role: usize, extent: Extent) -> Vec<Extent> {
        if self.shape.level().has_parity() {
            let first = self.shape.stripe_at(extent.start).number;
            let count = extent.len.0.div_ceil(self.shape.width().0);
            let rows = (first..first + count).map(|number| self.shape.stripe(number).row());
            return rows
                .map(|row| Extent::new(row, self.shape.chunk()))
                .collect();
        }
        let pieces = self.shape.pieces(extent);
        let its = pieces.filter_map(|piece| {
            let leg = piece.legs().iter().find(|leg| leg.member == role)?;
            Some(Extent::new(leg.at, piece.extent.len))
        });
        its.collect()
    }

    /// Fills the readable part of `parts`. Unreadable blocks are left out at the `last` try.
    async fn fill_parts(
        self: &Rc<ArrayCore>,
        filled: &Filled,
        parts: Vec<Extent>,
        last: bool,
    ) -> IoResult<Vec<Extent>> {
        let mut left = Vec::new();
        for part in parts {
            let illegible = match self.shape.level().has_parity() {
                true => self.fill_stripe(filled, part, last).await?,
                false => self.fill_copy(filled, part, last).await?,
            };
            left.extend(illegible);
        }
        Ok(left)
    }

    async fn fill_copy(
        self: &Rc<ArrayCore>,
        filled: &Filled,
        part: Extent,
        last: bool,
    ) -> IoResult<Vec<Extent>> {
        let extent = self.shape.sectors_at(filled.role, part)[0];
        self.room_for(extent.len.bytes() as usize).await;
        let _busy = self.busy.lock(extent, Access::Exclusive).await;
        self.check_serves()?;
        if !self.is_filled(filled) {
            return Ok(Vec::new());
        }
        let piece = self.shape.first_piece(extent);
        let illegible = self.fill_piece(filled, piece, part.start).await?;
        self.left_of(filled, illegible, last)
    }

    async fn fill_piece(
        self: &Rc<ArrayCore>,
        filled: &Filled,
        piece: LegPiece,
        at: Lba,
    ) -> IoResult<Vec<Extent>> {
        let mut buf = self.env.pool.take(piece.extent.len.bytes() as usize);
        let mut result;
        let mut legs = self.readable(&piece);
        legs.sort_by_key(|(leg, _)| leg.member != filled.role);
        if legs.is_empty() {
            return Err(self.unheld().at(piece.extent));
        }
        for (leg, member) in legs {
            (buf, result) = self.read_of(leg.member, &member, leg.at, buf).await;
            match result {
                Ok(()) => {
                    let written = filled.member.write(at, buf.share(), Fua::No).await;
                    self.filled(filled, Extent::new(at, piece.extent.len), written)?;
                    return Ok(Vec::new());
                }
                Err(error) if is_loss(&error) => {
                    self.fail(&member, &error);
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        drop(buf);
        let block = self.geometry.block;
        if piece.extent.len <= block {
            return Ok(vec![Extent::new(at, piece.extent.len)]);
        }
        // Readable blocks are saved one by one.
        let mut illegible = Vec::new();
        for from in (0..piece.extent.len.0).step_by(block.0 as usize) {
            let from = Sectors(from);
            let part = Extent::new(piece.extent.start + from, block);
            let part = self.shape.first_piece(part);
            illegible.extend(Box::pin(self.fill_piece(filled, part, at + from)).await?);
        }
        Ok(illegible)
    }

    async fn fill_stripe(
        self: &Rc<ArrayCore>,
        filled: &Filled,
        part: Extent,
        last: bool,
    ) -> IoResult<Vec<Extent>> {
        let stripe = self.shape.stripe(part.start.0 / self.shape.chunk().0);
        let bytes = part.len.bytes() as usize;
        let grant = self.grant_reconstruct(1, bytes).await;
        let _busy = self.busy.lock(stripe.extent(), Access::Exclusive).await;
        self.check_serves()?;
        if !self.is_filled(filled) {
            return Ok(Vec::new());
        }
        let buf = grant.take(bytes);
        let (buf, result) = self.fetch(stripe, filled.role, part, buf, &grant).await;
        if result.is_ok() {
            let written = filled.member.write(part.start, buf.share(), Fua::No);
            self.filled(filled, part, written.await)?;
            return Ok(Vec::new());
        }
        drop(buf);
        let (unit, mut illegible) = (self.geometry.block, Vec::new());
        for from in (0..part.len.0).step_by(unit.0 as usize).map(Sectors) {
            let part = Extent::new(part.start + from, unit);
            let buf = self.env.pool.take(unit.bytes() as usize);
            let (buf, result) = self.fetch(stripe, filled.role, part, buf, &grant).await;
            match result {
                Ok(()) => {
                    let written = filled.member.write(part.start, buf.share(), Fua::No);
                    self.filled(filled, part, written.await)?;
                }
                Err(_) => {
                    self.check_can_fill(filled.role)?;
                    illegible.push(part);
                }
            }
        }
        self.left_of(filled, illegible, last)
    }

    /// Reads the data of `role` in `part`, an extent of its member that lies in `stripe`: from the
    /// member itself if it is in sync and to be replaced, otherwise computed from the others.
    async fn fetch(
        self: &Rc<ArrayCore>,
        stripe: ParityStripe,
        role: usize,
        part: Extent,
        mut buf: Buf,
        grant: &Grant,
    ) -> (Buf, IoResult) {
        if let Some(old) = self.in_sync(role) {
            let result;
            (buf, result) = self.read_of(role, &old, part.start, buf).await;
            self.judge_read(&old, &result);
            if result.as_ref().err().is_none_or(is_loss) {
                return (buf, result);
            }
        }
        let from = part.start - stripe.row();
        self.reconstruct(stripe, role, from, buf, grant).await
    }

    fn check_can_fill(&self, role: usize) -> IoResult {
        let others = (0..self.shape.members()).filter(|other| *other != role);
        match others
            .into_iter()
            .all(|other| self.in_sync(other).is_some())
        {
            true => Ok(()),
            false => Err(self.error(IoErrorKind::Gone, "another member was lost")),
        }
    }

    /// Fails unless each member that is read from answers anywhere: one that does not has no bad
    /// sectors, but is in trouble as a whole.
    async fn check_answers(&self) -> IoResult {
        let live = self.live();
        for (_, member) in live.iter().filter(|(role, _)| self.is_in_sync(*role)) {
            let mut result = Ok(());
            for copy in SUPERBLOCKS {
                let buf = self.env.pool.take(BLOCK_BYTES);
                (_, result) = member.read_meta(copy, buf).await;
                if result.is_ok() {
                    break;
                }
            }
            if let Err(error) = result {
                self.rests.begin(self.env.timer.now());
                let what = format!(
                    "{} cannot be read anywhere ({error}); see to it, the filling goes on once it \
                     can be",
                    member.name
                );
                return Err(self.error(IoErrorKind::Media, what));
            }
        }
        Ok(())
    }

    /// Returns the blocks to be tried again: none after the `last` try, at which they become gaps.
    fn left_of(
        &self,
        filled: &Filled,
        illegible: Vec<Extent>,
        last: bool,
    ) -> IoResult<Vec<Extent>> {
        if !last || illegible.is_empty() {
            return Ok(illegible);
        }
        let runs = illegible
            .iter()
            .fold(Vec::new(), |runs, extent| with(&runs, *extent));
        let (role, name) = (filled.role, &self.name);
        for run in runs {
            if !self.rests.leave_out(run.len, self.env.timer.now()) {
                let what = format!(
                    "too much in a row cannot be read that member {role} needs ({run:?} of its \
                     data); see to the other members, the filling goes on after a pause"
                );
                return Err(self.error(IoErrorKind::Media, what));
            }
            self.log(format!(
                "{name}: no member can read what member {role} needs ({run:?} of its data): it is \
                 left out and listed as lost until it is written again, or another member can read it"
            ));
            match &mut *self.replacement.borrow_mut() {
                Some(replacement) if Rc::ptr_eq(&replacement.member, &filled.member) => {
                    replacement.gaps = with(&replacement.gaps, run);
                }
                _ => self.add_gap(role, run),
            }
        }
        Ok(Vec::new())
    }

    /// Takes the result of a write at `at` of the data of the filled member: it has the data, or
    /// takes no more part.
    fn filled(self: &Rc<ArrayCore>, filled: &Filled, at: Extent, result: IoResult) -> IoResult {
        if self.is_copied(filled) {
            self.copied(&result);
            return result;
        }
        match &result {
            Ok(()) => self.fill_gap(filled.role, at),
            Err(error) => drop(self.fail(&filled.member, error)),
        }
        result
    }
}
