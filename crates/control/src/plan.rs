//! The steps from the configuration that a daemon runs to another.
//!
//! Invariants:
//!     the same configuration ⟹ no step
//!     no step needs a restart ⟹ after all steps, in their order, the daemon runs the other
//!     every configuration in between refers only to sections that it has
//!
//! Not here: carrying a step out (`node`), and checking the other configuration ([`crate::check`]).

mod change;
#[cfg(test)]
mod tests;

pub use change::Change;

use crate::config::{
    Array, Attach, Config, Daemon, Listen, Name, ParameterValue, Pool, Volume, VolumeMode,
};
use crate::files::ConfigurationFiles;
use crate::written::WrittenSection;
use std::collections::{BTreeSet, HashMap};

/// One step.
#[derive(Clone, Debug)]
pub struct PlanStep {
    /// The line of the other configuration that causes the step; `None` for a section left out
    /// there.
    pub line: Option<u32>,
    /// Description of the step.
    pub what: String,
    /// The change of a running daemon, or the reason for a restart.
    pub change: Result<Change, &'static str>,
}

impl PlanStep {
    fn new(line: Option<u32>, what: String, change: Result<Change, &'static str>) -> PlanStep {
        PlanStep { line, what, change }
    }

    /// The file of the step, and its line; `files` are those of the other configuration.
    pub fn place(&self, files: &ConfigurationFiles) -> String {
        match self.line {
            Some(line) => files.place(line),
            None => files
                .main()
                .map_or_else(String::new, |file| file.display().to_string()),
        }
    }

    /// The step in a line, for people; `files` are those of the other configuration.
    pub fn show(&self, files: &ConfigurationFiles) -> String {
        let place = self.place(files);
        match &self.change {
            Ok(_) => format!("{place}: {}", self.what),
            Err(why) => format!("{place}: {}; this needs a restart: {why}", self.what),
        }
    }
}

const MEMORY: &str = "it is set up when the daemon starts";
const IN_USE: &str = "it is in use as it is";
const SEEN: &str =
    "its clients have it as it is; to do it now, `hotset volume remove` and add it again";
const LOG: &str = "its log is open as it is; to do it now, `hotset reload` with another `mode`, then \
                   with it";
const ENGINE: &str = "the pool is opened with it";
const FRONTEND: &str =
    "its client has it as it is; to do it now, `hotset reload` without the section, then with it";
const MEMBERS: &str =
    "members of an array that runs are changed by `hotset array add` and `replace`";

/// The steps from `running` to `wanted`, in the order in which they can be done.
pub fn plan(running: &Config, wanted: &Config) -> Vec<PlanStep> {
    let mut steps = Vec::new();
    let differences = ConfigDifference {
        listeners: SectionsDifference::between(&running.listeners, &wanted.listeners),
        volumes: SectionsDifference::between(&running.volumes, &wanted.volumes),
        attachments: SectionsDifference::between(&running.attachments, &wanted.attachments),
        pools: SectionsDifference::between(&running.pools, &wanted.pools),
    };
    daemon(&running.daemon, &wanted.daemon, &mut steps);
    differences.remove(&mut steps);
    places(running, wanted, &used_by_both(running, wanted), &mut steps);
    differences.add(&mut steps);
    steps
}

/// The differences of the sections that use devices, and of their frontends.
struct ConfigDifference<'a> {
    listeners: SectionsDifference<'a, Listen>,
    volumes: SectionsDifference<'a, Volume>,
    attachments: SectionsDifference<'a, Attach>,
    pools: SectionsDifference<'a, Pool>,
}

