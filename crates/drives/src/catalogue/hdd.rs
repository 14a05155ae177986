//! Hard disks.

use crate::{Figure, HddFirmware, HddParameters};

const ENGINEERING: &str = "engineering estimate";
const CAPACITY: &str = "nominal capacity by the IDEMA LBA count";
const CONSTELLATION: &str = "Seagate Constellation SAS product manual (ST9500430SS), p. 18";
const SAVVIO: &str =
    "Seagate Savvio product manual (ST973401SS), for the 146 GB drive of its class";
const CHEETAH: &str = "Seagate Cheetah 15K.7 product manual";
const BARRACUDA_LINE: &str = "name of the Barracuda 7200.11 line";
const BARRACUDA_REVIEW: &str = "engineering estimate; xbitlabs, 1 TB hard disk round-up: \
    a 4-platter 7200.11 reads about 100 MB/s";
const GREEN_REVIEW: &str = "engineering estimate; xbitlabs: WD 5400 rpm drives read about 95 MB/s \
    with 3 platters, 80 MB/s with 4";
const THREE_GBIT: Figure = estimate(300.0, "Serial ATA or SAS at 3 Gb/s, 8b/10b coded");
const SIX_GBIT: Figure = estimate(600.0, "SAS at 6 Gb/s, 8b/10b coded");
const NCQ: &str = "engineering estimate; depends on firmware and dominates at depth 32 and more";

const fn datasheet(value: f64, source: &'static str) -> Figure {
    Figure::datasheet(value, source)
}

const fn estimate(value: f64, source: &'static str) -> Figure {
    Figure::estimate(value, source)
}

/// The firmware of a drive of these years.
pub const FIRMWARE: HddFirmware = HddFirmware {
    command_us: estimate(100.0, ENGINEERING),
    read_ahead_mb: estimate(1.0, ENGINEERING),
    look_behind_mb: estimate(2.0, ENGINEERING),
    queue_depth: estimate(
        32.0,
        "Serial ATA queues hold 32 commands; SAS drives taken alike",
    ),
    age_weight: estimate(0.05, NCQ),
    guard_ms: estimate(0.3, NCQ),
};

/// Seagate Barracuda 7200.11, 500 GB, SATA, 7200 rpm.
pub const ST3500320AS: HddParameters = HddParameters {
    name: "ST3500320AS",
    sectors: estimate(976_773_168.0, CAPACITY),
    rpm: datasheet(7_200.0, BARRACUDA_LINE),
    seek_track_ms: estimate(0.8, ENGINEERING),
    seek_average_ms: estimate(8.5, ENGINEERING),
    seek_full_ms: estimate(17.5, ENGINEERING),
    rate_outer_mb_s: estimate(105.0, BARRACUDA_REVIEW),
    rate_inner_mb_s: estimate(52.0, BARRACUDA_REVIEW),
    bus_mb_s: THREE_GBIT,
    firmware: FIRMWARE,
};

/// Western Digital Caviar Green, 1 TB, SATA, about 5400 rpm.
pub const WD10EADS: HddParameters = HddParameters {
    name: "WD10EADS",
    sectors: estimate(1_953_525_168.0, CAPACITY),
    rpm: estimate(5_400.0, ENGINEERING),
    seek_track_ms: estimate(2.0, ENGINEERING),
    seek_average_ms: estimate(10.5, ENGINEERING),
    seek_full_ms: estimate(21.0, ENGINEERING),
    rate_outer_mb_s: estimate(95.0, GREEN_REVIEW),
    rate_inner_mb_s: estimate(45.0, GREEN_REVIEW),
    bus_mb_s: THREE_GBIT,
    firmware: FIRMWARE,
};

/// Seagate Constellation, 500 GB, SAS, 7200 rpm.
pub const SAS7K2: HddParameters = HddParameters {
    name: "SAS7K2",
    sectors: estimate(976_773_168.0, CAPACITY),
    rpm: datasheet(7_200.0, CONSTELLATION),
    seek_track_ms: datasheet(0.5, CONSTELLATION),
    seek_average_ms: datasheet(8.0, CONSTELLATION),
    seek_full_ms: datasheet(17.35, CONSTELLATION),
    rate_outer_mb_s: datasheet(142.0, CONSTELLATION),
    rate_inner_mb_s: datasheet(75.0, CONSTELLATION),
    bus_mb_s: SIX_GBIT,
    firmware: FIRMWARE,
};

/// A 146 GB, SAS, 10000 rpm drive by the figures of a Seagate Savvio.
pub const SAS10K_146: HddParameters = HddParameters {
    name: "SAS10K_146",
    sectors: estimate(286_749_488.0, CAPACITY),
    rpm: datasheet(10_000.0, SAVVIO),
    seek_track_ms: datasheet(0.2, SAVVIO),
    seek_average_ms: datasheet(4.0, SAVVIO),
    seek_full_ms: datasheet(8.1, SAVVIO),
    rate_outer_mb_s: datasheet(94.0, SAVVIO),
    rate_inner_mb_s: datasheet(63.0, SAVVIO),
    bus_mb_s: THREE_GBIT,
    firmware: FIRMWARE,
};

/// A 300 GB, SAS, 10000 rpm drive.
pub const SAS10K_300: HddParameters = HddParameters {
    name: "SAS10K_300",
    sectors: estimate(585_937_500.0, CAPACITY),
    rpm: estimate(10_000.0, ENGINEERING),
    seek_track_ms: estimate(0.2, ENGINEERING),
    seek_average_ms: estimate(3.8, ENGINEERING),
    seek_full_ms: estimate(8.0, ENGINEERING),
    rate_outer_mb_s: estimate(168.0, ENGINEERING),
    rate_inner_mb_s: estimate(93.0, ENGINEERING),
    bus_mb_s: THREE_GBIT,
    firmware: FIRMWARE,
};

/// A 600 GB, SAS, 15000 rpm drive with the rates of a Seagate Cheetah 15K.7.
pub const SAS15K: HddParameters = HddParameters {
    name: "SAS15K",
    sectors: estimate(1_172_123_568.0, CAPACITY),
    rpm: datasheet(15_000.0, CHEETAH),
    seek_track_ms: estimate(0.2, ENGINEERING),
    seek_average_ms: estimate(3.4, ENGINEERING),
    seek_full_ms: estimate(6.6, ENGINEERING),
    rate_outer_mb_s: datasheet(204.0, CHEETAH),
    rate_inner_mb_s: datasheet(122.0, CHEETAH),
    bus_mb_s: SIX_GBIT,
    firmware: FIRMWARE,
};

/// Every hard disk.
pub const ALL: [HddParameters; 6] = [
    ST3500320AS,
    WD10EADS,
    SAS7K2,
    SAS10K_146,
    SAS10K_300,
    SAS15K,
];
