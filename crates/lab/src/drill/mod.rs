//! Availability drills: parts of a mirrored server are pulled, with and without
//! load, and come back.
//!
//! The set-up is that of the published evaluation: two controllers, each with a
//! drive for the operating system and a stripe of others; both are mirrored
//! across the controllers. One script runs in the simulated world (`sim`) and on
//! a real daemon whose drives are NBD servers of their own processes (`real`).
//!
//! Not here: unplugging disks of a machine.

mod load;
mod page;
mod real;
mod sim;

pub use page::page;

use block::{BoxDevice, Env, Nanos};
use load::Load;
use serde::Serialize;
use std::path::Path;

/// Drives of a stripe.
const STRIPE: usize = 7;
/// The size of a drive.
const DRIVE_MIB: u64 = 6;
/// How long a member may take before it is lost.
pub const DETECTION: Nanos = Nanos::from_secs(2);
/// The load before something is pulled, and how long that stays away.
const BEFORE: Nanos = Nanos::from_secs(1);
const AWAY: Nanos = Nanos::from_secs(3);
/// How long arrays may take to be whole again.
const SETTLE_MAX: Nanos = Nanos::from_secs(120);

/// What is pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Two drives of one stripe.
    TwoDrives,
    /// The operating system's drive.
    OsDrive,
    /// A controller with all its drives.
    Controller,
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Scenario; 3] = [Scenario::TwoDrives, Scenario::OsDrive, Scenario::Controller];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::TwoDrives => "two drives of one group",
            Scenario::OsDrive => "the OS volume's drive",
            Scenario::Controller => "a whole controller",
        }
    }

    /// The drives of a side that it takes; 0 is the operating system's.
    fn drives(self) -> Vec<usize> {
        match self {
            Scenario::TwoDrives => vec![2, 5],
            Scenario::OsDrive => vec![0],
            Scenario::Controller => (0..=STRIPE).collect(),
        }
    }
}

/// Which controller.
const SIDES: [&str; 2] = ["a", "b"];

/// The name of a drive.
fn drive(side: usize, number: usize) -> String {
    format!("{}{number}", SIDES[side])
}

/// One cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    scenario: Scenario,
    side: usize,
    io: bool,
}

/// What became of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was pulled.
    pub scenario: &'static str,
    /// Of which controller.
    pub side: &'static str,
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
    /// Why the first request failed.
    pub error: Option<String>,
}

impl Row {
    /// Whether the cell was as it must be.
    pub fn is_right(&self) -> bool {
        let limit_ms = DETECTION.as_secs_f64() * 1e3;
        self.errors == 0 && self.wrong_bytes == 0 && self.longest_stall_ms <= limit_ms
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
    /// Places where copies differ.
    async fn scrub(&self) -> Result<u64, String>;
    /// What members have done.
    async fn counts(&self) -> Result<Counts, String>;
}

fn told(error: impl ToString) -> String {
    error.to_string()
}

/// The script of every cell.
async fn play(
    env: Env,
    volumes: Vec<BoxDevice>,
    site: &impl Site,
    cell: Cell,
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
    timer.sleep(AWAY).await;
    if !cell.io {
        load.verify().await;
    }
    snapshots.push(site.counts().await?);
    let away = (timer.now() - pulled).as_secs_f64();
    let during = load.seen.borrow().clone();
    site.give_back().await?;
    let back = timer.now();
    while !site.is_whole().await? {
        if timer.now() - back > SETTLE_MAX {
            return Err(format!("{}: never whole again", cell.scenario.name()));
        }
        timer.sleep(Nanos::from_millis(50)).await;
    }
    let whole = timer.now();
    load.stop().await;
    load.verify().await;
    let differ = site.scrub().await?;
    let seen = load.seen.borrow().clone();
    let since = |at: Nanos| (at - began).as_secs_f64();
    Ok(Row {
        scenario: cell.scenario.name(),
        side: SIDES[cell.side],
        io: cell.io,
        place,
        longest_stall_ms: seen.longest.as_secs_f64() * 1e3,
        errors: seen.errors,
        wrong_bytes: seen.wrong_bytes + differ * block::SECTOR_BYTES,
        reads_per_s: (during.reads - before.reads) as f64 / away,
        writes_per_s: (during.writes - before.writes) as f64 / away,
        detail: Detail {
            line: seen.line,
            marks_s: [since(pulled), since(back), since(whole)],
            members: rates(&snapshots, BEFORE.as_secs_f64(), away),
            error: seen.error,
        },
    })
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

fn cells() -> impl Iterator<Item = Cell> {
    let all = Scenario::ALL.into_iter();
    all.flat_map(|scenario| {
        let sides = 0..SIDES.len();
        sides.flat_map(move |side| [false, true].map(|io| Cell { scenario, side, io }))
    })
}

/// Runs every cell in the simulated world; `done` hears of each.
pub fn simulated(seed: u64, done: &dyn Fn(&Row)) -> Result<Vec<Row>, String> {
    let run = |cell| {
        let row = sim::run(seed, cell)?;
        done(&row);
        Ok(row)
    };
    cells().map(run).collect()
}

/// Runs every cell on a daemon of `program`, with files in `directory`, which
/// is made if missing; `done` hears of each.
pub fn real(program: &Path, directory: &Path, done: &dyn Fn(&Row)) -> Result<Vec<Row>, String> {
    let stage = real::Stage::new(program, directory)?;
    let run = |cell| {
        let row = stage.run(cell)?;
        done(&row);
        Ok(row)
    };
    cells().map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_survived_in_the_simulator() {
        let rows = simulated(1, &|_| ()).unwrap();
        assert_eq!(rows.len(), 12);
        for row in &rows {
            assert!(row.is_right(), "{row:#?}");
            assert_eq!(row.io, row.writes_per_s > 0.0, "{row:#?}");
        }
        let page = page(&rows).unwrap();
        crate::page::assert_self_contained(&page);
    }

    #[test]
    fn canary_content_that_changes_is_found() {
        let row = sim::run_corrupt(1).unwrap();
        assert!(row.wrong_bytes > 0 && !row.is_right(), "{row:#?}");
    }
}
