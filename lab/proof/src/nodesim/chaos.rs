//! Operators' changes and disks' failures that befall a node while clients use the node, one after
//! the other.
//!
//! Invariant: unless several disks may fail at a time, an array loses a member only while the array
//! is whole, so that no request of a client may fail.

use super::life::{NodeLife, SimVolume};
use super::mistakes::Mistakes;
use super::reloads::Reloads;
use super::report::Class;
use super::scenario::path;
use block::Nanos;
use cache::CacheMode;
use control::protocol::{ControlRequest, NamedOrNew};
use sim::SimRng;
use std::rc::Rc;

/// The longest pause between two events.
const PAUSE: u64 = 400_000_000;
/// Time limit of an array to see a loss.
const NOTICED: Nanos = Nanos::from_secs(4);
/// The longest time that a disk is unresponsive: longer than the timeout of a member.
const SILENCE: u64 = 3_000_000_000;

struct NodeChaos {
    life: Rc<NodeLife>,
    rng: SimRng,
    /// Disks of arrays and plain volumes that are unplugged.
    lost: Vec<String>,
    /// Volumes that were removed and are to be back.
    removed: Vec<usize>,
    /// Members taken out by hand, with their array.
    failed: Vec<(String, String)>,
    /// The moment of the last loss or return of a member.
    disturbed: Nanos,
}

/// Causes events until the life is over.
pub(super) async fn work(life: Rc<NodeLife>) {
    let rng = SimRng::fork(life.scenario.seed, 500 + life.number);
    let mut chaos = NodeChaos {
        life,
        rng,
        lost: Vec::new(),
        removed: Vec::new(),
        failed: Vec::new(),
        disturbed: Nanos::ZERO,
    };
    let mut mistakes = Mistakes::new(chaos.life.clone());
    let mut reloads = Reloads::new(chaos.life.clone());
    while !chaos.life.is_over() {
        let pause = Nanos(chaos.rng.below(PAUSE));
        chaos.life.env.timer.sleep(pause).await;
        if mistakes.are_due() {
            mistakes.one(&chaos.removed).await;
        } else if reloads.are_due() {
            reloads.one(&mut chaos.removed).await;
        } else {
            chaos.one().await;
        }
        chaos.life.hear();
        chaos.mend().await;
    }
}

