//! Availability drills: parts of a mirrored server are pulled, with and without
//! load, and come back.
//!
//! What is drilled is a configuration's arrays (`setup`), the published set-up's
//! unless another is given, on drives of the drill's own. One script runs in the
//! simulated world (`sim`) and on a real daemon (`real`) whose drives are NBD servers
//! of their own processes, or loop devices (`drive`).
//!
//! Not here: unplugging disks of a machine.

mod drive;
mod load;
mod page;
mod real;
mod setup;
mod sim;

pub use drive::Kind as DriveKind;
pub use page::page;
pub use setup::{Scenario, Scenarios, Setup};

use block::{BoxDevice, Env, Nanos, Timer};
use load::Load;
use serde::Serialize;
use std::path::Path;

/// The load before something is pulled.
const BEFORE: Nanos = Nanos::from_secs(1);
/// How long arrays may take to be whole again.
const SETTLE_MAX: Nanos = Nanos::from_secs(120);

/// One cell.
#[derive(Clone, Debug)]
struct Cell {
    scenario: Scenario,
    io: bool,
}

/// What became of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was pulled.
    pub scenario: String,
    /// Of which controller.
    pub side: String,
    /// Whether clients read and wrote meanwhile.
    pub io: bool,
    /// `sim` or `real`.
    #[serde(rename = "where")]
    pub place: &'static str,
    /// The longest that a client's request took.
    pub longest_stall_ms: f64,
    /// Requests that failed.
    pub errors: u64,
    /// Bytes that were not as clients had left them, or differed between copies.
    pub wrong_bytes: u64,
    /// Reads a second of clients while the parts were away.
    pub reads_per_s: f64,
    /// Writes a second of clients while the parts were away.
    pub writes_per_s: f64,
    /// What was wrong first, if anything but a stall was.
    pub error: Option<String>,
    /// What the page shows beside.
    #[serde(skip)]
    pub detail: Detail,
}

/// More about a cell.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// Clients' reads and writes by points of time.
    pub line: Vec<(u32, u32)>,
    /// When parts were pulled, came back, and all was whole, since the load began.
    pub marks_s: [f64; 3],
    /// Reads and writes a second of each member, before the loss and during it.
    pub members: Vec<(String, [f64; 2], [f64; 2])>,
    /// The detection time, which no stall may exceed.
    pub limit_ms: f64,
}

impl Row {
    /// Whether the cell was as it must be.
    pub fn is_right(&self) -> bool {
        self.errors == 0 && self.wrong_bytes == 0 && self.longest_stall_ms <= self.detail.limit_ms
    }
}

/// Members of arrays with their reads and writes so far.
type Counts = Vec<(String, u64, u64)>;

/// The world that a drill runs in.
trait Site {
    /// Pulls what the cell says.
    async fn pull(&self) -> Result<(), String>;
    /// Puts it back.
    async fn give_back(&self) -> Result<(), String>;
    /// Whether every array is whole.
    async fn is_whole(&self) -> Result<bool, String>;
    /// In how many places the copies of each array differ.
    async fn scrub(&self) -> Result<Vec<(String, u64)>, String>;
    /// What members have done.
    async fn counts(&self) -> Result<Counts, String>;
}

fn told(error: impl ToString) -> String {
    error.to_string()
}

