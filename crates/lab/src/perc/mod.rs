//! The published stress evaluation of two mirrored controllers, run again in
//! virtual time: what a second controller gains, and what the loss of a drive
//! costs.
//!
//! The set-up is the printed one: seven drives on each of two controllers with
//! write-back caches; each controller's drives are a stripe, and the stripes are
//! mirrored, by hotset's own arrays. One controller is one of the stripes.
//!
//! `real` runs the sweep on files or a device of this machine, through fio.
//!
//! Not here: the evaluation's mail server and database, and CPU, which takes no
//! time in virtual time.

mod chart;
mod compare;
mod loss;
mod page;
mod real;
mod rig;
mod sweep;

pub use compare::Row;
pub use loss::{Loss, Rates};
pub use page::{POINT_HEAD, cells, charts, figures, write};
pub use real::{Place, RealReport, real};
pub use sweep::{Point, WORKLOADS, Workload};

use serde::Serialize;
use sim::model::catalogue::hdd::SAS10K_300;
use sim::model::{Figure, HddParameters};

/// The controllers.
const SIDES: [&str; 2] = ["a", "b"];
/// Drives of a stripe.
const DRIVES: usize = 7;
/// The one parameter that was fitted; see [`compare`].
const RATE_OUTER_MB_S: f64 = 157.0;

/// The drive. Which one was evaluated is not printed; one of its size and time
/// is taken, at the media rate that the printed throughput of sequential writes
/// implies.
const DRIVE: HddParameters = HddParameters {
    rate_outer_mb_s: Figure::estimate(RATE_OUTER_MB_S, "fitted to 1045 MiB/s over 7 drives"),
    ..SAS10K_300
};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Reads of a point.
    reads: u64,
    /// Writes of a point.
    writes: u64,
    /// Threads of a point by those of the one before.
    step: u64,
    /// The write-back cache of a controller, in MB.
    cache_mb: f64,
    /// Seconds with a drive and without, together.
    loss_s: usize,
}

impl Scale {
    /// As it was published.
    pub const FULL: Scale = Scale {
        reads: 50_000,
        writes: 300_000,
        step: 2,
        cache_mb: 1024.0,
        loss_s: 120,
    };
    /// A hundredth of it, with caches to match, at the printed numbers of threads.
    pub const QUICK: Scale = Scale {
        reads: 2_000,
        writes: 3_000,
        step: 4,
        cache_mb: 8.0,
        loss_s: 20,
    };

    fn operations(&self, workload: Workload) -> u64 {
        if workload.write {
            self.writes
        } else {
            self.reads
        }
    }

    fn threads(&self) -> impl Iterator<Item = u64> {
        let step = self.step;
        let next = move |threads: &u64| Some(threads * step);
        std::iter::successors(Some(1), next).take_while(|threads| *threads <= 256)
    }
}

/// A parameter that was fitted.
#[derive(Clone, Debug, Serialize)]
pub struct Fitted {
    /// Which.
    pub what: &'static str,
    /// To what.
    pub value: f64,
    /// By which printed figure.
    pub on: &'static str,
}

/// All that came out.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What drew places, phases and arrivals.
    pub seed: u64,
    /// Whether less was measured than was published.
    pub quick: bool,
    /// What was fitted; all else is as the catalogue of drives has it.
    pub fitted: Vec<Fitted>,
    /// Published against ours.
    pub rows: Vec<Row>,
    /// Every point of the sweep.
    pub points: Vec<Point>,
    /// The loss of a drive.
    pub loss: Loss,
}

/// Runs the experiment; tells `done` of each part that is.
pub fn run(seed: u64, quick: bool, done: &dyn Fn(&str)) -> Result<Report, String> {
    let scale = if quick { Scale::QUICK } else { Scale::FULL };
    let mut points = Vec::new();
    for workload in WORKLOADS {
        for controllers in 1..=SIDES.len() {
            points.extend(sweep::curve(seed, scale, controllers, workload)?);
            let many = if controllers == 1 { "" } else { "s" };
            done(&format!(
                "{}s, {controllers} controller{many}",
                workload.name
            ));
        }
    }
    let loss = loss::run(seed, scale)?;
    done("loss of a drive");
    Ok(Report {
        seed,
        quick,
        fitted: compare::fitted(),
        rows: compare::rows(&points, &loss),
        points,
        loss,
    })
}

fn told(error: impl ToString) -> String {
    error.to_string()
}
