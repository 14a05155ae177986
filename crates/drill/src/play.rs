//! The script of every cell, in whichever world the cell is played.

use super::load::{DrillLoad, Habit, LoadSeen};
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
    let at_start = site.counts().await?;
    if cell.io {
        load.start();
    }
    timer.sleep(BEFORE).await;
    let at_loss = site.counts().await?;
    let pulled = timer.now();
    let before = load.seen.borrow().clone();
    site.pull().await?;
    timer.sleep(setup.away()).await;
    if !cell.io {
        load.verify().await;
    }
    let at_return = site.counts().await?;
    let away_s = (timer.now() - pulled).as_secs_f64();
    let during = load.seen.borrow().clone();
    site.give_back().await?;
    let back = timer.now();
    settle(timer, site).await?;
    let whole = timer.now();
    load.stop().await;
    load.verify().await;
    let mut seen = load.seen.borrow().clone();
    scrub(timer, site, &mut seen).await?;
    let course = DrillCourse {
        counts: [at_start, at_loss, at_return],
        seen: [before, during, seen],
        spans_s: [BEFORE.as_secs_f64(), away_s],
        marks_s: [pulled, back, whole].map(|at| (at - began).as_secs_f64()),
    };
    let (scenario, limit) = (&cell.scenario, setup.detection());
    Ok(course.row((&scenario.name, &scenario.side), cell.io, place, limit))
}

/// Adds to `seen` the arrays that are never whole again, and the differences of their copies.
async fn scrub(timer: &Timer, site: &impl DrillWorld, seen: &mut LoadSeen) -> Result<(), String> {
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
    seen.expect(is_whole, "an array is never whole again");
    for (array, places) in differ.into_iter().filter(|(_, places)| *places > 0) {
        let what = || format!("copies of {array} differ, in places: {places}");
        seen.error.get_or_insert_with(what);
        seen.wrong_bytes += places * block::SECTOR_BYTES;
    }
    Ok(())
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

/// The course of a drill.
pub(super) struct DrillCourse {
    /// Requests of the members as the load began, at the loss, and before the return.
    pub(super) counts: [Counts; 3],
    /// The load at the loss, before the return, and at the end.
    pub(super) seen: [LoadSeen; 3],
    /// Seconds from one count to the next.
    pub(super) spans_s: [f64; 2],
    /// Seconds from the beginning of the load to the loss, to the return, and until all was whole.
    pub(super) marks_s: [f64; 3],
}

impl DrillCourse {
    /// The result of a cell with that scenario and side.
    pub(super) fn row(
        self,
        (scenario, side): (&str, &str),
        io: bool,
        place: &'static str,
        limit: Nanos,
    ) -> DrillRow {
        let members = self.members();
        let [before, during, seen] = self.seen;
        let away_s = self.spans_s[1];
        DrillRow {
            scenario: scenario.to_owned(),
            side: side.to_owned(),
            io,
            place,
            longest_stall_ms: seen.longest.as_secs_f64() * 1e3,
            errors: seen.errors,
            wrong_bytes: seen.wrong_bytes,
            reads_per_s: (during.reads - before.reads) as f64 / away_s,
            writes_per_s: (during.writes - before.writes) as f64 / away_s,
            error: seen.error,
            detail: Detail {
                line: seen.line,
                marks_s: self.marks_s,
                members,
                limit_ms: limit.as_secs_f64() * 1e3,
            },
        }
    }

    /// Reads and writes a second of each member, before the loss and during the loss.
    fn members(&self) -> Vec<(String, [f64; 2], [f64; 2])> {
        let members = self.counts[0].iter().map(|(name, ..)| {
            let at = self.counts.each_ref().map(|counts| {
                let found = counts.iter().find(|(n, ..)| n == name);
                found.map_or([0, 0], |(_, reads, writes)| [*reads, *writes])
            });
            let rates = |span: usize| {
                let rate = |of: usize| at[span + 1][of].saturating_sub(at[span][of]) as f64;
                [rate(0), rate(1)].map(|requests| requests / self.spans_s[span])
            };
            (name.clone(), rates(0), rates(1))
        });
        members.collect()
    }
}
