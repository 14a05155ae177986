//! Says when pools and logs lose devices, and when an origin fails or has grown.

use super::Node;
use super::failing::Said;
use super::lost::Losses;
use crate::event::Event;
use crate::place::Role;
use crate::platform::Platform;
use block::Nanos;
use cache::DeviceState;
use control::config::Bytes;
use std::rc::Rc;

/// How often it is looked.
const PERIOD: Nanos = Nanos::from_secs(1);

impl<P: Platform> Node<P> {
    /// Until the node is stopped.
    pub(super) async fn report_losses(node: Rc<Self>) {
        let timer = node.env().timer;
        while !node.stopped.get() {
            timer.sleep(PERIOD).await;
            node.report_origins();
            // A trouble is timed from here, reports or not.
            node.look_at_troubles();
            node.try_returns();
            node.look_for_losses();
            for (device, opened) in node.devices.open.borrow().iter() {
                if opened.role == Role::Origin
                    && let Some(now) = opened.has_grown()
                {
                    node.platform.event(Event::ExportGrown {
                        device: device.clone(),
                        place: opened.place.clone(),
                        now: Bytes(now),
                    });
                }
            }
        }
    }

    /// Says what pools and logs have lost since it was last looked. Who takes a device or a log away
    /// looks before: afterwards nothing shows that it was lost.
    pub(super) fn look_for_losses(&self) {
        let losses = &mut *self.losses.borrow_mut();
        self.look_at_pools(losses);
        self.look_at_logs(losses);
    }

    fn look_at_pools(&self, losses: &mut Losses) {
        let before = std::mem::take(&mut losses.ejected);
        for (pool_name, pool) in self.pools.borrow().iter() {
            for report in pool.cache.devices() {
                let DeviceState::Ejected(fault) = report.state else {
                    continue;
                };
                let key = (pool_name.clone(), report.id);
                if !before.contains(&key) {
                    self.platform.event(Event::PoolDeviceEjected {
                        pool: pool_name.clone(),
                        device: report.name.clone(),
                        fault,
                    });
                }
                losses.ejected.insert(key);
            }
        }
    }

    fn look_at_logs(&self, losses: &mut Losses) {
        for (name, served) in self.volumes.borrow().iter() {
            let fronted = served.volume.inner();
            if fronted.has_lost_journal() && losses.journals.insert(name.clone()) {
                let volume = name.clone();
                self.platform.event(Event::JournalLost { volume });
            }
            let is_stuck = fronted.log().is_some_and(|log| log.engine().is_stuck());
            let gone = fronted.lost_copies();
            losses
                .copies
                .retain(|(of, device)| of != name || gone.iter().any(|(gone, _)| gone == device));
            for (device, why) in gone {
                if losses.copies.insert((name.clone(), device.clone())) {
                    self.platform.event(Event::LogDeviceLost {
                        volume: name.clone(),
                        device,
                        why,
                        is_last: is_stuck,
                    });
                }
            }
            if !is_stuck {
                losses.logs.remove(name);
            } else if losses.logs.insert(name.clone()) {
                let volume = name.clone();
                self.platform.event(Event::LogLost { volume });
            }
        }
    }

    /// Says which origins fail since it last looked, and which are well again.
    fn report_origins(&self) {
        let now = self.env().timer.now();
        let (volumes, open) = (self.volumes.borrow(), self.devices.open.borrow());
        let origins = volumes.iter().filter_map(|(name, served)| {
            let meter = open.get(&served.origin)?.leaf.meter();
            Some((name.clone(), meter.ended(), meter.last_error()))
        });
        for (volume, said) in self.failing.look(now, origins.collect()) {
            let origin = volumes[&volume].origin.clone();
            self.platform.event(match said {
                Said::Fails(why) => Event::OriginFails {
                    volume,
                    origin,
                    why,
                },
                Said::Well => Event::OriginWell { volume, origin },
            });
        }
    }
}
