//! Legs of a mirror that part: some are lost, the others go on; the lost ones are
//! started alone, by force; then all are there.
//!
//! There are two histories then. Writes acknowledged in either must not vanish unless an
//! administrator chooses so: a start with all legs is refused, and names both sides.

use super::between::count;
use super::chaos::ArrayChaos;
use super::client;
use super::course::{drive, finish, work};
use super::life::{ArrayLife, ArrayOutside};
use super::model::ArrayModel;
use super::report::Class;
use super::start::begin;
use block::{BoxDevice, Device, Extent, Lba, Nanos, Sectors};
use futures_util::future::join;
use raid::{Array, Level};
use shard::Local;
use sim::{Domain, PowerCut, RunMoment, SimDriver, SimHost, SimRng};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// One side: its legs, and their history.
struct Side {
    units: Vec<usize>,
    history: RefCell<ArrayModel>,
}

/// The state of the run.
struct Parting {
    outside: Rc<ArrayOutside>,
    /// The legs that go on when the others are lost, and the lost legs.
    sides: [Side; 2],
    rng: RefCell<SimRng>,
    /// An administrator started the lost legs by force, or tried.
    forced: Cell<bool>,
    /// Writes that the lost legs acknowledged then.
    acked: Cell<u64>,
}

/// The legs to be lost: some of them, that could go on alone as the others could.
fn lost(outside: &ArrayOutside, rng: &mut SimRng) -> Vec<usize> {
    let members = outside.scenario.members;
    match outside.scenario.level {
        // Copies lie on neighbours, and the number of legs is even.
        Level::Raid10 => {
            let first = rng.below(2) as usize;
            (0..members).filter(|role| role % 2 == first).collect()
        }
        _ => {
            let mut all: Vec<usize> = (0..members).collect();
            rng.shuffle(&mut all);
            all.truncate(rng.between(1, members as u64 - 1) as usize);
            all
        }
    }
}

/// Lets the legs part and meet again. Returns the number of faults that struck, as of a life.
pub(super) fn part(sim: &mut SimHost, outside: &Rc<ArrayOutside>) -> (bool, usize) {
    let mut rng = SimRng::fork(outside.scenario.seed, 65);
    let behind = lost(outside, &mut rng);
    let ahead = (0..outside.units.len()).filter(|unit| !behind.contains(unit));
    let side = |units| Side {
        units,
        history: RefCell::new(ArrayModel::new(0)),
    };
    let parting = Rc::new(Parting {
        outside: outside.clone(),
        sides: [side(ahead.collect()), side(behind)],
        rng: RefCell::new(rng),
        forced: Cell::new(false),
        acked: Cell::new(0),
    });
    parting.run(sim, 0, &[0, 1], None, async |p, local| {
        p.go_apart(local).await
    });
    if parting.rng.borrow_mut().chance(0.4) {
        parting.run(sim, 1, &[1], None, async |p, local| {
            p.start_stale(local).await
        });
    }
    let cut = parting.rng.borrow_mut().chance(0.4);
    let cut = cut.then(|| parting.rng.borrow_mut().between(1, 60));
    parting.run(sim, 2, &[1], cut, async |p, local| p.force(local).await);
    if parting.rng.borrow_mut().chance(0.3) {
        parting.run(sim, 3, &[0], None, async |p, local| p.go_on(local).await);
    }
    parting.run(sim, 4, &[0, 1], None, async |p, local| p.meet(local).await);
    (false, count(sim, outside, 0))
}

