//! Devices that are about to join an array, and the roles that they are to take.
//!
//! Invariant: one device at a time is about to take a role, and each device to take one place.

use crate::core::ArrayCore;
use crate::member::{ArrayMember, MemberCandidate};
use crate::membership::KnownMember;
use crate::superblock::MemberEntry;
use block::{IoErrorKind, IoResult};
use layout::Uuid;
use std::rc::Rc;
use std::sync::Arc;

impl ArrayCore {
    /// Returns the spares, and the device that is about to take a member's place.
    pub fn waiting(&self) -> Vec<Rc<ArrayMember>> {
        let replacement = self.replacement.borrow();
        let copied = replacement.iter().map(|replacement| &replacement.member);
        self.spares.borrow().iter().chain(copied).cloned().collect()
    }

    /// Registers a device that is to join, unless it does so already or is here.
    pub fn join(&self, name: &Arc<str>) -> IoResult<Joining<'_>> {
        let serves = self.live().iter().any(|(_, member)| member.name == *name);
        let waits = self.waiting().iter().any(|spare| spare.name == *name);
        if serves || waits || !self.joining.borrow_mut().insert(name.clone()) {
            return Err(self.error(
                IoErrorKind::Busy,
                format!("{name} is in this array already"),
            ));
        }
        Ok(Joining(self, name.clone()))
    }

    /// Returns the role of which `found` is, or was last, the member.
    pub fn role_of_found(&self, found: &KnownMember) -> Option<usize> {
        let ours = self.meta().array == found.newest().array;
        let is_its = |entry: &MemberEntry| entry.uuid == found.member();
        let role = self.roster.now().table.iter().position(is_its);
        role.filter(|_| ours)
    }

    /// Makes a member of a device that comes while the array runs.
    pub fn member(&self, candidate: MemberCandidate, uuid: Uuid) -> Rc<ArrayMember> {
        let (timeout, env) = (self.options.timeout, self.env.clone());
        let member = ArrayMember::new(candidate, uuid, self.meta().data_at, timeout, env);
        let member = Rc::new(member);
        self.know(&member);
        member
    }

    /// Reserves `role` for a device. The role is lost and no other device is about to take it.
    pub fn claim(self: &Rc<ArrayCore>, role: usize) -> IoResult<RoleClaim> {
        if !self.state(role).is_failed() || !self.claimed.borrow_mut().insert(role) {
            let what = format!("member {role} is in sync or being filled; see its status");
            return Err(self.error(IoErrorKind::Busy, what));
        }
        let core = self.clone();
        Ok(RoleClaim { core, role })
    }
}

/// The right to fill a lost role, which one device has at a time: its holder finds the role
/// unchanged, however long it waits. See [`ArrayCore::claim`].
pub(crate) struct RoleClaim {
    core: Rc<ArrayCore>,
    pub role: usize,
}

impl Drop for RoleClaim {
    fn drop(&mut self) {
        self.core.claimed.borrow_mut().remove(&self.role);
    }
}

/// Registration of a device that joins; see [`ArrayCore::join`].
pub(crate) struct Joining<'a>(&'a ArrayCore, Arc<str>);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.0.joining.borrow_mut().remove(&self.1);
    }
}
