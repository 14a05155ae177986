//! Description of a hard disk, and the limits of its numbers.

use super::{FirmwareShape, HddShape, SeekCurve, Surface};
use crate::Figure;
use block::{IoResult, SECTOR_BYTES};

/// A hard disk's description. MB are 10^6 bytes.
#[derive(Clone, Debug)]
pub struct HddParameters {
    /// The model's name.
    pub name: &'static str,
    /// Capacity in 512-byte sectors.
    pub sectors: Figure,
    /// Turns a minute.
    pub rpm: Figure,
    /// Seek to the next cylinder.
    pub seek_track_ms: Figure,
    /// Mean seek between independent uniform cylinders.
    pub seek_average_ms: Figure,
    /// Seek from the first cylinder to the last.
    pub seek_full_ms: Figure,
    /// Sustained media rate at the first (outer) cylinder.
    pub rate_outer_mb_s: Figure,
    /// Sustained media rate at the last (inner) cylinder.
    pub rate_inner_mb_s: Figure,
    /// Transfer rate between buffer and host.
    pub bus_mb_s: Figure,
    /// Scheduling and buffering.
    pub firmware: HddFirmware,
}

/// Scheduling and buffering of a hard disk.
#[derive(Clone, Debug)]
pub struct HddFirmware {
    /// Time to decode a command; hidden while the drive is busy.
    pub command_us: Figure,
    /// Length of the read-ahead past the last read.
    pub read_ahead_mb: Figure,
    /// Length of the last reads that the buffer keeps.
    pub look_behind_mb: Figure,
    /// Number of requests that the drive chooses from.
    pub queue_depth: Figure,
    /// Weight of a millisecond of waiting against one of service, in choosing.
    pub age_weight: Figure,
    /// Time to spare after a seek; with less, the drive expects to miss the sector.
    pub guard_ms: Figure,
}

impl HddParameters {
    /// Capacity in sectors.
    pub fn capacity(&self) -> block::Sectors {
        block::Sectors(self.sectors.value as u64)
    }

    /// Every number under its name, in the order of the fields.
    pub fn figures(&self) -> [(&'static str, Figure); 14] {
        [
            ("sectors", self.sectors),
            ("rpm", self.rpm),
            ("seek_track_ms", self.seek_track_ms),
            ("seek_average_ms", self.seek_average_ms),
            ("seek_full_ms", self.seek_full_ms),
            ("rate_outer_mb_s", self.rate_outer_mb_s),
            ("rate_inner_mb_s", self.rate_inner_mb_s),
            ("bus_mb_s", self.bus_mb_s),
            ("command_us", self.firmware.command_us),
            ("read_ahead_mb", self.firmware.read_ahead_mb),
            ("look_behind_mb", self.firmware.look_behind_mb),
            ("queue_depth", self.firmware.queue_depth),
            ("age_weight", self.firmware.age_weight),
            ("guard_ms", self.firmware.guard_ms),
        ]
    }

    /// The drive in the units the model computes with.
    pub(super) fn shape(&self, phase: f64) -> IoResult<HddShape> {
        let sectors = self.sectors.capacity(self.name)?;
        let rpm = self.rpm.within(
            self.name,
            "rpm",
            1_000.0..=30_000.0,
            "give the spindle speed in turns a minute",
        )?;
        let rate_outer = self.rate_outer_mb_s.within(
            self.name,
            "rate_outer_mb_s",
            1.0..=10_000.0,
            "give the outer sustained rate in MB/s",
        )?;
        let rate_inner = self.rate_inner_mb_s.within(
            self.name,
            "rate_inner_mb_s",
            1.0..=rate_outer,
            "the inner rate is no higher than the outer rate",
        )?;
        let bus = self.bus_mb_s.within(
            self.name,
            "bus_mb_s",
            rate_outer..=100_000.0,
            "the bus is no slower than the outer media rate",
        )?;
        let turn_ms = 60_000.0 / rpm;
        let firmware = self.firmware.shape(self.name, turn_ms)?;
        let phase = Figure::estimate(phase, "argument").within(
            self.name,
            "phase",
            0.0..=1.0,
            "give the spindle's phase as a share of a turn",
        )?;
        Ok(HddShape {
            sectors,
            seek: self.seek_curve()?,
            surface: Surface::new(sectors, rate_outer / 1e3, rate_inner / 1e3, turn_ms * 1e6),
            turn_ns: turn_ms * 1e6,
            turns_per_ns: 1.0 / (turn_ms * 1e6),
            phase,
            bus_rate: bus / 1e3,
            firmware,
        })
    }

    /// The seek curve in nanoseconds.
    fn seek_curve(&self) -> IoResult<SeekCurve> {
        let track = self.seek_track_ms.within(
            self.name,
            "seek_track_ms",
            0.0..=1_000.0,
            "give the track-to-track seek in ms",
        )?;
        let full = self.seek_full_ms.within(
            self.name,
            "seek_full_ms",
            track..=1_000.0,
            "the full stroke is no shorter than the seek to the next track",
        )?;
        let average = self.seek_average_ms.within(
            self.name,
            "seek_average_ms",
            SeekCurve::averages(track, full),
            "correct it or seek_full_ms: the seek time must rise with the distance",
        )?;
        Ok(SeekCurve::fit(track * 1e6, average * 1e6, full * 1e6))
    }
}

impl HddFirmware {
    /// The firmware of `drive`, which turns once in `turn_ms`, in the units of the model.
    fn shape(&self, drive: &'static str, turn_ms: f64) -> IoResult<FirmwareShape> {
        let command_us = self.command_us.within(
            drive,
            "command_us",
            0.0..=10_000.0,
            "give the command time in microseconds",
        )?;
        let read_ahead_mb = self.read_ahead_mb.within(
            drive,
            "read_ahead_mb",
            0.0..=4_096.0,
            "give the read-ahead in MB, 0 for none",
        )?;
        let look_behind_mb = self.look_behind_mb.within(
            drive,
            "look_behind_mb",
            0.0..=4_096.0,
            "give the look-behind in MB, 0 for none",
        )?;
        let queue_depth = self.queue_depth.within(
            drive,
            "queue_depth",
            1.0..=1_024.0,
            "give 1 for a drive that does not reorder, 32 for NCQ",
        )?;
        let age_weight = self.age_weight.within(
            drive,
            "age_weight",
            0.0..=1_000.0,
            "give 0 to ignore age, 0.05 for a typical drive",
        )?;
        let guard_ms = self.guard_ms.within(
            drive,
            "guard_ms",
            0.0..=turn_ms,
            "the guard is shorter than a turn",
        )?;
        Ok(FirmwareShape {
            command_ns: command_us * 1e3,
            read_ahead_sectors: (read_ahead_mb * 1e6) as u64 / SECTOR_BYTES,
            look_behind_sectors: (look_behind_mb * 1e6) as u64 / SECTOR_BYTES,
            queue_depth: queue_depth as usize,
            age_weight,
            guard_ns: guard_ms * 1e6,
        })
    }
}
