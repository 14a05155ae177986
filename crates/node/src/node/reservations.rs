//! Reservations of origins: taken before a volume is served, looked at meanwhile, ended at its end.
//!
//! Invariants:
//!     a volume with `reserve` writes to its origin ⟹ the origin was reserved for this host before
//!     the volume is served with lines, or dirty data, from before ⟹ its host's key has lasted
//!     a look finds another host there ⟹ no request of the volume is answered with data from then
//!     an origin that others may have had is served ⟹ their daemons had the time for two looks
//!     a volume ends in order, with nothing dirty ⟹ so does its reservation; else that stays
//!
//! Not here: the commands to the device (`Platform::reservation`). A host that is paused at the
//! loss of an origin, or has no path, looks late: until then its cache may answer.

use super::refusal::{Refusal, refusal};
use super::waiting::WaitingVolume;
use super::{IDLE_PERIOD, Node, NodeVolume};
use crate::event::NodeEvent;
use crate::place::OpenedPlace;
use crate::platform::{Platform, ReservationStep};
use block::{IoErrorKind, Nanos};
use control::config::{self, Name};
use futures_util::future::join;
use std::rc::Rc;

/// Interval of looks at reservations.
const PERIOD: Nanos = Nanos::from_secs(1);
/// Wait of a takeover for an attempt to open the volume.
const ATTEMPT_MAX: Nanos = Nanos::from_secs(20);
/// Interval of looks for the end of one.
const TICK: Nanos = Nanos::from_millis(20);
/// Wait of a host that takes an origin, before its first read there.
const HEED: Nanos = Nanos::from_secs(3);

impl<P: Platform> Node<P> {
    /// Reserves the origin of `volume` for this host, if the configuration asks for that. Drops
    /// the lines of an origin that others may have had.
    pub(super) async fn reserve_origin(
        &self,
        volume: &config::Volume,
        opened: &OpenedPlace<P>,
    ) -> Result<(), Refusal> {
        let (name, place) = (&volume.name.value, opened.place.as_str());
        if !volume.reserve.value || self.reserve(name, place, ReservationStep::Resume).await? {
            return Ok(());
        }
        // First, so that a crash after the reservation leaves no line to be trusted.
        self.distrust(volume, place).await?;
        self.reserve(name, place, ReservationStep::Take).await?;
        self.env().timer.sleep(HEED).await;
        Ok(())
    }

    /// Carries out a step for the volume `name`.
    async fn reserve(
        &self,
        name: &Name,
        place: &str,
        step: ReservationStep,
    ) -> Result<bool, Refusal> {
        let done = self.platform.reservation(place, name, step).await;
        let mut elsewhere = self.reservations.elsewhere.borrow_mut();
        match done {
            Err(error) if error.kind() == IoErrorKind::Reserved => {
                elsewhere.insert(name.clone());
                Err(reserved_elsewhere(name, place))
            }
            done => {
                if !matches!(done, Ok(false)) {
                    elsewhere.remove(name);
                }
                done.map_err(refusal)
            }
        }
    }

    /// Drops the lines of a volume with an origin that others may have written to. Refuses one with
    /// dirty data.
    async fn distrust(&self, volume: &config::Volume, place: &str) -> Result<(), Refusal> {
        let name = &volume.name.value;
        let why = "was not reserved for this host since it was served last, and others may have \
                   written to it";
        let logs = self.platform.logs().await.map_err(refusal)?;
        let mut superblocks = logs.iter().map(|log| &log.superblock);
        if superblocks.any(|log| log.volume == name.as_str() && log.may_be_dirty) {
            self.reservations.elsewhere.borrow_mut().remove(name);
            return Err(format!(
                "{place} {why}; the log of volume {name} may have dirty data, which would overwrite \
                 that: see `hotset pool recover {name}`: `--write-back` overwrites it with the \
                 dirty data, and `--discard` discards that"
            ));
        }
        let pool = self.pool(volume.pool.as_str())?;
        let remembered = pool.cache.remembered();
        if remembered.iter().any(|(known, _)| known == name.as_str()) {
            let (volume, origin, why) = (name.clone(), place.to_owned(), why.to_owned());
            self.say(
                name,
                NodeEvent::OriginSuspect {
                    volume,
                    origin,
                    why,
                },
            );
            pool.cache.forget(name.as_str());
            pool.cache.remember().await;
        }
        Ok(())
    }

    /// Ends the reservation of a volume that is served no more, by `step`.
    pub(super) async fn end_reservation(&self, name: &Name, place: &str, step: ReservationStep) {
        // A look that is under way would have the reservation again.
        let is_looking = || self.reservations.looking.borrow().contains(name);
        let timer = self.env().timer;
        while is_looking() {
            timer.sleep(TICK).await;
        }
        let ended = self.platform.reservation(place, name, step).await;
        self.reservations.elsewhere.borrow_mut().remove(name);
        match ended.map_err(|error| (error.kind(), refusal(error))) {
            // This host has none there.
            Ok(_) | Err((IoErrorKind::Reserved | IoErrorKind::Unsupported, _)) => {}
            Err((_, why)) => self.platform.event(NodeEvent::ReservationStays {
                volume: name.clone(),
                why,
            }),
        }
    }

