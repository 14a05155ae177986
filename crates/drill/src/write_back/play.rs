//! The script of a cell of a write-back volume, in whichever world the cell is played.
//!
//! Invariant: a cell in which nothing was lost, or nothing was written meanwhile, is an error and
//! no success.

use super::standing::VolumesStanding;
use super::{DrillLoss, HABIT, Volumes, WriteBackCell};
use crate::load::{DrillLoad, ReadScope};
use crate::play::{BEFORE, DrillCourse, SETTLE_MAX};
use crate::row::{DrillRow, to_message};
use block::{BoxDevice, Env, Nanos, Timer};
use std::rc::Rc;

/// Interval of looks at the state of volumes.
const LOOK: Nanos = Nanos::from_millis(50);
/// Time limit of a client's read that needs the origin.
const ENDED: Nanos = Nanos::from_millis(500);
/// Time limit of the last work for a log when no data is dirty any more.
const ON_ITS_WAY: Nanos = Nanos::from_millis(200);
/// Most readings of all content until the pool has it.
const WARMINGS: usize = 20;

/// The world that a drill of write-back volumes runs in.
pub(super) trait WriteBackWorld {
    /// Has the drives of that step of the scenario lost.
    async fn lose(&self, step: usize) -> Result<(), String>;
    /// Gives all of them back.
    async fn give_back(&self) -> Result<(), String>;
    async fn standing(&self) -> Result<VolumesStanding, String>;
    /// Ends the daemon in order; returns the content of each volume's origin by itself.
    async fn stop(&self) -> Result<Vec<Vec<u8>>, String>;
    /// Starts the daemon again; returns its volumes.
    async fn start(&self) -> Result<Vec<BoxDevice>, String>;
}

/// A drill, and the load of its clients.
struct WriteBackPlay<'a, S> {
    timer: Timer,
    site: &'a S,
    cell: &'a WriteBackCell,
    load: Rc<DrillLoad>,
}

impl<S: WriteBackWorld> WriteBackPlay<'_, S> {
    /// Waits for a state; returns false after the time limit.
    async fn reaches(&self, is_so: impl Fn(&VolumesStanding) -> bool) -> Result<bool, String> {
        let since = self.timer.now();
        loop {
            let reached = is_so(&self.site.standing().await?);
            if reached || self.timer.now() - since > SETTLE_MAX {
                return Ok(reached);
            }
            self.timer.sleep(LOOK).await;
        }
    }

    async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&VolumesStanding) -> bool,
    ) -> Result<(), String> {
        match self.reaches(is_so).await? {
            true => Ok(()),
            false => Err(format!("it does not come to this: {what}")),
        }
    }

    /// Waits until origins have all data written before `at`, though clients write.
    async fn until_carried(&self, what: &str, at: Nanos) -> Result<(), String> {
        let carried = |s: &VolumesStanding| s.lag_s < (self.timer.now() - at).as_secs_f64();
        self.until(what, carried).await
    }

    /// Has the pool take all content.
    async fn warm(&self) -> Result<(), String> {
        let mut missed = self.site.standing().await?.missed;
        for _ in 0..WARMINGS {
            self.load.verify().await;
            let before = std::mem::replace(&mut missed, self.site.standing().await?.missed);
            if missed == before {
                return Ok(());
            }
        }
        Err("the pool does not take all content".into())
    }

    /// Has the drives of each step lost.
    async fn lose(&self) -> Result<(), String> {
        let mut lost_at = self.timer.now();
        for step in 0..self.cell.scenario.steps.len() {
            if step > 0 {
                self.until_carried("what was dirty is written back", lost_at)
                    .await?;
                self.timer.sleep(ON_ITS_WAY).await;
            }
            self.site.lose(step).await?;
            lost_at = self.timer.now();
            if self.cell.scenario.loss == DrillLoss::Path {
                self.load.narrow(ReadScope::Since(lost_at));
            }
            if !self.cell.io {
                self.load.visit().await;
            }
        }
        Ok(())
    }

    /// Ends the load, and starts the daemon again. Verifies the volumes before, and the origins
    /// between.
    async fn restart(&self) -> Result<(), String> {
        self.load.stop().await;
        self.load.flush().await;
        self.until("nothing is dirty", |s| s.dirty == 0).await?;
        self.load.verify().await;
        self.load.detach();
        let origins = self.site.stop().await?;
        self.load.verify_origins(&origins);
        self.load.attach(self.site.start().await?);
        Ok(())
    }
}

/// The script of every cell.
pub(super) async fn play(
    env: Env,
    devices: Vec<BoxDevice>,
    site: &impl WriteBackWorld,
    volumes: &Volumes,
    cell: &WriteBackCell,
    place: &'static str,
) -> Result<DrillRow, String> {
    let timer = env.timer.clone();
    let scenario = &cell.scenario;
    let load = DrillLoad::new(env, HABIT, devices);
    let play = WriteBackPlay {
        timer: timer.clone(),
        site,
        cell,
        load: load.clone(),
    };
    load.fill().await.map_err(to_message)?;
    play.until("nothing is dirty", |s| s.dirty == 0).await?;
    if scenario.loss == DrillLoss::Path {
        play.warm().await?;
    }
    let began = timer.now();
    let at_start = site.standing().await?.counts;
    if cell.io {
        load.start();
    }
    timer.sleep(BEFORE).await;
    if scenario.loss == DrillLoss::Path {
        load.narrow(ReadScope::Quiet);
        timer.sleep(ENDED).await;
    }
    let before_s = (timer.now() - began).as_secs_f64();
    let at_loss = site.standing().await?.counts;
    let pulled = timer.now();
    let before = load.seen.borrow().clone();
    play.lose().await?;
    timer.sleep(volumes.away(scenario.loss)).await;
    if !cell.io {
        load.verify().await;
    }
    let standing = site.standing().await?;
    let is_lost = match scenario.loss {
        DrillLoss::Drives => standing.lost,
        DrillLoss::Path => standing.dirty > 0,
    };
    let away_s = (timer.now() - pulled).as_secs_f64();
    let during = load.seen.borrow().clone();
    site.give_back().await?;
    let back = timer.now();
    play.until_carried("the origin has what it lacked", back)
        .await?;
    load.narrow(ReadScope::All);
    timer.sleep(BEFORE).await;
    play.restart().await?;
    let is_whole = play.reaches(|standing| standing.whole).await?;
    let whole = timer.now();
    load.verify().await;
    let mut seen = load.seen.borrow().clone();
    seen.expect(is_lost, "the loss was met by nobody: this shows nothing");
    seen.expect(is_whole, "a log or a pool is never whole again");
    let course = DrillCourse {
        counts: [at_start, at_loss, standing.counts],
        seen: [before, during, seen],
        spans_s: [before_s, away_s],
        marks_s: [pulled, back, whole].map(|at| (at - began).as_secs_f64()),
    };
    let limit = volumes.limit(scenario.loss);
    Ok(course.row((&scenario.name, &scenario.side), cell.io, place, limit))
}
