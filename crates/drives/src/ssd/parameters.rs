//! Description of a flash drive, and the limits of its numbers.

use crate::{DriveRequest, Figure, nanos, transfer};
use block::{IoResult, Nanos};

/// The bytes of a page, the unit in which channels sense and program.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A flash drive's description. MB and GB are 10^6 and 10^9 bytes.
#[derive(Clone, Debug)]
pub struct SsdParameters {
    /// The model's name.
    pub name: &'static str,
    /// Capacity in 512-byte sectors.
    pub sectors: Figure,
    /// Channels that sense or program side by side.
    pub channels: Figure,
    /// The front end's time for a command; commands take turns.
    pub front_us: Figure,
    /// Time to sense a page of 4 KiB.
    pub die_us: Figure,
    /// Transfer rate between drive and host.
    pub bus_mb_s: Figure,
    /// Rate of streaming writes, and of all writes to a fresh drive.
    pub write_mb_s: Figure,
    /// Random 4 KiB writes a second in the long run.
    pub write_iops_steady: Figure,
    /// Bytes that a fresh drive takes before random writes slow down.
    pub spare_gb: Figure,
}

/// The drive in the units the model computes with.
#[derive(Debug)]
pub(super) struct SsdShape {
    pub sectors: u64,
    pub channels: usize,
    pub front: Nanos,
    /// A channel's time to sense a page.
    pub sense: Nanos,
    /// A channel's time to program a page of a stream.
    pub program_streaming: Nanos,
    /// A channel's time to program a page elsewhere on a steady drive.
    pub program_steady: Nanos,
    pub spare_bytes: u64,
    bus_mb_s: f64,
}

impl SsdShape {
    /// The time of a request's data on the bus.
    pub fn on_bus(&self, request: DriveRequest) -> Nanos {
        transfer(request.extent.len.bytes(), self.bus_mb_s)
    }
}

impl SsdParameters {
    /// Capacity in sectors.
    pub fn capacity(&self) -> block::Sectors {
        block::Sectors(self.sectors.value as u64)
    }

    /// Every number under its name, in the order of the fields.
    pub fn figures(&self) -> [(&'static str, Figure); 8] {
        [
            ("sectors", self.sectors),
            ("channels", self.channels),
            ("front_us", self.front_us),
            ("die_us", self.die_us),
            ("bus_mb_s", self.bus_mb_s),
            ("write_mb_s", self.write_mb_s),
            ("write_iops_steady", self.write_iops_steady),
            ("spare_gb", self.spare_gb),
        ]
    }

    pub(super) fn shape(&self) -> IoResult<SsdShape> {
        let check = |name, figure: Figure, least: f64, most: f64, remedy| {
            figure.within(self.name, name, least..=most, remedy)
        };
        let sectors = self.sectors.capacity(self.name)?;
        let channels = check(
            "channels",
            self.channels,
            1.0,
            1_024.0,
            "give the number of channels",
        )?;
        let front_us = check(
            "front_us",
            self.front_us,
            0.0,
            10_000.0,
            "give the time per command in microseconds",
        )?;
        let die_us = check(
            "die_us",
            self.die_us,
            0.0,
            10_000.0,
            "give the time to sense a page in microseconds",
        )?;
        let bus_mb_s = check(
            "bus_mb_s",
            self.bus_mb_s,
            1.0,
            100_000.0,
            "give the bus rate in MB/s",
        )?;
        let write_mb_s = check(
            "write_mb_s",
            self.write_mb_s,
            1.0,
            100_000.0,
            "give the streaming write rate in MB/s",
        )?;
        let fresh_iops = write_mb_s * 1e6 / PAGE_BYTES as f64;
        let steady_iops = check(
            "write_iops_steady",
            self.write_iops_steady,
            1.0,
            fresh_iops,
            "random writes are no faster than streaming ones in 4 KiB pages",
        )?;
        let spare_gb = check(
            "spare_gb",
            self.spare_gb,
            0.0,
            1e6,
            "give the spare area in GB, 0 for a drive that is never fresh",
        )?;
        let channels = channels as usize;
        Ok(SsdShape {
            sectors,
            channels,
            front: nanos(front_us * 1e3),
            sense: nanos(die_us * 1e3),
            program_streaming: nanos(channels as f64 * 1e9 / fresh_iops),
            program_steady: nanos(channels as f64 * 1e9 / steady_iops),
            spare_bytes: (spare_gb * 1e9) as u64,
            bus_mb_s,
        })
    }
}
