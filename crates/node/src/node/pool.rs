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
use block::Driver;
use cache::{Cache, DeviceFindings, DeviceId, Durability, NewPoolDevice};
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
        let platform = &all.platform;
        let (name, env) = (&pool.name.value, platform.local().env());
        let witness = witness::open(platform, WitnessOwner::Pool(name.clone())).await;
        let (witness, hold) = witness.map_err(refusal)?;
        let uuids = platform.clone();
        let durability = Durability {
            label: name.to_string(),
            host: platform.host(),
            witness: Some(witness),
            uuids: Box::new(move || uuids.uuid()),
            overwrite: false,
            cold: pool.cold.value,
        };
        let (mut leases, mut members) = (Vec::new(), Vec::new());
        for device in sources {
            let lease = match all.open(device, RawRole::Pool).await {
                Ok(lease) => lease,
                Err(error) if absent == AbsentDevice::Reported => {
                    platform.event(NodeEvent::PoolDeviceAbsent {
                        pool: name.clone(),
                        device: device.name().clone(),
                        why: error.to_string(),
                    });
                    continue;
                }
                Err(error) => {
                    release(leases).await;
                    return Err(refusal(error));
                }
            };
            members.push(NewPoolDevice::whole(
                lease.leaf.clone(),
                lease.controller.clone(),
            ));
            leases.push(lease);
        }
        let bytes = members.iter().map(|member| member.extent.len.bytes());
        if let Err(why) = all.have_memory(pool, bytes.sum()) {
            release(leases).await;
            return Err(why);
        }
        let engine = pool.engine();
        let line_bytes = engine.line_bytes;
        let policy = policy::registry::build(pool.policy.value.0, 0, platform.uuid() as u64);
        let policy = policy.expect("the configuration took only names of the registry");
        let opened = Cache::open(engine, policy, env, durability, members).await;
        let (cache, found) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                release(leases).await;
                return Err(refusal(error));
            }
        };
        if let (AbsentDevice::Refused, Some((at, why))) = (absent, found.absent.first()) {
            let why = format!("{}: {why}", leases[*at].name());
            cache.close().await;
            release(leases).await;
            return Err(why);
        }
        let names: Vec<Name> = leases.iter().map(|lease| lease.name().clone()).collect();
        for (at, lease) in leases.into_iter().enumerate() {
            let absent = found.absent.iter().find(|(place, _)| *place == at);
            let Some((_, why)) = absent else {
                lease.keep();
                continue;
            };
            platform.event(NodeEvent::PoolDeviceAbsent {
                pool: name.clone(),
                device: lease.name().clone(),
                why: why.clone(),
            });
            lease.release().await;
        }
        for device in &found.devices {
            if let DeviceFindings::Unusable(why) = device.found {
                platform.event(NodeEvent::PoolDeviceUnusable {
                    pool: name.clone(),
                    device: device.name.clone(),
                    why: why.to_owned(),
                });
            }
        }
        for device in &found.missing {
            platform.event(NodeEvent::PoolDeviceLost {
                pool: name.clone(),
                device: device.clone(),
            });
        }
        for volume in &found.quiesced {
            platform.event(NodeEvent::QuiescedVolumeDropped {
                pool: name.clone(),
                volume: volume.clone(),
            });
        }
        let used = found.devices.iter();
        let devices = used.map(|device| (names[device.at].clone(), device.id));
        let devices = devices.collect();
        Ok(NodePool {
            name: name.clone(),
            cache,
            policy: pool.policy.value.0,
            line_bytes,
            devices: RefCell::new(devices),
            witness: Box::new(hold),
        })
    }
}

async fn release<P: Platform>(leases: Vec<Lease<P>>) {
    for lease in leases {
        lease.release().await;
    }
}
