//! Changes of a running node: those of requests, and the steps of a plan.
//!
//! Invariant: the configuration has the effect of each change from then on, and no effect of a
//! change that failed.

use super::Node;
use super::refusal::{Refusal, refusal};
use super::turns::kept;
use super::volumes::cannot_open;
use crate::arrays::DeviceSource;
use crate::nanos;
use crate::place::RawRole;
use crate::platform::{ConfigurationDraft, Platform};
use control::check;
use control::config::{self, At, Attach, Config, Device, Listen, Name, VolumeMode};
use control::files::ConfigurationFiles;
use control::frontends::Queues;
use control::place::BasePlace;
use control::plan::Change;
use control::protocol::{ControlRequest, NamedOrNew};
use drives::catalogue::Drive;
use futures_util::future::join_all;
use std::collections::BTreeMap;

impl<P: Platform> Node<P> {
    /// True if a volume is served, or waits to be served.
    fn has_volume(&self, name: &Name) -> bool {
        let served = self.volumes.borrow().contains_key(name);
        served || self.waiting.borrow().contains_key(name)
    }

    /// The volume of the virtual machine at the socket `place`.
    fn guest_at(&self, place: &str) -> Result<Option<Name>, Refusal> {
        let config = self.devices.config();
        let mut guests = config.guests();
        let found = guests.find(|(_, listen)| listen.place() == place);
        found.map(|(volume, _)| Name::new(&volume)).transpose()
    }

    pub(super) fn note(&self, change: &Change) {
        self.devices.record(change);
    }

    /// The change that adds a device to the configuration; `None` for an array.
    pub(super) fn known_by(device: &DeviceSource) -> Option<Change> {
        match device {
            DeviceSource::Device(device) => Some(Change::PutDevice(device.clone())),
            DeviceSource::Array(_) => None,
        }
    }

    /// Refuses `changes` that would make the configuration disagree with itself. A device with a
    /// role, open or not and under any name, gets no second role.
    pub(super) async fn agree(&self, changes: &[Change]) -> Result<(), Refusal> {
        let before = self.devices.config();
        let mut after = (*before).clone();
        changes.iter().for_each(|change| change.record(&mut after));
        let looking = after.devices.iter().map(async |device| {
            let place = self.platform.place(device).await;
            (device.name.value.clone(), place)
        });
        let places: BTreeMap<Name, BasePlace> = join_all(looking).await.into_iter().collect();
        let at = |device: &Device| {
            let place = places.get(&device.name.value).cloned();
            place.unwrap_or_else(|| BasePlace::said(device))
        };
        let models: Vec<&str> = Drive::all().map(|drive| drive.name()).collect();
        match check::new_problems(&before, &after, &models, &at).first() {
            Some(problem) => Err(problem.text()),
            None => Ok(()),
        }
    }

    /// Applies `changes` to the configuration.
    pub(super) fn note_all(&self, changes: &[Change]) {
        changes.iter().for_each(|change| self.note(change));
    }

    /// The device of a request.
    pub(super) fn named_or_new(&self, device: NamedOrNew) -> Result<DeviceSource, Refusal> {
        match device {
            NamedOrNew::Named(name) => self.known(&Name::new(&name)?),
            NamedOrNew::New(text) => {
                let device = Device::parse(&text)?;
                match self.devices.find(&device.name.value) {
                    None => Ok(DeviceSource::Device(Box::new(device))),
                    Some(known) if known.is_at(&device) => Ok(known),
                    Some(_) => Err(format!(
                        "the configuration has a device {}; name that, or choose another name",
                        device.name.value
                    )),
                }
            }
        }
    }

