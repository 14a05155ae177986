//! Scrubs: comparing copies with each other, or data with parity, and reading the metadata of
//! members.
//!
//! Sectors that cannot be read are rewritten from the others, as a read would. Where copies differ,
//! the one that most legs hold is right. Two that differ, or a parity that does not fit, do not
//! show which is wrong: a repair then makes them agree, on the first copy or with the data.

use crate::core::ArrayCore;
use crate::levels::{LEGS_MAX, LegPiece, ParityStripe};
use crate::maintenance::MaintenanceProgress;
use crate::member::ArrayMember;
use crate::superblock::{ArraySuperblock, Gap, Scrubbed};
use crate::xor::xor;
use block::{
    Access, Buf, Extent, Fua, Grant, IoErrorKind, IoResult, Lba, Nanos, SECTOR_BYTES, Sectors,
    SharedBuf,
};
use layout::BLOCK_BYTES;
use layout::array::SUPERBLOCKS;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Results of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubReport {
    /// Sectors of the array that were scrubbed.
    pub sectors: u64,
    /// Sectors among them that were not compared in full, since a member was not in sync.
    pub skipped: u64,
    /// Places that could not be read on one member, metadata included.
    pub unreadable: u64,
    /// Places where copies, or data and parity, differed.
    pub mismatches: u64,
    /// Places among them that were brought into agreement.
    pub repaired: u64,
}

/// The pauses between two tries to fill gaps of members.
const GAPS_PAUSE: RangeInclusive<Nanos> = Nanos::from_secs(10)..=Nanos::from_secs(3600);
/// Physical sector of most drives: the least that they read or write of their medium.
const PHYSICAL: Sectors = Sectors(8);
/// The sectors that are compared at once.
const STEP: Sectors = Sectors(128);

impl ArrayCore {
    /// Scrubs the whole array, unless the scrub is cancelled.
    pub async fn scrub(self: &Rc<ArrayCore>, repair: bool) -> IoResult<ScrubReport> {
        self.scrub_cancelled.set(false);
        let ended = self.scrub_all(repair).await;
        self.scrub.set(MaintenanceProgress::default());
        ended
    }

