//! The published stress evaluation of two mirrored controllers, run again in virtual time: the gain
//! of a second controller, and the cost of the loss of a drive.
//!
//! The set-up is the printed one: seven drives on each of two controllers with write-back caches.
//! Each controller's drives are a stripe, and the stripes are mirrored, by hotset's own arrays. One
//! controller is one of the stripes.
//!
//! `real` runs the sweep on files or a device of this machine, through fio.
//!
//! The drill of the set-up, with the operating system's drives, is in the same results.
//!
//! Not here: the evaluation's mail server and database, and CPU, which takes no
//! time in virtual time.

mod chart;
mod compare;
mod loss;
mod real;
mod rig;
mod scale;
mod sweep;

pub use real::{RealReport, SweepPlace, direct_point, real, verb};
pub use scale::{ThreadWorkload, WORKLOADS};
pub use sweep::SweepPoint;

use drill::{DrillRow, DrillSetup};
use experiment::controllers::{SIDES, TOPOLOGY};
use experiment::figures::PublishedFigures;
use experiment::parameters::set;
use experiment::registry::Experiment;
use experiment::verdict::{ResultTable, SeedOutcome};
use scale::{PARAMETERS, PercScale, to_message};

/// The experiment's name.
pub const NAME: &str = "perc";
const FIGURES: &str = include_str!("figures.toml");
/// The experiment, as those of the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "two mirrored controllers of seven drives against one, and the loss of a drive",
    needs: "330 MB; a minute and a half a seed",
    times: 1.0,
    topology: TOPOLOGY,
    figures,
    check: |settings| {
        let scale = set(PercScale::QUICK, &PARAMETERS, settings)?;
        rig::configuration(rig::PercSetup::of(&scale, 0, 1)).map(drop)
    },
    run: |seed, quick, settings, done| {
        run(
            seed,
            set(PercScale::of(quick), &PARAMETERS, settings)?,
            done,
        )
    },
    parts: &[],
    load: None,
};

/// The published figures.
pub fn figures() -> PublishedFigures {
    PublishedFigures::parse(FIGURES).expect("the shipped figures are well formed")
}

/// Everything that was printed, measured with one seed. Calls `done` after each part.
fn run(seed: u64, scale: PercScale, done: &dyn Fn(&str)) -> Result<SeedOutcome, String> {
    let mut points = Vec::new();
    for workload in WORKLOADS {
        for controllers in 1..=SIDES {
            points.extend(sweep::curve(seed, scale, controllers, workload)?);
            let many = if controllers == 1 { "" } else { "s" };
            done(&format!(
                "seed {seed}: {}s, {controllers} controller{many}",
                workload.name
            ));
        }
    }
    let loss = loss::run(seed, scale)?;
    done(&format!("seed {seed}: loss of a drive"));
    let cells = drill::simulated(&DrillSetup::named("published")?, seed, &|_| ())?;
    done(&format!("seed {seed}: {} cells of the drill", cells.len()));
    let mut outcome = SeedOutcome {
        tables: vec![table(&points), sides(&points), drilled(&cells)],
        charts: vec![
            ("Requests a second".into(), drawn(chart::rates(&points))?),
            (
                "Megabytes a second".into(),
                drawn(chart::throughputs(&points))?,
            ),
            ("Mean latency".into(), drawn(chart::latencies(&points))?),
            ("The loss of a drive".into(), drawn(chart::loss(&loss))?),
        ],
        ..SeedOutcome::default()
    };
    compare::measure(&mut outcome, &points, &loss);
    let survived = cells.iter().filter(|cell| cell.is_right()).count();
    outcome.set("claim.cells", survived as f64);
    let measured = points.iter();
    let measured = measured.map(|point| point.operations as f64 / point.iops);
    outcome.virtual_s = measured.sum::<f64>() + loss.seconds.len() as f64;
    Ok(outcome)
}

fn drawn(chart: Result<String, Box<dyn std::error::Error>>) -> Result<String, String> {
    chart.map_err(to_message)
}

/// Every point of a sweep, as pages and terminals show them.
pub fn table(points: &[SweepPoint]) -> ResultTable {
    let cpu = |share: Option<f64>| share.map_or("-".into(), |share| format!("{share:.0}"));
    let line = |point: &SweepPoint| {
        vec![
            point.workload.into(),
            point.controllers.to_string(),
            point.threads.to_string(),
            point.operations.to_string(),
            format!("{:.0}", point.iops),
            format!("{:.1}", point.mb_s),
            format!("{:.3}", point.latency_ms_mean),
            format!("{:.3}", point.latency_ms_p99),
            cpu(point.cpu_daemon_percent),
            cpu(point.cpu_host_percent),
        ]
    };
    let head = [
        "workload",
        "controllers",
        "threads",
        "requests",
        "IOPS",
        "MB/s",
        "mean ms",
        "p99 ms",
        "daemon %",
        "host %",
    ];
    ResultTable::new("Every point", &head, points.iter().map(line).collect())
}

/// Sequential reads of both sides of the mirror.
fn sides(points: &[SweepPoint]) -> ResultTable {
    let points = points.iter().filter(|p| p.workload == "sequential read");
    let line = |point: &SweepPoint| {
        let sides = point.sides_mb_s?.map(|mb_s| format!("{mb_s:.1}"));
        Some(
            [point.threads.to_string()]
                .into_iter()
                .chain(sides)
                .collect(),
        )
    };
    ResultTable::new(
        "Sequential reads of both controllers",
        &["threads", "controller a", "controller b"],
        points.filter_map(line).collect(),
    )
    .drawn_in("MB/s")
}

/// The cells of the drill: the pulled parts, and what clients met.
fn drilled(cells: &[DrillRow]) -> ResultTable {
    let line = |cell: &DrillRow| {
        vec![
            cell.scenario.clone(),
            cell.side.clone(),
            if cell.io { "reads and writes" } else { "none" }.to_owned(),
            cell.errors.to_string(),
            cell.wrong_bytes.to_string(),
            format!("{:.1}", cell.longest_stall_ms),
            format!("{:.0}", cell.reads_per_s),
            format!("{:.0}", cell.writes_per_s),
        ]
    };
    ResultTable::new(
        "Parts pulled and put back, with the drives of the operating system",
        &[
            "pulled",
            "controller",
            "requests",
            "errors",
            "wrong bytes",
            "longest ms",
            "reads/s",
            "writes/s",
        ],
        cells.iter().map(line).collect(),
    )
}
