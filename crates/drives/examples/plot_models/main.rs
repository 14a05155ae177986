//! Plots the device models, and tabulates their parameters, for
//! `docs/models.md`.
//!
//! `cargo run --release -p drives --example plot_models` writes `docs/img/model-*.svg`
//! and `docs/models-figures.md`; the same sources give the same bytes.

mod disk;
mod figures;
mod flash;
mod panel;

use drives::catalogue::{hdd, ssd};
use drives::measure::DriveMeasured;
use panel::Panel;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// The queue depths that plots and tables show.
const DEPTHS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The seed of every workload.
const SEED: u64 = 11;

fn main() -> Result<(), Box<dyn Error>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::create_dir_all(docs.join("img"))?;
    for drive in hdd::ALL {
        draw(&docs, drive.name, &disk::panels(&drive)?)?;
    }
    for drive in ssd::ALL {
        draw(&docs, drive.name, &flash::panels(&drive)?)?;
    }
    std::fs::write(docs.join("models-figures.md"), figures::page()?)?;
    Ok(())
}

/// Draws a drive's plots side by side.
fn draw(docs: &Path, name: &str, panels: &[Panel; 3]) -> Result<(), Box<dyn Error>> {
    let file = docs.join(image(name));
    let root = SVGBackend::new(&file, (2_640, 1_000)).into_drawing_area();
    root.fill(&WHITE)?;
    for (panel, area) in panels.iter().zip(root.split_evenly((1, 3))) {
        panel.draw(&area)?;
    }
    root.present()?;
    println!("{}", image(name));
    Ok(())
}

/// The path of a drive's image below `docs`.
fn image(name: &str) -> String {
    format!("img/model-{}.svg", name.to_lowercase().replace(' ', "-"))
}

/// The share of requests, in percent, that took at most a latency in ms: a
/// point for each thousandth of the requests.
fn cumulative(run: &DriveMeasured) -> Vec<(f64, f64)> {
    let mut latencies = run.latencies.clone();
    latencies.sort_unstable();
    (0..=1_000)
        .map(|thousandth| {
            let rank = (latencies.len() - 1) * thousandth / 1_000;
            (
                latencies[rank].as_secs_f64() * 1e3,
                thousandth as f64 / 10.0,
            )
        })
        .collect()
}
