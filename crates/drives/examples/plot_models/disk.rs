//! The plots of a hard disk.

use crate::panel::{Axis, COLORS, Line, Panel, Scale};
use crate::{DEPTHS, SEED, cumulative};
use block::{IoResult, Nanos, Sectors};
use drives::measure::{ClosedLoop, DriveMeasured, random};
use drives::{DriveOp, Figure, Hdd, HddParameters};

/// Runs random 4 KiB reads over the whole drive.
pub fn random_reads(drive: &HddParameters, depth: u64) -> IoResult<DriveMeasured> {
    let run = ClosedLoop {
        depth,
        warm_up: 10 * depth,
        count: 40_000,
    };
    let reads = random(DriveOp::Read, Sectors(8), drive.capacity(), SEED);
    Ok(run.run(&mut Hdd::new(drive, 0.0)?, Nanos::ZERO, reads))
}

/// Seek curve, IOPS against depth, distribution of latencies.
pub fn panels(drive: &HddParameters) -> IoResult<[Panel; 3]> {
    Ok([seeks(drive)?, rates(drive)?, latencies(drive)?])
}

fn seeks(drive: &HddParameters) -> IoResult<Panel> {
    let curve = *Hdd::new(drive, 0.0)?.seek_curve();
    let points = (0..=200).map(|step| f64::from(step) / 200.0);
    let average = drive.seek_average_ms;
    Ok(Panel {
        title: "Seek curve",
        x: Axis {
            label: "distance (% of the full stroke)",
            scale: Scale::Linear,
            least: 0.0,
            most: 100.0,
            marks: 6,
        },
        y: Axis {
            label: "seek time (ms)",
            scale: Scale::Linear,
            least: 0.0,
            most: drive.seek_full_ms.value * 1.1,
            marks: 8,
        },
        lines: vec![
            Line {
                label: "seek".into(),
                color: COLORS[0],
                dashed: false,
                points: points.map(|x| (x * 100.0, curve.time(x) / 1e6)).collect(),
            },
            Line {
                label: format!("mean {} ms ({})", average.value, average.basis),
                color: COLORS[1],
                dashed: true,
                points: vec![(0.0, average.value), (100.0, average.value)],
            },
        ],
    })
}

fn rates(drive: &HddParameters) -> IoResult<Panel> {
    let with_weight = |weight: f64| {
        let mut varied = drive.clone();
        varied.firmware.age_weight = Figure::estimate(weight, "varied");
        varied
    };
    let mut in_order = drive.clone();
    in_order.firmware.queue_depth = Figure::estimate(1.0, "varied");
    let modelled = drive.firmware.age_weight.value;
    let variants = [
        ("age weight 0".into(), with_weight(0.0), true),
        (
            format!("age weight {modelled} (model)"),
            drive.clone(),
            false,
        ),
        ("age weight 0.5".into(), with_weight(0.5), true),
        ("not reordered".into(), in_order, true),
    ];
    let mut lines = Vec::new();
    for ((label, variant, dashed), color) in variants.into_iter().zip([1, 0, 2, 3]) {
        let mut points = Vec::new();
        for depth in DEPTHS {
            points.push((depth as f64, random_reads(&variant, depth)?.iops()));
        }
        lines.push(Line {
            label,
            color: COLORS[color],
            dashed,
            points,
        });
    }
    let most = lines.iter().flat_map(|line| &line.points);
    let most = most.map(|point| point.1).fold(0.0, f64::max);
    Ok(Panel {
        title: "Random 4 KiB reads",
        x: Axis {
            label: "requests in flight",
            scale: Scale::Log2,
            least: 1.0,
            most: 64.0,
            marks: 7,
        },
        y: Axis {
            label: "IOPS",
            scale: Scale::Linear,
            least: 0.0,
            most: most * 1.1,
            marks: 8,
        },
        lines,
    })
}

fn latencies(drive: &HddParameters) -> IoResult<Panel> {
    let mut lines = Vec::new();
    for (depth, color) in [1, 4, 32].into_iter().zip(COLORS) {
        let run = random_reads(drive, depth)?;
        lines.push(Line {
            label: format!(
                "{depth} in flight: mean {:.1} ms",
                run.latency_mean_s() * 1e3
            ),
            color,
            dashed: false,
            points: cumulative(&run),
        });
    }
    Ok(Panel {
        title: "Latency of random 4 KiB reads",
        x: Axis {
            label: "latency (ms)",
            scale: Scale::Log10,
            least: 1.0,
            most: 1_000.0,
            marks: 4,
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