    /// The origin of a new volume; `new` is the section of a device that is not known yet.
    fn origin_of(
        &self,
        volume: &config::Volume,
        new: Option<String>,
    ) -> Result<DeviceSource, Refusal> {
        let origin = match new {
            Some(text) => self.named_or_new(NamedOrNew::New(text))?,
            None => self.known(&volume.origin.value)?,
        };
        match *origin.name() == volume.origin.value {
            true => Ok(origin),
            false => Err(format!(
                "device {} is not the origin of volume {}; name it there",
                origin.name(),
                volume.name.value
            )),
        }
    }

    /// The devices of a pool; `new` are the sections of devices that are not known yet.
    fn devices_of(
        &self,
        pool: &config::Pool,
        new: Vec<String>,
    ) -> Result<Vec<DeviceSource>, Refusal> {
        let new = new.into_iter().map(NamedOrNew::New);
        let new: Vec<DeviceSource> = new
            .map(|d| self.named_or_new(d))
            .collect::<Result<_, _>>()?;
        let names = &pool.devices.value;
        if let Some(other) = new.iter().find(|device| !names.contains(device.name())) {
            let (name, pool) = (other.name(), &pool.name.value);
            return Err(format!(
                "device {name} is not among those of pool {pool}; name it there"
            ));
        }
        let find = |name: &Name| match new.iter().find(|device| device.name() == name) {
            Some(device) => Ok(device.clone()),
            None => self.known(name),
        };
        names.iter().map(find).collect()
    }

    /// Makes a volume a block device, also one that the configuration has and that was removed.
    async fn attach(&self, attach: Attach) -> Result<(), Refusal> {
        let volume = &attach.ublk.value;
        let before = self.devices.config();
        let mut known = before.attachments.iter();
        if let Some(known) = known.find(|known| known.ublk.value == *volume)
            && before.queues_of(known) != before.queues_of(&attach)
        {
            let Queues { count, depth } = before.queues_of(known);
            return Err(format!(
                "volume {volume} is attached with {count} queues of depth {depth}; have it changed in \
                 the configuration, by `hotset reload` without its section and then with it"
            ));
        }
        let change = Change::Attach(Box::new(attach.clone()));
        let mut after = (*before).clone();
        change.record(&mut after);
        let mut problems = Vec::new();
        check::frontends_of_volumes(&after, &mut problems);
        match problems.first() {
            Some(problem) => Err(problem.text()),
            None => self.apply(&change).await,
        }
    }

    /// Opens a socket that the configuration does not have.
    async fn listen(&self, listen: Listen) -> Result<(), Refusal> {
        let place = listen.place();
        let config = self.devices.config();
        if config.listeners.iter().any(|known| known.place() == place) {
            return Err(format!(
                "the configuration has a listener at {place}; choose another socket"
            ));
        }
        let change = Change::OpenListener(Box::new(listen));
        self.agree(std::slice::from_ref(&change)).await?;
        self.apply(&change).await
    }

    /// Closes a socket that the configuration has.
    async fn close(&self, place: String) -> Result<(), Refusal> {
        let config = self.devices.config();
        if !config.listeners.iter().any(|known| known.place() == place) {
            return Err(format!(
                "the configuration has no listener at {place}; see `hotset status`"
            ));
        }
        self.apply(&Change::CloseListener(place)).await
    }

    /// Makes a volume use its pool without a log, by `mode`, else by the volume's own mode.
    async fn use_pool(
        &self,
        volume: &str,
        mode: Option<VolumeMode>,
        off: bool,
    ) -> Result<(), Refusal> {
        self.volume(volume)?;
        let (volume, line) = (Name::new(volume)?, 1);
        let value = mode.map_or_else(|| self.mode_of(&volume), Ok)?;
        let mode = At { value, line };
        let off = At { value: off, line };
        let change = Change::SetMode { volume, mode, off };
        self.agree(std::slice::from_ref(&change)).await?;
        self.apply(&change).await
    }

    /// The mode of a volume while it is on.
    pub(super) fn mode_of(&self, volume: &Name) -> Result<VolumeMode, Refusal> {
        let config = self.devices.config();
        let volume = config.volumes.iter().find(|v| v.name.value == *volume);
        let volume = volume.ok_or("it is not in the configuration")?;
        Ok(volume.mode.value)
    }