impl ConfigDifference<'_> {
    /// Appends the steps that release devices and names.
    fn remove(&self, steps: &mut Vec<PlanStep>) {
        self.close(false, steps);
        for gone in &self.volumes.gone {
            let name = &gone.name.value;
            let what = format!("volume {name} is removed");
            let change = Change::RemoveVolume(name.clone());
            steps.push(PlanStep::new(None, what, Ok(change)));
        }
        // By then, a volume that goes has no frontends; a new volume gets all of its own at once.
        self.close(true, steps);
        for gone in &self.attachments.gone {
            let what = format!("volume {} is not attached any more", gone.id());
            let change = Change::Detach(gone.ublk.value.clone());
            steps.push(PlanStep::new(None, what, Ok(change)));
        }
        for (before, now) in &self.pools.both {
            for device in without(&before.devices.value, &now.devices.value) {
                let pool = now.name.value.clone();
                let what = format!("pool {pool} loses {device}");
                let change = Change::TakePoolDevice { pool, device };
                steps.push(PlanStep::new(Some(now.devices.line), what, Ok(change)));
            }
        }
        for gone in &self.pools.gone {
            let what = format!("pool {} is removed", gone.id());
            let change = Change::RemovePool(gone.name.value.clone());
            steps.push(PlanStep::new(None, what, Ok(change)));
        }
    }

    /// Appends the steps that change what stays, and add what is new.
    fn add(&self, steps: &mut Vec<PlanStep>) {
        for new in &self.pools.new {
            let what = format!("pool {} is added", new.id());
            let change = Change::AddPool(Box::new((*new).clone()));
            steps.push(PlanStep::new(Some(new.line), what, Ok(change)));
        }
        for (before, now) in &self.pools.both {
            pool(before, now, steps);
        }
        for (before, now) in &self.volumes.both {
            volume(before, now, steps);
        }
        for new in &self.attachments.new {
            let what = format!("volume {} is attached", new.id());
            let change = Change::Attach(Box::new((*new).clone()));
            steps.push(PlanStep::new(Some(new.line), what, Ok(change)));
        }
        self.open(true, steps);
        for new in &self.volumes.new {
            let change = Change::AddVolume(Box::new((*new).clone()));
            let what = format!("volume {} is added", new.id());
            steps.push(PlanStep::new(Some(new.line), what, Ok(change)));
        }
        for (before, now) in &self.listeners.both {
            for (line, what) in differences("listener", *before, *now, &[]) {
                let change = match (&before.vhost_user, &now.vhost_user) {
                    (None, None) => Ok(Change::RenewListener(Box::new((*now).clone()))),
                    _ => Err(FRONTEND),
                };
                steps.push(PlanStep::new(Some(line), what, change));
            }
        }
        self.open(false, steps);
        for (before, now) in &self.attachments.both {
            for (line, what) in differences("attached volume", *before, *now, &[]) {
                steps.push(PlanStep::new(Some(line), what, Err(FRONTEND)));
            }
        }
    }

    /// Closes listeners: those of guests, or the others.
    fn close(&self, is_guest: bool, steps: &mut Vec<PlanStep>) {
        let gone = self.listeners.gone.iter();
        for listen in gone.filter(|listen| listen.vhost_user.is_some() == is_guest) {
            let place = listen.place();
            let what = format!("listener {place} is closed");
            steps.push(PlanStep::new(None, what, Ok(Change::CloseListener(place))));
        }
    }

    /// Opens listeners: those of guests, or the others.
    fn open(&self, is_guest: bool, steps: &mut Vec<PlanStep>) {
        let new = self.listeners.new.iter().copied();
        for listen in new.filter(|listen| listen.vhost_user.is_some() == is_guest) {
            let what = format!("listener {} is opened", listen.place());
            let change = Change::OpenListener(Box::new(listen.clone()));
            steps.push(PlanStep::new(Some(listen.line), what, Ok(change)));
        }
    }
}

/// The sections of a kind by configuration: in the running one alone, in the other alone, in both.
struct SectionsDifference<'a, S> {
    gone: Vec<&'a S>,
    new: Vec<&'a S>,
    both: Vec<(&'a S, &'a S)>,
}

impl<'a, S: WrittenSection> SectionsDifference<'a, S> {
    fn between(running: &'a [S], wanted: &'a [S]) -> SectionsDifference<'a, S> {
        let by_id = |of: &'a [S]| -> HashMap<String, &'a S> {
            // Of two sections with one id, the first counts.
            let sections = of.iter().rev();
            sections.map(|section| (section.id(), section)).collect()
        };
        let (before, after) = (by_id(running), by_id(wanted));
        let both = running
            .iter()
            .filter_map(|section| Some((section, *after.get(&section.id())?)));
        let is_in = |of: &HashMap<String, &S>, section: &S| of.contains_key(&section.id());
        SectionsDifference {
            gone: running.iter().filter(|s| !is_in(&after, s)).collect(),
            new: wanted.iter().filter(|s| !is_in(&before, s)).collect(),
            both: both.collect(),
        }
    }
}

/// The parameters in which two sections differ, but for those `left_out`: the line of each, and its
/// old and new value.
fn differences<S: WrittenSection>(
    kind: &str,
    before: &S,
    now: &S,
    left_out: &[&str],
) -> Vec<(u32, String)> {
    let pairs = before.parameters().into_iter().zip(now.parameters());
    let differ = pairs.filter(|(was, is)| was.text != is.text && !left_out.contains(&is.name));
    let described = differ.map(|(was, is)| {
        let ParameterValue { name, line, .. } = is;
        let (was, is) = (was.text, is.text);
        let (was, is) = (was.as_deref(), is.as_deref());
        let (was, is) = (was.unwrap_or("not given"), is.unwrap_or("not given"));
        let what = format!("{kind} {}: `{name}` was {was}, becomes {is}", now.id());
        (line, what.replace(" :", ":"))
    });
    described.collect()
}

