//! The public face of an array: a device, and the operations of its administrator.

use crate::core::ArrayCore;
use crate::levels::{ArrayShape, Level, Redundancy};
use crate::maintenance::ScrubReport;
use crate::member::{ExtentChange, MemberCandidate, MemberCounts};
use crate::members::ArrayEvent;
use crate::membership::{ArrayMembership, KnownMember, unusable};
use crate::progress::MaintenanceProgress;
use crate::superblock::{MemberState, Scrubbed};
use block::{
    Access, Buf, Content, Device, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult, Lba,
    Nanos, Sectors, SharedBuf,
};
use layout::Uuid;
use std::rc::Rc;
use std::sync::Arc;

/// A running array. Clones are the same array, which becomes idle when the last is gone.
#[derive(Clone)]
pub struct Array(Rc<ArrayHandle>);

struct ArrayHandle(Rc<ArrayCore>);

impl Drop for ArrayHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// One member, as reports show it.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Role of the member.
    pub role: usize,
    /// Device of the member; `None` if it is missing.
    pub device: Option<Arc<str>>,
    /// Failure domain of the device.
    pub domain: Option<Arc<str>>,
    /// State of the member.
    pub state: MemberState,
    /// Counts of the member's operations and errors.
    pub counts: MemberCounts,
}

/// State of an array.
#[derive(Clone, Debug)]
pub struct ArrayCondition {
    /// Name of the array.
    pub name: Arc<str>,
    /// Level of the array.
    pub level: Level,
    /// Size of the array.
    pub sectors: Sectors,
    /// Chunk of striped levels.
    pub chunk: Sectors,
    /// Identity of the array; `None` without superblocks.
    pub uuid: Option<Uuid>,
    /// Members, by role.
    pub members: Vec<MemberReport>,
    /// True if every present member knows the states of the others durably.
    pub committed: bool,
    /// Spares.
    pub spares: Vec<Arc<str>>,
    /// The role of a member in sync that is being replaced.
    pub replaced: Option<usize>,
    /// Progress of the rebuild or resync, if one runs.
    pub progress: Option<MaintenanceProgress>,
    /// Sectors that are lost.
    pub bad: Vec<Extent>,
    /// Time of the last scrub.
    pub scrubbed: Scrubbed,
    /// Reason why writes are refused.
    pub down: Option<String>,
    /// Warnings about failure domains that would stop the array if lost.
    pub warnings: Vec<String>,
}

impl Array {
    pub(crate) fn start(core: Rc<ArrayCore>) -> Array {
        let maintain = crate::maintenance::maintain(Rc::downgrade(&core));
        if core.bitmap.is_some() {
            core.env.spawn.spawn(maintain);
        }
        if !core.journals.is_empty() {
            let retire = crate::maintenance::retire_idle(Rc::downgrade(&core));
            core.env.spawn.spawn(retire);
        }
        Array(Rc::new(ArrayHandle(core)))
    }

    pub(crate) fn core(&self) -> &Rc<ArrayCore> {
        &self.0.0
    }

    /// Reports the state of the array.
    pub fn report(&self) -> ArrayCondition {
        let core = self.core();
        let members = (0..core.shape.members()).map(|role| {
            let member = core.member_of(role);
            MemberReport {
                role,
                device: member.as_ref().map(|m| m.name.clone()),
                domain: member.as_ref().map(|m| m.domain.clone()),
                state: core.state(role),
                counts: member.as_ref().map(|m| m.counts.get()).unwrap_or_default(),
            }
        });
        let domains = core
            .live()
            .into_iter()
            .map(|(role, m)| (role, m.domain.clone()));
        ArrayCondition {
            name: core.name.clone(),
            level: core.shape.level(),
            sectors: core.geometry.sectors,
            chunk: core.shape.chunk(),
            uuid: core.meta.as_ref().map(|meta| meta.array),
            members: members.collect(),
            committed: core.is_committed(),
            spares: core.waiting().iter().map(|m| m.name.clone()).collect(),
            replaced: core.replaced_role(),
            progress: core.work.progress(),
            bad: core.lost(),
            scrubbed: core.scrubbed(),
            down: core.why_down(),
            warnings: crate::levels::warnings(&core.shape, &domains.collect::<Vec<_>>()),
        }
    }

    /// Returns the last events, the newest last, and their number since the start.
    pub fn events(&self) -> (Vec<ArrayEvent>, u64) {
        self.core().events()
    }

    /// Returns the map of sectors to members.
    pub fn shape(&self) -> &ArrayShape {
        &self.core().shape
    }

    /// True if nothing is left to resync or rebuild, and every member knows that durably.
    pub fn is_settled(&self) -> bool {
        let core = self.core();
        let rests = core.work.suspects.is_empty() && core.replaced_role().is_none();
        core.is_whole() && rests && core.is_committed()
    }

