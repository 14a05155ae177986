//! By what volumes are reached, as a configuration says.

use crate::config::{Attach, Config, Listen};
use std::path::PathBuf;

/// The doors of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doors {
    /// It is an NBD export.
    pub nbd: bool,
    /// It is a block device of this machine.
    pub ublk: Option<Queues>,
    /// It is a disk of virtual machines.
    pub guests: Vec<Guest>,
}

/// The hardware queues of a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queues {
    /// How many.
    pub count: u32,
    /// Requests at a time, of each.
    pub depth: u32,
}

/// A virtual machine's disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guest {
    /// Where its monitor connects.
    pub socket: PathBuf,
    /// Requests at a time.
    pub depth: u32,
}

impl Doors {
    /// Whether there is one that is not NBD.
    pub fn has_own(&self) -> bool {
        self.ublk.is_some() || !self.guests.is_empty()
    }

    /// Those that are here and there.
    pub fn common(&self, others: &Doors) -> Doors {
        let is_there = |guest: &&Guest| others.guests.contains(guest);
        Doors {
            nbd: self.nbd && others.nbd,
            ublk: self.ublk.filter(|_| self.ublk == others.ublk),
            guests: self.guests.iter().filter(is_there).cloned().collect(),
        }
    }
}

impl Config {
    /// The volumes that are disks of virtual machines, each with its socket.
    pub fn guests(&self) -> impl Iterator<Item = (String, &Listen)> {
        self.listeners
            .iter()
            .filter_map(|listen| Some((listen.guest_volume()?, listen)))
    }

    /// The doors of a volume: NBD unless it has another, or if it is shared.
    pub fn doors(&self, volume: &str) -> Doors {
        let attached = self.attachments.iter().find(|a| a.ublk.as_str() == volume);
        let guests = self.guests().filter(|(name, _)| name == volume);
        let guests = guests.filter_map(|(_, listen)| {
            let socket = listen.vhost_user.as_ref()?.value.clone();
            let depth = listen.depth.value;
            Some(Guest { socket, depth })
        });
        let mut doors = Doors {
            nbd: false,
            ublk: attached.map(Attach::queues),
            guests: guests.collect(),
        };
        let served = self.volumes.iter().find(|v| v.name.as_str() == volume);
        doors.nbd = !doors.has_own() || served.is_some_and(|v| v.shared.value);
        doors
    }

    /// How many doors there are that are not NBD.
    pub fn own_doors(&self) -> usize {
        self.attachments.len() + self.guests().count()
    }
}

impl Attach {
    /// Those of its device.
    pub fn queues(&self) -> Queues {
        Queues {
            count: self.queues.value,
            depth: self.depth.value,
        }
    }
}

impl Listen {
    /// The volume that a virtual machine has here; none if this is for NBD.
    pub fn guest_volume(&self) -> Option<String> {
        let socket = self.vhost_user.as_ref()?;
        let stem = socket.value.file_stem();
        let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
        let named = self.volume.as_ref().map(|name| name.value.to_string());
        named.or(stem)
    }
}
