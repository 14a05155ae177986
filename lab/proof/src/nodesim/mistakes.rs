//! Operators' requests that a node has to refuse: some at once, some only once the node has opened
//! the named devices.
//!
//! Invariants:
//!     a refused change has left nothing open that it opened
//!     a device in use is refused before any wait

use super::life::NodeLife;
use super::report::Class;
use super::scenario::{TINY, UNUSED, path};
use block::Nanos;
use control::protocol::{ControlRequest, NamedOrNew};
use sim::SimRng;
use std::rc::Rc;

/// Chance of a mistake instead of a sound request.
const CHANCE: f64 = 0.25;
/// The longest that a refusal at once may take.
const AT_ONCE: Nanos = Nanos::from_millis(1);
/// The latest unplugging of a device that is being put to use.
const SOON: u64 = 3_000_000;
/// The numbers of the plain volume and of the volume on arrays.
const PLAIN: usize = 0;
const ARRAY: usize = 1;

pub(super) struct Mistakes {
    life: Rc<NodeLife>,
    rng: SimRng,
}

impl Mistakes {
    pub fn new(life: Rc<NodeLife>) -> Mistakes {
        let rng = SimRng::fork(life.scenario.seed, 700 + life.number);
        Mistakes { life, rng }
    }

    pub fn are_due(&mut self) -> bool {
        self.life.scenario.mistakes && self.rng.chance(CHANCE)
    }

    /// Makes one mistake, while the volumes `removed` are not there.
    pub async fn one(&mut self, removed: &[usize]) {
        match self.rng.below(6) {
            0 => {
                let large = volume(UNUSED, "1GiB");
                self.leaves_nothing(large, UNUSED).await;
            }
            1 => {
                let small = add_to_pool(TINY);
                self.leaves_nothing(small, TINY).await;
            }
            2 => {
                let small = ControlRequest::AddMember {
                    array: "r".to_owned(),
                    device: NamedOrNew::Named(TINY.to_owned()),
                    overwrite: self.rng.chance(0.5),
                };
                self.leaves_nothing(small, TINY).await;
            }
            3 if removed.contains(&ARRAY) => self.too_large_for_its_array().await,
            3 | 4 => self.in_use().await,
            _ => self.interrupted().await,
        }
    }

    /// The request has to be refused, and `disk` then has no user.
    async fn leaves_nothing(&self, request: ControlRequest, disk: &str) {
        let (life, path) = (&self.life, path(disk));
        let openings = life.machine.openings(&path);
        if life.try_change(request.clone()).await.is_ok() {
            return life.violate(format!("{request:?} was not refused"));
        }
        if life.machine.openings(&path) > openings {
            life.meet(Class::RefusedOpen);
        }
        if life.machine.is_held(&path) {
            life.violate(format!("{request:?} was refused, and {disk} is still open"));
        }
    }

    /// The array is assembled, and released with all its members.
    async fn too_large_for_its_array(&self) {
        let life = &self.life;
        let disks = life.volumes[ARRAY].spec.disks.iter();
        let paths: Vec<String> = disks.map(|disk| path(disk)).collect();
        let held = || paths.iter().find(|path| life.machine.is_held(path));
        let openings = || -> u64 { paths.iter().map(|p| life.machine.openings(p)).sum() };
        let before = openings();
        if held().is_some() {
            // The removed volume's array is still being released.
            return;
        }
        let array = life.scenario.arrays.iter().rfind(|array| *array != "q");
        let request = volume(array.expect("there is one"), "1GiB");
        if life.try_change(request).await.is_ok() {
            return life.violate("a volume larger than its array was not refused".into());
        }
        if openings() > before {
            life.meet(Class::RefusedArray);
        }
        if let Some(path) = held() {
            life.violate(format!("its volume was refused, and {path} is still open"));
        }
    }

    /// One user has a device, and another requests the device.
    async fn in_use(&mut self) {
        let life = self.life.clone();
        let of_array = &life.volumes[ARRAY].spec.disks;
        let plain = &life.volumes[PLAIN].spec.disks;
        let all: Vec<&String> = of_array.iter().chain(plain).collect();
        let disk = all[self.rng.below(all.len() as u64) as usize];
        if !life.machine.is_held(&path(disk)) {
            return;
        }
        let request = match self.rng.chance(0.5) {
            true => volume(disk, "64KiB"),
            false => add_to_pool(disk),
        };
        let begin = life.env.timer.now();
        let refused = life.try_change(request.clone()).await;
        let took = life.env.timer.now() - begin;
        match refused {
            Ok(()) => life.violate(format!("{request:?} was not refused, and {disk} is in use")),
            Err(why) if took > AT_ONCE => {
                life.violate(format!("{request:?} was refused after {took}: {why}"));
            }
            Err(_) => life.meet(Class::RefusedInUse),
        }
    }

    /// A device is unplugged at about the time at which it is put to use. Whatever the outcome, the
    /// device has no user in the end.
    async fn interrupted(&mut self) {
        let (life, path) = (self.life.clone(), path(UNUSED));
        let (machine, timer) = (life.machine.clone(), life.env.timer.clone());
        let (soon, of) = (Nanos(self.rng.below(SOON)), path.clone());
        life.env.spawn.spawn(async move {
            timer.sleep(soon).await;
            machine.pull(&of);
        });
        let (add, remove) = match self.rng.chance(0.5) {
            true => (
                volume(UNUSED, "64KiB"),
                ControlRequest::RemoveVolume {
                    volume: "mistake".to_owned(),
                },
            ),
            false => (
                add_to_pool(UNUSED),
                ControlRequest::RemoveDevice {
                    pool: "fast".to_owned(),
                    device: UNUSED.to_owned(),
                },
            ),
        };
        let added = life.try_change(add.clone()).await;
        life.env.timer.sleep(soon).await;
        if added.is_ok() {
            // A volume is removed even if its origin could not be made durable.
            let _ = life.try_change(remove).await;
        }
        life.machine.give_back(&path);
        life.meet(Class::Interrupted);
        // A node that stops refuses to release the device.
        if life.machine.is_held(&path) && !life.is_over() {
            life.violate(format!(
                "{UNUSED} was unplugged in {add:?} and is still open"
            ));
        }
    }
}

fn volume(origin: &str, size: &str) -> ControlRequest {
    let name = "mistake";
    ControlRequest::AddVolume {
        volume: format!("name = {name:?}\norigin = {origin:?}\npool = \"fast\"\nsize = {size:?}\n"),
        device: None,
    }
}

fn add_to_pool(disk: &str) -> ControlRequest {
    ControlRequest::AddDevice {
        pool: "fast".to_owned(),
        device: NamedOrNew::Named(disk.to_owned()),
    }
}
