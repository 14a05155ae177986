//! The script of a timeline.

use super::clients::TimelineClients;
use super::judge::judge;
use super::stage::{TimelineDisks, TimelineStage};
use super::{MeasuredTimeline, POINT, TimelinePhase, TimelineSample, TimelineStretch};
use block::{Nanos, Timer};
use sim::{SimHost, SimWorld};
use simnode::run_alone;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Buffers of the simulated daemon.
const BUFFER_BYTES: usize = 64 << 20;
/// Writes a second of a load within the origin's speed, and of one beyond.
const QUIET: u64 = 60;
const BURST: u64 = 600;
/// Lengths of the stretches, in seconds.
const QUIET_S: u64 = 15;
const BURST_S: u64 = 30;
const RECOVERY_S: u64 = 40;
const LOAD_S: u64 = 2;
const ONE_DEVICE_S: u64 = 10;
const AGAIN_S: u64 = 5;
const THROUGH_S: u64 = 10;
/// Interval of looks at the state of the volume, and time limit of these looks.
const LOOK: Nanos = Nanos::from_millis(10);
const LOOK_MAX: Nanos = Nanos::from_secs(60);

/// Runs the timeline with this seed.
pub fn run(seed: u64) -> Result<MeasuredTimeline, String> {
    run_dropping(seed, None)
}

