//! What a volume with a log has lost is opened again: its origin once that is out of service, and
//! its log once both devices are lost. All that is not at the origin durably is in the log, so
//! that an error of the past need not keep a device from its volume.
//!
//! Invariants:
//!     a log is opened again ⟹ no change is under way, and the engine before has ended
//!     it serves ⟹ it was opened as at a start
//!
//! Not here: one lost device of a log; the next start uses it again.

use super::refusal::{Refusal, refusal};
use super::write_back::LogDevice;
use super::{Node, Served};
use crate::event::Event;
use crate::log::Log;
use crate::platform::Platform;
use block::{BoxDevice, Deadline, Device as _, Kind, Nanos};
use control::config::Name;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How often it is looked.
const PERIOD: Nanos = Nanos::from_secs(1);
/// The longest pause between attempts, which doubles from the period on.
const PAUSE_MAX: Nanos = Nanos::from_secs(30);
/// How long a place may take to be opened again: who closed it before may hold it for ten seconds.
const OPEN_MAX: Nanos = Nanos::from_secs(20);
/// How long requests and the engine may take to end.
const END_MAX: Nanos = Nanos::from_secs(10);

/// What is to be opened again.
enum Lost {
    Log,
    Origin,
}

impl<P: Platform> Node<P> {
    /// Until the node is stopped.
    pub(super) async fn open_lost_again(node: Rc<Self>) {
        let timer = node.env().timer;
        let mut pauses: BTreeMap<Name, (Nanos, Nanos)> = BTreeMap::new();
        while !node.stopped.get() {
            timer.sleep(PERIOD).await;
            let now = timer.now();
            let volumes = node.volumes.borrow().clone();
            let lost = volumes.iter().filter_map(|(name, served)| {
                let is_changed = node.queue.is_about(name.as_str());
                let lost = lost(served).filter(|_| !is_changed);
                if lost.is_none() {
                    pauses.remove(name);
                }
                Some((name, served, lost?))
            });
            let lost: Vec<_> = lost.collect();
            let mut due = Vec::new();
            for (name, served, lost) in lost {
                let (next, pause) = pauses.entry(name.clone()).or_insert((now, PERIOD));
                if *next <= now {
                    *next = now + *pause;
                    *pause = PAUSE_MAX.min(*pause + *pause);
                    due.push(node.open_again(name, served, lost));
                }
            }
            join_all(due).await;
        }
    }

    async fn open_again(&self, name: &Name, served: &Served<P>, lost: Lost) {
        let volume = name.clone();
        let again = match lost {
            Lost::Origin => self.devices.reopen_place(&served.origin, OPEN_MAX).await,
            Lost::Log => self.open_log_again(name, served).await,
        };
        // Why it cannot be is in the status, and tried again.
        if again.is_ok() {
            self.platform.event(match lost {
                Lost::Origin => Event::OriginReopened {
                    volume,
                    origin: served.origin.clone(),
                },
                Lost::Log => Event::LogReopened { volume },
            });
        }
    }

    /// Its log is opened as at a start, and takes the place of the one that lost its devices.
    async fn open_log_again(&self, name: &Name, served: &Served<P>) -> Result<(), Refusal> {
        let fronted = served.volume.inner();
        let (Some(log), config) = (fronted.log(), self.devices.config()) else {
            return Ok(());
        };
        let volume = config.volumes.iter().find(|v| v.name.value == *name);
        let volume = volume.ok_or("it is not in the configuration")?;
        let timer = self.env().timer;
        let ending = async {
            let held = fronted.hold().await;
            log.engine().close().await;
            held
        };
        let held = Deadline::new(&timer, END_MAX).bound(ending).await;
        let _held = held.ok_or("what goes on has not ended")?;
        let mut devices = Vec::new();
        for name in log.devices() {
            let reopened = self.devices.reopen_place(name, OPEN_MAX).await;
            let device = reopened.and_then(|()| self.devices.leaf_of(name));
            if let Ok((leaf, _)) = &device {
                // What was not flushed is not taken for durable: it is read, and flushed again.
                let _ = Deadline::new(&timer, END_MAX).bound(leaf.flush()).await;
            }
            devices.push(LogDevice {
                name: name.clone(),
                device,
            });
        }
        let identity = self.devices.identity(&served.origin)?;
        let (size, witness) = (fronted.geometry().sectors, log.witness());
        let mut found = self
            .find_log(volume, size, &identity, devices, witness)
            .await?;
        let absent = std::mem::take(&mut found.absent);
        let origin = BoxDevice::new(fronted.cached().clone());
        let again = Log::open(volume, found, false, self.env(), origin).await;
        let again = again.map_err(refusal)?;
        served.guard.keep_with(&again);
        // The log missed the records since its devices were lost.
        let pool = self.pools.borrow().get(&served.pool).cloned();
        if let Some(pool) = pool {
            let record = pool.cache.origin_record(name.as_str());
            again.engine().watcher().watch(record).await;
        }
        again.begin().await.map_err(refusal)?;
        absent
            .into_iter()
            .for_each(|event| self.platform.event(event));
        fronted.exchange_log(again);
        Ok(())
    }
}

/// What a volume with a log is to have again.
fn lost<P: Platform>(served: &Served<P>) -> Option<Lost> {
    let fronted = served.volume.inner();
    let log = fronted.log().filter(|_| !fronted.cached().is_quiesced())?;
    if log.engine().is_stuck() {
        return Some(Lost::Log);
    }
    let kind = log.engine().trouble_at_origin()?;
    (kind == Kind::Gone).then_some(Lost::Origin)
}
