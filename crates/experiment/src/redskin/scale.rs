//! What is run, and how much of it: what was not printed of the server, and of the client.

use crate::replay::Client;
use block::Nanos;

/// Files of the site, fitted: see `figures/redskin.toml`.
const FILES: u32 = 5_400_000;
/// Zipf's exponent, of the middle of what was observed.
const EXPONENT: f64 = 0.8;
/// Pages of 7 GiB.
const MEMORY_PAGES: u32 = 7 << 18;
/// The server's processor for a request.
pub const PROCESSOR: Nanos = Nanos::from_micros(200);
/// What the load tool takes for itself, fitted: see `figures/redskin.toml`.
const CLIENT: Client = Client {
    answer: Nanos::from_micros(171),
    between: Nanos::from_micros(41),
};
/// What is run, and how much of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// Files of the site.
    pub files: u32,
    /// Zipf's exponent.
    pub exponent: f64,
    /// The server's processor for a request.
    pub processor: Nanos,
    /// What the client takes for itself.
    pub client: Client,
    /// Whether the way takes its time.
    pub has_way: bool,
    /// Whether directories and inodes are read.
    pub has_metadata: bool,
    /// Whether the server writes a log to the disks.
    pub has_log: bool,
    /// Whether the disks' heads are where the start of the node has left them.
    pub heads_far: bool,
    /// Memory for pages.
    pub memory_pages: u32,
    /// How large the X25-M is, in percent of its part.
    pub flash_percent: u64,
    /// Requests of each list are divided by this.
    pub divisor: u32,
}

impl Scale {
    /// As it was published.
    pub const FULL: Scale = Scale {
        files: FILES,
        exponent: EXPONENT,
        processor: PROCESSOR,
        client: CLIENT,
        has_way: true,
        has_metadata: true,
        has_log: true,
        heads_far: true,
        memory_pages: MEMORY_PAGES,
        flash_percent: 100,
        divisor: 1,
    };
    /// One `part`-th of everything.
    const fn part(part: u32) -> Scale {
        Scale {
            files: FILES / part,
            memory_pages: MEMORY_PAGES / part,
            divisor: part,
            ..Scale::FULL
        }
    }

    /// A hundredth: too little to judge by.
    pub const QUICK: Scale = Scale::part(100);

    /// The whole, or its quick form.
    pub const fn of(quick: bool) -> Scale {
        if quick { Scale::QUICK } else { Scale::FULL }
    }

    /// What choices are tried on.
    pub const fn load(quick: bool) -> Scale {
        if quick { Scale::QUICK } else { Scale::part(10) }
    }
}
