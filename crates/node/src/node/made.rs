//! The result of a change, in a line for its client.

use super::Node;
use crate::platform::Platform;
use control::check::few_lines;
use control::config::{Attach, Bytes, Device, Pool, Volume};
use control::files::Files;
use control::protocol::{NamedOrNew, Request};

impl<P: Platform> Node<P> {
    /// The result of `request`, the addresses of its volume, and its lines in the files of the
    /// configuration, which were `before`.
    pub(super) fn made(&self, request: &Request, lasts: bool, before: &Files) -> String {
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

    /// A warning that the pool has hardly any room.
    fn room(&self, request: &Request) -> String {
        let pool = match request {
            Request::AddPool { pool, .. } => pool_of(pool),
            Request::AddDevice { pool, .. } => pool.clone(),
            _ => return String::new(),
        };
        let pool = self.pool(&pool).ok();
        let few = pool
            .filter(|pool| !pool.devices.borrow().is_empty())
            .and_then(|pool| few_lines(pool.cache.lines().1, Bytes(pool.line_bytes.into())));
        few.map_or_else(String::new, |few| {
            format!(", which {few}: give it a larger device")
        })
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
fn kept(before: &Files, now: &Files, lasts: bool) -> String {
    let Some((file, lines)) = before.difference(now) else {
        return match lasts {
            true => "; the configuration says so already".into(),
            false => "; it holds until the daemon ends, and no file says it".into(),
        };
    };
    let file = file.display();
    match lines.len() {
        0 => format!("; {file} does not have it any more"),
        1 => format!("; kept by {file}, line {}", lines.start),
        _ => format!(
            "; kept by {file}, lines {} to {}",
            lines.start,
            lines.end - 1
        ),
    }
}

/// The volume that clients reach after `request`.
fn volume_of(request: &Request) -> Option<String> {
    match request {
        Request::AddVolume { volume, .. } => {
            Some(Volume::parse(volume).ok()?.name.value.to_string())
        }
        Request::Attach { attach } => Some(Attach::parse(attach).ok()?.ublk.value.to_string()),
        _ => request.volume().map(str::to_owned),
    }
}

/// The result of `request` itself.
fn done(request: &Request) -> String {
    match request {
        Request::SetMode { volume, mode, .. } => format!("volume {volume} is {mode}"),
        Request::SetOff { volume, off: true } => {
            format!("volume {volume} is off: its origin alone is used")
        }
        Request::SetOff { volume, .. } => format!("volume {volume} is on again"),
        Request::ReplaceLog { volume, device, by } => {
            format!(
                "the log of volume {volume} has {} in the place of {device}",
                name(by)
            )
        }
        Request::Quiesce { volume } => format!(
            "volume {volume} is quiesced, and its origin is flushed: writes wait until `hotset \
             volume resume {volume}`"
        ),
        Request::Resume { volume } => format!("volume {volume} takes writes again"),
        Request::GrowVolume { volume } => format!("volume {volume} has all that its origin has"),
        Request::Invalidate { volume } => {
            format!("what was cached of volume {volume} is forgotten")
        }
        Request::AddVolume { .. } => {
            format!("volume {} is added", volume_of(request).unwrap_or_default())
        }
        Request::RemoveVolume { volume } => {
            format!("volume {volume} is removed; its data are on its origin")
        }
        Request::Attach { .. } => {
            format!(
                "volume {} is attached",
                volume_of(request).unwrap_or_default()
            )
        }
        _ => done_to_devices(request),
    }
}

/// The result of a request about pools, arrays or jobs.
fn done_to_devices(request: &Request) -> String {
    match request {
        Request::AddPool { pool, .. } => {
            format!("pool {} is made", pool_of(pool))
        }
        Request::RemovePool { pool } => format!("pool {pool} is removed"),
        Request::AddDevice { pool, device } => {
            format!("device {} is in pool {pool}", name(device))
        }
        Request::RemoveDevice { pool, device } => format!("device {device} has left pool {pool}"),
        Request::ReadmitDevice { pool, device } => {
            format!("device {device} is back in pool {pool}")
        }
        Request::FailMember { array, member } => format!(
            "member {member} is out of array {array} until `hotset array add`, or the next start"
        ),
        Request::AddMember { array, device, .. } => format!(
            "device {} is in array {array}; see `hotset array status {array}`",
            name(device)
        ),
        Request::ReplaceMember {
            array,
            member,
            device,
            ..
        } => format!(
            "device {} takes the place of {member} in array {array} once it is filled; see `hotset \
             job list`",
            name(device)
        ),
        Request::Exchanged {
            array,
            member,
            device,
        } => format!("device {device} has the place of {member} in array {array}"),
        Request::Scrub { array, .. } => format!("the scrub of array {array} has begun"),
        Request::CancelJob { job } => format!("job {job} is cancelled"),
        Request::PauseJob { job, paused: true } => {
            format!("job {job} is paused until `hotset job resume {job}`")
        }
        Request::PauseJob { job, .. } => format!("job {job} goes on"),
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
    match device {
        NamedOrNew::Named(name) => name.clone(),
        NamedOrNew::New(section) => {
            let device = Device::parse(section).map(|device| device.name.value.to_string());
            device.unwrap_or_default()
        }
    }
}
