//! The script of a cell of a write-back volume, in whichever world the cell is played.
//!
//! Invariant: a cell in which nothing was lost, or nothing was written meanwhile, is an error and
//! no success.

use super::standing::VolumesStanding;
use super::{DrillLoss, HABIT, Volumes, WriteBackCell};
use crate::load::{DrillLoad, ReadScope};
use crate::play::{BEFORE, SETTLE_MAX, rates};
use crate::row::{Detail, DrillRow, to_message};
use block::{BoxDevice, Env, Nanos, Timer};

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

/// Waits for a state of the volumes.
struct StandingWatch<'a, S> {
    timer: &'a Timer,
    site: &'a S,
}

impl<S: WriteBackWorld> StandingWatch<'_, S> {
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
}

/// Has the pool take all content.
async fn warm(load: &DrillLoad, site: &impl WriteBackWorld) -> Result<(), String> {
    let mut missed = site.standing().await?.missed;
    for _ in 0..WARMINGS {
        load.verify().await;
        let before = std::mem::replace(&mut missed, site.standing().await?.missed);
        if missed == before {
            return Ok(());
        }
    }
    Err("the pool does not take all content".into())
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
    let watch = StandingWatch {
        timer: &timer,
        site,
    };
    load.fill().await.map_err(to_message)?;
    watch.until("nothing is dirty", |s| s.dirty == 0).await?;
    if scenario.loss == DrillLoss::Path {
        warm(&load, site).await?;
    }
    let began = timer.now();
    let mut snapshots = vec![site.standing().await?.counts];
    if cell.io {
        load.start();
    }
    timer.sleep(BEFORE).await;
    if scenario.loss == DrillLoss::Path {
        load.narrow(ReadScope::Quiet);
        timer.sleep(ENDED).await;
    }
    let before_s = (timer.now() - began).as_secs_f64();
    snapshots.push(site.standing().await?.counts);
    let pulled = timer.now();
    let before = load.seen.borrow().clone();
    let mut lost_at = pulled;
    for step in 0..scenario.steps.len() {
        if step > 0 {
            watch
                .until_carried("what was dirty is written back", lost_at)
                .await?;
            timer.sleep(ON_ITS_WAY).await;
        }
        site.lose(step).await?;
        lost_at = timer.now();
        if scenario.loss == DrillLoss::Path {
            load.narrow(ReadScope::Since(lost_at));
        }
        if !cell.io {
            load.visit().await;
        }
    }
    timer.sleep(volumes.away(scenario.loss)).await;
    if !cell.io {
        load.verify().await;
    }
    let standing = site.standing().await?;
    let is_lost = match scenario.loss {
        DrillLoss::Drives => standing.lost,
        DrillLoss::Path => standing.dirty > 0,
    };
    snapshots.push(standing.counts);
    let away_s = (timer.now() - pulled).as_secs_f64();
    let during = load.seen.borrow().clone();
    site.give_back().await?;
    let back = timer.now();
    watch
        .until_carried("the origin has what it lacked", back)
        .await?;
    load.narrow(ReadScope::All);
    timer.sleep(BEFORE).await;
    load.stop().await;
    load.flush().await;
    watch.until("nothing is dirty", |s| s.dirty == 0).await?;
    load.verify().await;
    load.detach();
    let origins = site.stop().await?;
    load.verify_origins(&origins);
    load.attach(site.start().await?);
    let is_whole = watch.reaches(|standing| standing.whole).await?;
    let whole = timer.now();
    load.verify().await;
    let mut seen = load.seen.borrow().clone();
    for (is_so, what) in [
        (is_lost, "the loss was met by nobody: this shows nothing"),
        (is_whole, "a log or a pool is never whole again"),
    ] {
        if !is_so {
            seen.errors += 1;
            seen.error.get_or_insert_with(|| what.into());
        }
    }
    let since = |at: Nanos| (at - began).as_secs_f64();
    Ok(DrillRow {
        scenario: scenario.name.clone(),
        side: scenario.side.clone(),
        io: cell.io,
        place,
        longest_stall_ms: seen.longest.as_secs_f64() * 1e3,
        errors: seen.errors,
        wrong_bytes: seen.wrong_bytes,
        reads_per_s: (during.reads - before.reads) as f64 / away_s,
        writes_per_s: (during.writes - before.writes) as f64 / away_s,
        error: seen.error,
        detail: Detail {
            line: seen.line,
            marks_s: [since(pulled), since(back), since(whole)],
            members: rates(&snapshots, before_s, away_s),
            limit_ms: volumes.limit(scenario.loss).as_secs_f64() * 1e3,
        },
    })
}
