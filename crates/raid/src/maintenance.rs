//! Background work of an array that serves: resyncs after a crash, rebuilds, activation of spares,
//! and clearing bits.
//!
//! A rebuild goes region by region and holds each bit only while it copies the region. While the
//! array is in use, the rebuild moves no more than its floor, otherwise as much as the members
//! give. A rebuild from the start on notes its progress, and continues there after a restart.

use crate::claims::RoleClaim;
use crate::core::ArrayCore;
use crate::fill::Filled;
use crate::levels::Redundancy;
use crate::member::ArrayMember;
use crate::superblock::MemberState;
use block::{
    Access, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Nanos, SECTOR_BYTES, Sectors,
};
use std::rc::{Rc, Weak};

/// Interval at which an array looks for work.
const TICK: Nanos = Nanos::from_millis(100);
/// Bytes that are copied at once.
const STEP_BYTES: u64 = 256 << 10;
/// Number of checkpoints of a rebuild.
const CHECKPOINTS: usize = 16;

/// Progress of a rebuild or resync.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MaintenanceProgress {
    /// The member that is filled; `None` while copies are compared after a crash.
    pub role: Option<usize>,
    /// Sectors of the array that have been processed.
    pub done: Sectors,
    /// Sectors to process; 0 if nothing runs.
    pub total: Sectors,
    /// Time of the beginning.
    pub began: Nanos,
}

impl MaintenanceProgress {
    /// Returns the remaining time at the rate so far.
    pub fn left(&self, now: Nanos) -> Option<Nanos> {
        let (done, left) = (self.done.0, self.total.0.saturating_sub(self.done.0));
        let spent = (now - self.began).0;
        (done > 0).then(|| Nanos((u128::from(spent) * u128::from(left) / u128::from(done)) as u64))
    }
}

/// Maintains an array until its last handle is gone.
pub(crate) async fn maintain(core: Weak<ArrayCore>) {
    let mut cleared = Nanos::ZERO;
    loop {
        let timer = match core.upgrade() {
            Some(core) if !core.closed.get() => {
                core.maintain_once(&mut cleared).await;
                core.env.timer.clone()
            }
            _ => return,
        };
        timer.sleep(TICK).await;
    }
}

