//! Background work of an array that serves: resyncs after a crash, rebuilds, activation of spares,
//! replacements, scrubs, and clearing bits.
//!
//! A rebuild goes region by region and holds each bit only while it copies the region. While the
//! array is in use, the rebuild moves no more than its floor, otherwise as much as the members
//! give. A rebuild from the start on notes its progress, and continues there after a restart.
//!
//! A member is filled from the one that it replaces or from the others. A read that fails is tried
//! again after pauses that rise, sector by sector. Sectors that no other member can read by then,
//! though each of them answers elsewhere, are left out: they are a gap of the filled member
//! (`lost`). Nothing is ever written to a member that is read from.
//!
//! A member in sync that is replaced serves until the new one holds all of its data. The new device
//! is a spare to every superblock until then. Its data is copied region by region; writes meanwhile
//! go to both ([`ArrayMember::change`]). Where the old member cannot be read, the new one gets the
//! data of the others. If the old member is lost meanwhile, the new device takes its place like any
//! spare. If the new device refuses a write, or the array ends, the replacement is over and the old
//! member stays.
//!
//! A scrub compares copies with each other, or data with parity, and reads the metadata of members.
//! Sectors that cannot be read are rewritten from the others, as a read would. Where copies differ,
//! the one that most legs hold is right. Two that differ, or a parity that does not fit, do not
//! show which is wrong: a repair then makes them agree, on the first copy or with the data.
//!
//! Invariants:
//!     a sector becomes a gap      ⟹ a read that it depends on failed at the last try
//!     more than may be left out in a row cannot be read   ⟹ the filling pauses
//!     a role is given to another device ⟹ that holds, durably, all that the old one does,
//!                                          and has no record in its journal
//!     a start finds the replacement done or not begun

use crate::core::ArrayCore;
use crate::journal::StripeJournal;
use crate::levels::{LEGS_MAX, LegPiece, ParityStripe, Redundancy};
use crate::member::{ArrayMember, is_loss};
use crate::members::{Filled, RoleClaim};
use crate::progress::MaintenanceProgress;
use crate::runs::with;
use crate::stripe::{room_for, xor};
use crate::superblock::{ArraySuperblock, Gap, MemberState};
use block::{
    Access, Buf, Extent, Fua, Grant, IoErrorKind, IoResult, Lba, Nanos, SECTOR_BYTES, Sectors,
    SharedBuf,
};
use layout::BLOCK_BYTES;
use layout::array::SUPERBLOCKS;
use std::rc::{Rc, Weak};

/// Interval at which an array looks for work.
const TICK: Nanos = Nanos::from_millis(100);
/// Interval of looking for idle journals.
const IDLE_TICK: Nanos = Nanos::from_secs(1);
/// Bytes that are copied at once.
const STEP_BYTES: u64 = 256 << 10;
/// Number of checkpoints of a rebuild.
const CHECKPOINTS: usize = 16;
/// The sectors that are compared at once.
const STEP: Sectors = Sectors(128);
/// Physical sector of most drives: the least that they read or write of their medium.
const PHYSICAL: Sectors = Sectors(8);
/// The pauses after failed reads, but for the last try.
const PAUSES_MS: [u64; 4] = [20, 40, 80, 160];

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

/// Does `work` every `tick` until the array is closed, or its last handle is gone.
async fn each_tick(core: Weak<ArrayCore>, tick: Nanos, mut work: impl AsyncFnMut(&Rc<ArrayCore>)) {
    while let Some(core) = core.upgrade().filter(|core| !core.is_closed()) {
        work(&core).await;
        let timer = core.env.timer.clone();
        drop(core);
        timer.sleep(tick).await;
    }
}

/// Maintains an array until its last handle is gone.
pub(crate) async fn maintain(core: Weak<ArrayCore>) {
    let mut cleared = Nanos::ZERO;
    let maintain = async |core: &Rc<ArrayCore>| core.maintain_once(&mut cleared).await;
    each_tick(core, TICK, maintain).await;
}

/// Retires the records of each journal that becomes idle, once a flush has covered them, until the
/// array's last handle is gone: records that a later one retired can rot without harm.
pub(crate) async fn retire_idle(core: Weak<ArrayCore>) {
    let retire = async |core: &Rc<ArrayCore>| {
        for journal in &core.journals {
            if !core.is_down() && journal.is_idle_and_open() {
                // A member that refuses the record is evicted, or asked again.
                let _ = core.retire(journal).await;
            }
        }
    };
    each_tick(core, IDLE_TICK, retire).await;
}