    /// Changes the configuration by `changes`, once it agrees with itself after them and `work` has
    /// carried them out.
    async fn make_all(
        &self,
        changes: Vec<Change>,
        work: impl Future<Output = Result<(), Refusal>>,
    ) -> Result<(), Refusal> {
        self.agree(&changes).await?;
        work.await?;
        self.note_all(&changes);
        Ok(())
    }

    /// Serves a volume that writes through, writes around or passes through.
    async fn add_by_request(&self, text: &str, device: Option<String>) -> Result<(), Refusal> {
        let volume = config::Volume::parse(text)?;
        if volume.in_force() == VolumeMode::WriteBack {
            return Err(format!(
                "volume {name} has no log yet; add it as write-through, and then give it one by \
                 `hotset volume set-mode {name} write-back --log`",
                name = volume.name.value
            ));
        }
        let origin = self.origin_of(&volume, device)?;
        let added = Change::AddVolume(Box::new(volume.clone()));
        let changes = Self::known_by(&origin).into_iter().chain([added]);
        let work = self.add_volume(&volume, &origin);
        self.make_all(changes.collect(), work).await
    }

    async fn make_pool(&self, text: &str, devices: Vec<String>) -> Result<(), Refusal> {
        let pool = config::Pool::parse(text)?;
        let devices = self.devices_of(&pool, devices)?;
        let added = Change::AddPool(Box::new(pool.clone()));
        let known = devices.iter().filter_map(Self::known_by);
        let changes = known.chain([added]).collect();
        self.make_all(changes, self.add_pool(&pool, &devices)).await
    }

    async fn give_pool_device(&self, pool: &str, device: NamedOrNew) -> Result<(), Refusal> {
        let pool = self.pool(pool)?.name.clone();
        let source = self.named_or_new(device)?;
        let given = Change::GivePoolDevice {
            pool: pool.clone(),
            device: source.name().clone(),
        };
        let changes = Self::known_by(&source).into_iter().chain([given]);
        let work = self.add_device(&pool, &source);
        self.make_all(changes.collect(), work).await
    }

    async fn add_member(
        &self,
        array: &str,
        device: NamedOrNew,
        overwrite: bool,
    ) -> Result<(), Refusal> {
        let source = self.named_or_new(device)?;
        let (name, device) = (Name::new(array)?, source.name().clone());
        let given = match self.devices.is_for_role(array, &device) {
            true => Change::GiveMember {
                array: name,
                device,
            },
            false => Change::GiveSpare {
                array: name,
                device,
            },
        };
        let changes = Self::known_by(&source).into_iter().chain([given]);
        let work = self.devices.give_member(array, None, &source, overwrite);
        self.make_all(changes.collect(), work).await
    }

    /// Begins an exchange. Its device is a spare of the array until the exchange has ended.
    async fn replace_member(
        &self,
        array: &str,
        member: &str,
        device: NamedOrNew,
        overwrite: bool,
    ) -> Result<(), Refusal> {
        let source = self.named_or_new(device)?;
        let (name, device) = (Name::new(array)?, source.name().clone());
        let spare = !self.devices.is_configured(&name, &device);
        let given = spare.then_some(Change::GiveSpare {
            array: name,
            device,
        });
        let changes = Self::known_by(&source).into_iter().chain(given);
        let work = self
            .devices
            .exchange_member(array, member, &source, overwrite);
        self.make_all(changes.collect(), work).await
    }

    /// Changes the mode of a volume to one without a log.
    async fn set_mode_by_request(
        &self,
        volume: &str,
        mode: &str,
        has_devices: bool,
    ) -> Result<(), Refusal> {
        let Some(value @ VolumeMode::Cached(_)) = VolumeMode::from_name(mode) else {
            let names = VolumeMode::ALL.map(VolumeMode::name).join(", ");
            return Err(format!("{mode:?} is no mode; choose one of {names}"));
        };
        match has_devices {
            true => Err(format!(
                "volume {volume} is {mode} without a log; give its devices with write-back"
            )),
            false => self.use_pool(volume, Some(value), false).await,
        }
    }

