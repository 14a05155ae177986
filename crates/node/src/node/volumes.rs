//! Volumes of a running node: serving, changing and removing them.

use super::again::OPEN_MAX;
use super::refusal::{Refusal, refusal};
use super::write_back::{LogDevices, as_it_was, looked_at, release};
use super::{Node, NodePool, NodeVolume};
use crate::arrays::DeviceSource;
use crate::event::NodeEvent;
use crate::frontend::{VolumeAbout, frontend_memory};
use crate::leaf::Leaf;
use crate::log::OpenLog;
use crate::origins::GuardedOrigin;
use crate::place::{OpenedPlace, RawRole};
use crate::platform::{Platform, ReservationStep};
use crate::served_volume::ServedVolume;
use block::{
    BoxDevice, Deadline, Device, Driver, Gate, Geometry, IoError, IoErrorKind, IoResult, Sectors,
};
use cache::{CacheMode, VolumeConfig};
use control::config::{self, Config, Name, VolumeMode};
use control::plan::Change;
use futures_util::future::join_all;
use layout::BLOCK_BYTES;
use origin::OriginRecord;
use std::cmp::Ordering;

/// The layers of a volume, opened and not begun.
struct VolumeLayers<D: Driver> {
    guard: GuardedOrigin<D>,
    cached: cache::Volume<Leaf<D>>,
    /// The log with its missing devices, to be reported once the log has begun.
    log: Option<(OpenLog<D>, Vec<NodeEvent>)>,
}

impl<P: Platform> Node<P> {
    pub(super) async fn add_volume(
        &self,
        volume: &config::Volume,
        origin: &DeviceSource,
    ) -> Result<(), Refusal> {
        let name = &volume.name.value;
        if self.volumes.borrow().contains_key(name) {
            return Err(format!("a volume is named {name}; choose another name"));
        }
        if let Some(waiting) = self.waiting.borrow().get(name) {
            return Err(format!(
                "volume {name} of the configuration is not served yet: {}; mend that, or remove \
                 the volume first",
                waiting.why
            ));
        }
        if origin.is_read_only() && !volume.read_only.value {
            return Err(format!(
                "volume {name} is writable on a read-only device; make it read-only too"
            ));
        }
        self.open_volume(volume, origin).await
    }

    /// Opens the origin of `volume`, and serves it.
    pub(super) async fn open_volume(
        &self,
        volume: &config::Volume,
        origin: &DeviceSource,
    ) -> Result<(), Refusal> {
        let opened = self.devices.open(origin, RawRole::Origin).await;
        let lease = opened.map_err(|error| cannot_open(error, volume, origin))?;
        let logs = match self.reserve_origin(volume, &lease).await {
            Ok(()) => self.log_devices(volume, &[]).await,
            Err(why) => Err(why),
        };
        let logs = match logs {
            Ok(logs) => logs,
            Err(why) => {
                lease.release().await;
                return Err(why);
            }
        };
        let served = self.serve_volume(volume, origin, &lease, &logs).await;
        match &served {
            Ok(()) => logs.into_iter().for_each(|(_, log)| {
                if let Ok(log) = log {
                    log.keep();
                }
            }),
            Err(_) => release(logs).await,
        }
        lease.settle(served).await
    }

    /// Serves `volume` from its open origin.
    async fn serve_volume(
        &self,
        volume: &config::Volume,
        origin: &DeviceSource,
        opened: &OpenedPlace<P>,
        logs: &LogDevices<P>,
    ) -> Result<(), Refusal> {
        let name = &volume.name.value;
        let pool = self.pool(volume.pool.as_str())?;
        let layers = self.open_layers(volume, &pool, opened, logs).await?;
        let VolumeLayers { guard, cached, log } = layers;
        let (log, absent) = log.unzip();
        if let Some(log) = &log {
            guard.keep_with(log);
        }
        guard.begin().await;
        if let Some(log) = &log
            && let Err(error) = log.begin().await
        {
            cached.close().await;
            return Err(refusal(error));
        }
        let absent = absent.into_iter().flatten();
        absent.for_each(|event| self.platform.event(event));
        let block = cached.geometry().block;
        let serving = ServedVolume::new(cached, log, pool.line_bytes, self.env().timer);
        let about = VolumeAbout {
            description: format!("{} cached in pool {}", opened.place, pool.name),
            origin: guard.identity().clone(),
            read_only: volume.read_only.value,
            block,
            ..self.about(name, &self.devices.config())
        };
        let gate = Gate::new(serving.clone(), self.env());
        if let Err(error) = self.offer(name, &gate, &about).await {
            if let Some(log) = serving.log() {
                log.engine().close().await;
            }
            serving.cached().close().await;
            return Err(refusal(error));
        }
        let origin = origin.name().clone();
        let served = NodeVolume {
            gate,
            about,
            volume: serving,
            guard,
            origin,
            pool: pool.name.clone(),
            reserved: volume.reserve.value.then(|| opened.place.as_str().into()),
        };
        self.volumes.borrow_mut().insert(name.clone(), served);
        Ok(())
    }

