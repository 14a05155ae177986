//! One life of a node with a write-back volume, and the faults of its devices meanwhile.

use super::client::{self, CLIENTS, Mood};
use super::harm::DamagedBlock;
use super::outside::{LOGS, VOLUME, WriteBackOutside};
use super::report::Class;
use block::{Env, Extent, IoErrorKind, Lba, Nanos, Sectors, Timer};
use control::protocol::ControlRequest;
use layout::{BLOCK_SECTORS, LOG_AREA};
use node::{NodeEvent, Platform};
use shard::Local;
use sim::{
    FaultClass as Fault, FaultEffect, FaultPlan, FaultRule, OpFilter, SimDriver, SimHost, SimRng,
    When,
};
use simnode::{Direct, DirectClient, RunningNode, SimPlatform};
use std::rc::Rc;

/// Time limit of a returned log device to take part again.
const BACK_MAX: Nanos = Nanos::from_secs(90);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteBackLifeEnd {
    Kill,
    Cut,
    Stop,
}

/// An event that befalls a node while clients use the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LifeStrike {
    Nothing,
    Away(usize),
    /// A device of the log is away for a while, and back.
    Back(usize),
    /// The n-th metadata write of a copy fails.
    Metadata(usize, u64),
    /// The n-th write of the witness fails.
    Witness(u64),
    Pause(Nanos),
    /// The log is discarded, and begun again.
    Mode,
}

fn drawn(rng: &mut SimRng) -> LifeStrike {
    let copy = rng.below(2) as usize;
    match rng.below(9) {
        0 | 1 => LifeStrike::Away(copy),
        2 => LifeStrike::Back(copy),
        3 => LifeStrike::Metadata(copy, rng.between(1, 8)),
        4 => LifeStrike::Witness(rng.between(1, 8)),
        5 => LifeStrike::Pause(Nanos(rng.between(5_000_000_000, 30_000_000_000))),
        8 => LifeStrike::Mode,
        _ => LifeStrike::Nothing,
    }
}

/// The faults of a life.
fn plan(
    outside: &WriteBackOutside,
    strike: LifeStrike,
    damage: Option<&DamagedBlock>,
) -> FaultPlan {
    let metadata = Extent::new(Lba::ZERO, Sectors(LOG_AREA * BLOCK_SECTORS));
    let fails = |disk, within, nth| FaultRule {
        disk,
        ops: OpFilter::Writes,
        within,
        when: When::Nth(nth),
        effect: FaultEffect::Fail(IoErrorKind::Other),
    };
    let rule = match strike {
        LifeStrike::Metadata(copy, nth) => {
            let log = outside.machine.target(LOGS[copy]);
            Some(fails(log, Some(metadata), nth))
        }
        LifeStrike::Witness(nth) => Some(fails(outside.machine.log_witness(VOLUME), None, nth)),
        _ => None,
    };
    let unreadable = damage.and_then(|damage| damage.rule(outside));
    FaultPlan::of(rule.into_iter().chain(unreadable).collect())
}

/// The course of a life.
#[derive(Clone, Copy)]
struct LifeCourse {
    number: u64,
    end: WriteBackLifeEnd,
    strike: LifeStrike,
    mood: Mood,
}

