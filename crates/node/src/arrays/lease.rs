//! The right to use a device, from before it is opened until its user has it.
//!
//! Invariants:
//!     a name is in `open`, leased or free; a lease is taken before anything is awaited
//!     a lease that is not kept closes its device, and of an array the members too

use super::devices::Devices;
use crate::place::{Opened, Role};
use crate::platform::Platform;
use block::{IoError, IoResult, Kind};
use control::config::Name;
use std::ops::Deref;
use std::rc::Rc;

/// A name that nobody else can open, until dropped.
pub(super) struct Reserved<P: Platform> {
    devices: Rc<Devices<P>>,
    name: Name,
}

impl<P: Platform> Drop for Reserved<P> {
    fn drop(&mut self) {
        self.devices.leased.borrow_mut().remove(&self.name);
    }
}

/// A device that was opened and is not in `open` yet. Dropping it gives it up, in the
/// background where members are to rest first; [`Lease::release`] waits for that.
pub struct Lease<P: Platform> {
    /// `None` once it is kept or given up.
    held: Option<(Reserved<P>, Opened<P>)>,
}

impl<P: Platform> Devices<P> {
    /// Takes the right to open `name`.
    pub(super) fn reserve(&self, name: &Name, role: Role) -> IoResult<Reserved<P>> {
        let denied = |what: String| Err(IoError::new(Kind::Denied, what).on(name.to_string()));
        if let Some(open) = self.open.borrow().get(name) {
            let role = open.role.name();
            return denied(format!("is in use as {role}; give each use its own device"));
        }
        if !self.leased.borrow_mut().insert(name.clone()) {
            return denied(format!(
                "is being opened or closed, and wanted as {}; try again",
                role.name()
            ));
        }
        Ok(Reserved {
            devices: self.itself.upgrade().expect("it is borrowed"),
            name: name.clone(),
        })
    }
}

impl<P: Platform> Lease<P> {
    pub(super) fn new(reserved: Reserved<P>, opened: Opened<P>) -> Lease<P> {
        Lease {
            held: Some((reserved, opened)),
        }
    }

    /// The name that was opened.
    pub fn name(&self) -> &Name {
        let (reserved, _) = self.held.as_ref().expect("held until it is used up");
        &reserved.name
    }

    /// The device is in use from now on, until [`Devices::close`].
    pub fn keep(mut self) {
        let (reserved, opened) = self.held.take().expect("held until it is used up");
        let mut open = reserved.devices.open.borrow_mut();
        open.insert(reserved.name.clone(), opened);
    }

    /// Gives the device up, and returns once it can be opened again.
    pub async fn release(mut self) {
        let (reserved, opened) = self.held.take().expect("held until it is used up");
        give_up(reserved, opened).await;
    }

    /// Keeps the device if what it was opened for has succeeded, else gives it up.
    pub async fn settle<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        match &result {
            Ok(_) => self.keep(),
            Err(_) => self.release().await,
        }
        result
    }
}

async fn give_up<P: Platform>(reserved: Reserved<P>, opened: Opened<P>) {
    drop(opened);
    // An array was started for this one; why that is given up is reported.
    let _ = reserved.devices.close(&reserved.name).await;
}

impl<P: Platform> Deref for Lease<P> {
    type Target = Opened<P>;

    fn deref(&self) -> &Opened<P> {
        let (_, opened) = self.held.as_ref().expect("held until it is used up");
        opened
    }
}

impl<P: Platform> Drop for Lease<P> {
    fn drop(&mut self) {
        if let Some((reserved, opened)) = self.held.take() {
            let spawn = reserved.devices.env().spawn;
            spawn.spawn(give_up(reserved, opened));
        }
    }
}
