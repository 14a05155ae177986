//! The evaluated drives, and the length and size of each part.

use drives::Figure;
use drives::HddParameters;
use drives::catalogue::hdd::SAS10K_300;
use experiment::models::RoleModels;
use experiment::parameters::{COSTS, ModelParameter, OnMachine};

/// The one parameter that was fitted: see `figures.toml`.
pub(super) const RATE_OUTER_MB_S: f64 = 157.0;

/// The drive. The model of the evaluated drive was not printed. This one has its size and time, at
/// the media rate that the printed throughput of sequential writes implies.
pub(super) const DRIVE: HddParameters = HddParameters {
    rate_outer_mb_s: Figure::estimate(RATE_OUTER_MB_S, "fitted to 1045 MiB/s over 7 drives"),
    ..SAS10K_300
};

/// Amount of measurement.
#[derive(Clone, Copy, Debug)]
pub struct PercScale {
    /// Reads of a point.
    pub(super) reads: u64,
    /// Random writes of a point.
    pub(super) writes: u64,
    /// Sequential writes of a point, which are 64 times as long.
    pub(super) sequential_writes: u64,
    /// Threads of a point by those of the one before.
    pub(super) step: u64,
    /// The write-back cache of a controller, in MB.
    pub(super) cache_mb: f64,
    /// Seconds with a drive and without, together.
    pub(super) loss_s: usize,
    /// Cost of the disks, as a factor.
    pub(super) disk_cost: f64,
    /// The machine, if not the published one.
    pub(super) models: RoleModels,
}

/// The parameters that can be set.
pub(super) const PARAMETERS: [ModelParameter<PercScale>; 5] = [
    ("reads", 100.0..=1e7, |scale, value| {
        scale.reads = value as u64
    }),
    ("writes", 100.0..=1e7, |scale, value| {
        scale.writes = value as u64
    }),
    ("sequential_writes", 100.0..=1e7, |scale, value| {
        scale.sequential_writes = value as u64
    }),
    ("cache_mb", 0.0..=1e5, |scale, value| scale.cache_mb = value),
    ("disk_cost", COSTS, |scale, value| scale.disk_cost = value),
];

impl OnMachine for PercScale {
    const HAS_FLASH: bool = false;

    fn machine(&mut self) -> &mut RoleModels {
        &mut self.models
    }
}

impl PercScale {
    /// The whole, or its quick form.
    pub(super) const fn of(quick: bool) -> PercScale {
        if quick {
            PercScale::QUICK
        } else {
            PercScale::FULL
        }
    }

    /// The published size.
    pub const FULL: PercScale = PercScale {
        reads: 50_000,
        writes: 300_000,
        sequential_writes: 75_000,
        step: 2,
        cache_mb: 1024.0,
        loss_s: 120,
        disk_cost: 1.0,
        models: RoleModels::OWN,
    };
    /// A hundredth of the published size, with caches to match, at the printed numbers of threads.
    pub const QUICK: PercScale = PercScale {
        reads: 2_000,
        writes: 3_000,
        sequential_writes: 3_000,
        step: 4,
        cache_mb: 8.0,
        loss_s: 20,
        disk_cost: 1.0,
        models: RoleModels::OWN,
    };

    pub(super) fn operations(&self, workload: ThreadWorkload) -> u64 {
        match (workload.write, workload.random) {
            (false, _) => self.reads,
            (true, true) => self.writes,
            (true, false) => self.sequential_writes,
        }
    }

    pub(super) fn threads(&self) -> impl Iterator<Item = u64> {
        let step = self.step;
        let next = move |threads: &u64| Some(threads * step);
        std::iter::successors(Some(1), next).take_while(|threads| *threads <= 256)
    }
}

pub(super) fn to_message(error: impl ToString) -> String {
    error.to_string()
}

/// Requests of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadWorkload {
    /// Name in reports.
    pub name: &'static str,
    /// Bytes of a request.
    pub bytes: u64,
    /// True for random places.
    pub random: bool,
    /// True for writes.
    pub write: bool,
}

/// The published workloads.
pub const WORKLOADS: [ThreadWorkload; 4] = [
    ThreadWorkload {
        name: "random read",
        bytes: 4096,
        random: true,
        write: false,
    },
    ThreadWorkload {
        name: "random write",
        bytes: 4096,
        random: true,
        write: true,
    },
    ThreadWorkload {
        name: "sequential read",
        bytes: 256 << 10,
        random: false,
        write: false,
    },
    ThreadWorkload {
        name: "sequential write",
        bytes: 256 << 10,
        random: false,
        write: true,
    },
];
