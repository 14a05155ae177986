//! Adding and removing pools of a running node.
//!
//! Invariants:
//!     a new pool has all of its devices, or none of them is used
//!     a new pool is empty: other daemons may have served and written its remembered volumes
//!     a removed pool has no volume, neither served nor waiting

use super::Node;
use super::pool::{AbsentDevice, NodePool};
use super::refusal::Refusal;
use crate::arrays::DeviceSource;
use crate::platform::Platform;
use control::config::{self, Name};
use std::rc::Rc;

impl<P: Platform> Node<P> {
    /// Opens `pool` on `devices`.
    pub(super) async fn add_pool(
        &self,
        pool: &config::Pool,
        devices: &[DeviceSource],
    ) -> Result<(), Refusal> {
        let name = &pool.name.value;
        if self.pools.borrow().contains_key(name) {
            return Err(format!("a pool is named {name}; choose another name"));
        }
        let opened = NodePool::open(pool, devices, &self.devices, AbsentDevice::Refused).await?;
        for (volume, _) in opened.cache.remembered() {
            opened.cache.forget(&volume);
        }
        opened.cache.remember().await;
        let mut pools = self.pools.borrow_mut();
        pools.insert(name.clone(), Rc::new(opened));
        Ok(())
    }

    /// A volume that uses the pool.
    fn volume_in(&self, pool: &Name) -> Option<Name> {
        let (served, waiting) = (self.volumes.borrow(), self.waiting.borrow());
        let served = served.iter().filter(|(_, s)| s.pool == *pool);
        let waiting = waiting.iter().filter(|(_, w)| w.volume.pool.value == *pool);
        let names = served.map(|(name, _)| name);
        names.chain(waiting.map(|(name, _)| name)).next().cloned()
    }

    /// A pool that caches no volume.
    pub(super) fn unused_pool(&self, name: &Name) -> Result<Rc<NodePool<P::Driver>>, Refusal> {
        let pool = self.pool(name.as_str())?;
        match self.volume_in(name) {
            None => Ok(pool),
            Some(volume) => Err(format!(
                "volume {volume} is cached in pool {name}; remove that first"
            )),
        }
    }

    /// Closes a pool and releases its devices.
    pub(super) async fn remove_pool(&self, name: &Name) -> Result<(), Refusal> {
        let pool = self.unused_pool(name)?;
        pool.cache.close().await;
        self.pools.borrow_mut().remove(name);
        let devices: Vec<Name> = pool.devices.borrow().keys().cloned().collect();
        for device in devices {
            // The pool has copies alone, so no data depends on its last writes.
            let _ = self.devices.close(&device).await;
        }
        Ok(())
    }
}