/// Runs one life; a damaged copy is the only fault of its life.
pub(super) fn one(
    outside: &Rc<WriteBackOutside>,
    sim: &mut SimHost,
    number: u64,
    last: bool,
    damage: Option<&DamagedBlock>,
) {
    let rng = &mut SimRng::fork(outside.seed, 10 + number);
    let course = LifeCourse {
        number,
        end: match last {
            true => WriteBackLifeEnd::Stop,
            false => match rng.below(5) {
                0 | 1 => WriteBackLifeEnd::Kill,
                2 | 3 => WriteBackLifeEnd::Cut,
                _ => WriteBackLifeEnd::Stop,
            },
        },
        strike: match drawn(rng) {
            // A new log needs both devices.
            LifeStrike::Metadata(..) if outside.known().is_none() => LifeStrike::Nothing,
            _ if last || damage.is_some() => LifeStrike::Nothing,
            strike => strike,
        },
        mood: [Mood::Mixed, Mood::Zeroes][usize::from(rng.chance(0.2))],
    };
    outside.over.set(false);
    outside.changed.take();
    let struck = sim.world().tally().count(Fault::Error);
    let (living, rng) = (outside.clone(), SimRng::fork(outside.seed, 100 + number));
    let plan = plan(outside, course.strike, damage);
    let ended = outside.boot(sim, plan, move |local| live(living, local, course, rng));
    let strikes = sim.world().tally().count(Fault::Error) > struck;
    match course.strike {
        LifeStrike::Metadata(..) if strikes => outside.meet(Class::MetadataFails),
        LifeStrike::Witness(_) if strikes => outside.meet(Class::WitnessFails),
        _ => {}
    }
    let cut = ended.is_none();
    outside.was_cut.set(cut);
    outside.was_zeroed.set(course.mood == Mood::Zeroes);
    if cut != (course.end == WriteBackLifeEnd::Cut) && !outside.has_failed() {
        let planned = course.end;
        outside.violate(format!("life {number} ended otherwise than by {planned:?}"));
    }
    outside.history.borrow_mut().cut(!cut);
    outside.meet(match course.end {
        WriteBackLifeEnd::Kill => Class::Kill,
        WriteBackLifeEnd::Cut => Class::Cut,
        WriteBackLifeEnd::Stop => Class::Stop,
    });
    if course.mood == Mood::Zeroes && course.end != WriteBackLifeEnd::Stop && outside.is_dirty() {
        outside.meet(Class::OnlyZeroes);
    }
    outside.judge();
    // A lost device has no part in the checks before a life with both.
    LOGS.iter().for_each(|log| outside.machine.give_back(log));
    let tried_again = matches!(
        course.strike,
        LifeStrike::Metadata(..) | LifeStrike::Witness(_)
    );
    for event in outside.machine.take_events() {
        match event {
            NodeEvent::VolumeNotServed { why, .. } if !tried_again => {
                outside.violate(format!("life {number}: it is not served: {why}"));
            }
            _ => {}
        }
    }
}

/// A node that runs.
struct Living {
    outside: Rc<WriteBackOutside>,
    env: Env,
    node: RunningNode,
    course: LifeCourse,
}

async fn live(
    outside: Rc<WriteBackOutside>,
    local: Local<SimDriver>,
    course: LifeCourse,
    mut rng: SimRng,
) {
    let env = local.env();
    env.timer.sleep(Nanos(1)).await;
    let frontend = Direct::new(&local);
    let platform = SimPlatform::new(outside.machine.clone(), local);
    let started = RunningNode::start(&outside.config, platform.clone(), frontend.clone()).await;
    let node = match started {
        Ok(node) => node,
        Err(why) => return outside.violate(format!("life {}: {why}", course.number)),
    };
    let living = Living {
        outside: outside.clone(),
        env: env.clone(),
        node,
        course,
    };
    let Some(client) = living.client(&frontend).await else {
        return;
    };
    outside.direct.set(living.copies().await < 2);
    client::read_back(&outside, &client).await;
    let client = Rc::new(client);
    for number in 0..CLIENTS {
        let (outside, client) = (outside.clone(), client.clone());
        let rng = SimRng::fork(rng.bits(), number);
        let work = client::work(outside, env.clone(), client, rng, number, course.mood);
        env.spawn.spawn(work);
    }
    let span = rng.between(20_000_000, 900_000_000);
    env.timer.sleep(Nanos(span / 2)).await;
    let images = outside.media.logs.each_ref().map(|log| Some(log.save()));
    outside.images.replace(images);
    let whole = living.copies().await == 2;
    living.strike(whole, &mut rng).await;
    env.timer.sleep(Nanos(span / 2)).await;
    if let LifeStrike::Pause(span) = course.strike {
        outside.meet(Class::Paused);
        if whole && living.copies().await < 2 {
            outside.violate(format!("a pause of {span} cost a copy"));
        }
    }
    match course.end {
        WriteBackLifeEnd::Kill => {}
        WriteBackLifeEnd::Cut => {
            outside.machine.cut_power();
            env.timer.sleep(Nanos::from_secs(1)).await;
        }
        WriteBackLifeEnd::Stop => {
            outside.over.set(true);
            while Rc::strong_count(&client) > 1 {
                env.timer.sleep(Nanos::from_millis(1)).await;
            }
            drop(client);
            stop(&outside, &living.node, &platform, course).await;
        }
    }
}