impl ArrayCore {
    async fn maintain_once(self: &Rc<ArrayCore>, cleared: &mut Nanos) {
        if self.is_down() || self.bitmap.is_none() {
            return;
        }
        // The next write sees a failure of this commit.
        let _ = self.commit().await;
        if self.is_down() {
            return;
        }
        if self.replacement_is_over() {
            let done = self.replace().await;
            self.end_of("replacement", done);
        }
        // Rebuilds come before resyncs: the data that a member lacks has one copy less until the
        // member is filled.
        if let Some(claim) = self.claim_for_spare()
            && let Some(spare) = self.take_spare()
        {
            let done = self.activate_spare(claim, spare).await;
            self.end_of("activation of a spare", done.map(|()| false));
            return;
        }
        if !self.work.rests.is_over(self.env.timer.now()) {
            return;
        }
        if let Some(role) = self.rebuilding() {
            let done = self.rebuild(role).await;
            self.end_of("rebuild", done);
            return;
        }
        if !self.work.suspects.is_empty() {
            let done = self.resync().await;
            self.end_of("resynchronisation", done);
            return;
        }
        if self.replaced_role().is_some() {
            let done = self.replace().await;
            self.end_of("replacement", done);
            return;
        }
        if (0..self.shape.members()).any(|role| self.state(role).is_failed()) {
            return;
        }
        let now = self.env.timer.now();
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let idle = bitmap.clear_after(self.options.clear_after);
        if now - *cleared >= idle {
            *cleared = now;
            let _ = self.clear_bitmap(now - idle).await;
        }
        if self.work.are_gaps_due(now) && !self.gaps().is_empty() {
            // Gaps that still cannot be read are tried again later.
            let _ = self.fill_gaps().await;
        }
    }

    fn end_of(&self, what: &str, result: IoResult<bool>) {
        self.work.set_progress(MaintenanceProgress::default());
        match result {
            Ok(true) => self.log(format!("{what} done")),
            Ok(false) => {}
            // The work is tried again at every tick.
            Err(error) => self.log_news(format!("{what} stopped: {error}")),
        }
    }

    /// Clears the bits of regions that are idle since `before`.
    pub async fn clear_bitmap(self: &Rc<ArrayCore>, before: Nanos) -> IoResult {
        let Some(bitmap) = self.bitmap.as_ref().filter(|i| !i.is_known()) else {
            return Ok(());
        };
        if !self.is_whole() {
            return Ok(());
        }
        self.flush_members().await?;
        if self.is_whole() {
            bitmap.clear(self, &self.work.suspects, before).await?;
        }
        Ok(())
    }

    /// Returns the parts of a region that are processed at once: stripes on a level with parity,
    /// otherwise as much as fits into a buffer, even if a row of chunks is longer.
    pub fn steps(&self, region: Extent) -> Vec<Extent> {
        let unit = match self.shape.level().redundancy() {
            Redundancy::Parity => self.shape.width().0,
            _ if self.shape.level().is_striped() => self.shape.chunk().0,
            _ => self.shape.width().0,
        };
        let step = (STEP_BYTES / SECTOR_BYTES).max(unit) / unit * unit;
        let end = region.end().0;
        let starts = (region.start.0..end).step_by(step as usize);
        starts
            .map(|start| Extent::new(Lba(start), Sectors(step.min(end - start))))
            .collect()
    }

