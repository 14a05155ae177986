//! Lives of devices by seed: daemons begin, are killed at any step, and find devices of earlier
//! ones, while volumes get other names, origins and shapes. The driver is a model.

use super::*;
use block::Sectors;
use std::collections::BTreeMap;

/// Lives of a campaign, and the daemons of each.
const SEEDS: u64 = 400;
const STEPS: usize = 60;
const ORIGINS: u64 = 3;

/// A device of the model, with state that the driver does not have.
struct ModelDevice {
    info: DeviceInfo,
    params: Params,
    name: String,
    /// The origin whose bytes the device's user has seen.
    origin: u64,
    /// Recoveries that the driver will still refuse with `EBUSY`.
    busy: u32,
    /// Number of queues that are ready.
    ready: u16,
}

#[derive(Clone)]
struct ModelVolume {
    name: String,
    origin: u64,
    params: Params,
}

/// Counts of each kind of event.
#[derive(Default)]
struct Classes(BTreeMap<&'static str, u64>);

impl Classes {
    fn count(&mut self, class: &'static str) {
        *self.0.entry(class).or_default() += 1;
    }
}

struct CampaignRandom(u64);

impl CampaignRandom {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

type MarkOf = fn(&ModelVolume) -> u64;

struct CampaignWorld<'a> {
    random: CampaignRandom,
    devices: BTreeMap<u32, ModelDevice>,
    volumes: Vec<ModelVolume>,
    mark: MarkOf,
    /// Numbers of ended processes belong to strangers now.
    strangers: bool,
    can_grow: bool,
    /// Processes ready the queues of a device.
    readies: bool,
    pid: u32,
    next: u32,
    classes: &'a mut Classes,
}

/// The end of an attachment.
#[derive(PartialEq, Eq)]
enum AttachEnd {
    Live(u32),
    Refused(AttachRefusal),
    Killed,
}

impl CampaignWorld<'_> {
    fn found(&self) -> Vec<Found> {
        let all = self.devices.values();
        all.map(|device| (device.info, Some(device.name.clone())))
            .collect()
    }

    /// Runs one daemon, which attaches every volume and ends.
    fn daemon(&mut self) -> Result<(), String> {
        // The daemon of a container is always process 1.
        self.pid = match self.random.below(3) {
            0 => 1,
            _ => self.pid + 1,
        };
        for volume in self.volumes.clone() {
            match self.attach(&volume)? {
                AttachEnd::Killed => {
                    self.classes.count("killed while it attaches");
                    break;
                }
                AttachEnd::Live(id) => self.judge(&volume, id)?,
                AttachEnd::Refused(why) => self.refused(&volume, why)?,
            }
        }
        for device in self.devices.values_mut() {
            if device.info.state == UblkState::Live {
                device.busy = self.random.below(4) as u32;
                // The driver notices a death late.
                if !self.random.one_in(4) {
                    device.info.state = UblkState::Quiesced;
                }
            }
        }
        self.strangers = self.random.one_in(2);
        Ok(())
    }

    fn attach(&mut self, volume: &ModelVolume) -> Result<AttachEnd, String> {
        let mark = (self.mark)(volume);
        let known = match choose(&self.found(), mark, &volume.name) {
            Ok(known) => known,
            Err(refusal) => return Ok(AttachEnd::Refused(refusal)),
        };
        let mut machine = Attach::new(WantedDevice {
            mark,
            pid: self.pid,
            queues: 1 + volume.origin as u16,
            depth: 8,
            params: volume.params,
            known,
        });
        let (mut event, mut made) = (AttachEvent::Begin, None);
        loop {
            let step = machine.step(event);
            if self.random.one_in(25) {
                self.killed(&step);
                return Ok(AttachEnd::Killed);
            }
            event = match step {
                AttachStep::Control(ask) => {
                    AttachEvent::Answer(self.answer(volume, ask, &mut made)?)
                }
                AttachStep::Look(pid) => {
                    let died = self.random.one_in(2);
                    let device = self.devices.values_mut().find(|d| d.info.pid == pid);
                    if let Some(device) = device.filter(|_| died) {
                        device.info.state = UblkState::Quiesced;
                    }
                    if self.strangers {
                        self.classes
                            .count("the number of a dead server is a stranger's");
                    }
                    AttachEvent::Runs(self.strangers)
                }
                AttachStep::Pause(_) => AttachEvent::Paused,
                AttachStep::Begin(info) => {
                    self.started(info.id);
                    AttachEvent::Answer(Ok(Vec::new()))
                }
                AttachStep::Ready(info) => {
                    self.ready(&info);
                    AttachEvent::Answer(Ok(Vec::new()))
                }
                AttachStep::Serve(info) => {
                    self.serve(volume, &info)?;
                    AttachEvent::Serving
                }
                AttachStep::Live(id) => return Ok(AttachEnd::Live(id)),
                AttachStep::Refused(why, to_remove) => {
                    if to_remove != made {
                        return Err(format!("{to_remove:?} is removed, and {made:?} was made"));
                    }
                    return Ok(AttachEnd::Refused(why));
                }
            };
        }
    }

    /// The daemon is killed when it is to perform `step`.
    fn killed(&mut self, step: &AttachStep) {
        match step {
            // The starter goes on without the daemon.
            AttachStep::Begin(info) => {
                self.started(info.id);
                self.classes.count("killed while its starter goes on");
            }
            // Some of its shards have begun.
            AttachStep::Serve(info) => {
                let ready = self.random.below(u64::from(info.queues) + 1);
                if let Some(device) = self.devices.get_mut(&info.id) {
                    device.ready = ready as u16;
                }
            }
            _ => {}
        }
    }

    fn ready(&mut self, info: &DeviceInfo) {
        let device = self.devices.get_mut(&info.id);
        let Some(device) = device.filter(|_| self.readies) else {
            return;
        };
        if (1..info.queues).contains(&device.ready) {
            self.classes.count("killed while some queues are ready");
        }
        device.ready = info.queues;
    }

    fn serve(&mut self, volume: &ModelVolume, info: &DeviceInfo) -> Result<(), String> {
        let device = self.devices.get_mut(&info.id).ok_or("no such device")?;
        if device.origin != volume.origin {
            return Err(format!("device {} of another origin is served", info.id));
        }
        if device.name != volume.name {
            self.classes.count("a device bears another name");
        }
        device.name.clone_from(&volume.name);
        device.ready = info.queues;
        Ok(())
    }

    fn started(&mut self, id: u32) {
        let device = self.devices.get_mut(&id).expect("it was added");
        device.info.state = UblkState::Quiesced;
        device.ready = device.info.queues;
        device.busy = self.random.below(3) as u32;
    }

    fn answer(
        &mut self,
        volume: &ModelVolume,
        ask: UblkControl,
        made: &mut Option<u32>,
    ) -> Result<Result<Vec<u8>, i32>, String> {
        let id = ask.device;
        if ask.command == UblkCommand::GetFeatures {
            let grows = if self.can_grow {
                0
            } else {
                UblkFeatures::UPDATE_SIZE.0
            };
            return Ok(Ok((!grows).to_ne_bytes().to_vec()));
        }
        if ask.command == UblkCommand::Add {
            let mut info = DeviceInfo::decode(&ask.buffer).ok_or("no device")?;
            (info.id, self.next, *made) = (self.next, self.next + 1, Some(self.next));
            let device = ModelDevice {
                info,
                params: volume.params,
                name: volume.name.clone(),
                origin: volume.origin,
                busy: 0,
                ready: 0,
            };
            self.devices.insert(info.id, device);
            return Ok(Ok(info.encode().to_vec()));
        }
        let Some(device) = self.devices.get_mut(&id) else {
            return Ok(Err(19));
        };
        match ask.command {
            UblkCommand::GetInfo => return Ok(Ok(device.info.encode().to_vec())),
            UblkCommand::GetParams => return Ok(Ok(device.params.encode().to_vec())),
            UblkCommand::StartRecovery if device.busy > 0 => {
                device.busy -= 1;
                device.info.state = UblkState::Quiesced;
                return Ok(Err(EBUSY));
            }
            UblkCommand::StartRecovery if device.ready == 0 => {
                self.classes.count("killed while it takes a device over");
                return Ok(Err(EINVAL));
            }
            UblkCommand::StartRecovery if device.ready < device.info.queues && !self.can_grow => {
                return Err(format!(
                    "the recovery of device {id} brings the kernel down"
                ));
            }
            UblkCommand::StartRecovery => {
                device.info.state = UblkState::Quiesced;
                device.ready = 0;
            }
            UblkCommand::EndRecovery => {
                device.info.state = UblkState::Live;
                device.info.pid = self.pid as i32;
            }
            UblkCommand::UpdateSize => device.params.sectors = Sectors(ask.data),
            UblkCommand::Delete if device.info.state != UblkState::Dead => {
                return Err(format!("device {id}, which may hold writes, is removed"));
            }
            UblkCommand::Delete => {
                self.devices.remove(&id);
            }
            _ => {}
        }
        Ok(Ok(ask.buffer))
    }

    /// Judges a volume with a device.
    fn judge(&mut self, volume: &ModelVolume, id: u32) -> Result<(), String> {
        self.classes.count("served");
        let of_origin = self.devices.values().filter(|device| {
            device.origin == volume.origin && device.info.state != UblkState::Dead
        });
        let all: Vec<_> = of_origin.map(|device| device.info.id).collect();
        if all != [id] {
            return Err(format!("devices {all:?} are of one origin"));
        }
        let params = self.devices[&id].params;
        let is_shape =
            params.sectors == volume.params.sectors && params.block == volume.params.block;
        if !is_shape || volume.params.read_only && !params.read_only {
            return Err(format!("device {id} has another shape: {params:?}"));
        }
        Ok(())
    }

    /// Judges a volume without a device, by the reason.
    fn refused(&mut self, volume: &ModelVolume, why: AttachRefusal) -> Result<(), String> {
        let reason = match why {
            AttachRefusal::OtherOrigin(id) => {
                self.classes.count("left alone: another origin");
                let device = &self.devices[&id];
                device.origin != volume.origin && device.name == volume.name
            }
            AttachRefusal::Reshaped(id, _) => {
                self.classes.count("left alone: another shape");
                let (is, wanted) = (self.devices[&id].params, volume.params);
                wanted.sectors < is.sectors
                    || wanted.sectors > is.sectors && !self.can_grow
                    || wanted.block != is.block
                    || wanted.read_only && !is.read_only
            }
            AttachRefusal::InUse { .. } => self.strangers,
            _ => false,
        };
        match reason {
            true => Ok(()),
            false => Err(format!("volume {} is refused: {why}", volume.name)),
        }
    }

    /// The configuration changes, or an operator gives a device up.
    fn change(&mut self) {
        let (first, second) = (self.random.below(2) as usize, 1);
        match self.random.below(7) {
            0 => {
                self.classes.count("names are exchanged");
                let [a, b] = &mut self.volumes[..] else {
                    return;
                };
                std::mem::swap(&mut a.name, &mut b.name);
            }
            1 => {
                self.classes.count("another origin");
                let used = [self.volumes[0].origin, self.volumes[1].origin];
                let free = (0..ORIGINS).find(|origin| !used.contains(origin));
                self.volumes[first].origin = free.expect("one more than volumes");
            }
            2 => {
                self.classes.count("another name");
                self.volumes[second].name = format!("name{}", self.random.below(3));
                if self.volumes[0].name == self.volumes[1].name {
                    self.volumes[0].name.push('x');
                }
            }
            3 => {
                let params = &mut self.volumes[first].params;
                params.read_only = !params.read_only;
            }
            4 => self.volumes[first].params.sectors = Sectors(1024 << self.random.below(3)),
            5 => self.volumes[first].params.block = Sectors(1 << (3 * self.random.below(2))),
            _ => {
                let all: Vec<_> = self.devices.keys().copied().collect();
                if !all.is_empty() {
                    self.classes.count("given up by force");
                    self.devices
                        .remove(&all[self.random.below(all.len() as u64) as usize]);
                }
            }
        }
    }
}

