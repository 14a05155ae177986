//! Volumes with a log: opening its devices, serving by it, and giving it up.
//!
//! Invariants:
//!     a volume with dirty data is served by its log, or not at all
//!     its origin is unchanged, but for writes of dirty data, or it is not served
//!     a log is given up ⟹ nothing is dirty, durably
//!
//! Not here: the engine (`writelog`).

use super::job::Detaching;
use super::refusal::{Refusal, refusal};
use super::{Node, NodeVolume};
use crate::arrays::{DeviceSource, Lease};
use crate::event::NodeEvent;
use crate::leaf::Leaf;
use crate::log::{Copy, FoundLog, OpenLog, WitnessFile, journal_of, patience, wanted};
use crate::place::{OpenedPlace, RawRole};
use crate::platform::Platform;
use crate::served_volume::AtRest;
use crate::witness::{self, WitnessOwner};
use block::{BoxDevice, Driver, Extent, IoError, IoErrorKind, Nanos, Sectors, WithDeadline};
use control::config::{self, ByteCount, Name, VolumeMode};
use futures_util::future::{Either, join_all, pending, select};
use origin::{DeviceIdentity, DoubtReason, OriginRecord, OriginVerdict, again, judge_but_for};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use writelog::{LedgerWitness, LogCandidate, LogLedger};

/// Longest time that clients may wait for the last dirty data.
const LAST: Nanos = Nanos::from_millis(500);

/// The devices of a log; for an unusable one, the reason.
pub(super) type LogDevices<P> = Vec<(Name, Result<Lease<P>, String>)>;

/// A device of a log and its failure domain, or the reason why it cannot be used.
pub(super) struct LogDevice<D: Driver> {
    pub(super) name: Name,
    pub(super) device: Result<(Leaf<D>, Arc<str>), String>,
}

/// The open devices in a form that can be read.
pub(super) fn looked_at<P: Platform>(devices: &LogDevices<P>) -> Vec<LogDevice<P::Driver>> {
    let device = |lease: &Lease<P>| (lease.leaf.clone(), lease.controller.clone());
    let devices = devices.iter().map(|(name, lease)| LogDevice {
        name: name.clone(),
        device: lease.as_ref().map(device).map_err(String::clone),
    });
    devices.collect()
}

impl<P: Platform> Node<P> {
    /// Opens the devices of the log of `volume`, and then its journal; none if there is no log. The
    /// devices `new` are not in the configuration yet.
    pub(super) async fn log_devices(
        &self,
        volume: &config::Volume,
        new: &[DeviceSource],
    ) -> Result<LogDevices<P>, Refusal> {
        let mut devices = Vec::new();
        if volume.in_force() != VolumeMode::WriteBack {
            return Ok(devices);
        }
        if volume.log.value.len() != 2 {
            return Err(format!(
                "volume {}: write-back needs two devices for its log: give `log`",
                volume.name.value
            ));
        }
        let journal = journal_of(volume).into_iter();
        for name in volume.log.value.iter().chain(journal) {
            let source = match new.iter().find(|device| device.name() == name) {
                Some(device) => device.clone(),
                None => self.known(name)?,
            };
            match self.devices.open(&source, RawRole::Log).await {
                Ok(lease) => devices.push((name.clone(), Ok(lease))),
                Err(error) if error.kind().is_absence() => {
                    devices.push((name.clone(), Err(error.to_string())));
                }
                Err(error) => {
                    release(devices).await;
                    return Err(refusal(error));
                }
            }
        }
        Ok(devices)
    }

    /// Extents of an open device of the configuration that are known to read as zeroes.
    async fn holes(&self, name: &Name) -> Vec<Extent> {
        let config = self.devices.config();
        let device = config.devices.iter().find(|d| d.name.value == *name);
        match device.and_then(|device| device.path.as_ref()) {
            Some(path) => self.platform.holes(&path.value).await,
            None => Vec::new(),
        }
    }

    /// A device as a candidate for a copy of a log, or for its journal.
    async fn candidate(
        &self,
        device: &LogDevice<P::Driver>,
        limit: Nanos,
    ) -> LogCandidate<Copy<P::Driver>> {
        let opened = device.device.as_ref().map_err(String::clone);
        let controller = opened.as_ref().map_or("", |(_, controller)| controller);
        LogCandidate {
            name: device.name.to_string(),
            domain: controller.into(),
            holes: self.holes(&device.name).await,
            device: opened.map(|(leaf, _)| WithDeadline::new(leaf.clone(), self.env(), limit)),
        }
    }