    /// Processes `regions`, at the permitted rate. Returns `false` if the work was left unfinished.
    async fn go_over(
        self: &Rc<ArrayCore>,
        filled: Option<&Filled>,
        regions: Vec<usize>,
        work: impl AsyncFn(Extent) -> IoResult,
        region_done: impl AsyncFn(usize, usize) -> IoResult,
    ) -> IoResult<bool> {
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let all = self.geometry.sectors;
        let total = regions.iter().map(|r| bitmap.extent(*r, all).len.0).sum();
        let mut progress = MaintenanceProgress {
            role: filled.map(|filled| filled.role),
            done: Sectors::ZERO,
            total: Sectors(total),
            began: self.env.timer.now(),
        };
        for (index, region) in regions.into_iter().enumerate() {
            for step in self.steps(bitmap.extent(region, all)) {
                // A member that was lost and is back has missed writes again. Filling a member
                // comes before comparing copies, or copying a member in sync.
                let lacks = || self.rebuilding().is_some() || self.claim_for_spare().is_some();
                let gone = match filled {
                    Some(filled) if self.is_copied(filled) => lacks(),
                    Some(filled) => !self.is_filled(filled),
                    None => lacks(),
                };
                if self.is_closed() || self.is_down() || gone {
                    return Ok(false);
                }
                self.work.set_progress(progress);
                work(step).await?;
                progress.done += step.len;
                self.pace(step.len).await;
            }
            region_done(index, region).await?;
        }
        Ok(true)
    }

    /// Waits for the time that moving `sectors` may take while the array is in use.
    async fn pace(&self, sectors: Sectors) {
        let timer = &self.env.timer;
        let in_use = timer.now() - self.last_use() < self.options.busy_for;
        if in_use && self.last_use() > Nanos::ZERO {
            let span = u128::from(sectors.bytes()) * 1_000_000_000;
            let floor = u128::from(self.options.rebuild_floor.max(1));
            timer.sleep(Nanos((span / floor) as u64)).await;
        }
    }

    /// Brings the copies of every suspect region into sync.
    async fn resync(self: &Rc<ArrayCore>) -> IoResult<bool> {
        let suspects = &self.work.suspects;
        suspects.begin();
        let regions = suspects.all();
        let done = async |_: usize, region: usize| {
            // Data that was read from the region is the same after a loss of power.
            self.flush_members().await?;
            suspects.settle(region);
            suspects.forget_again(region);
            Ok(())
        };
        self.go_over(
            None,
            regions,
            async |step| self.clone().resync_extent(step, Fua::No).await,
            done,
        )
        .await
    }

    /// Puts a spare, taken from the waiting ones, into the claimed role. If other members prevent
    /// that, the spare waits again.
    pub async fn activate_spare(
        self: &Rc<ArrayCore>,
        claim: RoleClaim,
        spare: Rc<ArrayMember>,
    ) -> IoResult {
        let _joining = self.join(&spare.name)?;
        if let Err(error) = self.commit().await {
            self.put_spare(spare);
            return Err(error);
        }
        self.adopt(claim, spare, true).await
    }

    /// Puts `member` into the claimed role, to be filled.
    pub async fn adopt(
        self: &Rc<ArrayCore>,
        claim: RoleClaim,
        member: Rc<ArrayMember>,
        whole: bool,
    ) -> IoResult {
        let role = claim.role;
        // A start that takes the member for one in sync needs the records of its journal.
        self.commit().await?;
        self.late_ended(&member).await?;
        if let Some(journal) = self.journals.get(role) {
            journal.wipe(&member).await?;
        }
        let uuid = member.uuid;
        self.appoint(role, member);
        if whole {
            self.replace_gaps(role, Vec::new());
        }
        self.set_entry(role, |entry| {
            entry.uuid = uuid;
            entry.state = MemberState::Rebuilding { whole };
            entry.checkpoint = Sectors::ZERO;
        });
        self.log_once(role, format!("member {role} is being filled"));
        self.commit().await
    }

