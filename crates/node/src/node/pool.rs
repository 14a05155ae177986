//! A pool of the configuration: opening it on its devices.
//!
//! Not here: the content of the devices, and the choice of the trusted part (`cache`).

use super::refusal::{Refusal, refusal};
use crate::arrays::{DeviceSource, Lease, OpenDevices};
use crate::event::NodeEvent;
use crate::leaf::Leaf;
use crate::place::RawRole;
use crate::platform::Platform;
use crate::witness::{self, WitnessClaim, WitnessOwner};
use block::{BoxDevice, Driver};
use cache::{Cache, DeviceFindings, DeviceId, Durability, NewPoolDevice, OpenedPool};
use control::config::{self, Name};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The treatment of a pool with an unusable device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbsentDevice {
    /// The pool runs without the device; an event reports that.
    Reported,
    /// The pool is not opened.
    Refused,
}

/// A pool and its devices.
pub struct NodePool<D: Driver> {
    pub name: Name,
    pub cache: Cache<Leaf<D>>,
    pub policy: &'static str,
    pub line_bytes: u32,
    pub devices: RefCell<BTreeMap<Name, DeviceId>>,
    /// Claim on the file beside the pool.
    pub(super) witness: Box<dyn WitnessClaim>,
}

impl<D: Driver> NodePool<D> {
    /// Opens `pool` on its devices, `sources`, and reports the state found there.
    pub(crate) async fn open<P: Platform<Driver = D>>(
        pool: &config::Pool,
        sources: &[DeviceSource],
        all: &OpenDevices<P>,
        absent: AbsentDevice,
    ) -> Result<NodePool<D>, Refusal> {
        let (name, platform) = (&pool.name.value, &all.platform);
        let owner = WitnessOwner::Pool(name.clone());
        let (witness, hold) = witness::open(platform, owner).await.map_err(refusal)?;
        let leases = lease(name, sources, all, absent).await?;
        let (cache, found) = match open_cache(pool, &leases, witness, all, absent).await {
            Ok(opened) => opened,
            Err(why) => {
                release(leases).await;
                return Err(why);
            }
        };
        let names: Vec<Name> = leases.iter().map(|lease| lease.name().clone()).collect();
        for (at, lease) in leases.into_iter().enumerate() {
            let absent = found.absent.iter().find(|(place, _)| *place == at);
            let Some((_, why)) = absent else {
                lease.keep();
                continue;
            };
            let (pool, device, why) = (name.clone(), lease.name().clone(), why.clone());
            platform.event(NodeEvent::PoolDeviceAbsent { pool, device, why });
            lease.release().await;
        }
        report(name, &found, platform);
        let used = found.devices.iter();
        let devices = used.map(|device| (names[device.at].clone(), device.id));
        let devices = devices.collect();
        Ok(NodePool {
            name: name.clone(),
            cache,
            policy: pool.policy.value.0,
            line_bytes: pool.engine().line_bytes,
            devices: RefCell::new(devices),
            witness: Box::new(hold),
        })
    }
}

/// Opens the devices of the pool `name`.
async fn lease<P: Platform>(
    name: &Name,
    sources: &[DeviceSource],
    all: &OpenDevices<P>,
    absent: AbsentDevice,
) -> Result<Vec<Lease<P>>, Refusal> {
    let mut leases = Vec::new();
    for device in sources {
        match all.open(device, RawRole::Pool).await {
            Ok(lease) => leases.push(lease),
            Err(error) if absent == AbsentDevice::Reported => {
                let (pool, device) = (name.clone(), device.name().clone());
                let why = error.to_string();
                let absent = NodeEvent::PoolDeviceAbsent { pool, device, why };
                all.platform.event(absent);
            }
            Err(error) => {
                release(leases).await;
                return Err(refusal(error));
            }
        }
    }
    Ok(leases)
}

/// Opens the cache of `pool` on its open devices.
async fn open_cache<P: Platform>(
    pool: &config::Pool,
    leases: &[Lease<P>],
    witness: BoxDevice,
    all: &OpenDevices<P>,
    absent: AbsentDevice,
) -> Result<(Cache<Leaf<P::Driver>>, OpenedPool), Refusal> {
    let platform = all.platform.clone();
    let members = leases.iter();
    let members =
        members.map(|lease| NewPoolDevice::whole(lease.leaf.clone(), lease.controller.clone()));
    let members: Vec<_> = members.collect();
    let bytes = members.iter().map(|member| member.extent.len.bytes());
    all.have_memory(pool, bytes.sum())?;
    let policy = policy::registry::build(pool.policy.value.0, 0, platform.uuid() as u64);
    let policy = policy.expect("the configuration took only names of the registry");
    let env = platform.local().env();
    let durability = Durability {
        label: pool.name.value.to_string(),
        host: platform.host(),
        witness: Some(witness),
        uuids: Box::new(move || platform.uuid()),
        overwrite: false,
        cold: pool.cold.value,
    };
    let opened = Cache::open(pool.engine(), policy, env, durability, members).await;
    let (cache, found) = opened.map_err(refusal)?;
    if let (AbsentDevice::Refused, Some((at, why))) = (absent, found.absent.first()) {
        cache.close().await;
        return Err(format!("{}: {why}", leases[*at].name()));
    }
    Ok((cache, found))
}

/// Reports the devices and volumes that the pool `name` has lost.
fn report(name: &Name, found: &OpenedPool, platform: &impl Platform) {
    for device in &found.devices {
        if let DeviceFindings::Unusable(why) = device.found {
            let (pool, device, why) = (name.clone(), device.name.clone(), why.to_owned());
            platform.event(NodeEvent::PoolDeviceUnusable { pool, device, why });
        }
    }
    for device in &found.missing {
        let (pool, device) = (name.clone(), device.clone());
        platform.event(NodeEvent::PoolDeviceLost { pool, device });
    }
    for volume in &found.quiesced {
        let (pool, volume) = (name.clone(), volume.clone());
        platform.event(NodeEvent::QuiescedVolumeDropped { pool, volume });
    }
}

async fn release<P: Platform>(leases: Vec<Lease<P>>) {
    for lease in leases {
        lease.release().await;
    }
}