    /// Opens the layers of `volume` on its open origin, from below.
    async fn open_layers(
        &self,
        volume: &config::Volume,
        pool: &NodePool<P::Driver>,
        opened: &OpenedPlace<P>,
        logs: &LogDevices<P>,
    ) -> Result<VolumeLayers<P::Driver>, Refusal> {
        let name = &volume.name.value;
        let sectors = sectors_of(volume, opened.leaf.geometry())?;
        let size = sectors.unwrap_or(opened.leaf.geometry().sectors);
        // The device may lose writes of others in its volatile cache without notice.
        opened.leaf.flush().await.map_err(refusal)?;
        let found = match volume.in_force() {
            VolumeMode::Cached(_) => None,
            VolumeMode::WriteBack => {
                let (devices, witness) = (looked_at(logs), self.log_witness(name).await?);
                let found = self.find_log(volume, size, &opened.identity, devices, witness);
                Some(found.await?)
            }
        };
        let record = pool.cache.origin_record(name.as_str());
        let say = |event| self.say(name, event);
        let guard =
            GuardedOrigin::guard(&self.platform, &say, &pool.cache, name, size, opened).await;
        let guard = guard.map_err(refusal)?;
        let config = VolumeConfig {
            name: name.as_str().into(),
            sectors,
            mode: volume.in_force().cached(),
        };
        let below = BoxDevice::new(guard.device());
        let cached = pool.cache.add_volume(config, below).map_err(refusal)?;
        // After a refusal for dirty data, the next start must find the same record.
        pool.cache.set_origin_record(name.as_str(), &record);
        let log = match found {
            None => None,
            Some(mut found) => {
                let absent = std::mem::take(&mut found.absent);
                match self.open_log(volume, found, &cached, opened, &record).await {
                    Ok(log) => Some((log, absent)),
                    Err(why) => {
                        cached.close().await;
                        return Err(why);
                    }
                }
            }
        };
        Ok(VolumeLayers { guard, cached, log })
    }

    /// The offer of a volume by the frontends that `config` names.
    fn about(&self, name: &Name, config: &Config) -> VolumeAbout {
        VolumeAbout {
            frontends: config.frontends_of(name.as_str()),
            memory_bytes_max: frontend_memory(config, &self.env()),
            ..VolumeAbout::default()
        }
    }

    /// Applies `change` to the frontends of the volume `name`, if it is served.
    pub(super) async fn change_frontends(
        &self,
        name: &Name,
        change: &Change,
    ) -> Result<(), Refusal> {
        let Some(served) = self.volumes.borrow().get(name).cloned() else {
            return Ok(());
        };
        let before = self.devices.config();
        let mut after = (*before).clone();
        change.record(&mut after);
        let [was, is] = [&before, &after].map(|config| VolumeAbout {
            description: served.about.description.clone(),
            origin: served.about.origin.clone(),
            read_only: served.about.read_only,
            block: served.about.block,
            ..self.about(name, config)
        });
        // Frontends close before others open, so that no two are open that must not be.
        let common = VolumeAbout {
            frontends: was.frontends.common(&is.frontends),
            ..was.clone()
        };
        let mut done = self.offer_as(name, &served, &common).await;
        if done.is_ok() {
            done = self.offer_as(name, &served, &is).await;
        }
        if let Err(error) = done {
            let why = refusal(error);
            // A frontend that could not be closed cannot be closed now.
            let _ = self.offer_as(name, &served, &common).await;
            let back = self.offer_as(name, &served, &was).await;
            return Err(match back {
                Ok(()) => why,
                Err(error) => format!("{why}; and it is not offered as before: {error}"),
            });
        }
        Ok(())
    }

