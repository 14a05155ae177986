//! A served volume becomes write-back. Its log is opened while clients are served, and takes their
//! writes from the moment at which the configuration says so.
//!
//! Invariants:
//!     the log takes a write ⟹ the files of the configuration name the log
//!     the switch fails before that ⟹ the volume is as before, nothing is dirty in the log,
//!                                    and the devices of the log are released
//!     the log takes over ⟹ no change is in flight, and the origin was flushed after the last one
//!
//! Not here: the devices' content, and the choice of usable ones (`writelog`); giving a log up
//! (`write_back`).

use super::refusal::{Refusal, refusal};
use super::write_back::{LogDevices, as_it_was, looked_at, release};
use super::{Node, NodeVolume};
use crate::arrays::{DeviceSource, Lease};
use crate::log::{OpenLog, journal_of};
use crate::place::RawRole;
use crate::platform::{ConfigurationDraft, Platform};
use crate::recover::blank;
use block::{BoxDevice, Deadline, Device as _, IoResult, Nanos};
use cache::CacheMode;
use control::config::{self, At, Cleaning, Name, VolumeMode};
use control::files::ConfigurationFiles;
use control::plan::Change;
use control::protocol::NamedOrNew;
use writelog::superblock_of;

/// Time limit for held changes: until none is in flight and the origin is flushed, and again for
/// the files of the configuration.
const HELD_MAX: Nanos = Nanos::from_secs(10);
/// Time limit for the end of a log's engine.
const END_MAX: Nanos = Nanos::from_secs(10);

/// A volume that is to become write-back, and the new ones among its log devices.
pub(super) struct WantedWriteBack {
    volume: config::Volume,
    new: Vec<DeviceSource>,
}

impl<P: Platform> Node<P> {
    /// The volume `name` with the log of a request, and its new devices.
    pub(super) fn wanted_log(
        &self,
        name: &Name,
        log: Vec<NamedOrNew>,
        journal: Option<NamedOrNew>,
    ) -> Result<WantedWriteBack, Refusal> {
        self.volume(name.as_str())?;
        let config = self.devices.config();
        let volume = config.volumes.iter().find(|v| v.name.value == *name);
        let mut volume = volume.ok_or("it is not in the configuration")?.clone();
        let find = |device| self.named_or_new(device);
        let log: Vec<DeviceSource> = log.into_iter().map(find).collect::<Result<_, _>>()?;
        let journal = journal.map(find).transpose()?;
        let at = volume.line;
        volume.mode.value = VolumeMode::WriteBack;
        volume.off.value = false;
        if !log.is_empty() {
            volume.log.value = log.iter().map(|device| device.name().clone()).collect();
        }
        if let Some(journal) = &journal {
            volume.journal = Some(At {
                value: journal.name().clone(),
                line: at,
            });
            volume.write_back.value = Cleaning::Journaled;
        }
        let new = log.into_iter().chain(journal).collect();
        Ok(WantedWriteBack { volume, new })
    }

    /// Makes a volume write-back, and changes the configuration accordingly. Returns the files as
    /// they are then.
    pub(super) async fn become_write_back(
        &self,
        wanted: WantedWriteBack,
        draft: Option<Box<dyn ConfigurationDraft>>,
    ) -> Result<Option<ConfigurationFiles>, Refusal> {
        let known = wanted.new.iter().filter_map(Self::known_by);
        let becomes = Change::WriteBack(Box::new(wanted.volume.clone()));
        let changes: Vec<Change> = known.chain([becomes]).collect();
        self.agree(&changes).await?;
        let files = self.switch(&wanted.volume, &wanted.new, draft).await?;
        self.note_all(&changes);
        Ok(files)
    }

    /// As [`Node::become_write_back`], if the configuration is changed by the caller.
    pub(super) async fn switch(
        &self,
        volume: &config::Volume,
        new: &[DeviceSource],
        draft: Option<Box<dyn ConfigurationDraft>>,
    ) -> Result<Option<ConfigurationFiles>, Refusal> {
        let name = &volume.name.value;
        self.volume(name.as_str())?;
        let served = self.volumes.borrow()[name].clone();
        if let Some(log) = served.volume.log() {
            let has = log.devices();
            let wants = volume.log.value.iter().chain(journal_of(volume));
            return match wants.eq(has) {
                true => committed(draft).await,
                false => Err(format!(
                    "volume {name} is write-back, with {} as devices of its log; `hotset volume \
                     replace-log` exchanges one",
                    listed(has)
                )),
            };
        }
        let devices = self.log_devices(volume, new).await?;
        let absent = devices.iter().find_map(|(device, opened)| {
            let why = opened.as_ref().err()?;
            Some(format!("{device} cannot be used: {why}"))
        });
        let switched = match absent {
            Some(why) => Err(as_it_was(name, &why)),
            None => self.switch_to(volume, &served, &devices, draft).await,
        };
        match switched {
            Ok(files) => {
                let opened = devices.into_iter().filter_map(|(_, device)| device.ok());
                opened.for_each(Lease::keep);
                Ok(files)
            }
            Err(why) => {
                release(devices).await;
                Err(why)
            }
        }
    }

