//! Looks for the troubles of a node, the only source of its operator's list. Reports lost devices
//! of pools and logs, and origins that fail or have grown.
//!
//! Not here: the beginning of each trouble (`troubles`).

use super::troubles::{Losses, OriginRequests, Said, TroubleList};
use super::{IDLE_PERIOD, Node, NodePool, NodeVolume};
use crate::event::NodeEvent;
use crate::log::journal_of;
use crate::place::RawRole;
use crate::platform::Platform;
use block::{Driver, Nanos};
use cache::{DeviceFault, DeviceState};
use control::config::{ByteCount, Name};
use control::job::{Job, JobKind, JobState};
use control::status::ArrayReport;
use control::trouble::{Trouble, TroubleKind};
use std::collections::HashMap;
use std::rc::Rc;

/// Interval of looks.
const PERIOD: Nanos = Nanos::from_secs(1);
/// Interval of reading the files of the configuration.
const CONFIGURATION_PERIOD: Nanos = Nanos::from_secs(10);
/// Percentage of its rated endurance from which a device counts as worn.
const WORN_PERCENT: u8 = 90;

impl<P: Platform> Node<P> {
    /// Reports losses until the node is stopped.
    pub(super) async fn report_losses(node: Rc<Self>) {
        let timer = node.env().timer;
        let mut longest = PERIOD;
        while !node.stopped.get() {
            timer.idle_sleep(PERIOD, longest).await;
            node.report_origins();
            // Each trouble counts from this look, even if no report follows.
            let troubles = node.look_at_troubles();
            // Troubles are looked at by the second, and so are requests that may never end.
            longest = match troubles.is_empty() && node.origins_rest() {
                true => IDLE_PERIOD,
                false => PERIOD,
            };
            node.try_returns();
            node.look_for_losses();
            for (device, opened) in node.devices.open.borrow().iter() {
                if opened.role == RawRole::Origin
                    && let Some(now) = opened.has_grown()
                {
                    node.platform.event(NodeEvent::ExportGrown {
                        device: device.clone(),
                        place: opened.place.clone(),
                        now: ByteCount(now),
                    });
                }
            }
        }
    }

