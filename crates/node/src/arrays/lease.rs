//! The right to use a device, from before it is opened until its user has it.
//!
//! Invariants:
//!     a name is in `open`, leased or free; a lease is taken before the first await
//!     a lease that is not kept closes its device, and the members too if it is an array

use super::devices::OpenDevices;
use crate::place::{OpenedPlace, RawRole};
use crate::platform::Platform;
use block::{Device as _, IoError, IoErrorKind, IoResult};
use control::config::Name;
use std::ops::Deref;
use std::rc::Rc;

/// A name that has no other user, until this is dropped.
pub(super) struct Reserved<P: Platform> {
    devices: Rc<OpenDevices<P>>,
    name: Name,
}

impl<P: Platform> Drop for Reserved<P> {
    fn drop(&mut self) {
        self.devices.leased.borrow_mut().remove(&self.name);
    }
}

/// An opened device that is not in `open` yet. Dropping a lease releases the device; an array is
/// closed in the background. [`Lease::release`] waits for the end of that.
pub struct Lease<P: Platform> {
    /// `None` once the device is kept or released.
    held: Option<(Reserved<P>, OpenedPlace<P>)>,
}

impl<P: Platform> OpenDevices<P> {
    /// Takes the right to open `name`.
    pub(super) fn reserve(&self, name: &Name, role: RawRole) -> IoResult<Reserved<P>> {
        let denied =
            |what: String| Err(IoError::new(IoErrorKind::Denied, what).on(name.to_string()));
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
    pub(super) fn new(reserved: Reserved<P>, opened: OpenedPlace<P>) -> Lease<P> {
        Lease {
            held: Some((reserved, opened)),
        }
    }

    /// The name of the device.
    pub fn name(&self) -> &Name {
        let (reserved, _) = self.held.as_ref().expect("held until it is used up");
        &reserved.name
    }

    /// Puts the device into use, until [`OpenDevices::close`].
    pub fn keep(mut self) {
        let (reserved, opened) = self.held.take().expect("held until it is used up");
        let devices = &reserved.devices;
        let called = opened.leaf.geometry().name.clone();
        devices
            .called
            .borrow_mut()
            .insert(reserved.name.clone(), called);
        devices
            .open
            .borrow_mut()
            .insert(reserved.name.clone(), opened);
    }

    /// Releases the device, and returns once it can be opened again.
    pub async fn release(mut self) {
        let (reserved, opened) = self.held.take().expect("held until it is used up");
        give_up(reserved, opened).await;
    }

    /// Keeps the device if `result` is a success, else releases it.
    pub async fn settle<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        match &result {
            Ok(_) => self.keep(),
            Err(_) => self.release().await,
        }
        result
    }
}

async fn give_up<P: Platform>(reserved: Reserved<P>, opened: OpenedPlace<P>) {
    drop(opened);
    // An array started for this lease is closed; its events report errors.
    let _ = reserved.devices.close(&reserved.name).await;
}

impl<P: Platform> Deref for Lease<P> {
    type Target = OpenedPlace<P>;

    fn deref(&self) -> &OpenedPlace<P> {
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
