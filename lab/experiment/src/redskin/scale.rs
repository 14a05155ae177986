//! Size and parameters of a run: the unpublished parameters of the server, and of the client.

use crate::models::RoleModels;
use crate::parameters::OnMachine;
use crate::replay::ReplayClient;
use block::Nanos;

/// Files of the site, fitted: see `figures/redskin.toml`.
const FILES: u32 = 5_400_000;
/// Zipf's exponent, from the middle of the observed range.
const EXPONENT: f64 = 0.8;
/// Pages of 7 GiB.
const MEMORY_PAGES: u32 = 7 << 18;
/// The server's processor for a request.
pub const PROCESSOR: Nanos = Nanos::from_micros(200);
/// Time of the load tool itself, fitted: see `figures/redskin.toml`.
const CLIENT: ReplayClient = ReplayClient {
    answer: Nanos::from_micros(171),
    between: Nanos::from_micros(41),
};
/// Size and parameters of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RedskinScale {
    /// Files of the site.
    pub files: u32,
    /// Zipf's exponent.
    pub exponent: f64,
    /// The server's processor for a request.
    pub processor: Nanos,
    /// Time of the client itself.
    pub client: ReplayClient,
    /// True to model the time of the network.
    pub has_way: bool,
    /// True to read directories and inodes.
    pub has_metadata: bool,
    /// True if the server writes a log to the disks.
    pub has_log: bool,
    /// True if the disks' heads are where the start of the node has left them.
    pub heads_far: bool,
    /// Memory for pages.
    pub memory_pages: u32,
    /// Models in place of the topology's own.
    pub models: RoleModels,
    /// Cost of the flash drives, as a factor.
    pub flash_cost: f64,
    /// Cost of the disks, as a factor.
    pub disk_cost: f64,
    /// Size of the X25-M, in percent of its part.
    pub flash_percent: u64,
    /// Share of the requests that the client sends.
    pub sent: f64,
    /// Requests of each list are divided by this.
    pub divisor: u32,
}

impl OnMachine for RedskinScale {
    const HAS_FLASH: bool = false;

    fn machine(&mut self) -> &mut RoleModels {
        &mut self.models
    }
}

impl RedskinScale {
    /// The published size.
    pub const FULL: RedskinScale = RedskinScale {
        files: FILES,
        exponent: EXPONENT,
        processor: PROCESSOR,
        client: CLIENT,
        has_way: true,
        has_metadata: true,
        has_log: true,
        heads_far: true,
        memory_pages: MEMORY_PAGES,
        models: RoleModels::OWN,
        flash_cost: 1.0,
        disk_cost: 1.0,
        flash_percent: 100,
        sent: 1.0,
        divisor: 1,
    };
    /// One `part`-th of everything.
    const fn part(part: u32) -> RedskinScale {
        RedskinScale {
            files: FILES / part,
            memory_pages: MEMORY_PAGES / part,
            divisor: part,
            ..RedskinScale::FULL
        }
    }

    /// A hundredth: too little to judge by.
    pub const QUICK: RedskinScale = RedskinScale::part(100);

    /// The whole, or its quick form.
    pub const fn of(quick: bool) -> RedskinScale {
        if quick {
            RedskinScale::QUICK
        } else {
            RedskinScale::FULL
        }
    }

    /// The size on which choices are tried.
    pub const fn load(quick: bool) -> RedskinScale {
        if quick {
            RedskinScale::QUICK
        } else {
            RedskinScale::part(10)
        }
    }
}
