//! The flash-drive model against first principles and the makers' figures.

use super::common::{derived, near, varied};
use crate::catalogue::ssd::{self, X25_E, X25_M};
use crate::measure::{ClosedLoop, DriveMeasured, random, request, sequential};
use crate::{DriveModel, DriveOp, Figure, SsdModel, SsdParameters, SsdWear};
use block::{Extent, Lba, Nanos, Sectors};

const PAGE: Sectors = Sectors(8);
const READ_IOPS: Figure =
    Figure::datasheet(35_000.0, "Intel X25-E datasheet, by the table of Wikipedia");

fn measure(
    drive: &SsdParameters,
    wear: SsdWear,
    op: DriveOp,
    depth: u64,
    count: u64,
) -> DriveMeasured {
    let run = ClosedLoop {
        depth,
        warm_up: depth * 4,
        count,
    };
    let mut model = SsdModel::new(drive, wear).unwrap();
    run.run(
        &mut model,
        Nanos::ZERO,
        random(op, PAGE, drive.capacity(), 5),
    )
}

fn stream(
    drive: &SsdParameters,
    wear: SsdWear,
    op: DriveOp,
    depth: u64,
    len: Sectors,
) -> DriveMeasured {
    let run = ClosedLoop {
        depth,
        warm_up: depth * 4,
        count: 4_000,
    };
    let mut model = SsdModel::new(drive, wear).unwrap();
    run.run(&mut model, Nanos::ZERO, sequential(op, len, Lba::ZERO))
}

#[test]
fn a_lone_read_takes_front_end_die_and_bus() {
    for drive in ssd::ALL {
        let latency =
            measure(&drive, SsdWear::Fresh, DriveOp::Read, 1, 1_000).latency_mean_s() * 1e6;
        let sum = drive.front_us.value + drive.die_us.value + 4_096.0 / drive.bus_mb_s.value;
        near(drive.name, latency, derived(sum), 1e-3).unwrap();
    }
    let latency =
        |drive| measure(drive, SsdWear::Fresh, DriveOp::Read, 1, 1_000).latency_mean_s() * 1e6;
    let engineering = |us| Figure::estimate(us, "engineering estimate of the read latency");
    near("X25-E", latency(&X25_E), engineering(75.0), 0.02).unwrap();
    near("X25-M", latency(&X25_M), engineering(85.0), 0.02).unwrap();
}

#[test]
fn random_reads_reach_the_datasheet_rate_at_depth_32() {
    for drive in [X25_E, X25_M] {
        let iops = measure(&drive, SsdWear::Steady, DriveOp::Read, 32, 20_000).iops();
        near(drive.name, iops, READ_IOPS, 0.01).unwrap();
    }
    for drive in ssd::ALL {
        // The front end takes one command at a time.
        let deep = measure(&drive, SsdWear::Fresh, DriveOp::Read, 128, 20_000).iops();
        near(drive.name, deep, derived(1e6 / drive.front_us.value), 0.01).unwrap();
    }
}

#[test]
fn littles_law_holds() {
    for drive in ssd::ALL {
        for op in [DriveOp::Read, DriveOp::Write] {
            for depth in [1, 4, 32] {
                let run = measure(&drive, SsdWear::Steady, op, depth, 5_000);
                let in_flight = run.iops() * run.latency_mean_s();
                near(drive.name, in_flight, derived(depth as f64), 0.01).unwrap();
            }
        }
    }
}

#[test]
fn streaming_reads_fill_the_bus() {
    for drive in ssd::ALL {
        let rate = stream(&drive, SsdWear::Steady, DriveOp::Read, 4, Sectors(256)).mb_s();
        near(drive.name, rate, drive.bus_mb_s, 0.01).unwrap();
    }
}

fn check_steady_writes(drive: &SsdParameters, wear: SsdWear) -> Result<(), String> {
    let iops = measure(drive, wear, DriveOp::Write, 64, 20_000).iops();
    near(drive.name, iops, drive.write_iops_steady, 0.01)
}

#[test]
fn random_writes_settle_at_the_steady_rate() {
    for drive in ssd::ALL {
        check_steady_writes(&drive, SsdWear::Steady).unwrap();
    }
}

#[test]
fn canary_a_fresh_drive_is_not_taken_for_a_steady_one() {
    check_steady_writes(&X25_E, SsdWear::Fresh).unwrap_err();
}

#[test]
fn fresh_random_writes_are_as_fast_as_streams_or_the_front_end_allow() {
    for drive in ssd::ALL {
        let expected = (drive.write_mb_s.value * 1e6 / 4_096.0).min(1e6 / drive.front_us.value);
        let iops = measure(&drive, SsdWear::Fresh, DriveOp::Write, 128, 20_000).iops();
        near(drive.name, iops, derived(expected), 0.01).unwrap();
    }
}

