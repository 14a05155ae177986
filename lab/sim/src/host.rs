//! The host of a simulated world: boots shards on one thread and steps them.
//!
//! Which of the shards that could run runs next is drawn by seed. Time passes
//! only when none could: a turn takes no time, but for that which `WorldControl::occupy` adds.

use crate::driver::SimDriver;
use crate::operation::place_of;
use crate::rng::SimRng;
use crate::trace_hash::TraceEvent;
use crate::world::SimWorld;
use block::{Host, IoResult, Nanos, Pool, ShardId, ShardTurn, TurnProgress};
use std::cell::{Ref, RefCell, RefMut};
use std::fmt::Write;
use std::rc::Rc;

/// Limits of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunBudget {
    /// The world's clock, in absolute time.
    pub time_max: Nanos,
    /// Turns of shards in one run.
    pub turns_max: u64,
    /// Turns of shards without time passing: more of them count as a spinning shard.
    pub turns_per_instant_max: u64,
}

impl Default for RunBudget {
    /// No limit, but for a million turns in one instant.
    fn default() -> RunBudget {
        RunBudget {
            time_max: Nanos::MAX,
            turns_max: u64::MAX,
            turns_per_instant_max: 1_000_000,
        }
    }
}

impl RunBudget {
    /// No limit but the clock, and a million turns in one instant.
    pub fn until(time_max: Nanos) -> RunBudget {
        RunBudget {
            time_max,
            ..RunBudget::default()
        }
    }
}

/// The end of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunOutcome {
    /// Every shard that kept its power is done.
    Done,
    /// No shard is left that has power.
    PowerCut,
    /// No shard can run and nothing is left to happen; the text has the waiting operations.
    Deadlock(String),
    /// Shards run without end and time does not pass.
    Livelock,
    /// [`RunBudget::time_max`] is reached.
    OutOfTime,
    /// [`RunBudget::turns_max`] is reached.
    OutOfTurns,
}

/// More than 32 MiB: below that, glibc may serve a request from memory used before, and then has to
/// clear it. Above, a boot costs only the pages it touches.
const POOL_BYTES: usize = 40 << 20;

/// A simulated world as a host of shards.
pub struct SimHost {
    world: Rc<RefCell<SimWorld>>,
    pool_bytes: usize,
    turn_cost: Nanos,
    budget: RunBudget,
    outcome: Option<RunOutcome>,
}

struct ShardResident {
    seat: usize,
    turn: Option<Box<dyn ShardTurn>>,
    progress: TurnProgress,
}

impl SimHost {
    /// A host for `world`, with 40 MiB of buffers a shard and no limits.
    pub fn new(world: SimWorld) -> SimHost {
        SimHost {
            world: Rc::new(RefCell::new(world)),
            pool_bytes: POOL_BYTES,
            turn_cost: Nanos::ZERO,
            budget: RunBudget::default(),
            outcome: None,
        }
    }

    /// Gives each shard `bytes` of buffers.
    pub fn pool_bytes(mut self, bytes: usize) -> SimHost {
        self.pool_bytes = bytes;
        self
    }

    /// Makes each turn of a shard take `cost`, and more if its work does: see
    /// [`crate::WorldControl::occupy`].
    pub fn turn_cost(mut self, cost: Nanos) -> SimHost {
        self.turn_cost = cost;
        self
    }

    /// Limits later runs.
    pub fn set_budget(&mut self, budget: RunBudget) {
        self.budget = budget;
    }

