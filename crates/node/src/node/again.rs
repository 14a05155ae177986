//! Reopens lost devices of a volume with a log: the origin after it is out of service, and the log
//! after it lacks a device. All data that is not durable at the origin is in the log. So a past
//! error need not keep a device from its volume.
//!
//! Invariants:
//!     an origin is reopened ⟹ a read of the origin failed
//!     a log is reopened ⟹ no change is in flight, and the engine before has ended
//!     the reopened log serves ⟹ it was opened as at a start, and the origin was flushed before
//!     a log that serves by one device is reopened ⟹ nothing is dirty, and the other device
//!                                                    was found fit before
//!     the node ends in order ⟹ so does a log that was reopened

use super::refusal::{Refusal, refusal};
use super::write_back::LogDevice;
use super::{IDLE_PERIOD, Node, NodeVolume};
use crate::event::NodeEvent;
use crate::log::{FoundLog, OpenLog};
use crate::place::RawRole;
use crate::platform::Platform;
use block::{BoxDevice, Deadline, Device as _, IoErrorKind, Lba, Nanos};
use control::config::Name;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Interval of looks for lost devices.
const PERIOD: Nanos = Nanos::from_secs(1);
/// Longest pause between attempts; pauses double from the period on.
const PAUSE_MAX: Nanos = Nanos::from_secs(30);
/// Time limit of reopening a place: its last user may hold the place for ten seconds.
pub(super) const OPEN_MAX: Nanos = Nanos::from_secs(20);
/// Time limit for requests and the engine to end.
const END_MAX: Nanos = Nanos::from_secs(10);

/// The lost devices to reopen.
enum LostPart {
    /// Both devices of the log.
    Log,
    /// These devices of the log, while the other serves.
    Copies(Vec<Name>),
    Origin,
}

impl<P: Platform> Node<P> {
    /// Reopens lost devices until the node is stopped. A slow volume delays no other.
    pub(super) async fn open_lost_again(node: Rc<Self>) {
        let timer = node.env().timer;
        let mut pauses: BTreeMap<Name, (Nanos, Nanos)> = BTreeMap::new();
        let (mut under_way, mut busy) = (FuturesUnordered::new(), BTreeSet::new());
        let mut longest = PERIOD;
        while !node.stopped.get() {
            let tick = timer.idle_sleep(PERIOD, longest);
            under_way.push(tick.map(|()| None).boxed_local());
            while let Some(Some(name)) = under_way.next().await {
                busy.remove(&name);
            }
            let now = timer.now();
            let volumes = node.volumes.borrow().clone().into_iter();
            let lost = volumes.filter_map(|(name, served)| {
                let is_changed = node.queue.is_about(name.as_str());
                let lost = lost(&served).filter(|_| !is_changed && !busy.contains(&name));
                Some((name, served, lost?))
            });
            let lost: Vec<_> = lost.collect();
            // A device that fails again and again is tried at growing intervals.
            pauses.retain(|name, (next, _)| {
                lost.iter().any(|(lost, ..)| lost == name) || now < *next + PAUSE_MAX
            });
            longest = match lost.is_empty() && busy.is_empty() {
                true => IDLE_PERIOD,
                false => PERIOD,
            };
            for (name, served, lost) in lost {
                let (next, pause) = pauses.entry(name.clone()).or_insert((now, PERIOD));
                if *next > now {
                    continue;
                }
                *next = now + *pause;
                *pause = PAUSE_MAX.min(*pause + *pause);
                busy.insert(name.clone());
                let node = node.clone();
                let again = async move { node.open_again(name, &served, lost).await };
                under_way.push(again.map(Some).boxed_local());
            }
        }
        while under_way.next().await.is_some() {}
    }

    /// Tries to reopen the lost devices of the volume. Returns its name.
    async fn open_again(&self, name: Name, served: &NodeVolume<P>, lost: LostPart) -> Name {
        let again = match &lost {
            LostPart::Origin if self.is_read(&served.origin).await => return name,
            LostPart::Origin => self.devices.reopen_place(&served.origin, OPEN_MAX).await,
            LostPart::Log => match self.any_answers(served).await {
                Ok(()) => self.open_log_again(&name, served).await,
                unresponsive => unresponsive,
            },
            LostPart::Copies(devices) => self.take_copies_back(&name, served, devices).await,
        };
        // The reason of a failure is in the status; another attempt follows.
        if again.is_ok() {
            let volume = name.clone();
            self.platform.event(match lost {
                LostPart::Origin => NodeEvent::OriginReopened {
                    volume,
                    origin: served.origin.clone(),
                },
                LostPart::Log | LostPart::Copies(_) => NodeEvent::LogReopened { volume },
            });
        }
        name
    }

    /// Reopens the places of the devices of a stuck log, and waits until one answers. Writes fail
    /// meanwhile; they would wait while the log is opened.
    async fn any_answers(&self, served: &NodeVolume<P>) -> Result<(), Refusal> {
        let log = served.volume.log();
        let Some(log) = log.filter(|log| log.engine().is_stuck()) else {
            return Ok(());
        };
        let asked = log.devices().iter().map(async |device| {
            // A place that cannot be reopened may answer all the same.
            let _ = self.devices.reopen_place(device, OPEN_MAX).await;
            self.flushed(device).await
        });
        let answers = join_all(asked).await;
        answers.into_iter().reduce(Result::or).unwrap_or(Ok(()))
    }

    /// True if a device can be read, within a time limit. Such an origin has lost writes and is not
    /// lost itself: another opening would lose those written since.
    async fn is_read(&self, device: &Name) -> bool {
        let Ok((leaf, _)) = self.devices.leaf_of(device) else {
            return false;
        };
        let env = self.env();
        let buf = env.pool.get(leaf.geometry().block.bytes() as usize).await;
        let read = Deadline::new(&env.timer, END_MAX).bound(leaf.read(Lba::ZERO, buf));
        read.await.is_some_and(|(_, result)| result.is_ok())
    }