/// Runs as [`run`]; the origin loses the write of this number, counted from 1.
pub(super) fn run_dropping(seed: u64, dropped: Option<u64>) -> Result<MeasuredTimeline, String> {
    let mut world = SimWorld::new(seed);
    let disks = TimelineDisks::new(&mut world, dropped)?;
    let mut sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        let origin = disks.origin.clone();
        let clients = TimelineClients::new(local.env(), seed, origin);
        let timer = local.env().timer.clone();
        let spawn = local.env().spawn.clone();
        let played = Rc::new(Played {
            began: Cell::new(timer.now()),
            timer,
            clients,
            stage: disks.stage(local),
            line: RefCell::default(),
            ended: Cell::new(false),
        });
        let sampling = played.clone();
        spawn.spawn(async move { sampling.sample().await });
        played.play(seed).await
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

/// Observations during the run.
#[derive(Default)]
struct PlayLine {
    samples: Vec<TimelineSample>,
    /// Error of a daemon that could not report the state of its volume.
    error: Option<String>,
    spans: Vec<(TimelineStretch, Nanos, Nanos)>,
}

struct Played {
    timer: Timer,
    began: Cell<Nanos>,
    clients: Rc<TimelineClients>,
    stage: TimelineStage,
    line: RefCell<PlayLine>,
    ended: Cell<bool>,
}

impl Played {
    /// Looks at the volume until all has ended.
    async fn sample(&self) {
        let (mut writes, mut blocks) = (0, 0);
        while !self.ended.get() {
            self.timer.sleep(POINT).await;
            let now = self.timer.now() - self.began.get();
            let looked = self.stage.look(now).await;
            let mut line = self.line.borrow_mut();
            match looked {
                Ok(Some((mut sample, carried))) => {
                    let answered = self.clients.writes();
                    let rate =
                        |from: u64, to: u64| to.saturating_sub(from) as f64 / POINT.as_secs_f64();
                    sample.writes_per_s = rate(writes, answered);
                    // A new daemon counts from nothing.
                    sample.origin_blocks_per_s = rate(blocks.min(carried), carried);
                    (writes, blocks) = (answered, carried);
                    line.samples.push(sample);
                }
                Ok(None) => blocks = 0,
                Err(error) => {
                    line.error.get_or_insert(error);
                }
            }
        }
    }

    /// Notes a stretch that began at `from` and ends now.
    fn note(&self, stretch: TimelineStretch, from: Nanos) {
        let now = self.timer.now();
        self.line.borrow_mut().spans.push((stretch, from, now));
    }

    async fn for_seconds(&self, stretch: TimelineStretch, seconds: u64) {
        let from = self.timer.now();
        self.timer.sleep(Nanos::from_secs(seconds)).await;
        self.note(stretch, from);
    }

    async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&TimelineSample) -> bool,
    ) -> Result<(), String> {
        let since = self.timer.now();
        loop {
            let looked = self.stage.look(self.timer.now()).await?;
            if looked.is_some_and(|(sample, _)| is_so(&sample)) {
                return Ok(());
            }
            if self.timer.now() - since > LOOK_MAX {
                return Err(format!("it does not come to this: {what}"));
            }
            self.timer.sleep(LOOK).await;
        }
    }

    async fn play(&self, seed: u64) -> Result<MeasuredTimeline, String> {
        let (stage, clients) = (&self.stage, &self.clients);
        let device = stage.start().await?;
        self.began.set(self.timer.now());
        clients.pace(QUIET);
        clients.start(&device);
        self.for_seconds(TimelineStretch::Quiet, QUIET_S).await;
        clients.pace(BURST);
        self.for_seconds(TimelineStretch::Burst, BURST_S).await;
        clients.pace(QUIET);
        self.for_seconds(TimelineStretch::Recovery, RECOVERY_S)
            .await;
        clients.pace(BURST);
        self.for_seconds(TimelineStretch::Load, LOAD_S).await;
        let lost = self.timer.now();
        stage.lose();
        clients.write_through(true);
        let cleaned = |s: &TimelineSample| s.copies == 1 && s.dirty_bytes == 0;
        self.until("one copy takes part, and nothing is dirty", cleaned)
            .await?;
        self.note(TimelineStretch::Loss, lost);
        self.for_seconds(TimelineStretch::OneDevice, ONE_DEVICE_S)
            .await;
        let ending = self.timer.now();
        clients.stop().await;
        drop(device);
        clients.write_through(false);
        stage.stop().await?;
        stage.give_back();
        let device = stage.start().await?;
        self.until("two copies take part", |s| s.copies == 2)
            .await?;
        self.note(TimelineStretch::Restart, ending);
        clients.start(&device);
        self.for_seconds(TimelineStretch::Again, AGAIN_S).await;
        let detaching = self.timer.now();
        stage.detach().await?;
        self.note(TimelineStretch::Detach, detaching);
        clients.write_through(true);
        self.for_seconds(TimelineStretch::WriteThrough, THROUGH_S)
            .await;
        self.timer.sleep(POINT).await;
        self.ended.set(true);
        clients.stop().await;
        drop(device);
        stage.stop().await?;
        self.finish(seed)
    }

    fn finish(&self, seed: u64) -> Result<MeasuredTimeline, String> {
        let line = self.line.take();
        if let Some(error) = line.error {
            return Err(error);
        }
        let seen = self.clients.seen.borrow();
        let spans = line.spans.iter();
        let phases = spans.map(|span| self.phase(*span, &line.samples, &seen.answered));
        let mut timeline = MeasuredTimeline {
            seed,
            max_lag_s: self.stage.max_lag_s(),
            phases: phases.collect(),
            samples: line.samples.clone(),
            writes: seen.answered.len() as u64,
            errors: seen.errors,
            not_at_origin: seen.not_at_origin,
            lost_blocks: self.clients.lost_blocks(),
            violations: Vec::new(),
        };
        timeline.violations = judge(&timeline);
        timeline.violations.extend(seen.error.clone());
        Ok(timeline)
    }

    fn phase(
        &self,
        (stretch, from, to): (TimelineStretch, Nanos, Nanos),
        samples: &[TimelineSample],
        answered: &[Nanos],
    ) -> TimelinePhase {
        let since = |at: Nanos| (at - self.began.get()).as_secs_f64();
        let (from_s, to_s) = (since(from), since(to));
        let here = || samples.iter().filter(|s| s.at_s > from_s && s.at_s <= to_s);
        let within = answered.iter().filter(|at| **at >= from && **at < to);
        let mut ends = vec![from];
        ends.extend(within);
        let writes = ends.len() - 1;
        ends.push(to);
        let gaps = ends.windows(2).map(|pair| pair[1] - pair[0]);
        let origin: f64 = here().map(|sample| sample.origin_blocks_per_s).sum();
        TimelinePhase {
            stretch,
            from_s,
            to_s,
            writes_per_s: writes as f64 / (to_s - from_s),
            origin_blocks_per_s: origin / here().count().max(1) as f64,
            longest_gap_ms: gaps.max().map_or(0.0, |gap| gap.as_secs_f64() * 1e3),
            dirty_bytes_max: here().map(|sample| sample.dirty_bytes).max().unwrap_or(0),
            lag_s_max: here().map(|sample| sample.lag_s).fold(0.0, f64::max),
            copies: here().next_back().map_or(0, |sample| sample.copies),
        }
    }
}
