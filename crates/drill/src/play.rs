//! The script of every cell, in whichever world the cell is played.

use super::load::{DrillLoad, Habit};
use super::row::{Detail, DrillRow, to_message};
use super::setup::{DrillCell, DrillSetup};
use block::{BoxDevice, Env, Nanos, Timer};

/// Time of the load before the loss.
pub(super) const BEFORE: Nanos = Nanos::from_secs(1);

/// Time limit until all is whole again.
pub(super) const SETTLE_MAX: Nanos = Nanos::from_secs(120);

/// Members of arrays, or drives, with their reads and writes so far.
pub(super) type Counts = Vec<(String, u64, u64)>;

/// The world that a drill runs in.
pub(super) trait DrillWorld {
    /// Pulls the drives of the cell.
    async fn pull(&self) -> Result<(), String>;
    /// Puts the drives back.
    async fn give_back(&self) -> Result<(), String>;
    /// Tests for every array being whole.
    async fn is_whole(&self) -> Result<bool, String>;
    /// Counts the places in which the copies of each array differ.
    async fn scrub(&self) -> Result<Vec<(String, u64)>, String>;
    /// Counts the members' requests so far.
    async fn counts(&self) -> Result<Counts, String>;
}

/// Returns true if every array of `setup` is whole, and the counts of the members of those arrays
/// that are part of no other.
pub(super) fn look(setup: &DrillSetup, arrays: &[control::status::ArrayReport]) -> (bool, Counts) {
    // One within another that could not be assembled is not among them.
    let all = arrays.len() == setup.arrays().len();
    let whole = all && arrays.iter().all(|array| array.state == "healthy");
    let volumes = setup.volumes();
    let is_volume = |array: &&control::status::ArrayReport| {
        let mut volumes = volumes.iter();
        volumes.any(|volume| volume.name.as_str() == array.name)
    };
    let counts = arrays.iter().filter(is_volume).flat_map(|array| {
        array.members.iter().map(|member| {
            let device = member.device.as_deref().unwrap_or("-");
            let name = format!("{} on {device}", array.name);
            (name, member.reads, member.writes)
        })
    });
    (whole, counts.collect())
}

/// The script of every cell.
pub(super) async fn play(
    env: Env,
    volumes: Vec<BoxDevice>,
    site: &impl DrillWorld,
    setup: &DrillSetup,
    cell: &DrillCell,
    place: &'static str,
) -> Result<DrillRow, String> {
    let timer = &env.timer;
    let load = DrillLoad::new(env.clone(), Habit::default(), volumes);
    load.fill().await.map_err(to_message)?;
    let began = timer.now();
    let mut snapshots = vec![site.counts().await?];
    if cell.io {
        load.start();
    }
    timer.sleep(BEFORE).await;
    snapshots.push(site.counts().await?);
    let pulled = timer.now();
    let before = load.seen.borrow().clone();
    site.pull().await?;
    timer.sleep(setup.away()).await;
    if !cell.io {
        load.verify().await;
    }
    snapshots.push(site.counts().await?);
    let away = (timer.now() - pulled).as_secs_f64();
    let during = load.seen.borrow().clone();
    site.give_back().await?;
    let back = timer.now();
    settle(timer, site).await?;
    let whole = timer.now();
    load.stop().await;
    load.verify().await;
    let mut is_whole = settle(timer, site).await?;
    let differ = match is_whole {
        true => match site.scrub().await {
            // This scrub was the first request to a part that had been away.
            Err(_) if !site.is_whole().await? => {
                is_whole = settle(timer, site).await?;
                site.scrub().await
            }
            ended => ended,
        }?,
        false => Vec::new(),
    };
    let mut seen = load.seen.borrow().clone();
    if !is_whole {
        seen.errors += 1;
        seen.error
            .get_or_insert_with(|| "an array is never whole again".into());
    }
    for (array, places) in differ.into_iter().filter(|(_, places)| *places > 0) {
        let what = || format!("copies of {array} differ, in places: {places}");
        seen.error.get_or_insert_with(what);
        seen.wrong_bytes += places * block::SECTOR_BYTES;
    }
    let since = |at: Nanos| (at - began).as_secs_f64();
    Ok(DrillRow {
        scenario: cell.scenario.name.clone(),
        side: cell.scenario.side.clone(),
        io: cell.io,
        place,
        longest_stall_ms: seen.longest.as_secs_f64() * 1e3,
        errors: seen.errors,
        wrong_bytes: seen.wrong_bytes,
        reads_per_s: (during.reads - before.reads) as f64 / away,
        writes_per_s: (during.writes - before.writes) as f64 / away,
        error: seen.error,
        detail: Detail {
            line: seen.line,
            marks_s: [since(pulled), since(back), since(whole)],
            members: rates(&snapshots, BEFORE.as_secs_f64(), away),
            limit_ms: setup.detection().as_secs_f64() * 1e3,
        },
    })
}

/// Waits until every array is whole; returns false after the time limit.
async fn settle(timer: &Timer, site: &impl DrillWorld) -> Result<bool, String> {
    let since = timer.now();
    loop {
        let is_whole = site.is_whole().await?;
        if is_whole || timer.now() - since > SETTLE_MAX {
            return Ok(is_whole);
        }
        timer.sleep(Nanos::from_millis(50)).await;
    }
}

/// Requests a second of members, before the loss and during the loss.
pub(super) fn rates(
    snapshots: &[Counts],
    before_s: f64,
    away_s: f64,
) -> Vec<(String, [f64; 2], [f64; 2])> {
    let find = |counts: &Counts, name: &str| {
        let found = counts.iter().find(|(n, ..)| n == name);
        found.map_or((0, 0), |(_, reads, writes)| (*reads, *writes))
    };
    let mut out = Vec::new();
    for (name, ..) in &snapshots[0] {
        let at = |i: usize| find(&snapshots[i], name);
        let rate = |from: (u64, u64), to: (u64, u64), span: f64| {
            let each = |from: u64, to: u64| to.saturating_sub(from) as f64 / span;
            [each(from.0, to.0), each(from.1, to.1)]
        };
        let before = rate(at(0), at(1), before_s);
        out.push((name.clone(), before, rate(at(1), at(2), away_s)));
    }
    out
}