    /// Carries out a request that changes volumes or pools.
    pub(super) async fn change(&self, request: ControlRequest) -> Result<(), Refusal> {
        match request {
            ControlRequest::SetMode {
                volume,
                mode,
                log,
                journal,
            } => {
                let has_devices = !log.is_empty() || journal.is_some();
                self.set_mode_by_request(&volume, &mode, has_devices).await
            }
            ControlRequest::SetOff { volume, off } => self.use_pool(&volume, None, off).await,
            ControlRequest::Quiesce { volume } => self.quiesce(&volume).await,
            ControlRequest::Resume { volume } => self.resume(&volume).await,
            ControlRequest::GrowVolume { volume } => self.grow(&volume).await,
            ControlRequest::Invalidate { volume } => self.invalidate(&volume).await,
            ControlRequest::TakeOver { volume } => self.take_over_origin(&volume).await,
            ControlRequest::AddVolume { volume, device } => {
                self.add_by_request(&volume, device).await
            }
            ControlRequest::Attach { attach } => self.attach(Attach::parse(&attach)?).await,
            ControlRequest::Listen { listen } => self.listen(Listen::parse(&listen)?).await,
            ControlRequest::Close { place } => self.close(place).await,
            ControlRequest::RemoveVolume { volume } => {
                self.apply(&Change::RemoveVolume(Name::new(&volume)?)).await
            }
            ControlRequest::AddPool { pool, devices } => self.make_pool(&pool, devices).await,
            ControlRequest::RemovePool { pool } => {
                let pool = self.pool(&pool)?.name.clone();
                self.apply(&Change::RemovePool(pool)).await
            }
            ControlRequest::AddDevice { pool, device } => {
                self.give_pool_device(&pool, device).await
            }
            ControlRequest::RemoveDevice { pool, device } => {
                let pool = self.pool(&pool)?.name.clone();
                let device = Name::new(&device)?;
                self.apply(&Change::TakePoolDevice { pool, device }).await
            }
            ControlRequest::ReadmitDevice { pool, device } => {
                let (pool, device) = (Name::new(&pool)?, Name::new(&device)?);
                self.readmit(&pool, &device).await
            }
            request => self.change_array(request).await,
        }
    }