    /// Reads the content of the devices of a volume's log.
    pub(super) async fn find_log(
        &self,
        volume: &config::Volume,
        size: Sectors,
        identity: &DeviceIdentity,
        devices: Vec<LogDevice<P::Driver>>,
        witness: WitnessFile,
    ) -> Result<FoundLog<P::Driver>, Refusal> {
        let (platform, env) = (&self.platform, self.env());
        let name = &volume.name.value;
        let limit = patience(&self.devices.config(), volume);
        let each = devices.iter().map(|device| self.candidate(device, limit));
        let mut each = join_all(each).await.into_iter();
        let mut next = || each.next().expect("two devices, and one of a journal");
        let candidates = [next(), next()];
        let journal = journal_of(volume).map(|_| next());
        if let [Ok(_), Ok(_)] = candidates.each_ref().map(|c| c.device.as_ref())
            && candidates[0].domain == candidates[1].domain
        {
            return Err(format!(
                "{name}: write-back needs two controllers; {} and {} have {}",
                candidates[0].name, candidates[1].name, candidates[0].domain
            ));
        }
        if let Some(journal) = journal.as_ref().filter(|journal| journal.device.is_ok())
            && let Some(copy) = candidates.iter().find(|copy| copy.domain == journal.domain)
        {
            return Err(format!(
                "{name}: its journal needs a controller that its log has not; {} and {} have {}",
                journal.name, copy.name, copy.domain
            ));
        }
        let wanted = wanted(platform, volume, size, identity, false);
        let kept = LedgerWitness::Kept(witness.device.clone());
        let found = LogLedger::open(wanted, env, kept, candidates, journal).await;
        let found = found.map_err(refusal)?;
        let configured = volume;
        let absent = found.absent.iter().map(|(device, why)| {
            let (volume, device, why) = (name.clone(), device.clone(), why.clone());
            match journal_of(configured) {
                Some(journal) if journal.as_str() == device => NodeEvent::JournalAbsent {
                    volume,
                    device,
                    why,
                },
                _ => NodeEvent::LogDeviceAbsent {
                    volume,
                    device,
                    why,
                },
            }
        });
        let absent = absent.collect();
        Ok(FoundLog {
            found,
            absent,
            devices: devices.into_iter().map(|device| device.name).collect(),
            witness,
        })
    }

    /// Opens the file beside the log of a volume.
    pub(super) async fn log_witness(&self, name: &Name) -> Result<WitnessFile, Refusal> {
        let opened = witness::open(&self.platform, WitnessOwner::Log(name.clone())).await;
        let (device, claim) = opened.map_err(refusal)?;
        Ok(WitnessFile {
            device,
            claim: Rc::new(claim),
        })
    }

    /// Opens the log that was found, in front of `cached`; no data goes there before the log
    /// begins. `record` is the pool's record of the origin, used unless the log has one.
    pub(super) async fn open_log(
        &self,
        volume: &config::Volume,
        found: FoundLog<P::Driver>,
        cached: &cache::Volume<Leaf<P::Driver>>,
        origin: &OpenedPlace<P>,
        record: &[u8],
    ) -> Result<OpenLog<P::Driver>, Refusal> {
        let (may_be_dirty, kept) = (found.found.may_be_dirty, found.found.record.clone());
        let record = if kept.is_empty() { record } else { &kept };
        let damaged = damaged(volume, &found.found);
        let below = BoxDevice::new(cached.clone());
        let log = OpenLog::open(volume, found, false, self.env(), below).await;
        let log = log.map_err(|error| match error.kind() {
            IoErrorKind::Corrupt => damaged(error),
            _ => refusal(error),
        })?;
        if may_be_dirty && let Some(why) = self.is_changed(&log, origin, record).await {
            let (what, name) = (why.of(&origin.place), &volume.name.value);
            let dirty = ByteCount(log.engine().status().dirty_bytes);
            return Err(format!(
                "{name} is not served: {what}; {dirty} of dirty data would overwrite it: give it \
                 its origin back as it was, or see `hotset pool recover {name}`: `--write-back` \
                 overwrites it with the dirty data, and `--discard` discards that"
            ));
        }
        Ok(log)
    }

