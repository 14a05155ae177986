//! Flash drives.

use crate::{Figure, SsdParameters};

const ENGINEERING: &str = "engineering estimate";
const UNVERIFIED: &str = "engineering estimate, unverified";
const X25E_TABLE: &str = "Intel X25-E datasheet, by the table of Wikipedia";
const FRONT_35K: &str = "fitted to 35000 random 4 KiB reads a second (datasheet)";
const TEN_CHANNELS: &str = "Tom's Hardware: ten channels";
const SATA: &str = "engineering estimate: sequential reads over Serial ATA at 3 Gb/s";

const fn datasheet(value: f64, source: &'static str) -> Figure {
    Figure::datasheet(value, source)
}

const fn estimate(value: f64, source: &'static str) -> Figure {
    Figure::estimate(value, source)
}

/// Intel X25-E, 32 GB, single-level cells, SATA.
pub const X25_E: SsdParameters = SsdParameters {
    name: "X25-E",
    sectors: estimate(62_500_000.0, "nominal capacity"),
    channels: estimate(10.0, TEN_CHANNELS),
    front_us: estimate(28.6, FRONT_35K),
    die_us: estimate(
        31.0,
        "fitted to a read latency of 75 us (engineering estimate)",
    ),
    bus_mb_s: estimate(250.0, SATA),
    write_mb_s: estimate(170.0, ENGINEERING),
    write_iops_steady: datasheet(3_300.0, X25E_TABLE),
    spare_gb: estimate(10.9, "40 GiB of flash less 32 GB"),
};

/// Intel X25-M of the first generation, 160 GB, multi-level cells, SATA.
pub const X25_M: SsdParameters = SsdParameters {
    name: "X25-M G1 160",
    sectors: estimate(312_581_808.0, "nominal capacity by the IDEMA LBA count"),
    channels: estimate(10.0, TEN_CHANNELS),
    front_us: estimate(28.6, FRONT_35K),
    die_us: estimate(
        40.0,
        "fitted to a read latency of 85 us (engineering estimate)",
    ),
    bus_mb_s: estimate(250.0, SATA),
    write_mb_s: estimate(70.0, "AnandTech: 70 MB/s"),
    write_iops_steady: estimate(
        350.0,
        "engineering estimate: a tenth of the X25-E, for 7 % spare and multi-level cells",
    ),
    spare_gb: estimate(11.8, "160 GiB of flash less 160 GB"),
};

/// LSI Nytro WarpDrive, 400 GB in four parts, PCI Express.
pub const NYTRO_400: SsdParameters = SsdParameters {
    name: "Nytro 400",
    sectors: estimate(
        781_250_000.0,
        "4 x 100 GB, by the output of the WarpDrive tool",
    ),
    channels: estimate(32.0, UNVERIFIED),
    front_us: estimate(5.4, UNVERIFIED),
    die_us: estimate(45.0, UNVERIFIED),
    bus_mb_s: estimate(2_000.0, UNVERIFIED),
    write_mb_s: estimate(1_000.0, UNVERIFIED),
    write_iops_steady: estimate(75_000.0, UNVERIFIED),
    spare_gb: estimate(149.8, "4 x 128 GiB of flash less 400 GB, unverified"),
};

/// Every flash drive.
pub const ALL: [SsdParameters; 3] = [X25_E, X25_M, NYTRO_400];