    async fn scrub_all(self: &Rc<ArrayCore>, repair: bool) -> IoResult<ScrubReport> {
        let mut report = ScrubReport::default();
        if self.bitmap.is_none() {
            let what = format!("{} has no redundancy to scrub", self.shape.level().name());
            return Err(self.error(IoErrorKind::Invalid, what));
        }
        let mut progress = MaintenanceProgress {
            total: self.geometry.sectors,
            began: self.env.timer.now(),
            ..MaintenanceProgress::default()
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
                self.clone().resync_extent(extent, Fua::No).await?;
            }
            self.scrub_extent(extent, repair, &mut report).await?;
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

    /// Compares a stripe, or as much of an array of copies. Unreadable sectors are rewritten.
    pub async fn scrub_extent(
        self: &Rc<ArrayCore>,
        extent: Extent,
        repair: bool,
        report: &mut ScrubReport,
    ) -> IoResult {
        if !self.shape.level().has_parity() {
            self.room_for(LEGS_MAX * extent.len.bytes() as usize).await;
            let _busy = self.busy.lock(extent, Access::Exclusive).await;
            self.check_scrubs()?;
            for piece in self.shape.pieces(extent) {
                self.scrub_piece(piece, repair, report).await?;
            }
            return Ok(());
        }
        let chunk = self.shape.chunk();
        let grant = self.grant_reconstruct(2, chunk.bytes() as usize).await;
        let _busy = self.busy.lock(extent, Access::Exclusive).await;
        self.check_scrubs()?;
        let stripe = self.shape.stripe_at(extent.start);
        let all = (Sectors::ZERO, chunk);
        self.scrub_band(stripe, all, repair, report, &grant).await
    }

    /// Fills the gaps of members, as far as another member can read the data now.
    pub async fn fill_gaps(self: &Rc<ArrayCore>) -> IoResult {
        let gaps = self.roster.now().gaps.clone();
        let mut filled = Ok(());
        for extent in gaps.iter().flat_map(|gap| self.around(gap)) {
            filled = self
                .scrub_extent(extent, false, &mut ScrubReport::default())
                .await;
            if filled.is_err() {
                break;
            }
            self.pace(extent.len).await;
        }
        let pause = match self.roster.now().gaps == gaps {
            true => Nanos(self.gaps_pause.get().0 * 2),
            false => Nanos::ZERO,
        };
        let pause = pause.clamp(*GAPS_PAUSE.start(), *GAPS_PAUSE.end());
        self.gaps_pause.set(pause);
        self.gaps_due.set(self.env.timer.now() + pause);
        filled
    }

    /// Returns the stripes, or the parts of an array of copies, in which `gap` lies.
    fn around(&self, gap: &Gap) -> Vec<Extent> {
        let chunk = self.shape.chunk().0;
        if self.shape.level().has_parity() {
            let rows = gap.extent.start.0 / chunk..gap.extent.end().0.div_ceil(chunk);
            return rows
                .map(|number| self.shape.stripe(number).extent())
                .collect();
        }
        let extents = self.shape.sectors_at(gap.role, gap.extent).into_iter();
        extents.flat_map(|extent| self.steps(extent)).collect()
    }

    /// Fails once the scrub is to end.
    fn check_scrubs(&self) -> IoResult {
        if self.scrub_cancelled.get() {
            let what = "its scrub was cancelled; what it repaired stays, and the next starts over";
            return Err(self.error(IoErrorKind::Other, what));
        }
        self.check_serves()
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

    /// Records durably the time of the last scrub.
    pub async fn set_scrubbed(self: &Rc<ArrayCore>, scrubbed: Scrubbed) -> IoResult {
        self.check_serves()?;
        self.roster.change(|roster| roster.scrubbed = scrubbed);
        self.until_unresponsive(self.commit()).await
    }

    /// Rewrites unreadable metadata of members; returns the number of such blocks and records.
    async fn mend_metadata(self: &Rc<ArrayCore>) -> IoResult<u64> {
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
                // A spare that cannot be mended is found out when it is to serve.
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

    async fn illegible_superblocks(self: &Rc<ArrayCore>, member: &ArrayMember) -> u64 {
        let mut illegible = 0;
        for copy in SUPERBLOCKS {
            if self.is_superblock(member, copy).await {
                continue;
            }
            // The superblock may have been read while it was written; the commit then ends first.
            let _ = self.commit().await;
            illegible += u64::from(!self.is_superblock(member, copy).await);
        }
        illegible
    }

    async fn is_superblock(&self, member: &ArrayMember, copy: Sectors) -> bool {
        let buf = self.env.pool.take(BLOCK_BYTES);
        let (buf, result) = member.read_meta(copy, buf).await;
        result.is_ok() && ArraySuperblock::decode(&buf).is_some()
    }

    /// Returns the size of the parts in which `len` sectors are read again, some of which are
    /// `unreadable`: the sectors of a drive's medium, which it reads and writes as a whole. Blocks
    /// are used only where no member can give such a sector (`nobody`).
    fn part(&self, len: Sectors, unreadable: bool, nobody: bool) -> Option<Sectors> {
        let part = match len > PHYSICAL {
            true => PHYSICAL,
            false => self.geometry.block,
        };
        let is_smaller = part < len && (len > PHYSICAL || nobody);
        (unreadable && is_smaller).then_some(part)
    }

    /// Compares the copies of `piece`: part by part where one of them cannot be read, so that each
    /// sector comes from a member that can read it.
    async fn scrub_piece(
        self: &Rc<ArrayCore>,
        piece: LegPiece,
        repair: bool,
        report: &mut ScrubReport,
    ) -> IoResult {
        let (mut copies, mut unreadable) = (Vec::new(), Vec::new());
        for (leg, member) in self.readable(&piece) {
            let buf = self.env.pool.take(piece.extent.len.bytes() as usize);
            let (buf, result) = self.read_of(leg.member, &member, leg.at, buf).await;
            match result {
                Ok(()) => copies.push((leg.member, buf.share())),
                Err(_) => unreadable.push(leg.member),
            }
        }
        let nobody = copies.is_empty();
        if let Some(part) = self.part(piece.extent.len, !unreadable.is_empty(), nobody) {
            drop(copies);
            for at in (piece.extent.start.0..piece.extent.end().0).step_by(part.0 as usize) {
                let len = part.min(piece.extent.end() - Lba(at));
                let part = self.shape.first_piece(Extent::new(Lba(at), len));
                Box::pin(self.scrub_piece(part, repair, report)).await?;
            }
            return Ok(());
        }
        report.unreadable += unreadable.len() as u64;
        let alike = |data: &SharedBuf| copies.iter().filter(|(_, c)| c[..] == data[..]).count();
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

    /// Compares a stripe's data with its parity in a band of its chunks: block by block where one
    /// of them cannot be read.
    async fn scrub_band(
        self: &Rc<ArrayCore>,
        stripe: ParityStripe,
        (from, band): (Sectors, Sectors),
        repair: bool,
        report: &mut ScrubReport,
        grant: &Grant,
    ) -> IoResult {
        let (at, len) = (stripe.row() + from, band.bytes() as usize);
        let mut sum = grant.take(len);
        sum.fill(0);
        let mut unreadable = Vec::new();
        for role in 0..self.shape.members() {
            let Some(member) = self.in_sync(role) else {
                grant.give_back(sum);
                return Ok(());
            };
            let (buf, result) = self.read_of(role, &member, at, grant.take(len)).await;
            match result {
                Ok(()) => xor(&mut sum, &buf),
                Err(_) => unreadable.push(role),
            }
            grant.give_back(buf);
        }
        let nobody = unreadable.len() > 1;
        if let Some(part) = self.part(band, !unreadable.is_empty(), nobody) {
            grant.give_back(sum);
            for step in (0..band.0).step_by(part.0 as usize) {
                let part = (from + Sectors(step), part.min(band - Sectors(step)));
                Box::pin(self.scrub_band(stripe, part, repair, report, grant)).await?;
            }
            return Ok(());
        }
        report.unreadable += unreadable.len() as u64;
        let fits = sum.iter().all(|byte| *byte == 0);
        match unreadable[..] {
            [] if fits => grant.give_back(sum),
            [] => {
                grant.give_back(sum);
                report.mismatches += 1;
                if repair {
                    report.repaired += 1;
                    let buf = grant.take(len);
                    let computed = self.reconstruct(stripe, stripe.parity, from, buf, grant);
                    let (buf, result) = computed.await;
                    result?;
                    self.put_again(stripe.parity, at, buf, grant).await?;
                }
            }
            [role] => self.put_again(role, at, sum, grant).await?,
            _ => grant.give_back(sum),
        }
        Ok(())
    }

    /// Writes `data`, which was computed from the others, at `at` of the data of `role`.
    async fn put_again(
        self: &Rc<ArrayCore>,
        role: usize,
        at: Lba,
        mut data: Buf,
        grant: &Grant,
    ) -> IoResult {
        if data.len() <= BLOCK_BYTES {
            // There may be many, and shared buffers are not given back.
            let mut small = self.env.pool.take(data.len());
            small.copy_from_slice(&data);
            grant.give_back(std::mem::replace(&mut data, small));
        }
        let Some(member) = self.writable(role) else {
            return Ok(());
        };
        let there = Extent::new(at, Sectors(data.len() as u64 / SECTOR_BYTES));
        if let Err(error) = member.write(at, data.share(), Fua::No).await {
            self.fail(&member, &error);
            return self.commit().await;
        }
        let cleared = self.clear_lost(None, [(role, there)].into_iter()).await;
        // A gap that cannot be removed for want of room stays.
        cleared.or_else(|error| match error.kind() {
            IoErrorKind::Media => Ok(()),
            _ => Err(error),
        })
    }
}
