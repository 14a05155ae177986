//! Comparing what ought to agree: copies with each other, data with parity; and reading
//! what members carry besides data.
//!
//! Sectors that cannot be read are written again from the others, as a read
//! would. Where copies differ the one that most legs hold is right; two that
//! differ, or a parity that does not fit, do not show which is wrong: a repair
//! then makes them agree, on the first copy or with the data.

use crate::core::Core;
use crate::levels::{LEGS_MAX, Piece, Stripe};
use crate::maintenance::Progress;
use crate::member::Member;
use crate::superblock::{Scrubbed, Superblock};
use crate::xor::xor;
use block::{Access, Extent, Fua, Grant, IoResult, Kind, Lba, Sectors};
use layout::BLOCK_BYTES;
use layout::array::SUPERBLOCKS;
use std::rc::Rc;

/// What a scrub found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubReport {
    /// Sectors of the array that were looked at.
    pub sectors: u64,
    /// Of these, those of which not all was compared, for a member was not in sync.
    pub skipped: u64,
    /// Places that could not be read on one member, what it carries besides data
    /// included.
    pub unreadable: u64,
    /// Places where copies, or data and parity, differed.
    pub mismatches: u64,
    /// Of these, how many were brought into agreement.
    pub repaired: u64,
}

/// The sectors that are compared at once.
const STEP: Sectors = Sectors(128);

impl Core {
    /// Looks at the whole array, unless that is cancelled.
    pub async fn scrub(self: &Rc<Core>, repair: bool) -> IoResult<ScrubReport> {
        self.scrub_cancelled.set(false);
        let ended = self.scrub_all(repair).await;
        self.scrub.set(Progress::default());
        ended
    }

    async fn scrub_all(self: &Rc<Core>, repair: bool) -> IoResult<ScrubReport> {
        let mut report = ScrubReport::default();
        if self.bitmap.is_none() {
            let what = format!("{} has no redundancy to scrub", self.shape.level().name());
            return Err(self.error(Kind::Invalid, what));
        }
        let mut progress = Progress {
            total: self.geometry.sectors,
            began: self.env.timer.now(),
            ..Progress::default()
        };
        self.scrub.set(progress);
        report.unreadable += self.mend_metadata().await?;
        let mut at = Lba::ZERO;
        let end = self.geometry.extent().end();
        while at < end {
            let step = match self.shape.level().has_parity() {
                true => self.shape.width(),
                false => Sectors(STEP.0.min((end - at).0)),
            };
            let extent = Extent::new(at, step);
            self.check_scrubs()?;
            if self.is_unsynced(extent) {
                self.clone().resync_extent(extent).await?;
            }
            match self.shape.level().has_parity() {
                true => {
                    let chunk = self.shape.chunk().bytes() as usize;
                    let grant = self.grant_reconstruct(2, chunk).await;
                    let _busy = self.busy.lock(extent, Access::Exclusive).await;
                    self.check_scrubs()?;
                    self.scrub_stripe(self.shape.stripe_at(at), repair, &mut report, &grant)
                        .await?;
                }
                false => {
                    self.room_for(LEGS_MAX * step.bytes() as usize).await;
                    let _busy = self.busy.lock(extent, Access::Exclusive).await;
                    self.check_scrubs()?;
                    for piece in self.shape.pieces(extent) {
                        self.scrub_piece(piece, repair, &mut report).await?;
                    }
                }
            }
            report.sectors += step.0;
            if !self.is_whole() {
                report.skipped += step.0;
            }
            at = at + step;
            progress.done += step;
            self.scrub.set(progress);
            self.pace(step).await;
        }
        if report.mismatches > report.repaired {
            let name = &self.name;
            self.log(format!(
                "{name}: a scrub found mismatches: {}; look at its members, then repair them with \
                 `hotset array scrub {name} --repair`",
                report.mismatches
            ));
        }
        Ok(report)
    }

    /// Whether the scrub goes on.
    fn check_scrubs(&self) -> IoResult {
        if self.scrub_cancelled.get() {
            let what = "its scrub was cancelled; what it repaired stays, and the next starts over";
            return Err(self.error(Kind::Other, what));
        }
        self.check_serves()
    }

    /// Whether the array goes on. Of one that is being closed nothing more is asked: its
    /// members may be somebody else's next.
    fn check_serves(&self) -> IoResult {
        self.check_up()?;
        match self.closed.get() {
            false => Ok(()),
            true => {
                let what = "it was closed before its scrub ended; scrub it again";
                Err(self.error(Kind::Gone, what))
            }
        }
    }

    /// Remembers, durably, when the array was scrubbed last.
    pub async fn set_scrubbed(self: &Rc<Core>, scrubbed: Scrubbed) -> IoResult {
        self.check_serves()?;
        self.roster.change(|roster| roster.scrubbed = scrubbed);
        self.until_silent(self.commit()).await
    }

