//! An array as its user sees it: a device, and what can be done to it.

use crate::change::Change;
use crate::core::Core;
use crate::events::Event;
use crate::fitness::{check_spare, unusable};
use crate::levels::{Level, Redundancy, Shape};
use crate::maintenance::Progress;
use crate::member::{Candidate, MemberCounts};
use crate::membership::{Known, Membership};
use crate::scrub::ScrubReport;
use crate::superblock::{MemberState, Scrubbed};
use block::{
    Access, Buf, Content, Device, Extent, Fua, Geometry, IoError, IoResult, Kind, Lba, Nanos,
    Sectors, Shared,
};
use layout::Uuid;
use std::rc::Rc;
use std::sync::Arc;

/// A running array. Clones are the same array, which rests when the last is
/// gone.
#[derive(Clone)]
pub struct Array(Rc<Handle>);

struct Handle(Rc<Core>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.closed.set(true);
    }
}

/// One member, as reports show it.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Its role.
    pub role: usize,
    /// Its device; `None` if it is missing.
    pub device: Option<Arc<str>>,
    /// What it fails with.
    pub domain: Option<Arc<str>>,
    /// What is known of it.
    pub state: MemberState,
    /// What it did and suffered.
    pub counts: MemberCounts,
}

/// How an array is.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub name: Arc<str>,
    /// Its level.
    pub level: Level,
    /// Its size.
    pub sectors: Sectors,
    /// Its chunk, of striped levels.
    pub chunk: Sectors,
    /// Its identity; `None` for one without superblocks.
    pub uuid: Option<Uuid>,
    /// Its members, by role.
    pub members: Vec<MemberReport>,
    /// Whether every member that is here knows durably how the others are.
    pub committed: bool,
    /// The devices that wait to replace one.
    pub spares: Vec<Arc<str>>,
    /// The role of a member in sync that is being replaced.
    pub replaced: Option<usize>,
    /// What goes on, if anything.
    pub progress: Option<Progress>,
    /// Sectors that are lost.
    pub bad: Vec<Extent>,
    /// When it was scrubbed last.
    pub scrubbed: Scrubbed,
    /// Why writes are refused.
    pub down: Option<String>,
    /// What would be lost together.
    pub warnings: Vec<String>,
}

impl Array {
    pub(crate) fn start(core: Rc<Core>) -> Array {
        let maintain = crate::maintenance::maintain(Rc::downgrade(&core));
        if core.bitmap.is_some() {
            core.env.spawn.spawn(maintain);
        }
        if !core.journals.is_empty() {
            let retire = crate::journal::retire_idle(Rc::downgrade(&core));
            core.env.spawn.spawn(retire);
        }
        Array(Rc::new(Handle(core)))
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.0.0
    }

    /// How the array is.
    pub fn report(&self) -> Report {
        let core = self.core();
        let members = core.slots.iter().enumerate().map(|(role, slot)| {
            let member = slot.member.borrow();
            MemberReport {
                role,
                device: member.as_ref().map(|m| m.name.clone()),
                domain: member.as_ref().map(|m| m.domain.clone()),
                state: core.state(role),
                counts: member.as_ref().map(|m| m.counts.get()).unwrap_or_default(),
            }
        });
        let progress = core.progress.get();
        let domains = core
            .live()
            .into_iter()
            .map(|(role, m)| (role, m.domain.clone()));
        Report {
            name: core.name.clone(),
            level: core.shape.level(),
            sectors: core.geometry.sectors,
            chunk: core.shape.chunk(),
            uuid: core.meta.as_ref().map(|meta| meta.array),
            members: members.collect(),
            committed: core.is_committed(),
            spares: core.waiting().iter().map(|m| m.name.clone()).collect(),
            replaced: core.replacement.borrow().as_ref().map(|r| r.role),
            progress: (progress.total > Sectors::ZERO).then_some(progress),
            bad: core.lost(),
            scrubbed: core.roster.now().scrubbed,
            down: core.down.borrow().clone(),
            warnings: crate::place::warnings(&core.shape, &domains.collect::<Vec<_>>()),
        }
    }

    /// What happened, the newest last, and how much in all.
    pub fn events(&self) -> (Vec<Event>, u64) {
        let core = self.core();
        (core.events.borrow().clone(), core.event_count.get())
    }

    /// Where sectors lie.
    pub fn shape(&self) -> &Shape {
        &self.core().shape
    }

    /// Whether nothing is left to be brought into agreement or filled, and every member
    /// knows that.
    pub fn is_settled(&self) -> bool {
        let core = self.core();
        let rests = core.unsynced.borrow().is_empty() && core.replacement.borrow().is_none();
        core.is_whole() && rests && core.is_committed()
    }