    /// Reports the losses of pools and logs since the last look. A command that removes a device or
    /// a log looks first: afterwards the loss is no longer visible.
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
                    self.platform.event(NodeEvent::PoolDeviceEjected {
                        pool: pool_name.clone(),
                        device: report.name.to_string(),
                        fault,
                    });
                }
                losses.ejected.insert(key);
            }
        }
    }

    fn look_at_logs(&self, losses: &mut Losses) {
        for (name, served) in self.volumes.borrow().iter() {
            if served.volume.has_lost_journal() && losses.journals.insert(name.clone()) {
                let volume = name.clone();
                self.platform.event(NodeEvent::JournalLost { volume });
            }
            let is_stuck = served
                .volume
                .log()
                .is_some_and(|log| log.engine().is_stuck());
            let gone = served.volume.lost_copies();
            losses
                .copies
                .retain(|(of, device)| of != name || gone.iter().any(|(gone, _)| gone == device));
            for (device, why) in gone {
                if losses.copies.insert((name.clone(), device.clone())) {
                    self.platform.event(NodeEvent::LogDeviceLost {
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
                self.platform.event(NodeEvent::LogLost { volume });
            }
        }
    }

    /// True if no origin has a request in flight.
    fn origins_rest(&self) -> bool {
        let open = self.devices.open.borrow();
        let mut origins = open.values().filter(|o| o.role == RawRole::Origin);
        origins.all(|opened| opened.leaf.meter().in_flight() == 0)
    }

    /// Reports the origins that fail since the last look, and those that work again.
    fn report_origins(&self) {
        let now = self.env().timer.now();
        let (volumes, open) = (self.volumes.borrow(), self.devices.open.borrow());
        let origins = volumes.iter().filter_map(|(name, served)| {
            let meter = open.get(&served.origin)?.leaf.meter();
            let (succeeded, failed) = meter.ended();
            let requests = OriginRequests {
                succeeded,
                failed,
                in_flight: meter.in_flight(),
            };
            Some((name.clone(), requests, meter.last_error()))
        });
        for (volume, said) in self.failing.look(now, origins.collect()) {
            let origin = volumes[&volume].origin.clone();
            self.platform.event(match said {
                Said::Fails(why) => NodeEvent::OriginFails {
                    volume,
                    origin,
                    why,
                },
                Said::Well => NodeEvent::OriginWell { volume, origin },
            });
        }
    }

    /// Returns the current troubles.
    pub(crate) fn look_at_troubles(&self) -> Vec<Trouble> {
        let now = self.env().timer.now();
        let config = self.devices.config();
        let mut list = TroubleList::default();
        self.of_waiting(&mut list);
        let volumes = config.volumes.iter();
        let journals = volumes.filter_map(|v| Some((&v.name.value, journal_of(v)?)));
        let journals: HashMap<_, _> = journals.collect();
        for (name, served) in self.volumes.borrow().iter() {
            self.of_origin(name, served, &mut list);
            of_log(journals.get(name).copied(), name, served, &mut list);
        }
        let pools = config.pools.iter();
        let known = pools.map(|pool| (&pool.name.value, &pool.devices.value[..]));
        let known: HashMap<_, _> = known.collect();
        for (name, pool) in self.pools.borrow().iter() {
            of_pool(
                known.get(name).copied().unwrap_or(&[]),
                name,
                pool,
                &mut list,
            );
        }
        let (arrays, jobs) = (self.devices.reports(now), self.report_jobs());
        arrays
            .iter()
            .for_each(|array| of_array(array, &jobs, &mut list));
        self.of_devices(&mut list);
        if let Some(why) = &*self.troubles.unreadable.borrow() {
            let file = config.files.main().map(|file| file.display().to_string());
            let file = file.unwrap_or_default();
            list.add(
                TroubleKind::ConfigurationUnreadable,
                format!("configuration {file}"),
                format!("does not read any more: {why}"),
                format!(
                    "`hotset check {file}` names all that is wrong; mend it, then `hotset reload`"
                ),
            );
        }
        self.troubles.known_for(list.0, now)
    }

    fn of_waiting(&self, list: &mut TroubleList) {
        for (name, waiting) in self.waiting.borrow().iter() {
            // The volume is being opened for the first time.
            if waiting.why.is_empty() {
                continue;
            }
            let (kind, remedy) = match self.reservations.is_elsewhere(name) {
                true => (
                    TroubleKind::OriginReserved,
                    format!(
                        "end hotset on that host, and it is served by itself; or `hotset volume \
                         takeover {name} --yes`"
                    ),
                ),
                false => (
                    TroubleKind::VolumeNotServed,
                    format!(
                        "mend that, and it is served by itself; or `hotset volume remove {name}`"
                    ),
                ),
            };
            let what = format!("is not served: {}", waiting.why);
            list.add(kind, format!("volume {name}"), what, remedy);
        }
    }

    fn of_origin(&self, name: &Name, served: &NodeVolume<P>, list: &mut TroubleList) {
        let origin = &served.origin;
        let open = self.devices.open.borrow();
        let Some(opened) = open.get(origin) else {
            return;
        };
        if let Some(why) = opened.trouble().or_else(|| self.failing.of(name)) {
            list.add(
                TroubleKind::OriginFails,
                format!("volume {name}"),
                format!("its origin {origin} fails: {why}"),
                format!("see to {}, or to what it is reached by", opened.place),
            );
        }
        if let Some(now) = opened.grown() {
            list.add(
                TroubleKind::OriginGrown,
                format!("volume {name}"),
                format!(
                    "its origin {origin} has grown to {}; what it had is served",
                    ByteCount(now)
                ),
                format!("`hotset volume grow {name}`, at which clients connect again"),
            );
        }
    }

    fn of_devices(&self, list: &mut TroubleList) {
        for (name, opened) in self.devices.open.borrow().iter() {
            let wear = opened.wear.get().1;
            if let Some(wear) = wear.filter(|wear| wear.used_percent >= WORN_PERCENT) {
                list.add(
                    TroubleKind::DeviceWorn,
                    format!("device {name}"),
                    format!("has used {}% of its rated endurance", wear.used_percent),
                    "plan its replacement: a new device may be added before the old one is removed",
                );
            }
        }
    }

    /// Reads the files of the configuration at intervals, until the node is stopped.
    pub(super) async fn watch_configuration(node: Rc<Self>) {
        let timer = node.env().timer;
        while !node.stopped.get() {
            timer.sleep(CONFIGURATION_PERIOD).await;
            let files = node.devices.config().files.clone();
            let why = node.platform.unreadable(&files).await;
            node.troubles.unreadable.replace(why);
        }
    }
}

/// Lists the troubles of a volume's log, and of the file beside it.
fn of_log<P: Platform>(
    journal: Option<&Name>,
    name: &Name,
    served: &NodeVolume<P>,
    list: &mut TroubleList,
) {
    let (Some(log), Some(status)) = (served.volume.log(), served.volume.log_status()) else {
        return;
    };
    let subject = || format!("volume {name}");
    if log.engine().is_stuck() {
        list.add(
            TroubleKind::LogLost,
            subject(),
            "all devices of its log are lost".to_owned(),
            "mend one of them: the log is opened again by itself",
        );
    } else {
        let lost = log.lost();
        let mut away = log.offline();
        away.retain(|device| lost.iter().all(|(lost, _)| lost != device));
        let away = away.into_iter();
        let away = away.map(|device| (device, "it was not there at the start".to_owned()));
        for (device, why) in lost.into_iter().chain(away) {
            let remedy = format!(
                "mend the device: it is taken back then; or `hotset volume replace-log {name} \
                 {device} DEVICE`"
            );
            list.add(
                TroubleKind::LogCopyLost,
                format!("device {device} of the log of volume {name}"),
                format!("is lost: {why}"),
                remedy,
            );
        }
    }
    if let Some(why) = status.trouble.as_ref().filter(|_| !log.engine().is_stuck()) {
        let origin = &served.origin;
        list.add(
            TroubleKind::WriteBackHalted,
            subject(),
            format!("no dirty data goes to its origin {origin}: {why}"),
            "mend what fails there; it is tried again",
        );
    }
    if let Some(journal) = journal
        && (status.forsaken || !log.had_journal())
    {
        list.add(
            TroubleKind::JournalLost,
            subject(),
            format!("its journal {journal} is lost, or was not there at the start"),
            format!(
                "`hotset volume replace-log {name} {journal} DEVICE`; or mend {journal}, and start \
                 hotset again"
            ),
        );
    }
    of_file(log.witness().claim.fails(), list);
}

/// Lists the trouble of a file in `state`, by its name and reason.
fn of_file(fails: Option<(String, String)>, list: &mut TroubleList) {
    if let Some((file, why)) = fails {
        list.add(
            TroubleKind::StateFails,
            format!("file {file}"),
            format!("cannot be used: {why}"),
            "make room in `state`, or mend its disk; it is tried again",
        );
    }
}

fn of_pool<D: Driver>(known: &[Name], name: &Name, pool: &NodePool<D>, list: &mut TroubleList) {
    of_file(pool.witness.fails(), list);
    let reports = pool.cache.devices();
    let devices = pool.devices.borrow();
    if known.is_empty() && devices.is_empty() {
        list.add(
            TroubleKind::PoolEmpty,
            format!("pool {name}"),
            "has no device".to_owned(),
            format!("`hotset pool add-device {name} DEVICE`"),
        );
    }
    for device in known.iter().filter(|device| !devices.contains_key(*device)) {
        list.add(
            TroubleKind::PoolDeviceAbsent,
            format!("device {device} of pool {name}"),
            "was not there, or could not be used, when the pool was opened".to_owned(),
            format!(
                "bring it back, or end its other use, then `hotset pool readmit {name} {device}`"
            ),
        );
    }
    for (device, id) in devices.iter() {
        let state = reports.iter().find(|report| report.id == *id);
        let Some(DeviceState::Ejected(fault)) = state.map(|report| report.state) else {
            continue;
        };
        let subject = format!("device {device} of pool {name}");
        let readmit = format!("`hotset pool readmit {name} {device}`");
        match fault {
            DeviceFault::Late => list.add(
                TroubleKind::PoolDeviceLate,
                subject,
                "answers too slowly, and is gone round".to_owned(),
                format!(
                    "see what else uses it; it is taken back once it answers in time, or by {readmit}"
                ),
            ),
            fault => list.add(
                TroubleKind::PoolDeviceEjected,
                subject,
                format!("was ejected ({})", fault.name()),
                format!("check it and its cable, then {readmit}; or replace it"),
            ),
        }
    }
}

fn of_array(array: &ArrayReport, jobs: &[Job], list: &mut TroubleList) {
    let name = &array.name;
    let subject = || format!("array {name}");
    let status = format!("`hotset array status {name}` names its members; bring them back");
    if let Some(why) = &array.inactive {
        list.add(
            TroubleKind::ArrayInactive,
            subject(),
            format!("could not start: {why}"),
            &*status,
        );
        return;
    }
    let lacking = array
        .members
        .iter()
        .filter(|member| member.state != "in sync");
    let lacking = lacking.map(|member| match &member.device {
        Some(device) => format!("{device} is {}", member.state),
        None => format!("member {} is {}", member.role, member.state),
    });
    let lacking: Vec<String> = lacking.collect();
    if let Some(why) = &array.down {
        list.add(
            TroubleKind::ArrayFailed,
            subject(),
            format!("has failed: {why}"),
            status,
        );
    } else if !lacking.is_empty() {
        list.add(
            TroubleKind::ArrayDegraded,
            subject(),
            format!("is {}: {}", array.state, lacking.join(", ")),
            match array.state.as_str() {
                "rebuilding" => "wait for the end of the rebuild; see `hotset job list`".to_owned(),
                _ => format!(
                    "bring the member back, or `hotset array add {name} DEVICE` for another"
                ),
            },
        );
        let failed = |job: &&Job| {
            job.kind == JobKind::Rebuild && job.state == JobState::Failed && job.of == *name
        };
        if let Some(job) = jobs.iter().find(failed) {
            list.add(
                TroubleKind::RebuildFailed,
                subject(),
                format!("the filling of a member has failed: {}", job.about),
                format!("give another device: `hotset array add {name} DEVICE`"),
            );
        }
    }
    if array.lost_bytes > 0 {
        list.add(
            TroubleKind::ArrayDataLost,
            subject(),
            format!("has lost {}", ByteCount(array.lost_bytes)),
            "restore what lay there from a copy",
        );
    }
}
