//! `hotset-lab run --sensitivity`: blind measurements that are met, again with the device under test
//! at no cost and at twice its cost.
//!
//! Invariant: every seed of the first run is a seed of both others; all else of the model stays.

use super::side::each;
use super::terminal::progress;
use crate::CommandFailure;
use experiment::figures::{FigureVerdict, TestedDevice};
use experiment::finished::Finished;
use experiment::parameters::Settings;
use experiment::registry::Experiment;
use experiment::verdict::{CostSensitivity, FigureRow};

/// Costs of the device under test, as factors.
const FREE_AND_TWICE: [f64; 2] = [0.0, 2.0];

/// Returns true for a row that has yet to be tried.
fn is_open(row: &FigureRow) -> bool {
    row.verdict == Some(FigureVerdict::Met) && row.device.is_some() && row.sensitivity.is_none()
}

/// Tries the rows of `finished` that have yet to be tried.
pub fn run(
    json: bool,
    experiment: &Experiment,
    settings: &Settings<'_>,
    finished: &mut Finished,
) -> Result<(), CommandFailure> {
    let rows = || finished.rows.iter().filter(|row| is_open(row));
    let tested = |device: &TestedDevice| rows().any(|row| row.device == Some(*device));
    let devices: Vec<TestedDevice> = TestedDevice::ALL.into_iter().filter(tested).collect();
    let (name, progress) = (experiment.name, progress(json));
    let variants = devices.iter();
    let variants = variants.flat_map(|device| FREE_AND_TWICE.map(|cost| (device.cost(), cost)));
    let variants: Vec<(&str, f64)> = variants.collect();
    let outcomes = each(variants.len(), finished.seeds, |variant, n| {
        let settings = [settings, &variants[variant..=variant]].concat();
        let seed = finished.seed.saturating_add(n);
        let outcome = (experiment.run)(seed, finished.quick, &settings, &|_| ());
        let (cost, factor) = variants[variant];
        progress(&format!("{name}: {cost} = {factor}, seed {seed}"));
        outcome.map_err(CommandFailure::Runtime)
    })?;
    for row in finished.rows.iter_mut().filter(|row| is_open(row)) {
        let place = devices
            .iter()
            .position(|device| row.device == Some(*device));
        let place = 2 * place.expect("the device of every open row is tried");
        let [free, twice] = [0, 1].map(|at| row.costed(&outcomes[place + at]));
        row.sensitivity = Some(CostSensitivity { free, twice });
    }
    Ok(())
}
