//! The plots of a flash drive.

use crate::panel::{Axis, COLORS, Line, Panel, Scale};
use crate::{DEPTHS, SEED, cumulative};
use block::{IoResult, Nanos, Sectors};
use drives::measure::{ClosedLoop, DriveMeasured, random};
use drives::{DriveOp, DriveRequest, Figure, SsdModel, SsdParameters, SsdWear};

const PAGE: Sectors = Sectors(8);

/// Runs random 4 KiB requests over the whole drive.
pub fn random_pages(
    drive: &SsdParameters,
    wear: SsdWear,
    op: DriveOp,
    depth: u64,
) -> IoResult<DriveMeasured> {
    let run = ClosedLoop {
        depth,
        warm_up: 10 * depth,
        count: 40_000,
    };
    let requests = random(op, PAGE, drive.capacity(), SEED);
    Ok(run.run(&mut SsdModel::new(drive, wear)?, Nanos::ZERO, requests))
}

/// Random write rate from fresh to steady, IOPS against depth, distribution of
/// latencies.
pub fn panels(drive: &SsdParameters) -> IoResult<[Panel; 3]> {
    Ok([wearing(drive)?, rates(drive)?, latencies(drive)?])
}

fn wearing(drive: &SsdParameters) -> IoResult<Panel> {
    // The switch depends on the written bytes alone: a small spare area shows the same as a large
    // one.
    let spare_bytes = 100e6;
    let mut small = drive.clone();
    small.spare_gb = Figure::estimate(spare_bytes / 1e9, "scaled down");
    let step = ClosedLoop {
        depth: 32,
        warm_up: 0,
        count: (spare_bytes / 4_096.0 / 25.0) as u64,
    };
    let mut model = SsdModel::new(&small, SsdWear::Fresh)?;
    let mut writes = random(DriveOp::Write, PAGE, drive.capacity(), SEED);
    let mut points = Vec::new();
    let all = ClosedLoop {
        count: step.count * 50,
        ..step
    };
    let run = all.run(&mut model, Nanos::ZERO, &mut writes);
    // By Little's law the rate over a stretch is depth over mean latency.
    for (index, stretch) in run.latencies.chunks(step.count as usize).enumerate() {
        let sum: u64 = stretch.iter().map(|latency| latency.0).sum();
        let mean_s = sum as f64 / 1e9 / stretch.len() as f64;
        points.push(((index as f64 + 0.5) / 25.0, 32.0 / mean_s));
    }
    Ok(Panel {
        title: "Random 4 KiB writes, fresh to steady",
        x: Axis {
            label: "written (multiples of the spare area)",
            scale: Scale::Linear,
            least: 0.0,
            most: 2.0,
            marks: 5,
        },
        y: iops_axis(),
        lines: vec![Line {
            label: "32 in flight".into(),
            color: COLORS[0],
            dashed: false,
            points,
        }],
    })
}

fn iops_axis() -> Axis {
    Axis {
        label: "IOPS",
        scale: Scale::Log10,
        least: 10.0,
        most: 1e6,
        marks: 6,
    }
}

fn rates(drive: &SsdParameters) -> IoResult<Panel> {
    let variants = [
        ("reads", SsdWear::Fresh, DriveOp::Read),
        ("writes, fresh", SsdWear::Fresh, DriveOp::Write),
        ("writes, steady", SsdWear::Steady, DriveOp::Write),
    ];
    let mut lines = Vec::new();
    for ((label, wear, op), color) in variants.into_iter().zip(COLORS) {
        let mut points = Vec::new();
        for depth in DEPTHS {
            points.push((depth as f64, random_pages(drive, wear, op, depth)?.iops()));
        }
        lines.push(Line {
            label: label.into(),
            color,
            dashed: false,
            points,
        });
    }
    Ok(Panel {
        title: "Random 4 KiB requests",
        x: Axis {
            label: "requests in flight",
            scale: Scale::Log2,
            least: 1.0,
            most: 64.0,
            marks: 7,
        },
        y: iops_axis(),
        lines,
    })
}

fn latencies(drive: &SsdParameters) -> IoResult<Panel> {
    let mut lines = Vec::new();
    let mut add = |label: &str, run: &DriveMeasured| {
        lines.push(Line {
            label: format!("{label}: mean {:.2} ms", run.latency_mean_s() * 1e3),
            color: COLORS[lines.len()],
            dashed: false,
            points: cumulative(run),
        });
    };
    for (label, depth) in [("1 read", 1), ("32 reads", 32)] {
        let run = random_pages(drive, SsdWear::Fresh, DriveOp::Read, depth)?;
        add(label, &run);
    }
    add("16 reads, 16 steady writes", &mixture(drive)?);
    let writes = random_pages(drive, SsdWear::Steady, DriveOp::Write, 32)?;
    add("32 steady writes", &writes);
    Ok(Panel {
        title: "Latency of random 4 KiB requests",
        x: Axis {
            label: "latency (ms)",
            scale: Scale::Log10,
            least: 0.01,
            most: 1_000.0,
            marks: 6,
        },
        y: Axis {
            label: "requests at most as slow (%)",
            scale: Scale::Linear,
            least: 0.0,
            most: 100.0,
            marks: 6,
        },
        lines,
    })
}

/// 16 reads and 16 writes in flight on a steady drive.
fn mixture(drive: &SsdParameters) -> IoResult<DriveMeasured> {
    let run = ClosedLoop {
        depth: 32,
        warm_up: 1_000,
        count: 40_000,
    };
    let mut places = random(DriveOp::Read, PAGE, drive.capacity(), SEED);
    let requests = |id| DriveRequest {
        op: if id < 16 {
            DriveOp::Read
        } else {
            DriveOp::Write
        },
        ..places(id)
    };
    Ok(run.run(
        &mut SsdModel::new(drive, SsdWear::Steady)?,
        Nanos::ZERO,
        requests,
    ))
}