impl NodeChaos {
    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.rng.below(of.len() as u64) as usize]
    }

    fn volume(&mut self) -> usize {
        self.rng.below(self.life.volumes.len() as u64) as usize
    }

    async fn pause(&mut self, most: u64) {
        let pause = Nanos(self.rng.below(most));
        self.life.env.timer.sleep(pause).await;
    }

    async fn one(&mut self) {
        match self.rng.below(20) {
            0 => self.set_mode().await,
            1 => self.quiesce().await,
            2 => self.invalidate().await,
            3 => self.remove_volume().await,
            4..7 => self.add_volume().await,
            7 => self.change_pool().await,
            8..10 => self.lose_pool_device().await,
            10 => self.lose_origin(),
            11..14 => self.lose_member().await,
            14..17 => self.give_back().await,
            17 => self.fail_member().await,
            18 => self.add_member().await,
            _ => self.ask().await,
        }
    }

    fn name(&self, volume: usize) -> String {
        self.life.volumes[volume].spec.name.clone()
    }

    async fn set_mode(&mut self) {
        let mode = *self.pick(&CacheMode::ALL);
        let volume = self.volume();
        let volume = self.name(volume);
        let change = ControlRequest::set_mode(volume, mode.name());
        if self.life.change(change).await {
            self.life.meet(Class::Mode);
        }
    }

    async fn quiesce(&mut self) {
        let volume = self.volume();
        let volume = self.name(volume);
        let quiesce = ControlRequest::Quiesce {
            volume: volume.clone(),
        };
        if self.life.change(quiesce).await {
            self.life.meet(Class::Quiesce);
            self.pause(PAUSE / 2).await;
            self.life.change(ControlRequest::Resume { volume }).await;
        }
    }

    async fn invalidate(&mut self) {
        let volume = self.volume();
        let volume = self.name(volume);
        if self
            .life
            .change(ControlRequest::Invalidate { volume })
            .await
        {
            self.life.meet(Class::Invalidate);
        }
    }

    async fn remove_volume(&mut self) {
        let number = self.volume();
        if self.removed.contains(&number) {
            return;
        }
        let volume = self.name(number);
        if self
            .life
            .change(ControlRequest::RemoveVolume { volume })
            .await
        {
            self.life.meet(Class::VolumeRemoved);
        }
        // The volume is removed even if its origin could not be made durable.
        self.removed.push(number);
    }

    async fn add_volume(&mut self) {
        let Some(number) = self.removed.pop() else {
            return;
        };
        let volume = &self.life.volumes[number];
        let add = ControlRequest::AddVolume {
            volume: volume.spec.section.clone(),
            device: None,
        };
        let origin_lost = volume.is_excused() && volume.spec.tolerance == 0;
        if self.life.change(add).await {
            self.life.meet(Class::VolumeAdded);
            if origin_lost && volume.number == 0 && self.life.away(volume) == 0 {
                volume.mend();
                self.life.meet(Class::OriginAnew);
            }
        } else {
            self.life.meet(Class::VolumeRefused);
            self.removed.push(number);
        }
    }

    async fn change_pool(&mut self) {
        let scenario = &self.life.scenario;
        let mut all = scenario.pool_devices.clone();
        all.push(scenario.spare_pool_device.clone());
        let device = self.pick(&all).clone();
        let pool = "fast".to_owned();
        let status = self.life.status().await;
        if status.pools[0].devices.iter().any(|d| d.name == device) {
            let remove = ControlRequest::RemoveDevice { pool, device };
            if self.life.change(remove).await {
                self.life.meet(Class::PoolDeviceRemoved);
            }
        } else {
            let device = NamedOrNew::Named(device);
            if self
                .life
                .change(ControlRequest::AddDevice { pool, device })
                .await
            {
                self.life.meet(Class::PoolDeviceAdded);
            }
        }
    }

    async fn lose_pool_device(&mut self) {
        let disk = *self.pick(&["p0", "p1", "p2"]);
        let path = path(disk);
        if self.life.machine.is_away(&path) {
            return self.life.machine.give_back(&path);
        }
        self.life.meet(Class::PoolDeviceLost);
        match self.rng.chance(0.5) {
            true => self.life.machine.pull(&path),
            false => self.silence(path),
        }
    }

    /// For a while no request to the disk ends.
    fn silence(&mut self, path: String) {
        let while_ = Nanos(self.rng.below(SILENCE));
        let (machine, timer) = (self.life.machine.clone(), self.life.env.timer.clone());
        machine.silence(&path);
        self.life.env.spawn.spawn(async move {
            timer.sleep(while_).await;
            machine.unsilence(&path);
        });
    }

    fn lose_origin(&mut self) {
        let disk = "o0".to_owned();
        if !self.life.machine.is_away(&path(&disk)) {
            self.life.volumes[0].lose();
            self.life.machine.pull(&path(&disk));
            self.lost.push(disk);
            self.life.meet(Class::OriginLost);
        }
    }

    async fn may_lose(&self, volume: &SimVolume) -> bool {
        let alone = volume.spec.tolerance > 0 && self.life.away(volume) == 0;
        self.life.scenario.several || (alone && self.life.is_whole().await)
    }

    async fn lose_member(&mut self) {
        let life = self.life.clone();
        let volume = &life.volumes[1];
        if !self.may_lose(volume).await {
            return;
        }
        let disk = self.pick(&volume.spec.disks).clone();
        let path = path(&disk);
        if life.scenario.several {
            volume.lose();
        }
        self.disturbed = life.env.timer.now();
        if self.rng.chance(0.7) {
            life.machine.pull(&path);
            self.lost.push(disk);
            life.meet(Class::MemberLost);
        } else {
            self.silence(path);
            life.meet(Class::MemberUnresponsive);
        }
        if life.away(volume) > volume.spec.tolerance {
            life.meet(Class::SeveralLost);
        }
    }

    async fn give_back(&mut self) {
        if self.lost.is_empty() {
            return;
        }
        let at = self.rng.below(self.lost.len() as u64) as usize;
        let disk = self.lost.swap_remove(at);
        let life = self.life.clone();
        let has = |volume: &&SimVolume| volume.spec.disks.contains(&disk);
        if let Some(volume) = life.volumes.iter().find(has).filter(|v| v.is_excused()) {
            volume.lose();
        }
        self.disturbed = life.env.timer.now();
        life.machine.give_back(&path(&disk));
        life.meet(Class::MemberBack);
    }

    async fn fail_member(&mut self) {
        let life = self.life.clone();
        let volume = &life.volumes[1];
        if !self.may_lose(volume).await || !self.failed.is_empty() {
            return;
        }
        let member = self.pick(&volume.spec.disks).clone();
        let array = match member.starts_with('m') {
            true => "r".to_owned(),
            false => "s".to_owned(),
        };
        let fail = ControlRequest::FailMember {
            array: array.clone(),
            member: member.clone(),
        };
        if life.scenario.several {
            volume.lose();
        }
        if life.change(fail).await {
            life.meet(Class::MemberFailed);
            self.failed.push((array, member));
        }
    }

    async fn add_member(&mut self) {
        let Some((array, member)) = self.failed.pop() else {
            return;
        };
        let add = ControlRequest::AddMember {
            array: array.clone(),
            device: NamedOrNew::Named(member.clone()),
            overwrite: false,
        };
        match self.life.change(add).await {
            true => self.life.meet(Class::MemberAdded),
            false => self.failed.push((array, member)),
        }
    }

    async fn ask(&mut self) {
        let volume = self.volume();
        let volume = self.name(volume);
        let range = Some((0, 1 << 16));
        let array = "r".to_owned();
        match self.rng.below(3) {
            0 => drop(self.life.change(ControlRequest::Observe { volume }).await),
            1 => drop(
                self.life
                    .change(ControlRequest::Explain { volume, range })
                    .await,
            ),
            _ => {
                let scrub = ControlRequest::Scrub {
                    array,
                    repair: false,
                };
                if self.life.change(scrub).await {
                    self.life.meet(Class::Scrub);
                }
            }
        }
    }

    /// An array that is whole again serves without an error from now on.
    async fn mend(&self) {
        let volume = &self.life.volumes[1];
        let quiet = self.life.env.timer.now() - self.disturbed > NOTICED;
        let here = quiet && self.life.away(volume) == 0;
        if volume.is_excused() && here && self.life.is_whole().await {
            volume.mend();
        }
    }
}