    /// Evicts a member, as if it had failed.
    pub async fn fail(&self, role: usize) -> IoResult {
        let core = self.core();
        if role >= core.shape.members() {
            return Err(core.no_role(role));
        }
        self.check_unneeded(role)?;
        core.fail_role(
            role,
            &IoError::new(IoErrorKind::Other, "it was taken out by hand"),
        );
        core.until_unresponsive(core.commit()).await
    }

    fn check_unneeded(&self, role: usize) -> IoResult {
        let core = self.core();
        if core.is_needed(role) {
            let what = format!("member {role} holds data that no other member has; it stays");
            return Err(core.error(IoErrorKind::Invalid, what));
        }
        Ok(())
    }

    /// Releases the devices of all members once no operation is in flight on them. A caller can
    /// then reopen them and reassemble the array. No request may be in flight; later ones fail.
    pub async fn release(&self) {
        let core = self.core();
        core.close();
        core.released().await;
        core.abandon("its members were released");
    }

    /// Fails at once every member in `domain` that the array can do without.
    pub async fn fail_domain(&self, domain: &str) -> IoResult {
        let core = self.core();
        let error = IoError::new(IoErrorKind::Gone, format!("its domain {domain} was pulled"));
        for (_, member) in core.live() {
            if &*member.domain == domain {
                core.fail(&member, &error);
            }
        }
        core.until_unresponsive(core.commit()).await?;
        core.check_up()
    }

    /// Adds a device to the array. A member of this array that returns gets the data that it
    /// missed. Any other device becomes a spare, and all its data is lost. Without `overwrite`, a
    /// device that belongs to an array is refused as a spare.
    pub async fn add(&self, candidate: MemberCandidate, fresh: Uuid, overwrite: bool) -> IoResult {
        let added = self.take_in(candidate, fresh, overwrite);
        self.core().until_unresponsive(added).await
    }

    async fn take_in(&self, candidate: MemberCandidate, fresh: Uuid, overwrite: bool) -> IoResult {
        let core = self.core();
        let Some(meta) = core.meta.as_ref().filter(|_| core.bitmap.is_some()) else {
            let what = format!(
                "{} has no use for another member; choose a redundant level",
                core.shape.level().name()
            );
            return Err(core.error(IoErrorKind::Invalid, what));
        };
        let name = candidate.device.geometry().name.clone();
        let _joining = core.join(&name)?;
        let timeout = core.options.timeout;
        // A member that is here has all of this, whenever the device is read from now on.
        let before = core.image();
        let found = match crate::membership::known(&core.env, &candidate.device, timeout).await {
            // A damaged superblock is overwritten.
            Err(error) if overwrite && error.kind() == IoErrorKind::Corrupt => None,
            found => found?,
        };
        let role = found.as_ref().and_then(|found| core.role_of_found(found));
        if let (Some(found), Some(role)) = (&found, role) {
            let (entry, now) = (core.entry(role), core.image());
            // The member itself lacks no event: this is another device.
            let is_older =
                found.membership(&before, &entry) == Some(ArrayMembership::Stale { whole: true });
            if !entry.state.is_failed() && overwrite && is_older {
                return self.take_spare(candidate, fresh).await;
            }
            if !entry.state.is_failed() {
                let what = format!("{name} is a copy of member {role}, which is here");
                return Err(core.error(IoErrorKind::Invalid, what));
            }
            let claim = core.claim(role)?;
            let needed = meta.data_at + entry.sectors;
            if let Some(why) = unusable(candidate.device.geometry(), core.geometry.block, needed) {
                return Err(core.error(IoErrorKind::Invalid, why));
            }
            if let Some(membership) = found.membership(&now, &entry) {
                let member = core.member(candidate, found.member());
                member.worse_copy.set(found.worse_copy(&now));
                let whole = membership != (ArrayMembership::Stale { whole: false });
                let whole = whole || !core.take_marks(&member, entry.map_writes).await?;
                return core.adopt(claim, member, whole).await;
            }
            if !overwrite {
                let what = format!(
                    "{name} was used apart from this array, and holds writes that this array has \
                     not; confirm that they may be overwritten, or leave it out"
                );
                return Err(core.error(IoErrorKind::Invalid, what));
            }
        }
        let is_own_spare = |found: &KnownMember| {
            let is_ours = found.newest().array == meta.array;
            is_ours && found.is_spare() && role.is_none()
        };
        if let Some(found) = found.filter(|found| !overwrite && !is_own_spare(found)) {
            let what = format!(
                "{name} belongs to array {}; confirm that it may be overwritten",
                found.newest().name
            );
            return Err(core.error(IoErrorKind::Invalid, what));
        }
        self.take_spare(candidate, fresh).await
    }