    /// Flushes a log device, within a time limit.
    async fn flushed(&self, device: &Name) -> Result<(), Refusal> {
        let (leaf, _) = self.devices.leaf_of(device)?;
        let timer = self.env().timer;
        let flushed = Deadline::new(&timer, END_MAX).bound(leaf.flush()).await;
        flushed.ok_or("it does not answer")?.map_err(refusal)
    }

    /// Takes devices of a log back that were lost, or absent at its start.
    async fn take_copies_back(
        &self,
        name: &Name,
        served: &NodeVolume<P>,
        devices: &[Name],
    ) -> Result<(), Refusal> {
        let Some(log) = served.volume.log() else {
            return Ok(());
        };
        for device in devices {
            self.open_log_device(device).await?;
            self.flushed(device).await?;
        }
        let found = self.find_again(name, served, &log).await?;
        let mut absent = found.found.absent.iter();
        if let Some((_, why)) = absent.find(|(name, _)| devices.iter().any(|d| d.as_str() == name))
        {
            return Err(why.clone());
        }
        self.open_log_again(name, served).await?;
        match served.volume.log() {
            Some(log) if log.engine().online() != [true; 2] => Err("a device failed again".into()),
            _ => Ok(()),
        }
    }

    /// Reopens the place of a device, or opens it for the first time.
    async fn open_log_device(&self, device: &Name) -> Result<(), Refusal> {
        if self.devices.leaf_of(device).is_ok() {
            return self.devices.reopen_place(device, OPEN_MAX).await;
        }
        let source = self.known(device)?;
        let lease = self.devices.open(&source, RawRole::Log).await;
        lease.map_err(refusal)?.keep();
        Ok(())
    }

    /// Reads the content of the open devices of a log.
    async fn find_again(
        &self,
        name: &Name,
        served: &NodeVolume<P>,
        log: &OpenLog<P::Driver>,
    ) -> Result<FoundLog<P::Driver>, Refusal> {
        let config = self.devices.config();
        let volume = config.volumes.iter().find(|v| v.name.value == *name);
        let volume = volume.ok_or("it is not in the configuration")?;
        let timer = self.env().timer;
        let mut devices = Vec::new();
        for name in log.devices() {
            let device = self.devices.leaf_of(name);
            if let Ok((leaf, _)) = &device {
                // Data without a flush does not count as durable, so the device is flushed before
                // it is read.
                let _ = Deadline::new(&timer, END_MAX).bound(leaf.flush()).await;
            }
            devices.push(LogDevice {
                name: name.clone(),
                device,
            });
        }
        let identity = self.devices.identity(&served.origin)?;
        let (size, witness) = (served.volume.geometry().sectors, log.witness());
        self.find_log(volume, size, &identity, devices, witness)
            .await
    }

    /// Opens the volume's log as at a start, in place of the one that lost its devices.
    async fn open_log_again(&self, name: &Name, served: &NodeVolume<P>) -> Result<(), Refusal> {
        let (Some(log), config) = (served.volume.log(), self.devices.config()) else {
            return Ok(());
        };
        let volume = config.volumes.iter().find(|v| v.name.value == *name);
        let volume = volume.ok_or("it is not in the configuration")?;
        // The end of the node waits for this, and ends the log that serves then.
        let _reopening = self.reopening.enter();
        if self.stopped.get() {
            return Err("the daemon is stopping".into());
        }
        let timer = self.env().timer;
        let ending = async {
            let held = served.volume.hold().await;
            log.engine().close().await;
            held
        };
        let held = Deadline::new(&timer, END_MAX).bound(ending).await;
        let _held = held.ok_or("what goes on has not ended")?;
        // No log flushes the writes that the origin itself has acknowledged; so the origin is
        // flushed.
        let flushed = served.volume.cached().flush();
        let flushed = Deadline::new(&timer, END_MAX).bound(flushed).await;
        flushed
            .ok_or("its origin does not answer")?
            .map_err(refusal)?;
        let is_stuck = log.engine().is_stuck();
        let mut found = self.find_again(name, served, &log).await?;
        let absent = std::mem::take(&mut found.absent);
        let origin = BoxDevice::new(served.volume.cached().clone());
        let again = OpenLog::open(volume, found, false, self.env(), origin).await;
        let again = again.map_err(refusal)?;
        served.guard.keep_with(&again);
        // The log lacks the origin's records since the loss of its devices.
        let pool = self.pools.borrow().get(&served.pool).cloned();
        if let Some(pool) = pool {
            let record = pool.cache.origin_record(name.as_str());
            again.engine().watcher().watch(record).await;
        }
        again.begin().await.map_err(refusal)?;
        // Otherwise the loss was reported when it happened.
        let absent = absent.into_iter().filter(|_| is_stuck);
        absent.for_each(|event| self.platform.event(event));
        served.volume.exchange_log(again);
        Ok(())
    }
}

/// The lost devices of a volume with a log.
fn lost<P: Platform>(served: &NodeVolume<P>) -> Option<LostPart> {
    let log = served
        .volume
        .log()
        .filter(|_| !served.volume.cached().is_quiesced())?;
    if log.engine().is_stuck() {
        return Some(LostPart::Log);
    }
    let offline = log.offline();
    if !offline.is_empty() && log.engine().is_settled() {
        return Some(LostPart::Copies(offline));
    }
    let kind = log.engine().trouble_at_origin()?;
    (kind == IoErrorKind::Gone).then_some(LostPart::Origin)
}