/// Whether every array of `setup` is whole, and what the members of those that are part
/// of no other have done.
fn look(setup: &Setup, arrays: &[control::status::Array]) -> (bool, Counts) {
    // One within another that could not be put together is not among them.
    let all = arrays.len() == setup.arrays().len();
    let whole = all && arrays.iter().all(|array| array.state == "healthy");
    let volumes = setup.volumes();
    let is_volume = |array: &&control::status::Array| {
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
async fn play(
    env: Env,
    volumes: Vec<BoxDevice>,
    site: &impl Site,
    setup: &Setup,
    cell: &Cell,
    place: &'static str,
) -> Result<Row, String> {
    let timer = &env.timer;
    let load = Load::new(env.clone(), volumes);
    load.fill().await.map_err(told)?;
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
            // It was the first to ask for a part that had been away.
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
    Ok(Row {
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

/// Waits until every array is whole; whether they are.
async fn settle(timer: &Timer, site: &impl Site) -> Result<bool, String> {
    let since = timer.now();
    loop {
        let is_whole = site.is_whole().await?;
        if is_whole || timer.now() - since > SETTLE_MAX {
            return Ok(is_whole);
        }
        timer.sleep(Nanos::from_millis(50)).await;
    }
}

/// What members did a second, before the loss and during it.
fn rates(snapshots: &[Counts], before_s: f64, away_s: f64) -> Vec<(String, [f64; 2], [f64; 2])> {
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

/// Runs every cell of `setup` in the simulated world; `done` hears of each.
pub fn simulated(setup: &Setup, seed: u64, done: &dyn Fn(&Row)) -> Result<Vec<Row>, String> {
    let run = |cell| {
        let row = sim::run(setup, seed, cell)?;
        done(&row);
        Ok(row)
    };
    setup.cells().into_iter().map(run).collect()
}

/// Runs every cell of `setup` on a daemon of `program` whose drives are of `kind`, with
/// files in `directory`, which is made if missing; `done` hears of each.
pub fn real(
    setup: &Setup,
    kind: DriveKind,
    program: &Path,
    directory: &Path,
    done: &dyn Fn(&Row),
) -> Result<Vec<Row>, String> {
    if let Some(obstacle) = kind.obstacle() {
        return Err(obstacle);
    }
    kind.prepare()?;
    let mut stage = None;
    let mut rows = Vec::new();
    for cell in setup.cells() {
        let ready = match stage.take() {
            Some(ready) => ready,
            None => real::Stage::new(setup, kind, program, directory)?,
        };
        let row = ready.run(cell)?;
        done(&row);
        // A spare that took a place is not where the next cell has it.
        if row.is_right() && !setup.has_spares() {
            stage = Some(ready);
        }
        rows.push(row);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::setup::tests::{array, setup};
    use super::*;

    fn all_survived(setup: &Setup) -> Vec<Row> {
        let rows = simulated(setup, 1, &|_| ()).unwrap();
        for row in &rows {
            assert!(row.is_right(), "{row:#?}");
            assert_eq!(row.io, row.writes_per_s > 0.0, "{row:#?}");
        }
        rows
    }

    #[test]
    fn every_scenario_is_survived_in_the_simulator() {
        let setup = Setup::published().unwrap();
        let rows = all_survived(&setup);
        assert_eq!(rows.len(), 12);
        let page = page(&setup, &rows).unwrap();
        advise::page::assert_self_contained(&page);
    }

    #[test]
    fn other_arrays_are_drilled_as_well() {
        for (arrays, cells) in [
            // Half of it is lost at once, and a spare takes a place.
            (
                array("r", "raid10", "'a0','a1','b0','b1'") + "spares = ['b2']\n",
                8,
            ),
            (array("r", "raid5", "'a0','a1','b0','b1'"), 4),
            // What is within stops, and is put together again.
            (
                array("x", "raid5", "'a0','a1','a2'")
                    + &array("y", "raid5", "'b0','b1','b2'")
                    + &array("r", "raid1", "'x','y'"),
                8,
            ),
            (
                array("x", "raid1", "'a0','b0'")
                    + &array("y", "raid1", "'a1','b1'")
                    + &array("r", "raid0", "'x','y'"),
                8,
            ),
        ] {
            assert_eq!(all_survived(&setup(&arrays)).len(), cells, "{arrays}");
        }
    }

    #[test]
    fn canary_content_that_changes_is_found() {
        let setup = Setup::published().unwrap();
        let row = sim::run_corrupt(&setup, 1).unwrap();
        assert!(row.wrong_bytes > 0 && !row.is_right(), "{row:#?}");
    }
}
