//! The troublemaker: switches modes, adds and removes pool devices, and unplugs
//! them at the moments that matter.

use super::report::Class;
use super::shared::CacheSimShared;
use block::Nanos;
use cache::{CacheMode, Counter, DeviceFault, DeviceId, DeviceState, NewPoolDevice};
use futures_util::future::join;
use sim::SimRng;
use std::rc::Rc;

/// Interval at which the troublemaker looks for its moment.
const LOOK: Nanos = Nanos::from_micros(10);
/// Time by which a released disk has ended its held operations.
const ENDED: Nanos = Nanos::from_millis(5);
/// Looks before the troublemaker gives up.
const LOOKS: u32 = 200;

pub(crate) struct CacheChaos {
    shared: Rc<CacheSimShared>,
    rng: SimRng,
    /// The device of each pool disk.
    places: Vec<Option<DeviceId>>,
    dead: Vec<bool>,
}

impl CacheChaos {
    pub(crate) async fn new(shared: Rc<CacheSimShared>) -> CacheChaos {
        let disks = shared.pool.len();
        let mut chaos = CacheChaos {
            rng: SimRng::fork(shared.scenario.seed, 3),
            places: vec![None; disks],
            dead: vec![false; disks],
            shared,
        };
        for disk in 0..chaos.shared.scenario.in_pool {
            chaos.add(disk).await;
        }
        chaos
    }

    /// Makes trouble until the clients are done.
    pub(crate) async fn rage(&mut self) {
        while !self.shared.is_over() {
            let pause = self.rng.between(200_000, 20_000_000);
            self.shared.env.timer.sleep(Nanos(pause)).await;
            if self.shared.scenario.hang && !self.shared.is_any_hung() && self.rng.chance(0.1) {
                self.hang_some();
            }
            match self.rng.below(32) {
                0..8 => self.switch_mode(),
                8..10 => self.add_some().await,
                10 => self.remove_some().await,
                11 => self.shared.cache.check(),
                12..14 => self.lose_in_promotion().await,
                14..16 => self.lose_in_eviction().await,
                16..18 => self.lose_in_switch().await,
                18 => self.lose_in_removal().await,
                19 => self.lose_all(),
                _ => self.repair().await,
            }
        }
    }

    /// Makes a disk unresponsive that serves hits.
    fn hang_some(&mut self) {
        if let Some(disk) = self.busy() {
            self.shared.hang(disk);
            self.meet(Class::Hung);
        }
    }

    fn switch_mode(&mut self) {
        let targets = &self.shared.targets;
        let target = &targets[self.rng.below(targets.len() as u64) as usize];
        let modes = [
            CacheMode::WriteThrough,
            CacheMode::WriteThrough,
            CacheMode::WriteAround,
            CacheMode::PassThrough,
        ];
        target.volume.set_mode(modes[self.rng.below(4) as usize]);
    }

    async fn add(&mut self, disk: usize) {
        let leaf = self
            .shared
            .local
            .disk(self.shared.pool[disk])
            .expect("a disk");
        let device = NewPoolDevice::whole(leaf, format!("controller-{}", disk % 2));
        // A pool with metadata reads the disk's metadata. A disk that fails stays out.
        let uuid = u128::from(self.rng.bits()) << 64 | u128::from(self.rng.bits());
        let joined = self.shared.cache.join(device, uuid);
        let joined = self.shared.unstuck(joined).await;
        self.places[disk] = joined.ok();
    }

    async fn add_some(&mut self) {
        let disk = self.rng.below(self.places.len() as u64) as usize;
        if self.places[disk].is_none() && !self.dead[disk] {
            self.add(disk).await;
        }
    }

    async fn remove(&mut self, disk: usize) {
        if let Some(id) = self.places[disk].take() {
            let removed = self.shared.cache.remove_device(id).await;
            removed.expect("it is in the pool");
        }
    }

    async fn remove_some(&mut self) {
        let disk = self.rng.below(self.places.len() as u64) as usize;
        self.remove(disk).await;
    }

    fn kill(&mut self, disk: usize) {
        self.dead[disk] = true;
        self.shared.control.kill(self.shared.pool[disk]);
    }

