//! Returns ejected pool devices to their pools: late ones by itself, others by a command.
//!
//! Not here: the times of attempts (`late`), the conditions of a return, and the choice of
//! valid lines (`cache`).

use super::Node;
use super::pool::NodePool;
use super::refusal::{Refusal, refusal};
use crate::event::NodeEvent;
use crate::platform::Platform;
use cache::{DeviceFault, DeviceReport, DeviceState};
use control::config::Name;
use control::meant;
use std::rc::Rc;

fn is_late(report: &DeviceReport) -> bool {
    report.state == DeviceState::Ejected(DeviceFault::Late)
}

impl<P: Platform> Node<P> {
    /// Begins an attempt at each device after its pause.
    pub(super) fn try_returns(self: &Rc<Self>) {
        let env = self.env();
        let now = env.timer.now();
        self.returns.forgive(now);
        for (name, pool) in self.pools.borrow().iter() {
            for report in pool.cache.devices().into_iter().filter(is_late) {
                let key = (name.clone(), report.id);
                if !self.returns.is_due(&key, now) {
                    continue;
                }
                let (node, pool) = (self.clone(), pool.clone());
                env.spawn.spawn(async move {
                    let tried = node.take_back(&pool, &report).await;
                    let now = node.env().timer.now();
                    node.returns.has_tried(&key, now, tried.is_ok());
                });
            }
        }
    }

    async fn take_back(
        &self,
        pool: &NodePool<P::Driver>,
        report: &DeviceReport,
    ) -> Result<(), Refusal> {
        let lines = pool.cache.readmit(report.id).await.map_err(refusal)?;
        self.platform.event(NodeEvent::PoolDeviceReturned {
            pool: pool.name.clone(),
            device: report.name.to_string(),
            lines,
        });
        Ok(())
    }

    /// Takes an ejected or absent device back into its pool: a late device with its lines, any
    /// other empty.
    pub(super) async fn readmit(&self, pool: &Name, device: &Name) -> Result<(), Refusal> {
        let found = self.pool(pool.as_str())?;
        let id = found.devices.borrow().get(device).copied();
        let mut reports = found.cache.devices().into_iter();
        let report = reports.find(|report| Some(report.id) == id);
        let Some(report) = report else {
            // The device was absent at the start, or could not be reopened.
            let config = self.devices.config();
            let mut pools = config
                .pools
                .iter()
                .filter(|known| known.name.value == *pool);
            if pools.any(|known| known.devices.value.contains(device)) {
                return self.add_device(pool, &self.known(device)?).await;
            }
            let devices = found.devices.borrow();
            let meant = meant(device.as_str(), devices.keys().map(Name::as_str));
            return Err(format!(
                "pool {pool} has no device {device}{meant}; see `hotset pool list`"
            ));
        };
        match report.state {
            DeviceState::Ejected(DeviceFault::Late) => {
                let back = self.take_back(&found, &report).await;
                back.map_err(|why| format!("{why}; it stays out until it answers: try again then"))
            }
            DeviceState::Ejected(_) => {
                let source = self.known(device)?;
                self.remove_device(pool, device).await?;
                self.add_device(pool, &source).await
            }
            DeviceState::Online | DeviceState::Leaving => Err(format!(
                "device {device} of pool {pool} was not ejected; nothing is to be done"
            )),
        }
    }
}
