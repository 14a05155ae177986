//! The right to use a device, from before it is opened until its user has it.
//!
//! Invariants:
//!     a name is in `open`, leased or free; a lease is taken before anything is awaited
//!     a lease that is not kept closes its device, and of an array the members too

use super::Devices;
use crate::devices::{Opened, Role};
use block::{IoError, IoResult, Kind};
use control::config::Name;
use std::ops::Deref;
use std::rc::Rc;

/// A name that nobody else can open, until dropped.
pub(super) struct Reserved {
    devices: Rc<Devices>,
    name: Name,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.devices.leased.borrow_mut().remove(&self.name);
    }
}

/// A device that was opened and is not in `open` yet. Dropping it gives it up, in the
/// background where members are to rest first; [`Lease::release`] waits for that.
pub struct Lease {
    /// `None` once it is kept or given up.
    held: Option<(Reserved, Opened)>,
}

impl Devices {
    /// Takes the right to open `name`.
    pub(super) fn reserve(&self, name: &Name, role: Role) -> IoResult<Reserved> {
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

impl Devices {
    /// Takes the device of that name back from its user.
    pub(super) fn take(&self, name: &Name) -> Option<Lease> {
        let opened = self.open.borrow_mut().remove(name)?;
        let reserved = self.reserve(name, opened.role).ok()?;
        Some(Lease::new(reserved, opened))
    }
}

impl Lease {
    pub(super) fn new(reserved: Reserved, opened: Opened) -> Lease {
        Lease {
            held: Some((reserved, opened)),
        }
    }

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

async fn give_up(reserved: Reserved, opened: Opened) {
    drop(opened);
    // An array was started for this one; why that is given up is told.
    let _ = reserved.devices.close(&reserved.name).await;
}

impl Deref for Lease {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        let (_, opened) = self.held.as_ref().expect("held until it is used up");
        opened
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((reserved, opened)) = self.held.take() {
            let spawn = reserved.devices.env().spawn;
            spawn.spawn(give_up(reserved, opened));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrays::Source;
    use crate::devices::Opener;
    use control::config::{Device, parse};
    use shard::run_alone;
    use uring::{Options, Uring};

    #[test]
    fn a_device_is_opened_once_though_opening_takes_time() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let mut host = Uring::new(Options::default()).unwrap();
        let inner = host.clone();
        let text = format!(
            "name = \"d\"\npath = \"{}\"\nbuffered = true",
            path.display()
        );
        // Whoever opens it waits for this claim to end.
        uring::claim(&file).unwrap();
        let ended = run_alone(&mut host, move |local| async move {
            let config = parse("", &mut Vec::new());
            let (env, host) = (local.env(), inner);
            let devices = Devices::new(&config, Opener { host, local });
            let source = Source::Device(Box::new(Device::parse(&text).unwrap()));
            let (first, second) = (devices.clone(), source.clone());
            let opening = async move { first.open(&second, Role::Origin).await };
            let racing = async {
                let refused = devices.open(&source, Role::Pool).await;
                let why = refused.err().unwrap().to_string();
                assert!(why.contains("is being opened"), "{why}");
                env.timer.sleep(block::Nanos::from_millis(100)).await;
                drop(file);
            };
            let (opened, ()) = futures_util::future::join(opening, racing).await;
            let lease = opened.unwrap();
            assert!(devices.open(&source, Role::Pool).await.is_err());
            lease.release().await;
            let lease = devices.open(&source, Role::Pool).await.unwrap();
            lease.keep();
            let refused = devices.open(&source, Role::Origin).await;
            let why = refused.err().unwrap().to_string();
            assert!(why.contains("is in use as pool"), "{why}");
            let name = source.name().clone();
            devices.close(&name).await.unwrap();
            // Dropped without a word, it is free again too.
            drop(devices.open(&source, Role::Origin).await.unwrap());
            env.timer.sleep(block::Nanos::from_millis(10)).await;
            drop(devices.open(&source, Role::Origin).await.unwrap());
        });
        ended.expect("nothing cuts its power");
    }
}