    async fn rebuild(self: &Rc<ArrayCore>, role: usize) -> IoResult<bool> {
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let Some(member) = self.writable(role) else {
            return Ok(false);
        };
        let filled = Filled { role, member };
        let member = &filled.member;
        let entry = self.entry(role);
        let whole = entry.state == MemberState::Rebuilding { whole: true };
        // Regions that differ by now are marked.
        let suspects = &self.work.suspects;
        suspects.begin();
        let mut regions = bitmap.marked_regions();
        if whole {
            let first = bitmap
                .region_of(Extent::new(Lba(entry.checkpoint.0), Sectors(1)))
                .start;
            regions.retain(|region| *region < first);
            regions.extend(first..bitmap.regions());
        }
        let every = regions.len() / CHECKPOINTS + 1;
        let note = async |index: usize, region: usize| {
            if suspects.has(region) {
                self.flush_members().await?;
            }
            suspects.settle(region);
            let after = bitmap.extent(region, self.geometry.sectors).end();
            let further = after.0 > self.entry(role).checkpoint.0;
            if !whole || !further || !(index + 1).is_multiple_of(every) {
                return Ok(());
            }
            if let Err(error) = member.flush().await {
                self.fail(member, &error);
                return Err(error);
            }
            if !self.is_filled(&filled) {
                return Ok(());
            }
            self.set_entry(role, |entry| entry.checkpoint = Sectors(after.0));
            self.commit().await
        };
        let fill = async |step| self.fill_in_sync(&filled, step).await;
        let all = self.geometry.extent();
        let _all = loop {
            let next = std::mem::take(&mut regions);
            if !self.go_over(Some(&filled), next, fill, note).await? {
                return Ok(false);
            }
            // Nothing is in flight while the member becomes one that serves.
            let alone = self.lock(all, Access::Exclusive).await;
            regions.extend(suspects.take_again());
            if regions.is_empty() {
                break alone;
            }
        };
        self.flush_members().await?;
        bitmap.write_now(self).await?;
        if !self.is_filled(&filled) {
            return Ok(false);
        }
        self.set_entry(role, |entry| {
            entry.state = MemberState::InSync;
            entry.checkpoint = Sectors::ZERO;
        });
        self.forget_logged(role);
        self.commit().await?;
        Ok(true)
    }