    /// Makes a device a spare. All its data is lost.
    async fn take_spare(&self, candidate: MemberCandidate, fresh: Uuid) -> IoResult {
        let core = self.core();
        core.check_spare(candidate.device.geometry())?;
        let spare = core.member(candidate, fresh);
        core.write_spare(&spare).await?;
        core.log(format!("{} is a spare", spare.name));
        core.put_spare(spare);
        Ok(())
    }

    /// Replaces a member by `candidate`. A member in sync serves until `candidate` holds all of its
    /// data; a member out of sync is rebuilt from the others. `candidate` may be a spare of this
    /// array: the device of an interrupted replacement is one.
    pub async fn replace(
        &self,
        role: usize,
        candidate: MemberCandidate,
        fresh: Uuid,
        overwrite: bool,
    ) -> IoResult {
        let core = self.core();
        if role >= core.shape.members() {
            return Err(core.no_role(role));
        }
        self.check_unneeded(role)?;
        if core.is_in_sync(role) {
            let name = &candidate.device.geometry().name;
            if let Some(spare) = core.take_spare_named(name) {
                return core.begin_replacement(role, spare);
            }
        }
        let waiting = core.spares().len();
        self.add(candidate, fresh, overwrite).await?;
        if core.spares().len() == waiting {
            return Ok(());
        }
        if core.is_in_sync(role) {
            return match core.take_spare() {
                Some(spare) => core.begin_replacement(role, spare),
                None => Ok(()),
            };
        }
        if !core.state(role).is_failed() {
            self.fail(role).await?;
        }
        // Unless a waiting spare takes the place by itself.
        if let Ok(claim) = core.claim(role)
            && let Some(spare) = core.take_spare()
        {
            let activating = core.clone();
            let activated = async move { activating.activate_spare(claim, spare).await };
            // The spare waits no more, so that the activation is carried through.
            let activated = core.env.spawn.persist(activated);
            core.until_unresponsive(activated).await?;
        }
        Ok(())
    }

    /// Compares all copies, or data with parity. With `repair`, brings differences into agreement.
    pub async fn scrub(&self, repair: bool) -> IoResult<ScrubReport> {
        // A caller of `release` waits for every holder of the members.
        let core = self.core().clone();
        core.scrub(repair).await
    }

    /// Progress of the running scrub.
    pub fn scrubbing(&self) -> Option<MaintenanceProgress> {
        self.core().work.scrubbing()
    }

    /// Ends the running scrub at its next step. Returns false if none runs.
    pub fn cancel_scrub(&self) -> bool {
        self.core().work.cancel_scrub(true);
        self.scrubbing().is_some()
    }

    /// Cancels the replacement of a member in sync. Returns the device that was to take the place.
    pub fn cancel_replacement(&self) -> Option<Arc<str>> {
        self.core().cancel_replacement()
    }

    /// Records durably the time of the last scrub.
    pub async fn set_scrubbed(&self, scrubbed: Scrubbed) -> IoResult {
        self.core().set_scrubbed(scrubbed).await
    }

    /// Makes everything durable, and clears every bit that can be cleared: the next start has
    /// nothing to do. No request may be in flight, and none may follow.
    pub async fn close(&self) -> IoResult {
        let core = self.core();
        core.close();
        // Background work ends first: each task looks before it goes on.
        let all = core.geometry.extent();
        let _alone = core.lock(all, Access::Exclusive).await;
        core.room_made.until(|| !core.makes_room.get()).await;
        core.flush_members().await?;
        if core.work.suspects.is_empty() {
            core.clear_bitmap(Nanos::MAX).await?;
        }
        for journal in &core.journals {
            core.retire(journal).await?;
        }
        Ok(())
    }

    async fn change(&self, extent: Extent, change: ExtentChange) -> IoResult {
        let (core, spawn) = (self.core(), &self.core().env.spawn);
        // The holder of a range goes on until members have answered.
        let work = match core.shape.level().redundancy() {
            Redundancy::None => return core.change_plain(extent, change).await,
            Redundancy::Copies => spawn.persist(core.clone().change(extent, change)),
            Redundancy::Parity => spawn.persist(core.clone().change_parity(extent, change)),
        };
        let _waits = core.late.wait();
        work.await
    }
}

impl Device for Array {
    fn geometry(&self) -> &Geometry {
        &self.core().geometry
    }

    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        self.core().read(at, buf)
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let extent = self.core().geometry.transfer(at, data.len())?;
        self.change(extent, ExtentChange::Data(data, fua)).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.core().geometry.check(extent)?;
        self.change(extent, ExtentChange::Zero).await
    }

    async fn flush(&self) -> IoResult {
        let core = self.core();
        core.late.ended().await;
        core.report_flush(core.flush_members()).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.core().geometry.check(extent)?;
        self.change(extent, ExtentChange::Discard).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.core().geometry.check(extent)?;
        out.push((extent, Content::Data));
        Ok(())
    }
}
