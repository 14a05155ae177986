//! A pool of the configuration: opening it on its devices, as many as there are.
//!
//! Not here: what is on them, and which of it is trusted (`cache`).

use super::refusal::{Refusal, refusal};
use crate::arrays::{Devices, Source};
use crate::event::Event;
use crate::leaf::Leaf;
use crate::place::Role;
use crate::platform::Platform;
use block::Driver;
use cache::{Cache, DeviceId, Durability, Found, PoolDevice};
use control::config::{self, Name};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A pool and the devices it was given.
pub struct Pool<D: Driver> {
    pub cache: Cache<Leaf<D>>,
    pub policy: &'static str,
    pub line_bytes: u32,
    pub devices: RefCell<BTreeMap<Name, DeviceId>>,
}

impl<D: Driver> Pool<D> {
    /// Opens the pool that `pool` describes on its devices, and says what was
    /// found there.
    pub(super) async fn open<P: Platform<Driver = D>>(
        pool: &config::Pool,
        all: &Devices<P>,
    ) -> Result<Pool<D>, Refusal> {
        let platform = &all.platform;
        let (name, env) = (&pool.name.value, platform.local().env());
        let witness = platform.witness(name).await;
        let uuids = platform.clone();
        let durability = Durability {
            label: name.to_string(),
            host: platform.host(),
            witness: Some(witness.map_err(refusal)?),
            uuids: Box::new(move || uuids.uuid()),
            overwrite: false,
            cold: pool.cold.value,
        };
        let (mut leases, mut members) = (Vec::new(), Vec::new());
        for device_name in &pool.devices.value {
            let device = all
                .find(device_name)
                .expect("checked with the configuration");
            let lease = match all.open(&device, Role::Pool).await {
                Ok(lease) => lease,
                Err(error) if matches!(device, Source::Array(_)) || error.kind().is_loss() => {
                    platform.event(Event::PoolDeviceAbsent {
                        pool: name.clone(),
                        device: device_name.clone(),
                        why: error.to_string(),
                    });
                    continue;
                }
                Err(error) => return Err(refusal(error)),
            };
            members.push(PoolDevice::whole(
                lease.leaf.clone(),
                lease.controller.clone(),
            ));
            leases.push(lease);
        }
        let engine = pool.engine();
        let line_bytes = engine.line_bytes;
        let policy = policy::registry::build(pool.policy.value.0, 0, platform.uuid() as u64);
        let policy = policy.expect("the configuration took only names of the registry");
        let opened = Cache::open(engine, policy, env, durability, members).await;
        let (cache, found) = opened.map_err(refusal)?;
        let names: Vec<Name> = leases.iter().map(|lease| lease.name().clone()).collect();
        for (at, lease) in leases.into_iter().enumerate() {
            let absent = found.absent.iter().find(|(place, _)| *place == at);
            let Some((_, why)) = absent else {
                lease.keep();
                continue;
            };
            platform.event(Event::PoolDeviceAbsent {
                pool: name.clone(),
                device: lease.name().clone(),
                why: why.clone(),
            });
            lease.release().await;
        }
        for device in &found.devices {
            if let Found::Unusable(why) = device.found {
                platform.event(Event::PoolDeviceUnusable {
                    pool: name.clone(),
                    device: device.name.clone(),
                    why: why.to_owned(),
                });
            }
        }
        for device in &found.missing {
            platform.event(Event::PoolDeviceLost {
                pool: name.clone(),
                device: device.clone(),
            });
        }
        for volume in &found.quiesced {
            platform.event(Event::QuiescedVolumeDropped {
                pool: name.clone(),
                volume: volume.clone(),
            });
        }
        let used = found.devices.iter();
        let devices = used.map(|device| (names[device.at].clone(), device.id));
        let devices = devices.collect();
        Ok(Pool {
            cache,
            policy: pool.policy.value.0,
            line_bytes,
            devices: RefCell::new(devices),
        })
    }
}