impl Parting {
    /// Runs one boot, with the legs of `sides` alone, and possibly a loss of power after `cut`
    /// steps.
    fn run<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        sim: &mut SimHost,
        number: u64,
        sides: &[usize],
        cut: Option<u64>,
        work: impl FnOnce(Rc<Parting>, Local<SimDriver>) -> F + 'static,
    ) {
        let outside = &self.outside;
        if outside.report.borrow().violation.is_some() {
            return;
        }
        for (at, side) in self.sides.iter().enumerate() {
            for unit in &side.units {
                match sides.contains(&at) {
                    true => outside.revive(*unit),
                    false => outside.kill(*unit),
                }
            }
        }
        let steps = sim.world().steps();
        // The last life of a scenario is not cut short.
        let last = outside.scenario.lives - 1;
        let disks = outside.disks();
        let mut plan = outside
            .scenario
            .plan(last, steps, &disks, outside.data_at.get());
        plan.cuts.extend(cut.map(|after| PowerCut {
            domain: None,
            at: RunMoment::Step(steps + after),
        }));
        sim.world_mut().set_plan(plan).expect("a sound plan");
        let parting = self.clone();
        let cut = drive(sim, outside, async move |outside, local| {
            local.env().timer.sleep(Nanos(1)).await;
            drop(outside);
            work(parting, local).await;
        });
        if cut {
            outside.model.borrow_mut().cut(0);
            outside.writes.set(0);
            outside.partial_writes.set(0);
            outside.control.power_on(Domain(0));
            outside.meet(Class::Cut);
            if number == 2 {
                outside.meet(Class::ForcedCut);
            }
        }
        // With all legs there, the history is that of the legs that continued.
        let followed = if sides.len() == 1 { sides[0] } else { 0 };
        let now = outside.model.borrow().clone();
        self.sides[followed].history.replace(now);
    }

    fn chance(&self, chance: f64) -> bool {
        self.rng.borrow_mut().chance(chance)
    }

    fn units(&self, side: usize) -> &[usize] {
        &self.sides[side].units
    }

    /// From now on the array is to return the history of `side`.
    fn follow(&self, side: usize) {
        let history = self.sides[side].history.borrow().clone();
        self.outside.model.replace(history);
    }

    fn life(&self, local: &Local<SimDriver>, array: Array, number: u64) -> Rc<ArrayLife> {
        ArrayLife::new(self.outside.clone(), local.clone(), array, number)
    }

    /// Ends a life, in order or not.
    async fn end(&self, life: &ArrayLife) {
        if self.chance(0.5) {
            life.control.cut_power(None);
            life.env.timer.sleep(Nanos::from_secs(1)).await;
        }
        if let Err(error) = life.array.close().await {
            life.violate(format!("it cannot be closed: {error}"));
        }
    }

    async fn begin(
        &self,
        local: &Local<SimDriver>,
        number: u64,
        side: usize,
        by_force: bool,
    ) -> Option<Rc<ArrayLife>> {
        match begin(&self.outside, local, self.units(side), by_force).await {
            Ok(array) => Some(self.life(local, array, number)),
            Err(error) => {
                let what = format!("side {side} does not start in life {number}: {error}");
                self.outside.violate(what);
                None
            }
        }
    }

    /// Some legs are lost while clients write, and the others acknowledge more.
    async fn go_apart(self: Rc<Self>, local: Local<SimDriver>) {
        let all: Vec<usize> = (0..self.outside.units.len()).collect();
        let array = match begin(&self.outside, &local, &all, false).await {
            Ok(array) => array,
            Err(error) => return self.outside.violate(format!("it does not start: {error}")),
        };
        let life = self.life(&local, array, 0);
        let mut chaos = ArrayChaos::new(life.clone());
        let lose = async {
            let span = Nanos(self.rng.borrow_mut().between(1, 20_000_000));
            life.env.timer.sleep(span).await;
            let mut history = life.model.borrow().clone();
            history.cut(0);
            history.go_apart();
            self.sides[1].history.replace(history);
            for unit in self.units(1) {
                life.kill(*unit);
            }
            for unit in self.units(1) {
                chaos.noticed(*unit, *unit).await;
            }
        };
        join(work(&life), lose).await;
        let at = self.rng.borrow_mut().below(life.sectors - 8);
        if !client::write_durably(&life, at..at + 8).await {
            return life.violate("the legs that are left take no write".into());
        }
        self.end(&life).await;
    }

    /// Starts the stale legs alone, though no administrator declares the others lost: the array has
    /// to refuse.
    async fn start_stale(self: Rc<Self>, local: Local<SimDriver>) {
        self.follow(1);
        match begin(&self.outside, &local, self.units(1), false).await {
            Ok(_) => self
                .outside
                .violate("stale legs start by themselves".into()),
            Err(_) => self.outside.meet(Class::StaleRefused),
        }
    }

    /// Starts the stale legs alone, by force.
    async fn force(self: Rc<Self>, local: Local<SimDriver>) {
        self.follow(1);
        self.forced.set(true);
        let before = self.outside.acked.get();
        let Some(life) = self.begin(&local, 2, 1, true).await else {
            return;
        };
        life.meet(Class::Forced);
        if self.chance(0.7) {
            work(&life).await;
        }
        self.acked.set(life.acked.get() - before);
        self.end(&life).await;
    }

    /// Runs the legs that continued once more.
    async fn go_on(self: Rc<Self>, local: Local<SimDriver>) {
        self.follow(0);
        let Some(life) = self.begin(&local, 3, 0, false).await else {
            return;
        };
        work(&life).await;
        self.end(&life).await;
    }

    /// Starts the array with all legs there.
    async fn meet(self: Rc<Self>, local: Local<SimDriver>) {
        let mut all: Vec<usize> = (0..self.outside.units.len()).collect();
        self.rng.borrow_mut().shuffle(&mut all);
        match begin(&self.outside, &local, &all, false).await {
            Ok(_) if self.acked.get() > 0 => {
                self.outside
                    .violate("legs that diverged start together".into());
            }
            Ok(array) => {
                self.follow(0);
                let life = self.life(&local, array, self.outside.scenario.lives - 1);
                finish(&life, &mut ArrayChaos::new(life.clone())).await;
            }
            Err(error) => {
                let text = error.to_string();
                let named = |side: usize| {
                    let mut units = self.units(side).iter();
                    units.any(|unit| text.contains(&format!("disk-{unit}")))
                };
                if !(named(0) && named(1)) {
                    let what = format!("a refusal does not name both sides: {text}");
                    return self.outside.violate(what);
                }
                self.outside.meet(Class::SplitBrain);
                self.choose(&local).await;
            }
        }
    }

    /// Starts the side that an administrator chooses; the other is overwritten.
    async fn choose(&self, local: &Local<SimDriver>) {
        let chosen = self.rng.borrow_mut().below(2) as usize;
        self.follow(chosen);
        let last = self.outside.scenario.lives - 1;
        let Some(life) = self.begin(local, last, chosen, true).await else {
            return;
        };
        life.meet(Class::Chosen);
        for unit in self.units(1 - chosen) {
            let device = life.candidate(*unit).expect("a disk").device;
            if let Err(error) = wipe(&device).await {
                return life.violate(format!("disk {unit} cannot be wiped: {error}"));
            }
        }
        finish(&life, &mut ArrayChaos::new(life.clone())).await;
    }
}

/// Leaves nothing that shows the array a device belonged to.
async fn wipe(device: &BoxDevice) -> block::IoResult {
    device.zero(Extent::new(Lba(0), Sectors(32))).await?;
    device.flush().await
}
