//! The loss of a drive under a load that does not wait for answers: half reads,
//! half writes, 4 KiB, at random moments and places.

use super::rig::{self, PercRig, PercSetup};
use super::scale::PercScale;
use block::{Boundary, Fua, Nanos};
use experiment::controllers::SIDES;
use serde::Serialize;
use sim::SimRng;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Requests a second on average: well within the capacity of one side.
const RATE: u64 = 600;
/// Bytes of a request.
const BYTES: u64 = 4096;
/// Draws moments and places.
const LOAD: u64 = 3;
/// The drive that is pulled, of the first side.
const PULLED: usize = 3;
/// Seconds on either side of the loss that detection and requests in flight may blur.
const BLUR_S: usize = 1;
/// No two of so many requests in a row go to the same block.
const APART: u64 = 4096;

/// Reads and writes a second of a side.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SideRates {
    /// Reads a second.
    pub reads_per_s: f64,
    /// Writes a second.
    pub writes_per_s: f64,
}

/// Observations of the loss.
#[derive(Clone, Debug, Serialize)]
pub struct ControllerLoss {
    /// Requests a second that arrived.
    pub arrivals_per_s: f64,
    /// Requests in all.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The longest that a request took.
    pub longest_ms: f64,
    /// Second in which the drive was pulled.
    pub pulled_s: usize,
    /// Rates of both sides before the loss; the first one loses a drive.
    pub before: [SideRates; 2],
    /// Rates of both sides after the loss.
    pub after: [SideRates; 2],
    /// Rates of both sides, second by second.
    pub seconds: Vec<[SideRates; 2]>,
}

/// Runs the load on the mirror, and pulls a drive in the middle.
pub fn run(seed: u64, scale: PercScale) -> Result<ControllerLoss, String> {
    rig::run(PercSetup::of(&scale, seed, SIDES), async move |rig| {
        let half = scale.loss_s / 2;
        let load = LossLoad::start(&rig, seed, Nanos::from_secs(scale.loss_s as u64));
        let mut counted = vec![counts(&rig).await?];
        for second in 0..scale.loss_s {
            if second == half {
                rig.pull(0, PULLED)?;
            }
            rig.env.timer.sleep(Nanos::from_secs(1)).await;
            counted.push(counts(&rig).await?);
        }
        while load.flying.get() > 0 {
            rig.env.timer.sleep(Nanos::from_millis(1)).await;
        }
        let pairs = counted.windows(2);
        let requests = load.begun.get();
        Ok(ControllerLoss {
            arrivals_per_s: requests as f64 / scale.loss_s as f64,
            requests,
            errors: load.errors.get(),
            longest_ms: load.longest.get().as_secs_f64() * 1e3,
            pulled_s: half,
            before: rates(&counted[BLUR_S], &counted[half], half - BLUR_S),
            after: rates(
                &counted[half + BLUR_S],
                &counted[scale.loss_s],
                scale.loss_s - half - BLUR_S,
            ),
            seconds: pairs.map(|pair| rates(&pair[0], &pair[1], 1)).collect(),
        })
    })
}

/// Reads and writes of both sides so far.
type Counts = [(u64, u64); 2];

async fn counts(rig: &PercRig) -> Result<Counts, String> {
    let legs = rig.legs().await?;
    Ok([0, 1].map(|role| (legs[role].reads, legs[role].writes)))
}

fn rates(from: &Counts, to: &Counts, seconds: usize) -> [SideRates; 2] {
    let rate = |from: u64, to: u64| (to - from) as f64 / seconds as f64;
    [0, 1].map(|side| SideRates {
        reads_per_s: rate(from[side].0, to[side].0),
        writes_per_s: rate(from[side].1, to[side].1),
    })
}

#[derive(Default)]
struct LossLoad {
    begun: Cell<u64>,
    flying: Cell<u64>,
    errors: Cell<u64>,
    longest: Cell<Nanos>,
}

impl LossLoad {
    /// Lets requests arrive for `span` from now on.
    fn start(rig: &PercRig, seed: u64, span: Nanos) -> Rc<LossLoad> {
        let load = Rc::new(LossLoad::default());
        let (ours, env, volume) = (load.clone(), rig.env.clone(), rig.volume.clone());
        let rng = RefCell::new(SimRng::fork(seed, LOAD));
        env.spawn.clone().spawn(async move {
            let end = env.timer.now() + span;
            let blocks = volume.bytes() / BYTES;
            loop {
                let pause = rng.borrow_mut().below(2_000_000_000 / RATE);
                env.timer.sleep(Nanos(pause)).await;
                if env.timer.now() >= end {
                    return;
                }
                let number = ours.begun.replace(ours.begun.get() + 1);
                let place = rng.borrow_mut().below(blocks / APART) * APART + number % APART;
                let write = rng.borrow_mut().chance(0.5);
                let (load, env_of, volume) = (ours.clone(), env.clone(), volume.clone());
                load.flying.set(load.flying.get() + 1);
                env.spawn.spawn(async move {
                    let (at, began) = (place * BYTES, env_of.timer.now());
                    let result = if write {
                        let mut buf = env_of.pool.get(BYTES as usize).await;
                        buf.fill(0);
                        volume.write(at, buf.share(), Fua::No).await
                    } else {
                        volume.read(at, BYTES as usize).await.map(drop)
                    };
                    let took = env_of.timer.now() - began;
                    load.longest.set(load.longest.get().max(took));
                    load.errors
                        .set(load.errors.get() + u64::from(result.is_err()));
                    load.flying.set(load.flying.get() - 1);
                });
            }
        });
        load
    }
}
