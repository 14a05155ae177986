//! A pool of the configuration: opening it on its devices, as many as there are.
//!
//! Not here: what is on them, and which of it is trusted (`cache`).

use super::{Refusal, told};
use crate::arrays::{Devices, Lease, Source};
use crate::devices::{Leaf, Role};
use crate::memory;
use block::{BoxDevice, IoError, Kind};
use cache::{Cache, DeviceId, Durability, Found, PoolDevice};
use control::config::{self, Config, Name};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A pool and the devices it was given.
pub struct Pool {
    pub cache: Cache<Leaf>,
    pub policy: &'static str,
    pub line_bytes: u32,
    pub devices: RefCell<BTreeMap<Name, DeviceId>>,
}

impl Pool {
    /// Opens the pool that `pool` describes on its devices, and says what was
    /// found there.
    pub(super) async fn open(
        config: &Config,
        pool: &config::Pool,
        all: &Devices,
    ) -> Result<Pool, Refusal> {
        let opener = &all.opener;
        let (name, env) = (pool.name.as_str(), opener.local.env());
        let state = &config.daemon.state.value;
        let witness = memory::witness(state, name, &opener.host, &opener.local).await;
        let durability = Durability {
            label: name.to_owned(),
            host: memory::host(),
            witness: Some(BoxDevice::new(witness.map_err(told)?)),
            uuids: Box::new(memory::uuid),
            overwrite: false,
            cold: pool.cold.value,
        };
        let (mut leases, mut members) = (Vec::new(), Vec::new());
        for name in &pool.devices.value {
            let device = all.find(name).expect("checked with the configuration");
            let lease = match all.open(&device, Role::Pool).await {
                Ok(lease) => lease,
                Err(error) if is_lost(&device, &error) => {
                    eprintln!(
                        "hotset: pool {} starts without {name}, whose lines are not used again: \
                         {error}; once it is back, add it with `hotset pool add-device`",
                        pool.name.value
                    );
                    continue;
                }
                Err(error) => return Err(told(error)),
            };
            members.push(PoolDevice::whole(
                lease.leaf.clone(),
                lease.controller.clone(),
            ));
            leases.push(lease);
        }
        let engine = pool.engine();
        let line_bytes = engine.line_bytes;
        let policy = policy::registry::build(pool.policy.value.0, 0, seed());
        let policy = policy.expect("the configuration took only names of the registry");
        let opened = Cache::open(engine, policy, env, durability, members).await;
        let (cache, found) = opened.map_err(told)?;
        let names: Vec<Name> = leases.iter().map(|lease| lease.name().clone()).collect();
        leases.into_iter().for_each(Lease::keep);
        for device in &found.devices {
            if let Found::Unusable(why) = device.found {
                eprintln!(
                    "hotset: pool {name} starts without the lines of {}: {why}",
                    device.name
                );
            }
        }
        for device in &found.missing {
            eprintln!("hotset: pool {name} has lost {device}: its lines are not used again");
        }
        for volume in &found.quiesced {
            eprintln!(
                "hotset: volume {volume} was quiesced when hotset ended, and its origin may have \
                 been changed since: what pool {name} had of it is dropped"
            );
        }
        let ids = found.devices.iter().map(|device| device.id);
        let devices = names.into_iter().zip(ids).collect();
        Ok(Pool {
            cache,
            policy: pool.policy.value.0,
            line_bytes,
            devices: RefCell::new(devices),
        })
    }
}

/// Whether a pool device is gone, rather than another's or wrongly configured.
fn is_lost(device: &Source, error: &IoError) -> bool {
    use Kind::{Gone, Media, Other, Stream, Timeout};
    matches!(device, Source::Array(_))
        || matches!(error.kind(), Gone | Media | Other | Stream | Timeout)
}

/// A key for hash tables that clients cannot guess.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