    /// Replaces a device of a volume's log or journal: gives the log up, then begins it with the
    /// new device. If that fails, begins the log with its old devices.
    pub(super) async fn replace_log(
        &self,
        name: &Name,
        device: &Name,
        by: NamedOrNew,
        draft: Option<Box<dyn ConfigurationDraft>>,
    ) -> Result<Option<ConfigurationFiles>, Refusal> {
        let before = self.wanted_log(name, Vec::new(), None)?.volume;
        let log = self.volume(name.as_str())?.log();
        let Some(log) = log.filter(|log| log.devices().contains(device)) else {
            return Err(format!(
                "volume {name} has no log with {device}; see `hotset status`"
            ));
        };
        if self.volume(name.as_str())?.cached().is_quiesced() {
            return Err(as_it_was(name, "it is quiesced; resume it first"));
        }
        let new = self.named_or_new(by)?;
        let mut volume = before.clone();
        let journal = volume.journal.as_mut().map(|journal| &mut journal.value);
        let mut names = volume.log.value.iter_mut().chain(journal);
        if let Some(place) = names.find(|name| *name == device) {
            place.clone_from(new.name());
        }
        let known = Self::known_by(&new).into_iter();
        let becomes = Change::WriteBack(Box::new(volume.clone()));
        let changes: Vec<Change> = known.chain([becomes]).collect();
        self.agree(&changes).await?;
        // A device that cannot be opened is refused before the log is given up.
        let lease = self.devices.open(&new, RawRole::Log).await;
        lease.map_err(refusal)?.release().await;
        drop(log);
        self.detach(name).await?;
        let why = match self.switch(&volume, &[new], draft).await {
            Ok(files) => {
                self.note_all(&changes);
                self.forget_copy(name, device).await;
                return Ok(files);
            }
            Err(why) => why,
        };
        Err(self.begin_log_again(&before, why).await)
    }

    /// Begins the log of `volume` as it was, after a change for which it was given up, and which
    /// failed for the reason `why`. Returns the refusal of the change.
    pub(super) async fn begin_log_again(&self, volume: &config::Volume, why: Refusal) -> Refusal {
        let Err(other) = self.switch(volume, &[], None).await else {
            return why;
        };
        let name = &volume.name.value;
        let value = VolumeMode::Cached(CacheMode::WriteThrough);
        let line = volume.mode.line;
        self.note(&Change::SetMode {
            volume: name.clone(),
            mode: At { value, line },
            off: volume.off.clone(),
        });
        format!(
            "{why} The log as it was cannot be begun either ({other}), so that volume {name} is \
             write-through now; `hotset volume set-mode {name} write-back` begins it."
        )
    }

    /// Blanks a device that has left the log of a volume, if it answers and still has its copy.
    /// Such a copy would be taken for an image of the device in its place.
    async fn forget_copy(&self, volume: &Name, device: &Name) {
        let (env, Ok(source)) = (self.env(), self.known(device)) else {
            return;
        };
        let Ok(lease) = self.devices.open(&source, RawRole::Log).await else {
            return;
        };
        let blanking = async {
            let superblock = superblock_of(&lease.leaf, &env).await?;
            if !superblock
                .is_some_and(|found| found.volume == volume.as_str() && !found.may_be_dirty)
            {
                return Ok(());
            }
            blank(&lease.leaf, &env).await
        };
        // A copy that stays is refused where it matters.
        let _: Option<IoResult> = Deadline::new(&env.timer, END_MAX).bound(blanking).await;
        lease.release().await;
    }