    /// Looks at the reservations of served volumes until the node is stopped. A slow device delays
    /// no other.
    pub(super) async fn look_at_reservations(node: Rc<Self>) {
        let env = node.env();
        let mut longest = PERIOD;
        while !node.stopped.get() {
            env.timer.idle_sleep(PERIOD, longest).await;
            // A look after an orderly end would have the reservation again.
            if node.stopped.get() {
                return;
            }
            longest = IDLE_PERIOD;
            for (name, served) in node.volumes.borrow().iter() {
                let Some(place) = served.reserved.clone() else {
                    continue;
                };
                longest = PERIOD;
                if !node.reservations.looking.borrow_mut().insert(name.clone()) {
                    continue;
                }
                let (node, name) = (node.clone(), name.clone());
                env.spawn.spawn(async move {
                    node.look_at_reservation(&name, &place).await;
                    node.reservations.looking.borrow_mut().remove(&name);
                });
            }
        }
    }

    async fn look_at_reservation(&self, name: &Name, place: &str) {
        let looked = self
            .platform
            .reservation(place, name, ReservationStep::Check);
        // A device that does not answer is still this host's: others may be waiting for the device
        // too.
        let lost = looked.await.err();
        let is_lost = lost.is_some_and(|error| error.kind() == IoErrorKind::Reserved);
        if !is_lost || self.stopped.get() {
            return;
        }
        let served = self.volumes.borrow().get(name).cloned();
        // A volume that was removed meanwhile has given its reservation up.
        let Some(served) = served.filter(|served| served.reserved.as_deref() == Some(place)) else {
            return;
        };
        if self.queue.is_about(name.as_str()) {
            // The change has the volume, and ends soon now; the next look goes on.
            served.volume.cached().close().await;
            return;
        }
        self.lose(name, &served, place).await;
    }

    /// Stops serving a volume with an origin that another host has taken over.
    async fn lose(&self, name: &Name, served: &NodeVolume<P>, place: &str) {
        let config = self.devices.config();
        let mut volumes = config.volumes.iter();
        let Some(volume) = volumes.find(|volume| volume.name.value == *name) else {
            return;
        };
        let why = reserved_elsewhere(name, place);
        self.volumes.borrow_mut().remove(name);
        self.reservations
            .elsewhere
            .borrow_mut()
            .insert(name.clone());
        let waiting = WaitingVolume {
            why: why.clone(),
            trying: true,
            ..self.waits_for(volume)
        };
        self.waiting.borrow_mut().insert(name.clone(), waiting);
        self.platform.event(NodeEvent::OriginTakenOver {
            volume: name.clone(),
            origin: served.origin.clone(),
        });
        let log = served.volume.log();
        let timer = self.env().timer;
        let ending = async {
            let Some(engine) = log.as_ref().map(|log| log.engine()) else {
                return;
            };
            // No later opening is refused for data that the origin has.
            if engine.is_drained() {
                let _ = timer.timeout(PERIOD, engine.rest()).await;
            }
            engine.close().await;
        };
        let closing = join(served.volume.cached().close(), ending);
        let _ = timer.timeout(self.grace.get(), closing).await;
        // The clients are cut off, whatever a frontend says.
        let _ = self.withdraw(name, self.frontends.len()).await;
        if let Ok(pool) = self.pool(served.pool.as_str()) {
            pool.cache.forget(name.as_str());
            pool.cache.remember().await;
        }
        let logs = log.iter().flat_map(|log| log.devices());
        for device in logs.chain([&served.origin]) {
            let _ = self.devices.close(device).await;
        }
        self.has_tried(name, Err(why));
        self.waits.notify();
    }

    /// Takes over the origin of a waiting volume, and serves the volume.
    pub(super) async fn take_over_origin(&self, name: &str) -> Result<(), Refusal> {
        let name = &Name::new(name)?;
        let is_tried = || {
            let waiting = self.waiting.borrow();
            waiting.get(name).is_some_and(|waiting| waiting.trying)
        };
        let timer = self.env().timer;
        let end = timer.now() + ATTEMPT_MAX;
        while is_tried() && timer.now() < end {
            timer.sleep(TICK).await;
        }
        let (volume, place) = self.begin_takeover(name)?;
        let taking = async {
            self.distrust(&volume, &place).await?;
            self.reserve(name, &place, ReservationStep::TakeOver)
                .await?;
            timer.sleep(HEED).await;
            self.try_volume(&volume).await
        };
        let taken = taking.await;
        self.has_tried(name, taken.clone());
        taken
    }

    /// The waiting volume, and the place of its origin. No other attempt begins.
    fn begin_takeover(&self, name: &Name) -> Result<(config::Volume, String), Refusal> {
        if self.volumes.borrow().contains_key(name) {
            return Err(format!(
                "volume {name} is served: no other host has its origin"
            ));
        }
        let none = || self.no_volume(name.as_str());
        let volume = self.waiting.borrow().get(name).map(|w| w.volume.clone());
        let volume = volume.ok_or_else(none)?;
        let place = self.place_of(&volume).filter(|_| volume.reserve.value);
        let place = place.ok_or_else(|| {
            format!("volume {name} does not reserve its origin; see `hotset status`")
        })?;
        let mut all = self.waiting.borrow_mut();
        let waiting = all.get_mut(name).expect("nothing was awaited");
        if waiting.trying {
            return Err(format!("volume {name} is being opened; try again"));
        }
        waiting.trying = true;
        Ok((volume, place))
    }

    /// The path of the origin of `volume`, if it has one.
    pub(super) fn place_of(&self, volume: &config::Volume) -> Option<String> {
        let config = self.devices.config();
        let mut devices = config.devices.iter();
        let origin = devices.find(|device| device.name.value == volume.origin.value)?;
        Some(origin.path.as_ref()?.display().to_string())
    }
}

fn reserved_elsewhere(volume: &Name, place: &str) -> Refusal {
    format!(
        "{place} is reserved by another host; end hotset there, or take it over: `hotset volume \
         takeover {volume} --yes`"
    )
}