/// The elements of `names` that are not in `others`.
fn without(names: &[Name], others: &[Name]) -> Vec<Name> {
    let missing = names.iter().filter(|name| !others.contains(name));
    missing.cloned().collect()
}

fn daemon(before: &Daemon, now: &Daemon, steps: &mut Vec<PlanStep>) {
    const AT_RUN_TIME: [&str; 2] = ["grace", "stop"];
    for (line, what) in differences("daemon", before, now, &AT_RUN_TIME) {
        steps.push(PlanStep::new(Some(line), what, Err(MEMORY)));
    }
    let limits = [(&before.grace, &now.grace), (&before.stop, &now.stop)];
    if limits.into_iter().any(|(was, is)| was.value != is.value) {
        let (grace, stop) = (now.grace.clone(), now.stop.clone());
        let line = match before.grace.value == grace.value {
            true => stop.line,
            false => grace.line,
        };
        let what = "daemon: `grace` and `stop` are as they are given".to_owned();
        let change = Change::Limits { grace, stop };
        steps.push(PlanStep::new(Some(line), what, Ok(change)));
    }
}

/// The devices and arrays that volumes and pools of both configurations use, with the members of
/// these arrays.
fn used_by_both(running: &Config, wanted: &Config) -> BTreeSet<Name> {
    let mut used = BTreeSet::new();
    for (before, now) in SectionsDifference::between(&running.volumes, &wanted.volumes).both {
        for volume in [before, now] {
            used.insert(volume.origin.value.clone());
            used.extend(volume.log.value.iter().cloned());
            used.extend(volume.journal.iter().map(|journal| journal.value.clone()));
        }
    }
    for (before, now) in SectionsDifference::between(&running.pools, &wanted.pools).both {
        let stay = before.devices.value.iter();
        used.extend(stay.filter(|d| now.devices.value.contains(d)).cloned());
    }
    loop {
        let arrays = running
            .arrays
            .iter()
            .filter(|a| used.contains(&a.name.value));
        let members = arrays.flat_map(|a| a.members.value.iter().chain(&a.spares.value));
        let more: Vec<Name> = members.filter(|m| !used.contains(m)).cloned().collect();
        if more.is_empty() {
            return used;
        }
        used.extend(more);
    }
}

/// Appends the steps of devices and arrays.
fn places(running: &Config, wanted: &Config, used: &BTreeSet<Name>, steps: &mut Vec<PlanStep>) {
    let devices = SectionsDifference::between(&running.devices, &wanted.devices);
    let arrays = SectionsDifference::between(&running.arrays, &wanted.arrays);
    let unless = |is_kept: bool, change: Change| match is_kept {
        true => Err(IN_USE),
        false => Ok(change),
    };
    // A name that turns from a device into an array, or back, would for a while be both.
    let turns = |name: &Name| {
        let device = |config: &Config| config.devices.iter().any(|d| d.name.value == *name);
        let array = |config: &Config| config.arrays.iter().any(|a| a.name.value == *name);
        device(running) && array(wanted) || array(running) && device(wanted)
    };
    let stays = |name: &Name| turns(name) || used.contains(name);
    for new in &devices.new {
        let (name, put) = (&new.name.value, Change::PutDevice(Box::new((*new).clone())));
        let change = unless(turns(name), put);
        let what = format!("device {name} is known");
        steps.push(PlanStep::new(Some(new.line), what, change));
    }
    for (before, now) in &devices.both {
        for (line, what) in differences("device", *before, *now, &[]) {
            let put = Change::PutDevice(Box::new((*now).clone()));
            let change = unless(used.contains(&now.name.value), put);
            steps.push(PlanStep::new(Some(line), what, change));
        }
    }
    for new in &arrays.new {
        let put = Change::PutArray(Box::new((*new).clone()));
        let change = unless(turns(&new.name.value), put);
        let what = format!("array {} is known", new.id());
        steps.push(PlanStep::new(Some(new.line), what, change));
    }
    for (before, now) in &arrays.both {
        array(before, now, used, steps);
    }
    for gone in &arrays.gone {
        let name = &gone.name.value;
        let change = unless(stays(name), Change::DropArray(name.clone()));
        let what = format!("array {name} is forgotten");
        steps.push(PlanStep::new(None, what, change));
    }
    for gone in &devices.gone {
        let name = &gone.name.value;
        let change = unless(stays(name), Change::DropDevice(name.clone()));
        let what = format!("device {name} is forgotten");
        steps.push(PlanStep::new(None, what, change));
    }
}