    /// Carries out a request that changes an array. Other requests change files of the
    /// configuration themselves, or are answered at any time.
    async fn change_array(&self, request: ControlRequest) -> Result<(), Refusal> {
        match request {
            ControlRequest::FailMember { array, member } => {
                self.devices.fail_member(&array, &member).await
            }
            ControlRequest::AddMember {
                array,
                device,
                overwrite,
            } => self.add_member(&array, device, overwrite).await,
            ControlRequest::ReplaceMember {
                array,
                member,
                device,
                overwrite,
            } => {
                self.replace_member(&array, &member, device, overwrite)
                    .await
            }
            ControlRequest::Exchanged {
                array,
                member,
                device,
            } => {
                let [array, member, device] = [array, member, device].map(|name| Name::new(&name));
                let change = Change::Exchanged {
                    array: array?,
                    member: member?,
                    device: device?,
                };
                self.devices.end_exchange(&change).await
            }
            ControlRequest::Scrub { array, repair } => {
                self.devices.scrub(&array, repair)?;
                self.look_at_jobs();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Makes additions in their order. If one is refused, those before it are undone. A change of
    /// mode comes last: a log takes over in the moment at which `draft` is in its place.
    pub(super) async fn set_up(
        &self,
        mut additions: Vec<ControlRequest>,
        draft: Option<Box<dyn ConfigurationDraft>>,
    ) -> Result<Option<ConfigurationFiles>, Refusal> {
        self.try_devices(&additions).await?;
        let mode = additions.pop_if(|last| matches!(last, ControlRequest::SetMode { .. }));
        let removals: Vec<Change> = additions.iter().map(removal).collect::<Result<_, _>>()?;
        let before = self.devices.config();
        for (made, addition) in additions.into_iter().enumerate() {
            if let Err(why) = self.change(addition).await {
                return Err(self.undo(&removals[..made], &before, why).await);
            }
        }
        let Some(mode) = mode else {
            return kept(draft).await;
        };
        match Box::pin(self.make(mode, draft)).await {
            Ok(files) => Ok(files),
            Err(why) => Err(self.undo(&removals, &before, why).await),
        }
    }

    /// Opens the origins and logs of new volumes before the devices of new pools are overwritten.
    async fn try_devices(&self, additions: &[ControlRequest]) -> Result<(), Refusal> {
        for addition in additions {
            match addition {
                ControlRequest::AddVolume { volume, device } => {
                    let volume = config::Volume::parse(volume)?;
                    let origin = self.origin_of(&volume, device.clone())?;
                    let opened = self.devices.open(&origin, RawRole::Origin).await;
                    let lease = opened.map_err(|error| cannot_open(error, &volume, &origin))?;
                    lease.release().await;
                }
                ControlRequest::SetMode {
                    volume,
                    log,
                    journal,
                    ..
                } => {
                    for device in log {
                        self.try_log_device(volume, device).await?;
                    }
                    if let Some(device) = journal {
                        let device = self.named_or_new(device.clone())?;
                        let lease = self.devices.open(&device, RawRole::Log).await;
                        lease.map_err(refusal)?.release().await;
                    }
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// Refuses a device that cannot have a copy of the log of `volume`.
    async fn try_log_device(&self, volume: &str, device: &NamedOrNew) -> Result<(), Refusal> {
        let device = self.named_or_new(device.clone())?;
        let lease = self.devices.open(&device, RawRole::Log).await;
        let lease = lease.map_err(refusal)?;
        let name = device.name().as_str();
        let unfit = writelog::unfit_for_log(volume, name, &lease.leaf, &self.env()).await;
        lease.release().await;
        unfit.map_or(Ok(()), Err)
    }

    /// Applies the removals of a set-up's additions, the last first. Returns `why`, the cause, with
    /// the additions that stay.
    async fn undo(&self, removals: &[Change], before: &Config, why: Refusal) -> Refusal {
        let mut stay = Vec::new();
        for removal in removals.iter().rev() {
            if let Err(kept) = self.apply(removal).await {
                stay.push(kept);
            }
        }
        match stay.is_empty() {
            true => {
                self.devices.adopt(before.clone());
                why
            }
            false => format!("{why}. Its earlier additions stay: {}", stay.join("; ")),
        }
    }

    /// Notes a change that has happened, even if `result` is a failure.
    fn noted_if(
        &self,
        happened: bool,
        change: &Change,
        result: Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if happened {
            self.note(change);
        }
        result
    }

    /// Carries out one step of a plan, or leaves all as before.
    pub(super) async fn apply(&self, change: &Change) -> Result<(), Refusal> {
        match change {
            Change::Limits { grace, stop } => {
                self.grace.set(nanos(grace.value));
                self.stop.set(nanos(stop.value));
            }
            Change::CloseListener(place) => {
                if let Some(volume) = self.guest_at(place)? {
                    self.change_frontends(&volume, change).await?;
                }
                self.frontends
                    .iter()
                    .for_each(|frontend| frontend.close(place));
            }
            Change::OpenListener(listen) => {
                if let Some(volume) = listen.guest_volume() {
                    self.change_frontends(&Name::new(&volume)?, change).await?;
                }
                for frontend in &self.frontends {
                    frontend.open(listen).map_err(refusal)?;
                }
            }
            Change::RenewListener(listen) => {
                for frontend in &self.frontends {
                    frontend.renew(listen).map_err(refusal)?;
                }
            }
            Change::Attach(attach) => self.change_frontends(&attach.ublk.value, change).await?,
            Change::Detach(volume) => self.change_frontends(volume, change).await?,
            Change::SetMode { volume, mode, off } => {
                let mode = mode.value.unless(off.value).cached();
                self.set_mode(volume, mode).await?;
            }
            Change::WriteBack(volume) => drop(self.switch(volume, &[], None).await?),
            Change::AddVolume(volume) => {
                let origin = self.known(&volume.origin.value)?;
                self.add_volume(volume, &origin).await?;
            }
            Change::RemoveVolume(volume) => {
                let removed = self.remove_volume(volume).await;
                // The volume may be gone although its origin could not be made durable.
                return self.noted_if(!self.has_volume(volume), change, removed);
            }
            Change::RemovePool(_)
            | Change::AddPool(_)
            | Change::GivePoolDevice { .. }
            | Change::TakePoolDevice { .. }
            | Change::GiveSpare { .. } => return self.apply_to_devices(change).await,
            Change::PutArray(array) => self.devices.forget_inactive(&array.name.value),
            Change::DropArray(array) => self.devices.forget_inactive(array),
            // These change the configuration alone.
            Change::PutDevice(_)
            | Change::DropDevice(_)
            | Change::GiveMember { .. }
            | Change::Exchanged { .. }
            | Change::Cold { .. }
            | Change::StartDegraded { .. }
            | Change::PutLog(_) => (),
        }
        self.note(change);
        Ok(())
    }

    /// As [`Node::apply`], for pools and spares.
    async fn apply_to_devices(&self, change: &Change) -> Result<(), Refusal> {
        match change {
            Change::RemovePool(pool) => self.remove_pool(pool).await?,
            Change::AddPool(pool) => {
                let devices = self.devices_of(pool, Vec::new())?;
                self.add_pool(pool, &devices).await?;
            }
            Change::GivePoolDevice { pool, device } => {
                let device = self.known(device)?;
                self.add_device(pool, &device).await?;
            }
            Change::TakePoolDevice { pool, device } => {
                let taken = self.remove_device(pool, device).await;
                let pool = self.pool(pool.as_str());
                let has = pool.is_ok_and(|pool| pool.devices.borrow().contains_key(device));
                return self.noted_if(taken.is_ok() || !has, change, taken);
            }
            Change::GiveSpare { array, device } if self.devices.runs(array) => {
                let (array, source) = (array.as_str(), self.known(device)?);
                let given = self.devices.give_member(array, None, &source, false);
                given.await?;
            }
            // A spare of an array that does not run changes the configuration alone.
            _ => (),
        }
        self.note(change);
        Ok(())
    }
}

/// The change that undoes an addition.
fn removal(addition: &ControlRequest) -> Result<Change, Refusal> {
    match addition {
        ControlRequest::AddPool { pool, .. } => {
            let pool = config::Pool::parse(pool)?;
            Ok(Change::RemovePool(pool.name.value))
        }
        ControlRequest::AddDevice { pool, device } => Ok(Change::TakePoolDevice {
            pool: Name::new(pool)?,
            device: device.name()?,
        }),
        ControlRequest::AddVolume { volume, .. } => {
            let volume = config::Volume::parse(volume)?;
            Ok(Change::RemoveVolume(volume.name.value))
        }
        ControlRequest::Attach { attach } => {
            Ok(Change::Detach(Attach::parse(attach)?.ublk.value))
        }
        ControlRequest::Listen { listen } => {
            Ok(Change::CloseListener(Listen::parse(listen)?.place()))
        }
        _ => Err(
            "a set-up makes pools, volumes, attachments and listeners, gives devices to pools, and \
             may change a mode at its end; give other changes by themselves"
                .into(),
        ),
    }
}
