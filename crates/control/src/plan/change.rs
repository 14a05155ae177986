//! One change of a running configuration, and what the configuration says after it.

use crate::config::{Array, At, Attach, Config, Device, Listen, Name, Pool, Volume, VolumeMode};
use crate::written::Section;
use std::time::Duration;

/// A change.
#[derive(Clone, Debug)]
pub enum Change {
    /// Shutdowns wait for so long.
    Limits {
        /// For requests in flight.
        grace: At<Duration>,
        /// For origins.
        stop: At<Duration>,
    },
    /// A socket is closed; connections that came by it stay.
    CloseListener(String),
    /// A volume is withdrawn, with the doors of its own, and its origin released.
    RemoveVolume(Name),
    /// A pool does without a device.
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
    /// A device is known, or is another than it was; nothing uses it.
    PutDevice(Box<Device>),
    /// An array is known, or is another than it was; nothing uses it.
    PutArray(Box<Array>),
    /// An array is not known any more; nothing uses it.
    DropArray(Name),
    /// A device is not known any more; nothing uses it.
    DropDevice(Name),
    /// An array that runs gets a spare.
    GiveSpare {
        /// The array.
        array: Name,
        /// The device.
        device: Name,
    },
    /// An array that runs has a member more, or back.
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
        /// What is not in it any more.
        member: Name,
        /// What has its place.
        device: Name,
    },
    /// Whether an array starts although members are absent, when it next does.
    StartDegraded {
        /// The array.
        array: Name,
        /// Whether it does.
        start_degraded: At<bool>,
    },
    /// Whether a pool forgets what it holds at the next start.
    Cold {
        /// The pool.
        pool: Name,
        /// Whether it does.
        cold: At<bool>,
    },
    /// A pool gets a device.
    GivePoolDevice {
        /// The pool.
        pool: Name,
        /// The device.
        device: Name,
    },
    /// A volume uses its pool in another way.
    SetMode {
        /// The volume.
        volume: Name,
        /// Its mode; one with a log only if it is off.
        mode: At<VolumeMode>,
        /// Whether it is off.
        off: At<bool>,
    },
    /// What a volume's log would be, were it write-back.
    PutLog(Box<Volume>),
    /// A volume that is served answers writes from its log.
    WriteBack(Box<Volume>),
    /// A volume is served.
    AddVolume(Box<Volume>),
    /// A listener shows other certificates to those who connect from now on.
    RenewListener(Box<Listen>),
    /// A socket is opened.
    OpenListener(Box<Listen>),
    /// A volume is a block device of this machine.
    Attach(Box<Attach>),
    /// It is none any more.
    Detach(Name),
}

impl Change {
    /// Makes `config` say it.
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
            Change::TakePoolDevice { pool, device } => {
                let pool = config.pools.iter_mut().find(|p| p.name.value == *pool);
                pool.into_iter()
                    .for_each(|p| p.devices.value.retain(|d| d != device));
            }
            Change::RemovePool(name) => config.pools.retain(|p| p.name.value != *name),
            Change::AddPool(pool) => put(&mut config.pools, pool),
            Change::PutDevice(device) => put(&mut config.devices, device),
            Change::PutArray(array) => put(&mut config.arrays, array),
            Change::DropArray(name) => config.arrays.retain(|a| a.name.value != *name),
            Change::DropDevice(name) => config.devices.retain(|d| d.name.value != *name),
            Change::GiveSpare { array, device } => {
                with_array(config, array, |array| add(&mut array.spares.value, device));
            }
            Change::GiveMember { array, device } => {
                with_array(config, array, |array| {
                    array.spares.value.retain(|spare| spare != device);
                    add(&mut array.members.value, device);
                });
            }
            Change::Exchanged {
                array,
                member,
                device,
            } => with_array(config, array, |array| {
                let (members, spares) = (&mut array.members.value, &mut array.spares.value);
                match members.iter_mut().find(|known| *known == member) {
                    Some(place) => {
                        *place = device.clone();
                        spares.retain(|spare| spare != device);
                    }
                    // A spare that served, or the device that was to take its place.
                    None => spares.retain(|spare| spare != member),
                }
            }),
            Change::StartDegraded {
                array,
                start_degraded,
            } => with_array(config, array, |array| {
                array.start_degraded = start_degraded.clone();
            }),
            Change::Cold { pool, cold } => {
                let pool = config.pools.iter_mut().find(|p| p.name.value == *pool);
                pool.into_iter().for_each(|pool| pool.cold = cold.clone());
            }
            Change::GivePoolDevice { pool, device } => {
                let pool = config.pools.iter_mut().find(|p| p.name.value == *pool);
                pool.into_iter()
                    .for_each(|pool| add(&mut pool.devices.value, device));
            }
            Change::SetMode { volume, mode, off } => {
                let volume = config.volumes.iter_mut().find(|v| v.name.value == *volume);
                volume.into_iter().for_each(|volume| {
                    volume.mode = mode.clone();
                    volume.off = off.clone();
                });
            }
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

/// Puts a section in the place of that of the same name, or behind all.
fn put<S: Section + Clone>(sections: &mut Vec<S>, section: &S) {
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

fn with_array(config: &mut Config, name: &Name, change: impl FnOnce(&mut Array)) {
    if let Some(array) = config.arrays.iter_mut().find(|a| a.name.value == *name) {
        change(array);
    }
}
