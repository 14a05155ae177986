//! The result of a change, in a line for its client.

use super::Node;
use crate::platform::Platform;
use control::check::few_lines;
use control::config::{Attach, ByteCount, Listen, Pool, Volume};
use control::files::{ConfigurationFiles, FileDifference};
use control::protocol::{ControlRequest, NamedOrNew};

impl<P: Platform> Node<P> {
    /// The result of `request`, the addresses of its volume, and its lines in the files of the
    /// configuration, which were `before`.
    pub(super) fn made(
        &self,
        request: &ControlRequest,
        lasts: bool,
        before: &ConfigurationFiles,
    ) -> String {
        let mut line = done(request) + &self.room(request);
        let volume = volume_of(request);
        let reached = volume.iter().flat_map(|name| self.addresses(name));
        let reached: Vec<String> = reached.collect();
        if !reached.is_empty() {
            line += &format!("; clients reach it at {}", reached.join(", "));
        }
        if request.is_kept() {
            line += &kept(before, &self.devices.config().files, lasts);
        }
        line
    }

    /// A warning that a new pool, or a new device of one, has hardly any room.
    fn room(&self, request: &ControlRequest) -> String {
        let (pool, device) = match request {
            ControlRequest::AddPool { pool, .. } => (pool_of(pool), None),
            ControlRequest::AddDevice { pool, device } => (pool.clone(), Some(name(device))),
            ControlRequest::SetUp { additions } => {
                return additions
                    .iter()
                    .map(|addition| self.room(addition))
                    .collect();
            }
            _ => return String::new(),
        };
        let Ok(found) = self.pool(&pool) else {
            return String::new();
        };
        let devices = found.devices.borrow();
        let id = device.as_ref().and_then(|device| {
            let mut known = devices.iter();
            let known = known.find(|(name, _)| name.as_str() == device);
            known.map(|(_, id)| *id)
        });
        let reports = found.cache.devices();
        let its = reports.iter().filter(|r| id.is_none_or(|id| r.id == id));
        let lines = its.map(|report| report.lines).sum();
        let few = few_lines(lines, ByteCount(found.line_bytes.into()));
        match few.filter(|_| !devices.is_empty()) {
            None => String::new(),
            Some(few) => {
                let subject =
                    device.map_or(format!("pool {pool}"), |name| format!("device {name}"));
                format!("; {subject} {few}: use larger devices")
            }
        }
    }

    /// Addresses of a volume for clients, by all frontends.
    pub(crate) fn addresses(&self, name: &str) -> Vec<String> {
        let frontends = self.frontends.iter();
        frontends
            .flat_map(|frontend| frontend.addresses(name))
            .collect()
    }
}

/// The place of a change in the files of the configuration.
fn kept(before: &ConfigurationFiles, now: &ConfigurationFiles, lasts: bool) -> String {
    let Some(FileDifference {
        path, line, new, ..
    }) = before.difference(now)
    else {
        return match lasts {
            true => "; the configuration says so already".into(),
            false => "; it holds until the daemon ends, and no file says it".into(),
        };
    };
    let file = path.display();
    match new.len() {
        0 => format!("; {file} does not have it any more"),
        1 => format!("; kept by {file}, line {line}"),
        lines => format!("; kept by {file}, lines {line} to {}", line + lines - 1),
    }
}

/// The volume that clients reach after `request`.
fn volume_of(request: &ControlRequest) -> Option<String> {
    match request {
        ControlRequest::AddVolume { volume, .. } => {
            Some(Volume::parse(volume).ok()?.name.value.to_string())
        }
        ControlRequest::Attach { attach } => {
            Some(Attach::parse(attach).ok()?.ublk.value.to_string())
        }
        ControlRequest::Listen { listen } => Listen::parse(listen).ok()?.guest_volume(),
        ControlRequest::SetUp { additions } => additions.iter().find_map(volume_of),
        _ => request.volume().map(str::to_owned),
    }
}

