//! Changed configurations that a node is to load while clients use the node.

use super::life::{NodeLife, SimVolume};
use super::report::Class;
use cache::CacheMode;
use control::config::{Name, VolumeMode};
use control::protocol::ControlRequest;
use sim::SimRng;
use std::rc::Rc;

/// Draws the configurations. A later addition to a case has a random source of its own, so that
/// each seed stays the same case.
pub(super) struct Reloads {
    life: Rc<NodeLife>,
    rng: SimRng,
}

impl Reloads {
    pub(super) fn new(life: Rc<NodeLife>) -> Reloads {
        let rng = SimRng::fork(life.scenario.seed, 700 + life.number);
        Reloads { life, rng }
    }

    /// Returns true if a reload is due, in some cases.
    pub(super) fn are_due(&mut self) -> bool {
        self.life.scenario.reloads && self.rng.chance(0.15)
    }

    /// Has the node load another file, and updates the list `removed` of volumes.
    pub(super) async fn one(&mut self, removed: &mut Vec<usize>) {
        let life = self.life.clone();
        let mut config = life.scenario.config();
        let mut kept = |_: &_| self.rng.chance(0.8);
        config.volumes.retain(&mut kept);
        for volume in &mut config.volumes {
            let mode = CacheMode::ALL[self.rng.below(CacheMode::ALL.len() as u64) as usize];
            volume.mode.value = VolumeMode::Cached(mode);
        }
        let spare = Name::new(&life.scenario.spare_pool_device).expect("a disk's name");
        let devices = &mut config.pools[0].devices.value;
        devices.push(spare);
        devices.retain(|_| self.rng.chance(0.7));
        life.machine.write_configuration(config.clone());
        match life.change(ControlRequest::Reload).await {
            true => life.meet(Class::Reloaded),
            false => life.meet(Class::NotReloaded),
        }
        // A failed reload stops at the failing change.
        let status = life.status().await;
        for (number, volume) in life.volumes.iter().enumerate() {
            let name = &volume.spec.name;
            let served = status.volumes.iter().any(|v| v.name == *name);
            let waits = status.waiting.iter().any(|v| v.name == *name);
            match (removed.contains(&number), served || waits) {
                (false, false) => removed.push(number),
                (true, true) => {
                    removed.retain(|other| *other != number);
                    self.is_back(volume);
                }
                _ => (),
            }
        }
    }

    /// A plain volume with its lost disk back, and opened again, serves without an error.
    fn is_back(&self, volume: &SimVolume) {
        let life = &self.life;
        let origin_lost = volume.is_excused() && volume.spec.tolerance == 0;
        if origin_lost && volume.number == 0 && life.away(volume) == 0 {
            volume.mend();
            life.meet(Class::OriginAnew);
        }
    }
}