impl ArrayCore {
    async fn maintain_once(self: &Rc<ArrayCore>, cleared: &mut Nanos) {
        if self.down.borrow().is_some() || self.bitmap.is_none() {
            return;
        }
        // The next write sees a failure of this commit.
        let _ = self.commit().await;
        if self.down.borrow().is_some() {
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
        if !self.rests.is_over(self.env.timer.now()) {
            return;
        }
        if let Some(role) = self.rebuilding() {
            let done = self.rebuild(role).await;
            self.end_of("rebuild", done);
            return;
        }
        if !self.unsynced.borrow().is_empty() {
            let done = self.resync().await;
            self.end_of("resynchronisation", done);
            return;
        }
        if self.replacement.borrow().is_some() {
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
        if now >= self.gaps_due.get() && !self.roster.now().gaps.is_empty() {
            // Gaps that still cannot be read are tried again later.
            let _ = self.fill_gaps().await;
        }
    }

    /// Claims a lost role that a spare is to take now. A role that its member is about to take
    /// again needs no spare.
    fn claim_for_spare(self: &Rc<ArrayCore>) -> Option<RoleClaim> {
        let now = self.env.timer.now();
        let is_due = |role: &usize| self.slots[*role].spare_at.get() <= now;
        let mut due = (0..self.shape.members()).filter(is_due);
        match self.spares.borrow().is_empty() {
            true => None,
            false => due.find_map(|role| self.claim(role).ok()),
        }
    }

    fn rebuilding(&self) -> Option<usize> {
        let rebuilding = |role: &usize| matches!(self.state(*role), MemberState::Rebuilding { .. });
        (0..self.shape.members()).find(rebuilding)
    }

    fn end_of(&self, what: &str, result: IoResult<bool>) {
        self.progress.set(MaintenanceProgress::default());
        match result {
            Ok(true) => self.log(format!("{}: {what} done", self.name)),
            Ok(false) => {}
            Err(error) => {
                let what = format!("{}: {what} stopped: {error}", self.name);
                let events = self.events.borrow();
                let again = events.last().is_some_and(|last| last.what == what);
                drop(events);
                // The work is tried again at every tick.
                if !again {
                    self.log(what);
                }
            }
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
            bitmap.clear(self, before).await?;
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
    pub async fn go_over(
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
                if self.closed.get() || self.down.borrow().is_some() || gone {
                    return Ok(false);
                }
                self.progress.set(progress);
                work(step).await?;
                progress.done += step.len;
                self.pace(step.len).await;
            }
            region_done(index, region).await?;
        }
        Ok(true)
    }

    /// True if the filled member still has its role and is being filled, or is to take a role.
    pub fn is_filled(self: &Rc<ArrayCore>, filled: &Filled) -> bool {
        let now = self.writable(filled.role);
        let has = now.is_some_and(|now| Rc::ptr_eq(&now, &filled.member));
        let rebuilding = matches!(self.state(filled.role), MemberState::Rebuilding { .. });
        has && rebuilding || self.is_copied(filled)
    }

    /// Waits for the time that moving `sectors` may take while the array is in use.
    pub async fn pace(&self, sectors: Sectors) {
        let timer = &self.env.timer;
        let in_use = timer.now() - self.last_use.get() < self.options.busy_for;
        if in_use && self.last_use.get() > Nanos::ZERO {
            let span = u128::from(sectors.bytes()) * 1_000_000_000;
            let floor = u128::from(self.options.rebuild_floor.max(1));
            timer.sleep(Nanos((span / floor) as u64)).await;
        }
    }

    /// Brings the copies of every suspect region into sync.
    async fn resync(self: &Rc<ArrayCore>) -> IoResult<bool> {
        self.again.borrow_mut().clear();
        let regions: Vec<usize> = self.unsynced.borrow().iter().copied().collect();
        let done = async |_: usize, region: usize| {
            // Data that was read from the region is the same after a loss of power.
            self.flush_members().await?;
            if !self.again.borrow_mut().remove(&region) {
                self.unsynced.borrow_mut().remove(&region);
            }
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

    pub fn take_spare(&self) -> Option<Rc<ArrayMember>> {
        self.spares.borrow_mut().pop()
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
            self.spares.borrow_mut().push(spare);
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
            journal.wipe(self, &member).await?;
        }
        let uuid = member.uuid;
        self.own(&member);
        *self.slots[role].member.borrow_mut() = Some(member);
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

    /// Marks `extent` as out of sync: a write failed, and some members may have taken it.
    pub fn mark_out_of_sync(&self, extent: Extent) {
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        self.again.borrow_mut().extend(bitmap.region_of(extent));
        if self.journals.is_empty() {
            let mut unsynced = self.unsynced.borrow_mut();
            unsynced.extend(bitmap.region_of(extent));
        }
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
        self.again.borrow_mut().clear();
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
            if self.unsynced.borrow().contains(&region) {
                self.flush_members().await?;
            }
            if !self.again.borrow().contains(&region) {
                self.unsynced.borrow_mut().remove(&region);
            }
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
            let alone = self.busy.lock(all, Access::Exclusive).await;
            regions.extend(std::mem::take(&mut *self.again.borrow_mut()));
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

    /// Makes the error for a role that the array does not have.
    pub fn no_role(&self, role: usize) -> IoError {
        let what = format!("it has no member {role}; see its status");
        self.error(IoErrorKind::Invalid, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_for_a_sector_as_before() {
        let progress = |done| MaintenanceProgress {
            role: None,
            done: Sectors(done),
            total: Sectors(1000),
            began: Nanos::from_secs(10),
        };
        let left = |done| progress(done).left(Nanos::from_secs(16));
        assert_eq!(left(0), None);
        assert_eq!(left(250), Some(Nanos::from_secs(18)));
        assert_eq!(left(1000), Some(Nanos::ZERO));
    }
}