    /// Leaves a member behind, as if it had failed.
    pub async fn fail(&self, role: usize) -> IoResult {
        let core = self.core();
        if role >= core.slots.len() {
            return Err(core.no_role(role));
        }
        self.check_unneeded(role)?;
        core.fail_role(role, &IoError::new(Kind::Other, "it was taken out by hand"));
        core.until_silent(core.commit()).await
    }

    fn check_unneeded(&self, role: usize) -> IoResult {
        let core = self.core();
        if core.is_needed(role) {
            let what = format!("member {role} holds data that no other member has; it stays");
            return Err(core.error(Kind::Invalid, what));
        }
        Ok(())
    }

    /// Releases the devices of all members, once nothing is at work on them: for
    /// whoever reopens them, to reassemble the array. No request may be in
    /// flight; later ones fail.
    pub async fn release(&self) {
        let core = self.core();
        core.closed.set(true);
        core.released().await;
        core.abandon("its members were released");
    }

    /// Fails at once every member in `domain` that can be done without.
    pub async fn fail_domain(&self, domain: &str) -> IoResult {
        let core = self.core();
        let error = IoError::new(Kind::Gone, format!("its domain {domain} was pulled"));
        for (_, member) in core.live() {
            if &*member.domain == domain {
                core.fail(&member, &error);
            }
        }
        core.until_silent(core.commit()).await?;
        core.check_up()
    }

    /// Gives the array a device: a member of this array that returns takes what
    /// it missed; any other becomes a spare, and all that it holds is lost. With
    /// `overwrite` unset the latter is refused if it belongs to an array.
    pub async fn add(&self, candidate: Candidate, fresh: Uuid, overwrite: bool) -> IoResult {
        let added = self.take_in(candidate, fresh, overwrite);
        self.core().until_silent(added).await
    }

    async fn take_in(&self, candidate: Candidate, fresh: Uuid, overwrite: bool) -> IoResult {
        let core = self.core();
        let Some(meta) = core.meta.as_ref().filter(|_| core.bitmap.is_some()) else {
            let what = format!(
                "{} has no use for another member",
                core.shape.level().name()
            );
            return Err(core.error(Kind::Invalid, what));
        };
        let name = candidate.device.geometry().name.clone();
        let _joining = core.join(&name)?;
        let timeout = core.options.timeout;
        // A member that is here has all of this, whenever the device is read from now on.
        let before = core.image();
        let found = match crate::examine::known(&core.env, &candidate.device, timeout).await {
            // What it was is damaged, and is to be lost.
            Err(error) if overwrite && error.kind() == Kind::Corrupt => None,
            found => found?,
        };
        let role = found.as_ref().and_then(|found| core.role_of_found(found));
        if let (Some(found), Some(role)) = (&found, role) {
            let (entry, now) = (core.entry(role), core.image());
            // The member itself lacks no event: this is another device.
            let is_older =
                found.membership(&before, &entry) == Some(Membership::Stale { whole: true });
            if !entry.state.is_failed() && overwrite && is_older {
                return self.take_spare(candidate, fresh).await;
            }
            if !entry.state.is_failed() {
                let what = format!("{name} is a copy of member {role}, which is here");
                return Err(core.error(Kind::Invalid, what));
            }
            let claim = core.claim(role)?;
            let needed = meta.data_at + entry.sectors;
            if let Some(why) = unusable(&candidate, core.geometry.block, needed) {
                return Err(core.error(Kind::Invalid, why));
            }
            if let Some(membership) = found.membership(&now, &entry) {
                let member = core.member(candidate, found.member());
                member.worse_copy.set(found.worse_copy(&now));
                let whole = membership != (Membership::Stale { whole: false });
                let whole = whole || !core.take_marks(&member, entry.map_writes).await?;
                return core.adopt(claim, member, whole).await;
            }
            if !overwrite {
                let what = format!(
                    "{name} was used apart from this array, and holds writes that this array has \
                     not; confirm that they may be overwritten, or leave it out"
                );
                return Err(core.error(Kind::Invalid, what));
            }
        }
        let is_own_spare = |found: &Known| {
            let is_ours = found.newest().array == meta.array;
            is_ours && found.is_spare() && role.is_none()
        };
        if let Some(found) = found.filter(|found| !overwrite && !is_own_spare(found)) {
            let what = format!(
                "{name} belongs to array {}; confirm that it may be overwritten",
                found.newest().name
            );
            return Err(core.error(Kind::Invalid, what));
        }
        self.take_spare(candidate, fresh).await
    }

