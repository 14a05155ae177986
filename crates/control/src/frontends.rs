//! The frontends of volumes, by the configuration.

use crate::config::{Attach, Config, Listen};
use std::path::PathBuf;

/// Most requests in flight of all queues of a block device.
pub(crate) const TAGS_MAX: u32 = 4096;

/// The frontends of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeFrontends {
    /// True if the volume is an NBD export.
    pub nbd: bool,
    /// Queues of the volume's block device on this machine, if there is one.
    pub ublk: Option<Queues>,
    /// Disks of virtual machines that show the volume.
    pub guests: Vec<GuestDisk>,
}

/// The hardware queues of a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queues {
    /// Number of queues.
    pub count: u32,
    /// Most requests in flight of each queue.
    pub depth: u32,
}

/// A virtual machine's disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestDisk {
    /// Socket for the machine's monitor.
    pub socket: PathBuf,
    /// Most requests in flight.
    pub depth: u32,
}

impl VolumeFrontends {
    /// True if there is a frontend other than NBD.
    pub fn has_own(&self) -> bool {
        self.ublk.is_some() || !self.guests.is_empty()
    }

    /// Frontends in both `self` and `others`.
    pub fn common(&self, others: &VolumeFrontends) -> VolumeFrontends {
        let is_there = |guest: &&GuestDisk| others.guests.contains(guest);
        VolumeFrontends {
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

    /// The frontends of a volume. NBD is one if the volume has no other, or is shared.
    pub fn frontends_of(&self, volume: &str) -> VolumeFrontends {
        let attached = self.attachments.iter().find(|a| a.ublk.as_str() == volume);
        let guests = self.guests().filter(|(name, _)| name == volume);
        let guests = guests.filter_map(|(_, listen)| {
            let socket = listen.vhost_user.as_ref()?.value.clone();
            let depth = listen.depth.value;
            Some(GuestDisk { socket, depth })
        });
        let mut frontends = VolumeFrontends {
            nbd: false,
            ublk: attached.map(|attach| self.queues_of(attach)),
            guests: guests.collect(),
        };
        let served = self.volumes.iter().find(|v| v.name.as_str() == volume);
        frontends.nbd = !frontends.has_own() || served.is_some_and(|v| v.shared.value);
        frontends
    }

    /// The queues of a block device: one for each shard, unless `attach` names a number.
    pub fn queues_of(&self, attach: &Attach) -> Queues {
        let depth = attach.depth.value;
        let most = (TAGS_MAX / depth.max(1)).max(1);
        let default = self.daemon.shards.value.count().min(most);
        Queues {
            count: attach
                .queues
                .as_ref()
                .map_or(default, |queues| queues.value),
            depth,
        }
    }

    /// Number of frontends other than NBD.
    pub fn own_frontends(&self) -> usize {
        self.attachments.len() + self.guests().count()
    }
}

impl Listen {
    /// The volume of the virtual machine on this socket; `None` for a listener of NBD.
    pub fn guest_volume(&self) -> Option<String> {
        let socket = self.vhost_user.as_ref()?;
        let stem = socket.value.file_stem();
        let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
        let named = self.volume.as_ref().map(|name| name.value.to_string());
        named.or(stem)
    }
}