    /// The world, between runs.
    pub fn world(&self) -> Ref<'_, SimWorld> {
        self.world.borrow()
    }

    /// The world, to be changed between runs.
    pub fn world_mut(&mut self) -> RefMut<'_, SimWorld> {
        self.world.borrow_mut()
    }

    /// Boots one shard to be driven without a host, and returns its driver; the `park` of that
    /// moves the world. The next boot ends the shard.
    pub fn driver(&mut self) -> SimDriver {
        self.world.borrow_mut().boot(1);
        let seat = self.world.borrow().boot;
        SimDriver::new(self.world.clone(), seat, Pool::new(self.pool_bytes))
    }

    /// Outcome of the last [`Host::run`].
    pub fn outcome(&self) -> Option<&RunOutcome> {
        self.outcome.as_ref()
    }

    /// Boots `shards` shards and steps them to the end; returns the outcome.
    ///
    /// After a power cut the shards are dropped at once, and a later run finds the surviving bytes
    /// on the disks.
    pub fn drive<B>(&mut self, shards: u32, boot: B) -> RunOutcome
    where
        B: Fn(ShardId, SimDriver) -> Box<dyn ShardTurn>,
    {
        self.world.borrow_mut().boot(shards);
        let first = self.world.borrow().boot;
        let mut residents = Vec::new();
        for shard in 0..shards {
            let seat = first + shard as usize;
            let pool = Pool::new(self.pool_bytes);
            let driver = SimDriver::new(self.world.clone(), seat, pool);
            residents.push(ShardResident {
                seat,
                turn: Some(boot(ShardId(shard), driver)),
                progress: TurnProgress::Ready,
            });
        }
        let outcome = self.step_to_end(&mut residents);
        // Dropped tasks may close streams and drop buffers, but actions of a dead shard have no
        // effect.
        let mut world = self.world.borrow_mut();
        world.seats[first..].iter_mut().for_each(|s| s.live = false);
        drop(world);
        drop(residents);
        outcome
    }

    fn step_to_end(&mut self, residents: &mut [ShardResident]) -> RunOutcome {
        let mut turns = 0;
        let mut instant = (Nanos::ZERO, 0);
        let mut runnable = Vec::with_capacity(residents.len());
        loop {
            let next = self.choose(residents, &mut runnable);
            let index = match next {
                Ok(Some(index)) => index,
                Ok(None) => continue,
                Err(outcome) => return outcome,
            };
            let now = self.world.borrow().now();
            if instant.0 != now {
                instant = (now, 0);
            }
            instant.1 += 1;
            turns += 1;
            if instant.1 > self.budget.turns_per_instant_max {
                return RunOutcome::Livelock;
            }
            if turns > self.budget.turns_max {
                return RunOutcome::OutOfTurns;
            }
            let resident = &mut residents[index];
            let turn = resident.turn.as_mut().expect("chosen among the live");
            turn.park(now);
            resident.progress = turn.run_once();
            if self.turn_cost > Nanos::ZERO {
                let seat = &mut self.world.borrow_mut().seats[resident.seat];
                seat.occupy(now, self.turn_cost);
            }
        }
    }

    /// Lets the world move until a shard can run, and draws which. `None`: look
    /// again.
    fn choose(
        &self,
        residents: &mut [ShardResident],
        runnable: &mut Vec<usize>,
    ) -> Result<Option<usize>, RunOutcome> {
        let mut world = self.world.borrow_mut();
        world.obey();
        // Now and then a shard runs between two events of one instant.
        while world.happen() && world.order.below(8) > 0 {}
        runnable.clear();
        let (mut deadline, mut dead) = (Nanos::MAX, false);
        let mut waiting = false;
        let (now, paused) = (world.now(), world.paused.end);
        for (index, resident) in residents.iter_mut().enumerate() {
            let seat = &world.seats[resident.seat];
            if !seat.live {
                dead |= resident.turn.is_some();
                continue;
            }
            let due = match resident.progress {
                _ if now < paused => {
                    deadline = paused;
                    false
                }
                TurnProgress::Ready | TurnProgress::Idle(_) if now < seat.busy_until => {
                    deadline = deadline.min(seat.busy_until);
                    false
                }
                TurnProgress::Ready => true,
                TurnProgress::Idle(at) => {
                    deadline = deadline.min(at);
                    at <= now || !seat.ready.is_empty() || seat.unparked.is_set()
                }
                TurnProgress::Done => continue,
            };
            waiting = true;
            if due {
                runnable.push(index);
            }
        }
        if dead {
            drop(world);
            self.bury(residents);
            return Ok(None);
        }
        if !waiting {
            let any = residents.iter().any(|r| world.seats[r.seat].live);
            return Err(if any || residents.is_empty() {
                RunOutcome::Done
            } else {
                RunOutcome::PowerCut
            });
        }
        if runnable.is_empty() {
            let next = world.next_at().unwrap_or(Nanos::MAX).min(deadline);
            if next == Nanos::MAX {
                return Err(RunOutcome::Deadlock(deadlock(&world)));
            }
            if next > self.budget.time_max {
                return Err(RunOutcome::OutOfTime);
            }
            world.ledger.now = next;
            return Ok(None);
        }
        let index = runnable[pick(&mut world.order, runnable.len())];
        let shard = world.seats[residents[index].seat].shard;
        world.ledger.record(TraceEvent::Turn { shard });
        Ok(Some(index))
    }

    /// Drops the shards that have lost their power.
    fn bury(&self, residents: &mut [ShardResident]) {
        for resident in residents {
            let live = self.world.borrow().seats[resident.seat].live;
            if !live {
                resident.turn = None;
            }
        }
    }
}

fn pick(rng: &mut SimRng, len: usize) -> usize {
    if len == 1 {
        return 0;
    }
    rng.below(len as u64) as usize
}

/// The operations in flight of a deadlock, one a line.
fn deadlock(world: &SimWorld) -> String {
    let mut text = format!(
        "seed {}, at {}: no shard can run and nothing is left to happen; in flight:",
        world.seed(),
        world.now()
    );
    let mut any = false;
    for (_, flight) in world.flights.iter() {
        let seat = &world.seats[flight.shard as usize];
        if !seat.live {
            continue;
        }
        any = true;
        let place = match crate::operation::is_disk_op(&flight.op) {
            true => {
                let name = &world.disks[flight.unit as usize].geometry.name;
                format!("{name}, sector {}", place_of(&flight.op))
            }
            false => world.streams.describe(&flight.op, flight.unit),
        };
        let (shard, number) = (seat.shard.0, flight.number);
        let op = format!("{:?}", flight.op);
        let verb = op.split(['(', ' ']).next().unwrap_or_default();
        write!(
            text,
            "\n    shard {shard}, operation {number}: {verb} on {place}"
        )
        .expect("a string takes all");
    }
    if !any {
        text.push_str(" no operation; tasks wait for each other");
    }
    text
}

impl Host for SimHost {
    type Driver = SimDriver;

    /// # Panics
    /// If the shards stall or the budget is spent: a program that is the same on
    /// every host could not report. [`SimHost::drive`] returns these instead.
    fn run<B>(&mut self, shards: u32, boot: B) -> IoResult
    where
        B: Fn(ShardId, SimDriver) -> Box<dyn ShardTurn> + Send + Sync + 'static,
    {
        let outcome = self.drive(shards, boot);
        let ended = matches!(outcome, RunOutcome::Done | RunOutcome::PowerCut);
        assert!(ended, "seed {}: {outcome:?}", self.world.borrow().seed());
        self.outcome = Some(outcome);
        Ok(())
    }
}