fn run(seed: u64, mark: MarkOf, readies: bool, classes: &mut Classes) -> Result<(), String> {
    let volume = |origin: u64| ModelVolume {
        name: format!("name{origin}"),
        origin,
        params: super::tests::wanted(None).params,
    };
    let mut random = CampaignRandom(seed);
    let mut world = CampaignWorld {
        can_grow: random.one_in(2),
        readies,
        random,
        devices: BTreeMap::new(),
        volumes: vec![volume(0), volume(1)],
        mark,
        strangers: false,
        pid: 7,
        next: 0,
        classes,
    };
    for _ in 0..STEPS {
        world.daemon()?;
        if world.random.one_in(2) {
            world.change();
        }
    }
    Ok(())
}

fn by_origin(volume: &ModelVolume) -> u64 {
    mark(&volume.origin.to_ne_bytes())
}

#[test]
fn what_daemons_leave_is_their_origins_alone() {
    let mut classes = Classes::default();
    for seed in 0..SEEDS {
        let ended = run(seed, by_origin, true, &mut classes);
        ended.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    let rare = classes.0.iter().filter(|(_, count)| **count < SEEDS / 10);
    let rare: Vec<_> = rare.collect();
    assert!(rare.is_empty() && classes.0.len() == 13, "{:?}", classes.0);
}

/// A mark of the name alone.
#[test]
fn canary_a_device_that_is_known_by_its_name_is_given_to_another_origin() {
    let by_name: MarkOf = |volume| mark(volume.name.as_bytes());
    let mut found =
        (0..SEEDS).filter_map(|seed| run(seed, by_name, true, &mut Classes::default()).err());
    assert!(found.any(|what| what.contains("of another origin is served")));
}

#[test]
fn canary_a_recovery_with_some_queues_ready_brings_the_kernel_down() {
    let ended = |seed| run(seed, by_origin, false, &mut Classes::default()).err();
    assert!(
        (0..SEEDS)
            .filter_map(ended)
            .any(|what| what.contains("brings the kernel down"))
    );
}