    /// Returns the reason if the origin has changed. Places of dirty data do not count: a loss of
    /// power may have torn them.
    async fn is_changed(
        &self,
        log: &OpenLog<P::Driver>,
        origin: &OpenedPlace<P>,
        record: &[u8],
    ) -> Option<DoubtReason> {
        // Nothing would be overwritten; the last writes to the origin alone may be torn.
        if log.engine().is_drained() {
            return None;
        }
        let is_dirty = |extent| log.engine().is_dirty(extent);
        changed(origin, &self.env().pool, record, is_dirty).await
    }

    /// Brings a volume to rest, with nothing dirty, if it has a log.
    pub(super) async fn rest(
        &self,
        name: &Name,
        served: &NodeVolume<P>,
    ) -> Result<Option<AtRest<P::Driver>>, Refusal> {
        self.rest_unless(name, served, pending()).await
    }

    /// As [`Node::rest`], unless `cancelled` ends first.
    async fn rest_unless(
        &self,
        name: &Name,
        served: &NodeVolume<P>,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Option<AtRest<P::Driver>>, Refusal> {
        let Some(log) = served.volume.log() else {
            return Ok(None);
        };
        let timer = self.env().timer;
        let work = async {
            // Most of the data is written back while clients are served.
            log.engine().drain_to(LAST).await?;
            let held = served.volume.hold().await;
            log.rest().await.map(|resting| AtRest::new(held, resting))
        };
        let work = timer.timeout(self.stop.get(), work);
        let why = match select(pin!(work), pin!(cancelled)).await {
            Either::Left((Some(Ok(at_rest)), _)) => return Ok(Some(at_rest)),
            Either::Left((Some(Err(error)), _)) => error.to_string(),
            Either::Right(_) => "that was cancelled".into(),
            Either::Left((None, _)) => not_drained(served, &log),
        };
        Err(as_it_was(name, &why))
    }

    /// Writes back nearly all dirty data while clients are served. There is no time limit while the
    /// origin makes progress.
    async fn empty(
        &self,
        name: &Name,
        served: &NodeVolume<P>,
        log: &OpenLog<P::Driver>,
        detaching: &Detaching,
    ) -> Result<(), Refusal> {
        let engine = log.engine();
        loop {
            let paused = detaching.paused.get();
            engine.retire(!paused);
            let before = engine.status();
            let drained = async {
                if paused {
                    return pending().await;
                }
                let drained = engine.drain_to(LAST);
                self.env().timer.timeout(self.stop.get(), drained).await
            };
            let drained = pin!(drained);
            let (turned, cancelled) = (detaching.turned(paused), detaching.cancelled());
            let (turned, cancelled) = (pin!(turned), pin!(cancelled));
            let other = select(turned, cancelled);
            let why = match select(drained, other).await {
                Either::Left((Some(Ok(())), _)) => return Ok(()),
                Either::Left((Some(Err(error)), _)) => error.to_string(),
                Either::Left((None, _)) if is_progress(&before, &engine.status()) => continue,
                Either::Left((None, _)) => not_drained(served, log),
                Either::Right((Either::Left(_), _)) => continue,
                Either::Right((Either::Right(_), _)) => "that was cancelled".into(),
            };
            engine.retire(false);
            return Err(as_it_was(name, &why));
        }
    }

    /// Gives up the log of a volume, once nothing is dirty. The volume goes on without a log.
    pub(super) async fn detach(&self, name: &Name) -> Result<(), Refusal> {
        let served = self.volumes.borrow().get(name).cloned();
        let Some((served, log)) = served.and_then(|s| s.volume.log().map(|l| (s, l))) else {
            return Ok(());
        };
        let dirty = log.engine().status().dirty_bytes;
        let detaching = Detaching::new(self.env().timer.now(), dirty);
        let all = &self.detaching;
        all.borrow_mut().insert(name.clone(), detaching.clone());
        let rested = match self.empty(name, &served, &log, &detaching).await {
            Ok(()) => self.rest_unless(name, &served, detaching.cancelled()).await,
            Err(why) => Err(why),
        };
        if rested.is_err() {
            log.engine().retire(false);
            self.look_at_jobs();
            all.borrow_mut().remove(name);
        }
        let at_rest = rested?;
        log.engine().close().await;
        self.look_for_losses();
        served.volume.forget_log();
        all.borrow_mut().remove(name);
        drop(at_rest);
        for device in log.devices() {
            // The device may have been absent.
            let _ = self.devices.close(device).await;
        }
        Ok(())
    }

    /// Ends the log of a volume without users: empty if the origin takes all dirty data in time,
    /// else to be continued by the next start. Returns true if the origin has every acknowledged
    /// write, though perhaps not durably.
    pub(super) async fn end_log(&self, name: &Name, served: &NodeVolume<P>) -> bool {
        let Some(log) = served.volume.log() else {
            return true;
        };
        let timer = self.env().timer;
        let rested = timer.timeout(self.stop.get(), log.rest()).await;
        let at_rest = rested.and_then(Result::ok);
        let rested = at_rest.is_some();
        let close = async {
            log.engine().close().await;
            if !rested {
                served.volume.cached().close().await;
            }
        };
        // Writes that the origin has not ended are in the log.
        let _ = timer.timeout(self.grace.get(), close).await;
        let dirty = ByteCount(log.engine().status().dirty_bytes);
        if !rested && dirty.0 > 0 {
            let volume = name.clone();
            self.platform
                .event(NodeEvent::VolumeDirty { volume, dirty });
        }
        rested
    }
}

/// The message if records of the log of `volume` are damaged or missing on all present devices.
fn damaged<C>(
    volume: &config::Volume,
    found: &writelog::OpenedLog<C>,
) -> impl Fn(IoError) -> Refusal + use<C> {
    let name = volume.name.value.clone();
    let here = found.areas.iter().zip(&found.names);
    let here = here.filter(|(area, _)| area.as_ref().is_some_and(|area| area.trusted));
    let here: Vec<&str> = here.map(|(_, device)| device.as_str()).collect();
    let absent = found
        .absent
        .iter()
        .filter(|(device, _)| found.names.contains(device));
    let absent: Vec<&str> = absent.map(|(device, _)| device.as_str()).collect();
    let attach = match absent[..] {
        [] => "see".to_owned(),
        _ => format!(
            "attach {}, which may have them, or see",
            absent.join(" and ")
        ),
    };
    let here = here.join(" and ");
    move |error| {
        format!(
            "{name} is not served: {error} ({here} is damaged); {attach} `hotset pool recover \
             {name}`: `--write-back` writes back the rest, and `--discard` discards all of it"
        )
    }
}

pub(super) fn as_it_was(name: &Name, why: &str) -> Refusal {
    format!("volume {name}: unchanged, {why}. Try again.")
}

/// True if the origin has taken data between `before` and `now`, and works.
fn is_progress(before: &writelog::WriteBackStatus, now: &writelog::WriteBackStatus) -> bool {
    let takes = now.carried_bytes > before.carried_bytes && now.trouble.is_none();
    takes || now.dirty_bytes < before.dirty_bytes
}

/// The obstacle of a log that does not become empty.
fn not_drained<P: Platform>(served: &NodeVolume<P>, log: &OpenLog<P::Driver>) -> String {
    let status = log.engine().status();
    let trouble = status
        .trouble
        .map_or("it is slow".into(), |e| e.to_string());
    let dirty = ByteCount(status.dirty_bytes);
    format!(
        "{dirty} of dirty data not written back to {} yet: {trouble}",
        served.origin
    )
}

/// Returns the reason if `record` does not prove the origin, apart from places that a log may have
/// left half written.
pub(crate) async fn changed<P: Platform>(
    origin: &OpenedPlace<P>,
    memory: &block::Pool,
    record: &[u8],
    is_dirty: impl Fn(Extent) -> bool,
) -> Option<DoubtReason> {
    let identity = &origin.identity;
    let Ok(record) = OriginRecord::decode(record) else {
        // Without a record, only the identity can be compared.
        return (!identity.proves()).then_some(DoubtReason::Unproved);
    };
    let now = again(&origin.leaf, memory, identity.clone(), &record).await;
    match judge_but_for(&record, &now, is_dirty) {
        OriginVerdict::Same | OriginVerdict::Unknown(DoubtReason::NothingLeft) => None,
        OriginVerdict::Changed(why) | OriginVerdict::Unknown(why) => Some(why),
    }
}

/// Releases devices of a log.
pub(super) async fn release<P: Platform>(devices: LogDevices<P>) {
    for (_, device) in devices {
        if let Ok(lease) = device {
            lease.release().await;
        }
    }
}