/// The result of `request` itself.
fn done(request: &ControlRequest) -> String {
    match request {
        ControlRequest::SetMode { volume, mode, .. } => format!("volume {volume} is {mode}"),
        ControlRequest::SetOff { volume, off: true } => {
            format!("volume {volume} is off: its origin alone is used")
        }
        ControlRequest::SetOff { volume, .. } => format!("volume {volume} is on again"),
        ControlRequest::ReplaceLog { volume, device, by } => {
            format!(
                "the log of volume {volume} has {} in the place of {device}",
                name(by)
            )
        }
        ControlRequest::Quiesce { volume } => format!(
            "volume {volume} is quiesced, and its origin is flushed: writes wait until `hotset \
             volume resume {volume}`"
        ),
        ControlRequest::Resume { volume } => format!("volume {volume} takes writes again"),
        ControlRequest::GrowVolume { volume } => {
            format!("volume {volume} has all that its origin has")
        }
        ControlRequest::TakeOver { volume } => {
            format!("the origin of volume {volume} is reserved for this host")
        }
        ControlRequest::Invalidate { volume } => {
            format!("what was cached of volume {volume} is forgotten")
        }
        ControlRequest::AddVolume { .. } => {
            format!("volume {} is added", volume_of(request).unwrap_or_default())
        }
        ControlRequest::RemoveVolume { volume } => {
            format!("volume {volume} is removed; its data are on its origin")
        }
        ControlRequest::Attach { .. } => {
            format!(
                "volume {} is attached",
                volume_of(request).unwrap_or_default()
            )
        }
        ControlRequest::Listen { listen } => {
            let place = Listen::parse(listen).map(|listen| listen.place());
            format!("listener {} is opened", place.unwrap_or_default())
        }
        ControlRequest::Close { place } => format!("listener {place} is closed"),
        ControlRequest::SetUp { additions } => {
            let done: Vec<String> = additions.iter().map(done).collect();
            done.join(", ")
        }
        _ => done_to_devices(request),
    }
}

/// The result of a request about pools, arrays or jobs.
fn done_to_devices(request: &ControlRequest) -> String {
    match request {
        ControlRequest::AddPool { pool, .. } => {
            format!("pool {} is made", pool_of(pool))
        }
        ControlRequest::RemovePool { pool } => format!("pool {pool} is removed"),
        ControlRequest::AddDevice { pool, device } => {
            format!("device {} is in pool {pool}", name(device))
        }
        ControlRequest::RemoveDevice { pool, device } => {
            format!("device {device} has left pool {pool}")
        }
        ControlRequest::ReadmitDevice { pool, device } => {
            format!("device {device} is back in pool {pool}")
        }
        ControlRequest::FailMember { array, member } => format!(
            "member {member} is out of array {array} until `hotset array add`, or the next start"
        ),
        ControlRequest::AddMember { array, device, .. } => format!(
            "device {} is in array {array}; see `hotset array status {array}`",
            name(device)
        ),
        ControlRequest::ReplaceMember {
            array,
            member,
            device,
            ..
        } => format!(
            "device {} takes the place of {member} in array {array} once it is filled; see `hotset \
             job list`",
            name(device)
        ),
        ControlRequest::Exchanged {
            array,
            member,
            device,
        } => format!("device {device} has the place of {member} in array {array}"),
        ControlRequest::Scrub { array, .. } => format!("the scrub of array {array} has begun"),
        ControlRequest::CancelJob { job } => format!("job {job} is cancelled"),
        ControlRequest::PauseJob { job, paused: true } => {
            format!("job {job} is paused until `hotset job resume {job}`")
        }
        ControlRequest::PauseJob { job, .. } => format!("job {job} goes on"),
        _ => "done".into(),
    }
}

/// The name of the pool in this section.
fn pool_of(section: &str) -> String {
    let pool = Pool::parse(section).map(|pool| pool.name.value.to_string());
    pool.unwrap_or_default()
}

/// The name of a known or new device.
fn name(device: &NamedOrNew) -> String {
    device
        .name()
        .map_or_else(|_| String::new(), |name| name.to_string())
}
