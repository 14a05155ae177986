//! Replacing a member in sync, which serves until the new one holds all of its data.
//!
//! The new device is a spare to every superblock until then. Its data is copied region by region;
//! writes meanwhile go to both ([`ArrayMember::change`]). Where the old member cannot be read, the new
//! one gets the data of the others.
//!
//! Invariants:
//!     a role is given to another device ⟹ that holds, durably, all that the old one does,
//!                                          and has no record in its journal
//!     a start finds the replacement done or not begun
//!
//! If the old member is lost meanwhile, the new device takes its place like any spare. If the new
//! device refuses a write, or the array ends, the replacement is over and the old member stays.

use crate::core::ArrayCore;
use crate::fill::Filled;
use crate::member::ArrayMember;
use block::{Access, Extent, IoErrorKind, IoResult};
use std::rc::Rc;
use std::sync::Arc;

/// A device that is to take a role.
pub(crate) struct MemberReplacement {
    pub role: usize,
    pub member: Rc<ArrayMember>,
    /// The present member of the role.
    old: Rc<ArrayMember>,
    /// Regions before this one have been copied.
    done: usize,
    /// Extents that could not be copied.
    pub gaps: Vec<Extent>,
    /// The replacement was cancelled.
    cancelled: bool,
}

impl ArrayCore {
    /// Begins to replace the member in sync of `role` by `member`.
    pub fn begin_replacement(
        self: &Rc<ArrayCore>,
        role: usize,
        member: Rc<ArrayMember>,
    ) -> IoResult {
        let mut replacement = self.replacement.borrow_mut();
        let old = self.in_sync(role);
        let Some(old) = old.filter(|_| replacement.is_none()) else {
            self.spares.borrow_mut().push(member);
            let what = "another member is being replaced, or this one was lost; once that is over \
                        give the device, which is a spare until then, again";
            return Err(self.error(IoErrorKind::Busy, what));
        };
        self.log(format!(
            "{}: member {role} is copied to {}, and serves until then",
            self.name, member.name
        ));
        *old.successor.borrow_mut() = Some(member.clone());
        *replacement = Some(MemberReplacement {
            role,
            member,
            old,
            done: 0,
            gaps: Vec::new(),
            cancelled: false,
        });
        Ok(())
    }

    /// Returns the role that is being replaced, with its new device and the first region that is
    /// not copied. Returns `None` if the replacement is over, which is logged.
    fn replaced(self: &Rc<ArrayCore>) -> Option<(Filled, usize)> {
        let replacement = self.replacement.borrow();
        let MemberReplacement {
            role,
            member,
            old,
            done,
            ..
        } = replacement.as_ref()?;
        let same = self.in_sync(*role).is_some_and(|now| Rc::ptr_eq(&now, old));
        let gets_all = old.successor.borrow().is_some();
        let filled = Filled {
            role: *role,
            member: member.clone(),
        };
        (same && gets_all).then_some((filled, *done))
    }

    /// True if `filled` is still to take the place of a member in sync.
    pub fn is_copied(self: &Rc<ArrayCore>, filled: &Filled) -> bool {
        let now = self.replaced();
        now.is_some_and(|(now, _)| {
            now.role == filled.role && Rc::ptr_eq(&now.member, &filled.member)
        })
    }

    /// True if a replacement has begun that cannot go on.
    pub fn replacement_is_over(self: &Rc<ArrayCore>) -> bool {
        self.replacement.borrow().is_some() && self.replaced().is_none()
    }

    /// Takes the result of a write to the new device: one that refuses gets nothing more.
    pub fn copied(&self, result: &IoResult) {
        if result.is_err()
            && let Some(replacement) = &*self.replacement.borrow()
        {
            replacement.old.successor.take();
        }
    }

    /// Cancels the replacement: the new device gets nothing more. Returns that device, if there is
    /// one.
    pub fn cancel_replacement(&self) -> Option<Arc<str>> {
        let mut replacement = self.replacement.borrow_mut();
        let replacement = replacement.as_mut()?;
        replacement.cancelled = true;
        replacement.old.successor.take();
        Some(replacement.member.name.clone())
    }

    /// Continues a replacement; returns `false` if it was left unfinished.
    pub async fn replace(self: &Rc<ArrayCore>) -> IoResult<bool> {
        let bitmap = self.bitmap.as_ref().expect("a level with redundancy");
        let Some((filled, first)) = self.replaced() else {
            return self.end_replacement().await;
        };
        let (role, member) = (filled.role, filled.member.clone());
        let regions = (first..bitmap.regions()).collect();
        let copy = async |step| self.fill_in_sync(&filled, step).await;
        let note = async |_: usize, region: usize| {
            if let Some(replacement) = &mut *self.replacement.borrow_mut() {
                replacement.done = region + 1;
            }
            Ok(())
        };
        if !self.go_over(Some(&filled), regions, copy, note).await? {
            return Ok(false);
        }
        // Nothing is in flight while the new device becomes the one that serves.
        let all = self.geometry.extent();
        let _alone = self.busy.lock(all, Access::Exclusive).await;
        self.flush_members().await?;
        let ready = self.make_ready(role, &member).await;
        self.copied(&ready);
        ready?;
        if !self.is_copied(&filled) {
            return Ok(false);
        }
        if let Some(MemberReplacement { old, gaps, .. }) = self.replacement.take() {
            old.successor.take();
            self.replace_gaps(role, gaps);
        }
        let uuid = member.uuid;
        self.own(&member);
        *self.slots[role].member.borrow_mut() = Some(member);
        self.set_entry(role, |entry| entry.uuid = uuid);
        bitmap.write_now(self).await?;
        self.commit().await?;
        Ok(true)
    }

    /// Wipes the journal of a device that is to take `role`, and writes its superblocks: the device
    /// is then at most one event behind if the next commit is cut short.
    async fn make_ready(&self, role: usize, member: &ArrayMember) -> IoResult {
        if let Some(journal) = self.journals.get(role) {
            journal.wipe(self, member).await?;
        }
        self.write_spare(member).await
    }

    /// Ends the replacement: the old member is lost, or the new one has refused an operation.
    async fn end_replacement(self: &Rc<ArrayCore>) -> IoResult<bool> {
        let Some(MemberReplacement {
            role,
            member,
            old,
            cancelled,
            ..
        }) = self.replacement.take()
        else {
            return Ok(false);
        };
        let gets_all = old.successor.take().is_some();
        if gets_all && let Ok(claim) = self.claim(role) {
            self.activate_spare(claim, member).await?;
            return Ok(false);
        }
        let why = match cancelled {
            true => "that was cancelled",
            false => "it refused a write or a flush; give another device",
        };
        self.log(format!(
            "{}: {} does not take the place of member {role}: {why}",
            self.name, member.name
        ));
        Ok(false)
    }
}