    /// Fills the role's data of `extent`, once copies that may differ agree there.
    async fn fill_in_sync(self: &Rc<ArrayCore>, filled: &Filled, extent: Extent) -> IoResult {
        if self.is_unsynced(extent) {
            self.clone().resync_extent(extent, Fua::No).await?;
        }
        let mut left = self.parts_of(filled.role, extent);
        for pause in PAUSES_MS {
            left = self.fill_parts(filled, left, false).await?;
            if left.is_empty() {
                self.work.rests.end();
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
        room_for(&self.env, extent.len.bytes() as usize).await;
        let _busy = self.lock(extent, Access::Exclusive).await;
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
        let grant = self.limits().reconstruct(1, bytes).await;
        let _busy = self.lock(stripe.extent(), Access::Exclusive).await;
        self.check_serves()?;
        if !self.is_filled(filled) {
            return Ok(Vec::new());
        }
        let buf = grant.take(bytes);
        if self.fill_part(filled, stripe, part, buf, &grant).await? {
            return Ok(Vec::new());
        }
        let (unit, mut illegible) = (self.geometry.block, Vec::new());
        for from in (0..part.len.0).step_by(unit.0 as usize).map(Sectors) {
            let part = Extent::new(part.start + from, unit);
            let buf = self.env.pool.take(unit.bytes() as usize);
            if !self.fill_part(filled, stripe, part, buf, &grant).await? {
                self.check_can_fill(filled.role)?;
                illegible.push(part);
            }
        }
        self.left_of(filled, illegible, last)
    }

    /// Fills `part`, an extent of the member that lies in `stripe`. Returns false if that cannot be
    /// read.
    async fn fill_part(
        self: &Rc<ArrayCore>,
        filled: &Filled,
        stripe: ParityStripe,
        part: Extent,
        buf: Buf,
        grant: &Grant,
    ) -> IoResult<bool> {
        let (buf, result) = self.fetch(stripe, filled.role, part, buf, grant).await;
        if result.is_ok() {
            let written = filled.member.write(part.start, buf.share(), Fua::No);
            self.filled(filled, part, written.await)?;
        }
        Ok(result.is_ok())
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
        let mut others = (0..self.shape.members()).filter(|other| *other != role);
        match others.all(|other| self.in_sync(other).is_some()) {
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
                self.work.rests.begin(self.env.timer.now());
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
        let role = filled.role;
        for run in runs {
            if !self.work.rests.leave_out(run.len, self.env.timer.now()) {
                let what = format!(
                    "too much in a row cannot be read that member {role} needs ({run:?} of its \
                     data); see to the other members, the filling goes on after a pause"
                );
                return Err(self.error(IoErrorKind::Media, what));
            }
            self.log(format!(
                "no member can read what member {role} needs ({run:?} of its data): it is \
                 left out and listed as lost until it is written again, or another member can read it"
            ));
            self.leave_gap(filled, run);
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

    /// Continues a replacement; returns `false` if it was left unfinished.
    pub async fn replace(self: &Rc<ArrayCore>) -> IoResult<bool> {
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let Some((filled, first)) = self.replaced() else {
            // The old member is lost, or the new one has refused an operation.
            if let Some((claim, member)) = self.end_replacement() {
                self.activate_spare(claim, member).await?;
            }
            return Ok(false);
        };
        let regions = (first..bitmap.regions()).collect();
        let copy = async |step| self.fill_in_sync(&filled, step).await;
        let note = async |_: usize, region: usize| {
            self.copied_before(region + 1);
            Ok(())
        };
        if !self.go_over(Some(&filled), regions, copy, note).await? {
            return Ok(false);
        }
        // Nothing is in flight while the new device becomes the one that serves.
        let all = self.geometry.extent();
        let _alone = self.lock(all, Access::Exclusive).await;
        self.flush_members().await?;
        let ready = self.make_ready(filled.role, &filled.member).await;
        self.copied(&ready);
        ready?;
        if !self.is_copied(&filled) {
            return Ok(false);
        }
        self.hand_over(filled);
        bitmap.write_now(self).await?;
        self.commit().await?;
        Ok(true)
    }

    /// Wipes the journal of a device that is to take `role`, and writes its superblocks: the device
    /// is then at most one event behind if the next commit is cut short.
    async fn make_ready(&self, role: usize, member: &ArrayMember) -> IoResult {
        if let Some(journal) = self.journals.get(role) {
            journal.wipe(member).await?;
        }
        self.write_spare(member).await
    }

    /// Scrubs the whole array, unless the scrub is cancelled.
    pub async fn scrub(self: &Rc<ArrayCore>, repair: bool) -> IoResult<ScrubReport> {
        self.work.cancel_scrub(false);
        let ended = self.scrub_all(repair).await;
        self.work.set_scrubbing(MaintenanceProgress::default());
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
        self.work.set_scrubbing(progress);
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
            self.work.set_scrubbing(progress);
            self.pace(step).await;
        }
        if report.mismatches > report.repaired {
            let name = &self.name;
            self.log(format!(
                "a scrub found mismatches: {}; look at its members, then repair them with \
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
            room_for(&self.env, LEGS_MAX * extent.len.bytes() as usize).await;
            let _busy = self.lock(extent, Access::Exclusive).await;
            self.check_scrubs()?;
            for piece in self.shape.pieces(extent) {
                self.scrub_piece(piece, repair, report).await?;
            }
            return Ok(());
        }
        let chunk = self.shape.chunk();
        let grant = self.limits().reconstruct(2, chunk.bytes() as usize).await;
        let _busy = self.lock(extent, Access::Exclusive).await;
        self.check_scrubs()?;
        let stripe = self.shape.stripe_at(extent.start);
        let all = (Sectors::ZERO, chunk);
        self.scrub_band(stripe, all, repair, report, &grant).await
    }

    /// Fills the gaps of members, as far as another member can read the data now.
    async fn fill_gaps(self: &Rc<ArrayCore>) -> IoResult {
        let gaps = self.gaps();
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
        let in_vain = self.gaps() == gaps;
        self.work.rest_gaps(self.env.timer.now(), in_vain);
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
        if self.work.is_scrub_cancelled() {
            let what = "its scrub was cancelled; what it repaired stays, and the next starts over";
            return Err(self.error(IoErrorKind::Other, what));
        }
        self.check_serves()
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
        for spare in self.spares() {
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
                illegible += self.mend_journal(journal, &member).await?;
            }
        }
        Ok(illegible)
    }

    /// Counts the slots of the journal on `member` that cannot be read. Rewrites those that no start
    /// would need.
    async fn mend_journal(
        self: &Rc<ArrayCore>,
        journal: &StripeJournal,
        member: &ArrayMember,
    ) -> IoResult<u64> {
        let mut illegible = 0;
        for slot in 0..journal.slots() {
            if journal.is_readable(member, slot).await {
                continue;
            }
            illegible += 1;
            // Meanwhile no stripe is written, and only records that retire begin.
            let all = self.geometry.extent();
            let _busy = self.lock(all, Access::Exclusive).await;
            self.flush_members().await?;
            if journal.is_free(slot) {
                journal.zero_slot(member, slot).await?;
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