    /// Plugs a disk in again and puts the disk back into the pool.
    async fn repair(&mut self) {
        // A hung disk stays hung to the end.
        let broken =
            |c: &CacheChaos, d: usize| (c.dead[d] || c.is_ejected(d)) && !c.shared.is_hung(d);
        if let Some(disk) = (0..self.places.len()).find(|d| broken(self, *d)) {
            if self.rng.chance(0.7) && self.take_back(disk).await {
                return;
            }
            self.remove(disk).await;
            let target = self.shared.pool[disk];
            if std::mem::take(&mut self.dead[disk]) {
                self.shared.control.revive(target);
            }
            self.shared.control.release(target);
            self.add(disk).await;
        }
    }

    /// Readmits a disk that was only late, if the disk answers. Returns true if the disk serves.
    async fn take_back(&mut self, disk: usize) -> bool {
        let late = DeviceState::Ejected(DeviceFault::Late);
        let report = self.report(disk).filter(|report| report.state == late);
        let Some(report) = report.filter(|_| !self.dead[disk]) else {
            return false;
        };
        self.shared.control.release(self.shared.pool[disk]);
        // Operations that the disk held end first.
        self.shared.env.timer.sleep(ENDED).await;
        let readmitted = self.shared.cache.readmit(report.id);
        self.shared.unstuck(readmitted).await.is_ok()
    }

    fn is_ejected(&self, disk: usize) -> bool {
        let state = self.report(disk).map(|r| r.state);
        state.is_some_and(|s| s != DeviceState::Online)
    }

    fn report(&self, disk: usize) -> Option<cache::DeviceReport> {
        let id = self.places[disk]?;
        self.shared.cache.devices().into_iter().find(|d| d.id == id)
    }

    /// A disk that serves and has operations in flight.
    fn busy(&self) -> Option<usize> {
        (0..self.places.len()).find(|disk| {
            let report = self.report(*disk);
            !self.dead[*disk]
                && report.is_some_and(|r| r.state == DeviceState::Online && r.in_flight > 0)
        })
    }

    /// Waits for a moment. Returns the value that `moment` found.
    async fn await_moment<T>(
        &mut self,
        mut moment: impl FnMut(&CacheChaos) -> Option<T>,
    ) -> Option<T> {
        for _ in 0..LOOKS {
            if self.shared.is_over() {
                return None;
            }
            if let Some(found) = moment(self) {
                return Some(found);
            }
            self.shared.env.timer.sleep(LOOK).await;
        }
        None
    }

    fn meet(&self, class: Class) {
        self.shared.report.borrow_mut().meet(class);
    }

    async fn lose_in_promotion(&mut self) {
        let moment = |c: &CacheChaos| c.busy().filter(|_| c.shared.cache.filling() > 0);
        if let Some(disk) = self.await_moment(moment).await {
            self.kill(disk);
            self.meet(Class::Promotion);
        }
    }

    async fn lose_in_eviction(&mut self) {
        let mut evicted = None;
        let moment = move |c: &CacheChaos| {
            let now = c.shared.cache.counters().get(Counter::LinesEvicted);
            let before = evicted.replace(now).unwrap_or(now);
            c.busy().filter(|_| now > before)
        };
        if let Some(disk) = self.await_moment(moment).await {
            self.kill(disk);
            self.meet(Class::Eviction);
        }
    }

    async fn lose_in_switch(&mut self) {
        if let Some(disk) = self.await_moment(CacheChaos::busy).await {
            self.kill(disk);
            self.switch_mode();
            self.meet(Class::ModeSwitch);
        }
    }

    async fn lose_in_removal(&mut self) {
        if let Some(disk) = self.await_moment(CacheChaos::busy).await {
            let id = self.places[disk].take().expect("it is in the pool");
            let (shared, target) = (self.shared.clone(), self.shared.pool[disk]);
            self.dead[disk] = true;
            let lose = async { shared.control.kill(target) };
            let (removed, ()) = join(shared.cache.remove_device(id), lose).await;
            removed.expect("it is in the pool");
            self.meet(Class::PoolRemoval);
        }
    }

    fn lose_all(&mut self) {
        for disk in 0..self.places.len() {
            if self.places[disk].is_some() && !self.dead[disk] {
                self.kill(disk);
            }
        }
        self.meet(Class::PoolLost);
    }
}