    /// Makes each frontend offer a volume as in `about`.
    async fn offer_as(&self, name: &Name, served: &NodeVolume<P>, about: &VolumeAbout) -> IoResult {
        let grace = self.grace.get();
        for frontend in &self.frontends {
            let changed = frontend.change(name.as_str(), &served.gate, about, grace);
            changed.await?;
        }
        Ok(())
    }

    /// Offers the volume behind `gate` by every frontend, or by none.
    async fn offer(
        &self,
        name: &Name,
        gate: &Gate<ServedVolume<P::Driver>>,
        about: &VolumeAbout,
    ) -> IoResult {
        for (n, frontend) in self.frontends.iter().enumerate() {
            if let Err(error) = frontend.add(name.as_str(), gate.clone(), about) {
                self.withdraw(name, n).await?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Withdraws a volume from the first `most` frontends.
    pub(super) async fn withdraw(&self, name: &Name, most: usize) -> IoResult {
        let frontends = self.frontends.iter().take(most);
        let each = frontends.map(|frontend| frontend.withdraw(name.as_str(), self.grace.get()));
        join_all(each).await.into_iter().collect()
    }

    pub(super) async fn remove_volume(&self, name: &Name) -> Result<(), Refusal> {
        let waiting = self.waiting.borrow().get(name).map(|w| w.volume.clone());
        if self.give_up_waiting(name)? {
            let reserved = waiting.filter(|volume| volume.reserve.value);
            if let Some(place) = reserved.and_then(|volume| self.place_of(&volume)) {
                self.end_reservation(name, &place, ReservationStep::Leave)
                    .await;
            }
            return Ok(());
        }
        let none = || self.no_volume(name.as_str());
        let served = self.volumes.borrow().get(name).cloned();
        let served = served.ok_or_else(none)?;
        self.detach(name).await?;
        // Writes held back for a snapshot go on, so that the volume can end.
        let _ = served.volume.cached().resume();
        served.volume.go_on();
        let ended = self.take_down(name).await?;
        if let Some(place) = &served.reserved {
            self.end_reservation(name, place, ReservationStep::Leave)
                .await;
        }
        let pool = self.pool(served.pool.as_str())?;
        pool.cache.forget(name.as_str());
        pool.cache.remember().await;
        pool.cache.trim_forgotten();
        ended.map_err(|error| {
            format!("the volume is removed, but its origin may have lost writes: {error}; check it")
        })
    }

    /// Stops serving a volume without a log, and releases its origin. Returns the result of the
    /// last writes.
    async fn take_down(&self, name: &Name) -> Result<IoResult, Refusal> {
        let (_, served) = self.served(name.as_str())?;
        // Acknowledged writes of clients are made durable before the device is released.
        self.withdraw(name, self.frontends.len())
            .await
            .map_err(refusal)?;
        let flushed = served.volume.flush().await;
        served.volume.cached().close().await;
        self.volumes.borrow_mut().remove(name);
        let closed = self.devices.close(&served.origin).await;
        Ok(flushed.and(closed))
    }

    /// Serves a volume with the present size of its origin. Clients connect again, as after a
    /// restart. Its lines stay in the pool, if the origin's content still proves its identity. A log
    /// is drained and given up while clients are served, and begun again with the new size.
    pub(super) async fn grow(&self, name: &str) -> Result<(), Refusal> {
        let (name, served) = self.served(name)?;
        let config = self.devices.config();
        let volume = config.volumes.iter().find(|v| v.name.value == name);
        let volume = volume.ok_or("it is not in the configuration")?;
        let origin = self.known(&served.origin)?;
        if let Some(why) = stays_as_it_is(&served, volume, &origin, &config) {
            return Err(format!("volume {name} {why}"));
        }
        let now = self.grown(&name, &served).await?;
        let had_log = served.volume.log().is_some();
        self.detach(&name).await?;
        let flushed = Deadline::new(&self.env().timer, self.stop.get());
        let flushed = flushed.bound(served.volume.flush()).await;
        let flushed = match flushed {
            None => {
                let why = as_it_was(&name, "its origin does not answer");
                return Err(match had_log {
                    true => self.begin_log_again(volume, why).await,
                    false => why,
                });
            }
            // The volume keeps its clients. A log is begun only on an origin that is opened again.
            Some(Err(error)) if !had_log => return Err(refusal(error)),
            Some(flushed) => flushed,
        };
        let ended = flushed.and(self.take_down(&name).await?);
        if ended.is_ok() {
            self.keep_lines(&name, &served, now).await;
        }
        drop(served);
        let opened = self.open_volume(volume, &origin).await;
        if let Err(why) = &opened {
            self.wait_again(volume, why.clone());
        }
        let lost = |error| format!("may have lost writes: {error}");
        match (opened, ended.map_err(lost)) {
            (Ok(()), Ok(())) => Ok(()),
            (Ok(()), Err(lost)) => Err(format!("volume {name} is served, but {lost}")),
            (Err(why), Ok(())) => Err(format!(
                "volume {name} is not served, and tried again: {why}"
            )),
            (Err(why), Err(lost)) => Err(format!(
                "volume {name} is not served, and tried again: {why}. It {lost}"
            )),
        }
    }

    /// The present size of a volume's origin; `Err` if it has not grown.
    async fn grown(&self, name: &Name, served: &NodeVolume<P>) -> Result<Sectors, Refusal> {
        let before = served.volume.cached().geometry().sectors.bytes();
        let (place, is_file, of_export) = {
            let open = self.devices.open.borrow();
            let opened = open.get(&served.origin).ok_or("its origin is not open")?;
            (opened.place.clone(), opened.is_file(), opened.grown())
        };
        let now = match is_file {
            true => {
                let timer = self.env().timer;
                let asked = self.platform.size(&place);
                Deadline::new(&timer, OPEN_MAX).bound(asked).await.flatten()
            }
            false => Some(of_export.unwrap_or(before)),
        };
        let now = now.ok_or_else(|| {
            format!("the size of {place} cannot be read; bring it back, and try again")
        })?;
        let [was, is] = [before, now].map(config::ByteCount);
        match now.cmp(&before) {
            Ordering::Greater if served.volume.log().is_some() && now % BLOCK_BYTES as u64 > 0 => {
                Err(format!(
                    "volume {name} cannot grow to {is}: write-back needs a size that is a multiple \
                     of 4 KiB; make its origin a little larger"
                ))
            }
            Ordering::Greater => Ok(Sectors(now / block::SECTOR_BYTES)),
            Ordering::Equal => Err(format!("volume {name} has not grown: its origin has {is}")),
            Ordering::Less => Err(format!(
                "volume {name} has {was}, and its origin has {is} now: it was cut short; restore it"
            )),
        }
    }

    /// Keeps the lines of a volume that has ended in order, and is served next with `sectors`.
    async fn keep_lines(&self, name: &Name, served: &NodeVolume<P>, sectors: Sectors) {
        let Ok(pool) = self.pool(served.pool.as_str()) else {
            return;
        };
        if let Ok(record) = OriginRecord::decode(&pool.cache.origin_record(name.as_str())) {
            let record = OriginRecord { sectors, ..record };
            pool.cache
                .set_origin_record(name.as_str(), &record.encode());
            pool.cache.grow(name.as_str(), sectors);
            pool.cache.remember().await;
        }
    }

    /// Changes the mode of a volume; a log is given up first.
    pub(super) async fn set_mode(&self, volume: &Name, mode: CacheMode) -> Result<(), Refusal> {
        let served = self.volume(volume.as_str())?;
        if served.cached().is_quiesced() && served.log().is_some() {
            return Err(format!("volume {volume} is quiesced; resume it first"));
        }
        self.detach(volume).await?;
        served.cached().set_mode(mode);
        Ok(())
    }

    fn served(&self, name: &str) -> Result<(Name, NodeVolume<P>), Refusal> {
        self.volume(name)?;
        let name = Name::new(name)?;
        let served = self.volumes.borrow()[&name].clone();
        Ok((name, served))
    }

    /// Quiesces a volume: holds back its changes and makes its origin durable.
    pub(super) async fn quiesce(&self, name: &str) -> Result<(), Refusal> {
        let (name, served) = self.served(name)?;
        if served.volume.cached().is_quiesced() {
            return served.volume.cached().quiesce().await.map_err(refusal);
        }
        let at_rest = self.rest(&name, &served).await?;
        let quiesced = served.volume.cached().quiesce().await.map_err(refusal);
        if served.volume.cached().is_quiesced() {
            served.volume.stay(at_rest);
        }
        quiesced
    }

    /// Resumes a quiesced volume.
    pub(super) async fn resume(&self, name: &str) -> Result<(), Refusal> {
        let volume = self.volume(name)?;
        let resumed = volume.cached().resume().map_err(refusal);
        volume.go_on();
        resumed
    }

    /// Drops all cached lines of a volume, and makes a new record of its origin.
    pub(super) async fn invalidate(&self, name: &str) -> Result<(), Refusal> {
        let (_, served) = self.served(name)?;
        let volume = &served.volume;
        let was_quiesced = volume.cached().is_quiesced();
        if !was_quiesced {
            self.quiesce(name).await?;
        }
        let mut done = volume.cached().invalidate().await;
        if done.is_ok() {
            done = served.guard.renew().await;
        }
        if !was_quiesced {
            self.resume(name).await?;
        }
        done.map_err(refusal)
    }
}

/// The size that the configuration gives `volume`, if that fits the origin.
fn sectors_of(volume: &config::Volume, origin: &Geometry) -> Result<Option<Sectors>, Refusal> {
    match &volume.size {
        None => Ok(None),
        Some(size) if size.value.0 > origin.sectors.bytes() => Err(format!(
            "volume {} of {} is larger than its origin {} of {}; \
             make the origin larger, or the volume smaller",
            volume.name.value,
            size.value,
            origin.name,
            config::ByteCount(origin.sectors.bytes()),
        )),
        Some(size) => Ok(Some(Sectors(size.value.0 / block::SECTOR_BYTES))),
    }
}

/// The reason why a volume cannot grow, if there is one.
fn stays_as_it_is<P: Platform>(
    served: &NodeVolume<P>,
    volume: &config::Volume,
    origin: &DeviceSource,
    config: &Config,
) -> Option<&'static str> {
    if served.volume.cached().is_quiesced() {
        return Some("is quiesced; resume it first");
    }
    if volume.size.is_some() {
        return Some("has the `size` of the configuration, which is changed by `hotset reload`");
    }
    // Frontends come and go while the volume is served.
    if config.frontends_of(volume.name.as_str()).ublk.is_some() {
        return Some("is a block device, which grows when the daemon is started again");
    }
    let is_array = matches!(origin, DeviceSource::Array(_));
    is_array.then_some("is on an array, which keeps its size")
}

/// The message for an origin that cannot be opened. Only an origin can be served without writes.
pub(super) fn cannot_open(
    error: IoError,
    volume: &config::Volume,
    origin: &DeviceSource,
) -> Refusal {
    let refused = matches!(error.kind(), IoErrorKind::ReadOnly | IoErrorKind::Denied);
    let may_be_read = volume.in_force() != VolumeMode::WriteBack && !origin.is_read_only();
    match origin {
        DeviceSource::Device(device) if refused && may_be_read && device.path.is_some() => format!(
            "{error}; or set `read_only` of device {} and of volume {}, to serve it without writes",
            origin.name(),
            volume.name.value
        ),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_there_where_a_volume_may_do_without_writes() {
        let origin = |more: &str| {
            let text = format!("name = \"hdd\"\npath = \"/dev/null\"\n{more}");
            DeviceSource::Device(Box::new(config::Device::parse(&text).unwrap()))
        };
        let said = |kind, mode: &str, more: &str| {
            let text = format!("name = \"web\"\norigin = \"hdd\"\npool = \"fast\"\n{mode}");
            let volume = config::Volume::parse(&text).unwrap();
            cannot_open(IoError::new(kind, "no"), &volume, &origin(more))
        };
        let remedy = "no; or set `read_only` of device hdd and of volume web, to serve it without \
                      writes";
        for kind in [IoErrorKind::ReadOnly, IoErrorKind::Denied] {
            assert_eq!(said(kind, "", ""), remedy);
            assert_eq!(said(kind, "mode = \"write-back\"", ""), "no");
            assert_eq!(said(kind, "", "read_only = true"), "no");
        }
        assert_eq!(said(IoErrorKind::Gone, "", ""), "no");
    }
}
