//! One change of a running configuration, and its effect on the configuration.

use crate::config::{Array, At, Attach, Config, Device, Listen, Name, Pool, Volume, VolumeMode};
use crate::written::WrittenSection;
use std::time::Duration;

/// A change.
#[derive(Clone, Debug)]
pub enum Change {
    /// The time limits of shutdowns change.
    Limits {
        /// Limit for requests in flight.
        grace: At<Duration>,
        /// Limit for origins.
        stop: At<Duration>,
    },
    /// A socket is closed; its open connections stay.
    CloseListener(String),
    /// A volume is withdrawn with the frontends of its own, and its origin released.
    RemoveVolume(Name),
    /// A pool loses a device.
    TakePoolDevice {
        /// The pool.
        pool: Name,
        /// The device.
        device: Name,
    },
    /// A pool is closed; no volume uses it.
    RemovePool(Name),
    /// A pool is opened on its devices.
    AddPool(Box<Pool>),
    /// A device is added, or its parameters change; the device is unused.
    PutDevice(Box<Device>),
    /// An array is added, or its parameters change; the array is unused.
    PutArray(Box<Array>),
    /// An array is removed; the array is unused.
    DropArray(Name),
    /// A device is removed; the device is unused.
    DropDevice(Name),
    /// A running array gets a spare.
    GiveSpare {
        /// The array.
        array: Name,
        /// The device.
        device: Name,
    },
    /// A running array gets a new member, or an old one back.
    GiveMember {
        /// The array.
        array: Name,
        /// The device.
        device: Name,
    },
    /// An exchange of an array's members has ended.
    Exchanged {
        /// The array.
        array: Name,
        /// The member that left the array.
        member: Name,
        /// The device that has its place.
        device: Name,
    },
    /// An array may start, or not, with members absent the next time.
    StartDegraded {
        /// The array.
        array: Name,
        /// True if the array may start so.
        start_degraded: At<bool>,
    },
    /// A pool forgets its lines, or keeps them, at the next start.
    Cold {
        /// The pool.
        pool: Name,
        /// True if the pool forgets them.
        cold: At<bool>,
    },
    /// A pool gets a device.
    GivePoolDevice {
        /// The pool.
        pool: Name,
        /// The device.
        device: Name,
    },
    /// A volume changes its mode.
    SetMode {
        /// The volume.
        volume: Name,
        /// The mode; one with a log only if the volume is off.
        mode: At<VolumeMode>,
        /// True if the volume is off.
        off: At<bool>,
    },
    /// The log of a volume that is not write-back changes.
    PutLog(Box<Volume>),
    /// A served volume becomes write-back.
    WriteBack(Box<Volume>),
    /// A volume is added and served.
    AddVolume(Box<Volume>),
    /// A listener shows other certificates to new connections.
    RenewListener(Box<Listen>),
    /// A socket is opened.
    OpenListener(Box<Listen>),
    /// A volume becomes a block device of this machine.
    Attach(Box<Attach>),
    /// A volume is no block device any more.
    Detach(Name),
}

impl Change {
    /// Applies the change to `config`.
    pub fn record(&self, config: &mut Config) {
        match self {
            Change::Limits { grace, stop } => {
                config.daemon.grace = grace.clone();
                config.daemon.stop = stop.clone();
            }
            Change::CloseListener(place) => {
                config.listeners.retain(|listen| listen.place() != *place);
            }
            Change::RemoveVolume(name) => {
                let is_its =
                    |listen: &Listen| listen.guest_volume().as_deref() == Some(name.as_str());
                config.volumes.retain(|v| v.name.value != *name);
                config.attachments.retain(|a| a.ublk.value != *name);
                config.listeners.retain(|listen| !is_its(listen));
            }
            Change::TakePoolDevice { pool, device } => with(&mut config.pools, pool, |pool| {
                pool.devices.value.retain(|d| d != device);
            }),
            Change::RemovePool(name) => config.pools.retain(|p| p.name.value != *name),
            Change::AddPool(pool) => put(&mut config.pools, pool),
            Change::PutDevice(device) => put(&mut config.devices, device),
            Change::PutArray(array) => put(&mut config.arrays, array),
            Change::DropArray(name) => config.arrays.retain(|a| a.name.value != *name),
            Change::DropDevice(name) => config.devices.retain(|d| d.name.value != *name),
            Change::GiveSpare { array, device } => with(&mut config.arrays, array, |array| {
                add(&mut array.spares.value, device);
            }),
            Change::GiveMember { array, device } => with(&mut config.arrays, array, |array| {
                array.spares.value.retain(|spare| spare != device);
                add(&mut array.members.value, device);
            }),
            Change::Exchanged {
                array,
                member,
                device,
            } => with(&mut config.arrays, array, |array| {
                exchange(array, member, device);
            }),
            Change::StartDegraded {
                array,
                start_degraded,
            } => with(&mut config.arrays, array, |array| {
                array.start_degraded = start_degraded.clone();
            }),
            Change::Cold { pool, cold } => {
                with(&mut config.pools, pool, |pool| pool.cold = cold.clone());
            }
            Change::GivePoolDevice { pool, device } => with(&mut config.pools, pool, |pool| {
                add(&mut pool.devices.value, device);
            }),
            Change::SetMode { volume, mode, off } => with(&mut config.volumes, volume, |volume| {
                volume.mode = mode.clone();
                volume.off = off.clone();
            }),
            Change::PutLog(wanted) | Change::WriteBack(wanted) | Change::AddVolume(wanted) => {
                put(&mut config.volumes, wanted);
            }
            Change::RenewListener(listen) | Change::OpenListener(listen) => {
                put(&mut config.listeners, listen);
            }
            Change::Attach(attach) => put(&mut config.attachments, attach),
            Change::Detach(volume) => config.attachments.retain(|a| a.ublk.value != *volume),
        }
    }
}

/// Puts a section in the place of the section with its id, or at the end.
fn put<S: WrittenSection + Clone>(sections: &mut Vec<S>, section: &S) {
    match sections.iter_mut().find(|known| known.id() == section.id()) {
        Some(known) => *known = section.clone(),
        None => sections.push(section.clone()),
    }
}

fn add(names: &mut Vec<Name>, name: &Name) {
    if !names.contains(name) {
        names.push(name.clone());
    }
}

/// Changes the section of that name, if there is one.
fn with<S: WrittenSection>(sections: &mut [S], name: &Name, change: impl FnOnce(&mut S)) {
    if let Some(section) = sections.iter_mut().find(|s| s.id() == name.as_str()) {
        change(section);
    }
}

/// Gives `device` the place of `member`.
fn exchange(array: &mut Array, member: &Name, device: &Name) {
    let (members, spares) = (&mut array.members.value, &mut array.spares.value);
    match members.iter_mut().find(|known| *known == member) {
        Some(place) => {
            *place = device.clone();
            spares.retain(|spare| spare != device);
        }
        // A spare that served, or the device meant to replace the member.
        None => spares.retain(|spare| spare != member),
    }
}