    /// Opens the log on its devices, and makes it take over.
    async fn switch_to(
        &self,
        volume: &config::Volume,
        served: &NodeVolume<P>,
        devices: &LogDevices<P>,
        draft: Option<Box<dyn ConfigurationDraft>>,
    ) -> Result<Option<ConfigurationFiles>, Refusal> {
        let name = &volume.name.value;
        let timer = self.env().timer;
        let opening = self.open_beside(volume, served, devices);
        let log = Deadline::new(&timer, self.stop.get()).bound(opening).await;
        let log = log.ok_or_else(|| as_it_was(name, "the devices of its log do not answer"))?;
        let log = log.map_err(|why| as_it_was(name, &why))?;
        let taken = self.take_over(served, &log, draft).await;
        if taken.is_err() {
            let closing = log.engine().close();
            // The log takes no change and has no dirty data, so a late write to its device is
            // harmless.
            let _ = Deadline::new(&timer, END_MAX).bound(closing).await;
        }
        taken.map_err(|why| as_it_was(name, &why))
    }

    /// Opens a log for a served volume, which does not use it yet. Nothing is dirty.
    async fn open_beside(
        &self,
        volume: &config::Volume,
        served: &NodeVolume<P>,
        devices: &LogDevices<P>,
    ) -> Result<OpenLog<P::Driver>, Refusal> {
        let name = &volume.name.value;
        let identity = self.devices.identity(&served.origin)?;
        let size = served.volume.cached().geometry().sectors;
        let (looked_at, witness) = (looked_at(devices), self.log_witness(name).await?);
        let found = self.find_log(volume, size, &identity, looked_at, witness);
        let found = found.await?;
        if let Some((device, why)) = found.found.absent.first() {
            return Err(format!("{device} cannot be used ({why})"));
        }
        if found.found.may_be_dirty {
            return Err(format!(
                "{} have what {} lacked once, which was written since; give it blank devices",
                listed(&volume.log.value),
                served.origin
            ));
        }
        let below = BoxDevice::new(served.volume.cached().clone());
        let log = OpenLog::open(volume, found, false, self.env(), below).await;
        log.map_err(refusal)
    }

    /// Begins `log`, and lets it take over from the origin once the configuration names it.
    async fn take_over(
        &self,
        served: &NodeVolume<P>,
        log: &OpenLog<P::Driver>,
        draft: Option<Box<dyn ConfigurationDraft>>,
    ) -> Result<Option<ConfigurationFiles>, Refusal> {
        let timer = self.env().timer;
        served.guard.keep_with(log);
        let pool = self.pool(served.pool.as_str())?;
        let record = pool
            .cache
            .origin_record(&served.volume.cached().geometry().name);
        log.engine().watcher().watch(record).await;
        let beginning = async {
            log.begin_at_rest().await?;
            // This makes most of the data durable before changes wait.
            served.volume.cached().flush().await
        };
        let begun = Deadline::new(&timer, self.stop.get())
            .bound(beginning)
            .await;
        begun
            .ok_or("its log or its origin does not answer")?
            .map_err(refusal)?;
        let holding = async {
            let held = served.gate.hold().await;
            served.volume.cached().flush().await?;
            // The origin's own writes have widened its record.
            served.guard.renew().await.map(|()| held)
        };
        let held = Deadline::new(&timer, HELD_MAX).bound(holding).await;
        let held = held.ok_or("writes in flight have not ended in time")?;
        let _held = held.map_err(refusal)?;
        if served.volume.cached().is_quiesced() {
            return Err("it is quiesced; resume it first".into());
        }
        if self.stopped.get() {
            return Err("the daemon is stopping".into());
        }
        if log.engine().online() != [true; 2] {
            return Err("a device of its log has failed".into());
        }
        let committing = Deadline::new(&timer, HELD_MAX).bound(committed(draft));
        let files = committing.await;
        let files = files.ok_or("the files of the configuration are not written in time")??;
        // No step after this one can fail.
        served
            .volume
            .cached()
            .set_mode(VolumeMode::WriteBack.cached());
        served.volume.exchange_log(log.clone());
        log.engine().go_on();
        Ok(files)
    }
}

/// Puts the new text of a file in its place, if there is one.
async fn committed(
    draft: Option<Box<dyn ConfigurationDraft>>,
) -> Result<Option<ConfigurationFiles>, Refusal> {
    match draft {
        Some(draft) => draft.commit().await.map(Some),
        None => Ok(None),
    }
}

/// A list of names for people.
fn listed(names: &[Name]) -> String {
    let names: Vec<&str> = names.iter().map(Name::as_str).collect();
    names.join(" and ")
}