    /// Makes a device a spare, and all that it holds is lost.
    async fn take_spare(&self, candidate: Candidate, fresh: Uuid) -> IoResult {
        let core = self.core();
        check_spare(core, candidate.device.geometry())?;
        let spare = core.member(candidate, fresh);
        core.write_spare(&spare).await?;
        core.log(format!("{}: {} is a spare", core.name, spare.name));
        core.spares.borrow_mut().push(spare);
        Ok(())
    }

    /// Takes a member's place with `candidate`. A member in sync serves until that holds
    /// all that it holds; that of one that is not is filled from the others. A spare of this array
    /// may be given: the device of an exchange that was cut short is one.
    pub async fn replace(
        &self,
        role: usize,
        candidate: Candidate,
        fresh: Uuid,
        overwrite: bool,
    ) -> IoResult {
        let core = self.core();
        if role >= core.slots.len() {
            return Err(core.no_role(role));
        }
        self.check_unneeded(role)?;
        if core.is_in_sync(role) {
            let name = &candidate.device.geometry().name;
            let spares = &core.spares;
            let own = spares.borrow().iter().position(|spare| spare.name == *name);
            if let Some(own) = own {
                let spare = spares.borrow_mut().remove(own);
                return core.begin_replacement(role, spare);
            }
        }
        let waiting = core.spares.borrow().len();
        self.add(candidate, fresh, overwrite).await?;
        if core.spares.borrow().len() == waiting {
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
        // Unless a spare that waited takes the place by itself.
        if let Ok(claim) = core.claim(role)
            && let Some(spare) = core.take_spare()
        {
            let activating = core.clone();
            let activated = async move { activating.activate_spare(claim, spare).await };
            // The spare waits no more, so that it is carried through.
            let activated = core.env.spawn.persist(activated);
            core.until_silent(activated).await?;
        }
        Ok(())
    }

    /// Compares all copies, or data with parity; with `repair` brings what
    /// differs into agreement.
    pub async fn scrub(&self, repair: bool) -> IoResult<ScrubReport> {
        // Whoever releases the members waits for who holds it.
        let core = self.core().clone();
        core.scrub(repair).await
    }

    /// How far the scrub is that runs.
    pub fn scrubbing(&self) -> Option<Progress> {
        let progress = self.core().scrub.get();
        (progress.total > Sectors::ZERO).then_some(progress)
    }

    /// Ends the scrub that runs, at its next step; whether there is one.
    pub fn cancel_scrub(&self) -> bool {
        self.core().scrub_cancelled.set(true);
        self.scrubbing().is_some()
    }

    /// The device that was to take the place of a member in sync does not; which, if there
    /// was one.
    pub fn cancel_replacement(&self) -> Option<Arc<str>> {
        self.core().cancel_replacement()
    }

    /// Remembers, durably, when the array was scrubbed last.
    pub async fn set_scrubbed(&self, scrubbed: Scrubbed) -> IoResult {
        self.core().set_scrubbed(scrubbed).await
    }

    /// Makes everything durable, and clears every bit that can be: the next
    /// start has nothing to do. No request may be in flight, and none may follow.
    pub async fn close(&self) -> IoResult {
        let core = self.core();
        core.closed.set(true);
        // What is at work by itself ends first, and looks before it goes on.
        let all = core.geometry.extent();
        let _alone = core.busy.lock(all, Access::Exclusive).await;
        core.flush_members().await?;
        if core.unsynced.borrow().is_empty() {
            core.clear_bitmap(Nanos::MAX).await?;
        }
        for journal in &core.journals {
            journal.retire(core).await?;
        }
        Ok(())
    }

    async fn change(&self, extent: Extent, change: Change) -> IoResult {
        let (core, spawn) = (self.core(), &self.core().env.spawn);
        // What holds a range goes on until members have answered.
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

    async fn write(&self, at: Lba, data: Shared, fua: Fua) -> IoResult {
        let extent = self.core().geometry.transfer(at, data.len())?;
        self.change(extent, Change::Data(data, fua)).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.core().geometry.check(extent)?;
        self.change(extent, Change::Zero).await
    }

    async fn flush(&self) -> IoResult {
        let core = self.core();
        core.late.ended().await;
        let flush = core.flush_members();
        core.flush_errors.report_to(&core.user, flush).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.core().geometry.check(extent)?;
        self.change(extent, Change::Discard).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.core().geometry.check(extent)?;
        out.push((extent, Content::Data));
        Ok(())
    }
}