#[test]
fn streaming_writes_keep_their_rate_on_a_steady_drive() {
    for drive in ssd::ALL {
        let rate = stream(&drive, SsdWear::Steady, DriveOp::Write, 4, Sectors(256)).mb_s();
        near(drive.name, rate, drive.write_mb_s, 0.01).unwrap();
    }
}

#[test]
fn random_writes_slow_down_once_the_spare_is_written() {
    let drive = SsdParameters {
        spare_gb: varied(0.04),
        ..X25_E
    };
    let spare_pages = 40_000_000 / 4_096;
    let run = ClosedLoop {
        depth: 32,
        warm_up: 0,
        count: 2 * spare_pages,
    };
    let mut model = SsdModel::new(&drive, SsdWear::Fresh).unwrap();
    let writes = random(DriveOp::Write, PAGE, drive.capacity(), 5);
    let run = run.run(&mut model, Nanos::ZERO, writes);
    let slow = Nanos::from_millis(3);
    let first_slow = run.latencies.iter().position(|latency| *latency > slow);
    let switched_at = first_slow.unwrap() as f64;
    near(
        "pages before the switch",
        switched_at,
        derived(spare_pages as f64),
        0.01,
    )
    .unwrap();
}

/// Checks that reads of consecutive pages run on all of `channels` at once, with neither front end
/// nor bus to wait for.
fn check_parallel(drive: &SsdParameters, channels: f64) -> Result<(), String> {
    let unhindered = SsdParameters {
        front_us: varied(0.0),
        bus_mb_s: varied(100_000.0),
        ..drive.clone()
    };
    let depth = 4 * channels as u64;
    let iops = stream(&unhindered, SsdWear::Fresh, DriveOp::Read, depth, PAGE).iops();
    near(
        "parallel reads",
        iops,
        derived(channels * 1e6 / drive.die_us.value),
        0.01,
    )
}

#[test]
fn channels_work_side_by_side() {
    for channels in [1.0, 2.0, 5.0, 10.0, 32.0] {
        let drive = SsdParameters {
            channels: varied(channels),
            ..X25_E
        };
        check_parallel(&drive, channels).unwrap();
    }
}

#[test]
fn canary_a_missing_channel_is_found() {
    let drive = SsdParameters {
        channels: varied(9.0),
        ..X25_E
    };
    check_parallel(&drive, 10.0).unwrap_err();
}

#[test]
fn a_read_waits_for_one_program_at_most_not_for_writes_or_garbage_collection() {
    let mut model = SsdModel::new(&X25_E, SsdWear::Steady).unwrap();
    for id in 0..100 {
        let page = Extent::new(Lba(id * 1_000), PAGE);
        model.arrive(Nanos::ZERO, request(id, DriveOp::Write, page));
    }
    let mut done = Vec::new();
    // Every channel programs by now: ten writes take 10 * (28.6 + 16.4) us to come in.
    let now = Nanos::from_millis(4);
    while let Some(at) = model.next_event().filter(|at| *at <= now) {
        model.advance(at, &mut done);
    }
    model.arrive(
        now,
        request(1_000, DriveOp::Read, Extent::new(Lba(8), PAGE)),
    );
    let read_done = loop {
        model.advance(model.next_event().unwrap(), &mut done);
        if let Some(read) = done.iter().find(|completed| completed.id == 1_000) {
            break read.at;
        }
    };
    let program_us = 10.0 * 4_096.0 / X25_E.write_mb_s.value;
    let most = now + Nanos::from_secs_f64(program_us / 1e6) + Nanos::from_micros(77);
    assert!(read_done <= most, "{read_done} > {most}");
    assert!(model.next_event().is_some(), "writes are still waiting");
}

#[test]
fn an_impossible_parameter_names_value_range_and_remedy() {
    let drive = SsdParameters {
        write_iops_steady: varied(50_000.0),
        ..X25_E
    };
    assert_eq!(
        SsdModel::new(&drive, SsdWear::Fresh)
            .unwrap_err()
            .to_string(),
        "X25-E: parameter write_iops_steady = 50000 is outside 1..=41503.90625; \
         random writes are no faster than streaming ones in 4 KiB pages"
    );
    let drive = SsdParameters {
        channels: varied(0.0),
        ..X25_E
    };
    let error = SsdModel::new(&drive, SsdWear::Fresh)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("channels = 0 is outside 1..=1024"),
        "{error}"
    );
}