fn array(before: &Array, now: &Array, used: &BTreeSet<Name>, steps: &mut Vec<PlanStep>) {
    let name = &now.name.value;
    if !used.contains(name) {
        for (line, what) in differences("array", before, now, &[]) {
            let put = Change::PutArray(Box::new(now.clone()));
            steps.push(PlanStep::new(Some(line), what, Ok(put)));
        }
        return;
    }
    const APART: [&str; 3] = ["members", "spares", "start_degraded"];
    for (line, what) in differences("array", before, now, &APART) {
        steps.push(PlanStep::new(Some(line), what, Err(IN_USE)));
    }
    if before.start_degraded.value != now.start_degraded.value {
        let what = format!("array {name}: `start_degraded` counts when it next starts");
        let (array, start_degraded) = (name.clone(), now.start_degraded.clone());
        let line = Some(start_degraded.line);
        let change = Change::StartDegraded {
            array,
            start_degraded,
        };
        steps.push(PlanStep::new(line, what, Ok(change)));
    }
    let [members, spares] = [
        (&before.members.value, &now.members.value),
        (&before.spares.value, &now.spares.value),
    ];
    let given = without(spares.1, spares.0);
    // The order of members counts: it gives their roles.
    if members.0 != members.1 || !without(spares.0, spares.1).is_empty() {
        let what = format!("array {name}: `members` or `spares` lack what it has");
        steps.push(PlanStep::new(Some(now.members.line), what, Err(MEMBERS)));
        return;
    }
    for device in given {
        let what = format!("array {name} gets the spare {device}");
        let array = name.clone();
        let change = Change::GiveSpare { array, device };
        steps.push(PlanStep::new(Some(now.spares.line), what, Ok(change)));
    }
}

fn pool(before: &Pool, now: &Pool, steps: &mut Vec<PlanStep>) {
    for (line, what) in differences("pool", before, now, &["devices", "cold"]) {
        steps.push(PlanStep::new(Some(line), what, Err(ENGINE)));
    }
    let name = &now.name.value;
    if before.cold.value != now.cold.value {
        let what = format!("pool {name}: `cold` counts when the daemon starts");
        let (pool, cold) = (name.clone(), now.cold.clone());
        let change = Change::Cold { pool, cold };
        steps.push(PlanStep::new(Some(now.cold.line), what, Ok(change)));
    }
    for device in without(&now.devices.value, &before.devices.value) {
        let pool = name.clone();
        let what = format!("pool {pool} gets {device}");
        let change = Change::GivePoolDevice { pool, device };
        steps.push(PlanStep::new(Some(now.devices.line), what, Ok(change)));
    }
}

fn volume(before: &Volume, now: &Volume, steps: &mut Vec<PlanStep>) {
    const OF_LOG: [&str; 5] = ["log", "write_back", "journal", "max_lag", "dirty_max"];
    let name = &now.name.value;
    const OF_MODE: [&str; 2] = ["mode", "off"];
    let left_out = [&OF_LOG[..], &OF_MODE[..]].concat();
    for (line, what) in differences("volume", before, now, &left_out) {
        steps.push(PlanStep::new(Some(line), what, Err(SEEN)));
    }
    let all_but = |kept: &[&str]| -> Vec<&str> {
        let rows = Volume::rows();
        let all = rows.iter().map(|row| row.name);
        all.filter(|name| !kept.contains(name)).collect()
    };
    let has_log = |volume: &Volume| volume.in_force() == VolumeMode::WriteBack;
    for (line, what) in differences("volume", before, now, &all_but(&OF_MODE)) {
        let change = match now.in_force() {
            VolumeMode::WriteBack => Change::WriteBack(Box::new(now.clone())),
            VolumeMode::Cached(_) => Change::SetMode {
                volume: name.clone(),
                mode: now.mode.clone(),
                off: now.off.clone(),
            },
        };
        steps.push(PlanStep::new(Some(line), what, Ok(change)));
    }
    for (line, what) in differences("volume", before, now, &all_but(&OF_LOG)) {
        let change = match has_log(before) && has_log(now) {
            true => Err(LOG),
            false => Ok(Change::PutLog(Box::new(now.clone()))),
        };
        steps.push(PlanStep::new(Some(line), what, change));
    }
}

/// The restarts that the steps of a plan need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanVerdict {
    /// There are no steps.
    Same,
    /// All steps can be done while the daemon runs.
    Possible,
    /// Number of steps that need a restart.
    NeedsRestart(usize),
}

/// The restarts that `steps` need.
pub fn verdict(steps: &[PlanStep]) -> PlanVerdict {
    let impossible = steps.iter().filter(|step| step.change.is_err()).count();
    match (steps.len(), impossible) {
        (0, _) => PlanVerdict::Same,
        (_, 0) => PlanVerdict::Possible,
        (_, some) => PlanVerdict::NeedsRestart(some),
    }
}