    /// Writes again what cannot be read of what members carry besides data; says of how
    /// many blocks and records that was so.
    async fn mend_metadata(self: &Rc<Core>) -> IoResult<u64> {
        let mut illegible = 0;
        for (_, member) in self.live() {
            self.check_scrubs()?;
            illegible += self.illegible_superblocks(&member).await;
        }
        if illegible > 0 {
            // The copies take turns.
            for _ in SUPERBLOCKS {
                self.want_commit();
                self.commit().await?;
            }
        }
        let spares: Vec<_> = self.spares.borrow().clone();
        for spare in spares {
            let count = self.illegible_superblocks(&spare).await;
            if count > 0 {
                illegible += count;
                // One that cannot be mended is found out when it is to serve.
                let _ = self.write_spare(&spare).await;
            }
        }
        if let Some(bitmap) = &self.bitmap {
            illegible += bitmap.mend(self).await?;
        }
        for (role, member) in self.live() {
            if let Some(journal) = self.journals.get(role).filter(|_| self.is_in_sync(role)) {
                illegible += journal.mend(self, &member).await?;
            }
        }
        Ok(illegible)
    }

    async fn illegible_superblocks(self: &Rc<Core>, member: &Member) -> u64 {
        let mut illegible = 0;
        for copy in SUPERBLOCKS {
            if self.is_superblock(member, copy).await {
                continue;
            }
            // It may have been read while it was written; the commit then ends first.
            let _ = self.commit().await;
            illegible += u64::from(!self.is_superblock(member, copy).await);
        }
        illegible
    }

    async fn is_superblock(&self, member: &Member, copy: Sectors) -> bool {
        let buf = self.env.pool.take(BLOCK_BYTES);
        let (buf, result) = member.read_meta(copy, buf).await;
        result.is_ok() && Superblock::decode(&buf).is_some()
    }

    async fn scrub_piece(
        self: &Rc<Core>,
        piece: Piece,
        repair: bool,
        report: &mut ScrubReport,
    ) -> IoResult {
        let (mut copies, mut unreadable) = (Vec::new(), Vec::new());
        for (leg, member) in self.readable(&piece) {
            let buf = self.env.pool.take(piece.extent.len.bytes() as usize);
            let (buf, result) = member.read(leg.at, buf).await;
            match result {
                Ok(()) => copies.push((leg.member, buf.share())),
                Err(_) => unreadable.push(leg.member),
            }
        }
        report.unreadable += unreadable.len() as u64;
        let alike = |data: &block::Shared| copies.iter().filter(|(_, c)| c[..] == data[..]).count();
        // Among equals the first leg's: `max_by_key` takes the last.
        let best = copies.iter().rev().max_by_key(|(_, data)| alike(data));
        let Some((_, best)) = best else { return Ok(()) };
        let differing = copies.iter().filter(|(_, copy)| copy[..] != best[..]);
        let mut wrong: Vec<usize> = differing.map(|(role, _)| *role).collect();
        report.mismatches += wrong.len() as u64;
        if !repair {
            wrong.clear();
        }
        report.repaired += wrong.len() as u64;
        wrong.extend(&unreadable);
        let best = best.clone();
        self.spread(piece, best, Fua::Yes, |role| wrong.contains(&role))
            .await
    }

    async fn scrub_stripe(
        self: &Rc<Core>,
        stripe: Stripe,
        repair: bool,
        report: &mut ScrubReport,
        grant: &Grant,
    ) -> IoResult {
        let chunk = self.shape.chunk();
        let len = chunk.bytes() as usize;
        let mut sum = grant.take(len);
        sum.fill(0);
        let mut unreadable = Vec::new();
        for role in 0..self.shape.members() {
            let Some(member) = self.in_sync(role) else {
                return Ok(());
            };
            let (buf, result) = member.read(stripe.row(), grant.take(len)).await;
            match result {
                Ok(()) => xor(&mut sum, &buf),
                Err(_) => unreadable.push(role),
            }
            grant.give_back(buf);
        }
        report.unreadable += unreadable.len() as u64;
        let (role, data) = match unreadable[..] {
            [] if sum.iter().all(|byte| *byte == 0) => return Ok(()),
            [] => {
                report.mismatches += 1;
                if !repair {
                    return Ok(());
                }
                report.repaired += 1;
                let buf = grant.take(len);
                let (buf, result) = self
                    .reconstruct(stripe, stripe.parity, Sectors::ZERO, buf, grant)
                    .await;
                result?;
                (stripe.parity, buf)
            }
            [role] => (role, sum),
            _ => return Ok(()),
        };
        let Some(member) = self.writable(role) else {
            return Ok(());
        };
        if let Err(error) = member.write(stripe.row(), data.share(), Fua::No).await {
            self.fail(&member, &error);
            self.commit().await?;
        }
        Ok(())
    }
}
