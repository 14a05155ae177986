//! The published stress evaluation of two mirrored controllers, run again in virtual time: the gain
//! of a second controller, and the cost of the loss of a drive.
//!
//! The set-up is the printed one: seven drives on each of two controllers with write-back caches.
//! Each controller's drives are a stripe, and the stripes are mirrored, by hotset's own arrays. One
//! controller is one of the stripes.
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
mod scale;
mod sweep;

pub use compare::{ComparisonRow, FittedGain};
pub use loss::{ControllerLoss, SideRates};
pub use page::{POINT_HEAD, cells, charts, figures, write};
pub use real::{RealReport, SweepPlace, direct_point, real, verb};
pub use scale::{ThreadWorkload, WORKLOADS};
pub use sweep::SweepPoint;

use experiment::controllers::SIDES;
use scale::PercScale;
use serde::Serialize;

/// All that came out.
#[derive(Clone, Debug, Serialize)]
pub struct PercReport {
    /// Seed of places, phases and arrivals.
    pub seed: u64,
    /// True if less was measured than was published.
    pub quick: bool,
    /// Fitted parameters; all others are those of the catalogue of drives.
    pub fitted: Vec<FittedGain>,
    /// Published against ours.
    pub rows: Vec<ComparisonRow>,
    /// Every point of the sweep.
    pub points: Vec<SweepPoint>,
    /// The loss of a drive.
    pub loss: ControllerLoss,
}

/// Runs the experiment; calls `done` after each part.
pub fn run(seed: u64, quick: bool, done: &dyn Fn(&str)) -> Result<PercReport, String> {
    let scale = if quick {
        PercScale::QUICK
    } else {
        PercScale::FULL
    };
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
    Ok(PercReport {
        seed,
        quick,
        fitted: compare::fitted(),
        rows: compare::rows(&points, &loss),
        points,
        loss,
    })
}