impl Living {
    /// A client, once the volume is served: a metadata write may fail at the first attempt.
    async fn client(&self, frontend: &Direct) -> Option<DirectClient> {
        for _ in 0..100 {
            if let Some(client) = frontend.client(VOLUME) {
                return Some(client);
            }
            self.env.timer.sleep(Nanos::from_millis(100)).await;
        }
        let why = self.node.status().await.expect("a status is given").waiting;
        let number = self.course.number;
        self.outside
            .violate(format!("life {number}: it is not served: {why:?}"));
        None
    }

    async fn copies(&self) -> u32 {
        let status = self.node.status().await.expect("a status is given");
        let log = status.volumes[0].write_back.as_ref();
        log.expect("its log").copies
    }

    async fn strike(&self, whole: bool, rng: &mut SimRng) {
        let (outside, machine) = (&self.outside, &self.outside.machine);
        match self.course.strike {
            LifeStrike::Away(copy) if whole => {
                outside.direct.set(true);
                machine.pull(LOGS[copy]);
                outside.meet(Class::Away);
            }
            LifeStrike::Back(copy) if whole => {
                outside.direct.set(true);
                machine.pull(LOGS[copy]);
                let away = Nanos(rng.below(2_000_000_000));
                self.env.timer.sleep(away).await;
                machine.give_back(LOGS[copy]);
                self.taken_back(copy).await;
            }
            LifeStrike::Metadata(..) => outside.direct.set(true),
            LifeStrike::Pause(span) => machine.pause(span),
            LifeStrike::Mode if whole => {
                outside.direct.set(true);
                let (outside, node) = (outside.clone(), self.node.clone());
                let (timer, rng) = (self.env.timer.clone(), SimRng::fork(rng.bits(), 0));
                self.env.spawn.spawn(changes(outside, node, timer, rng));
            }
            _ => {}
        }
    }

    /// A returned device of the log takes part again.
    async fn taken_back(&self, copy: usize) {
        let timer = &self.env.timer;
        let end = timer.now() + BACK_MAX;
        while self.copies().await < 2 && timer.now() < end && !self.outside.has_failed() {
            timer.sleep(Nanos::from_millis(200)).await;
        }
        match self.copies().await {
            2 => self.outside.meet(Class::Back),
            _ => self
                .outside
                .violate(format!("{} is never taken back", LOGS[copy])),
        }
    }
}

/// Discards the log and begins it, over and over, until clients are to end. No change is refused.
async fn changes(outside: Rc<WriteBackOutside>, node: RunningNode, timer: Timer, mut rng: SimRng) {
    while !outside.over.get() {
        let by_mode =
            ["write-through", "write-back"].map(|mode| ControlRequest::set_mode(VOLUME, mode));
        let turned = [true, false].map(|off| ControlRequest::SetOff {
            volume: VOLUME.into(),
            off,
        });
        let both = if rng.below(2) == 0 { by_mode } else { turned };
        for change in both {
            let what = format!("{change:?}");
            match node.ask(change).await {
                Ok(_) => outside.meet(Class::Mode),
                Err(_) if outside.over.get() => return,
                Err(why) => return outside.violate(format!("{what} is refused: {why}")),
            }
            let pause = Nanos(rng.below(100_000_000));
            timer.sleep(pause).await;
        }
    }
}

/// An end in order leaves no dirty data, unless metadata could not be written.
async fn stop(
    outside: &WriteBackOutside,
    node: &RunningNode,
    platform: &SimPlatform,
    course: LifeCourse,
) {
    let stopped = node.stop().await;
    if matches!(
        course.strike,
        LifeStrike::Metadata(..) | LifeStrike::Witness(_)
    ) {
        return;
    }
    let logs = platform.logs().await.expect("they can be read");
    let is_dirty = logs.iter().any(|log| log.superblock.may_be_dirty);
    if stopped.is_err() || is_dirty {
        let number = course.number;
        outside.violate(format!(
            "life {number}: an end in order: {stopped:?}, dirty: {is_dirty}"
        ));
    }
}
