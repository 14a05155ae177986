//! Exchanging a member in sync, which serves until the other one holds all that it holds.
//!
//! The other one is a spare to every superblock until then. What it lacks is copied region by
//! region; what is written meanwhile goes to both ([`Member::change`]). Where the old one
//! cannot be read it gets what the others have.
//!
//! Invariants:
//!     a role is given to another device ⟹ that holds, durably, all that the old one does,
//!                                          and has no record in its journal
//!     a start finds the exchange done or not begun
//!
//! If the old one is lost meanwhile the other one takes its place like any spare; if the
//! other one refuses something, or the array ends, the exchange is over and the old one stays.

use crate::core::Core;
use crate::fill::Filled;
use crate::member::Member;
use block::{Access, Extent, IoResult, Kind};
use std::rc::Rc;
use std::sync::Arc;

/// A device that is to take a role.
pub(crate) struct Replacement {
    pub role: usize,
    pub member: Rc<Member>,
    /// What has the role until then.
    old: Rc<Member>,
    /// Regions before this one have been copied.
    done: usize,
    /// What could not be copied.
    pub gaps: Vec<Extent>,
    /// It is over because somebody wanted that.
    cancelled: bool,
}

impl Core {
    /// `member` is to take `role` from the one in sync that has it.
    pub fn begin_replacement(self: &Rc<Core>, role: usize, member: Rc<Member>) -> IoResult {
        let mut replacement = self.replacement.borrow_mut();
        let old = self.in_sync(role);
        let Some(old) = old.filter(|_| replacement.is_none()) else {
            self.spares.borrow_mut().push(member);
            let what = "another member is being replaced, or this one was lost; once that is over \
                        give the device, which is a spare until then, again";
            return Err(self.error(Kind::Busy, what));
        };
        self.log(format!(
            "{}: member {role} is copied to {}, and serves until then",
            self.name, member.name
        ));
        *old.successor.borrow_mut() = Some(member.clone());
        *replacement = Some(Replacement {
            role,
            member,
            old,
            done: 0,
            gaps: Vec::new(),
            cancelled: false,
        });
        Ok(())
    }

    /// The role that is exchanged, with the device it is given to and the first region that
    /// is not copied; `None` if that is over, which is logged.
    fn replaced(self: &Rc<Core>) -> Option<(Filled, usize)> {
        let replacement = self.replacement.borrow();
        let Replacement {
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

    /// Whether `filled` is still to take the place of a member in sync.
    pub fn is_copied(self: &Rc<Core>, filled: &Filled) -> bool {
        let now = self.replaced();
        now.is_some_and(|(now, _)| {
            now.role == filled.role && Rc::ptr_eq(&now.member, &filled.member)
        })
    }

    /// Whether an exchange has begun that cannot go on.
    pub fn replacement_is_over(self: &Rc<Core>) -> bool {
        self.replacement.borrow().is_some() && self.replaced().is_none()
    }

    /// What came of a write to the device that is to take a role: one that refuses is given
    /// nothing more.
    pub fn copied(&self, result: &IoResult) {
        if result.is_err()
            && let Some(replacement) = &*self.replacement.borrow()
        {
            replacement.old.successor.take();
        }
    }

    /// The other one is given nothing more; which, if there is an exchange.
    pub fn cancel_replacement(&self) -> Option<Arc<str>> {
        let mut replacement = self.replacement.borrow_mut();
        let replacement = replacement.as_mut()?;
        replacement.cancelled = true;
        replacement.old.successor.take();
        Some(replacement.member.name.clone())
    }

    /// Goes on with an exchange; `false` if it was left unfinished.
    pub async fn replace(self: &Rc<Core>) -> IoResult<bool> {
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
        // Nothing is in flight while the other one becomes the one that serves.
        let all = self.geometry.extent();
        let _alone = self.busy.lock(all, Access::Exclusive).await;
        self.flush_members().await?;
        let ready = self.make_ready(role, &member).await;
        self.copied(&ready);
        ready?;
        if !self.is_copied(&filled) {
            return Ok(false);
        }
        if let Some(Replacement { old, gaps, .. }) = self.replacement.take() {
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

    /// Leaves no record on a device that is to take `role`, and lets it be one event behind
    /// at most if the next is cut short.
    async fn make_ready(&self, role: usize, member: &Member) -> IoResult {
        if let Some(journal) = self.journals.get(role) {
            journal.wipe(self, member).await?;
        }
        self.write_spare(member).await
    }

    /// The old one is lost, or the other one has refused something.
    async fn end_replacement(self: &Rc<Core>) -> IoResult<bool> {
        let Some(Replacement {
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
