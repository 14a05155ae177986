//! Reads and writes by mode.
//!
//! In every mode a write drops its blocks from the pool before it goes to the origin, and prevents
//! their promotion until it has ended. That alone makes a switch of modes safe while I/O runs.

/// The use that a volume makes of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CacheMode {
    /// Reads are cached; writes go to the origin and, at the same time from the same memory, to
    /// the pool. A write is acknowledged when the origin has it; the pool's copy counts once both
    /// have succeeded.
    #[default]
    WriteThrough,
    /// Reads are cached; writes go to the origin only: for data written once and read seldom.
    WriteAround,
    /// Everything goes to the origin only. Lines stay where they are.
    PassThrough,
}

impl CacheMode {
    /// Every mode.
    pub const ALL: [CacheMode; 3] = [
        CacheMode::WriteThrough,
        CacheMode::WriteAround,
        CacheMode::PassThrough,
    ];

    /// True if reads look for their blocks in the pool, and promote their misses.
    #[inline]
    pub(crate) fn caches_reads(self) -> bool {
        self != CacheMode::PassThrough
    }

    /// True if writes leave their blocks in the pool.
    #[inline]
    pub(crate) fn updates(self) -> bool {
        self == CacheMode::WriteThrough
    }

    /// Its name in configuration and reports.
    pub fn name(self) -> &'static str {
        match self {
            CacheMode::WriteThrough => "write-through",
            CacheMode::WriteAround => "write-around",
            CacheMode::PassThrough => "pass-through",
        }
    }

    /// A line for help and errors.
    pub fn help(self) -> &'static str {
        match self {
            CacheMode::WriteThrough => "reads are cached, writes go to the origin and to the pool",
            CacheMode::WriteAround => "reads are cached, writes go to the origin only",
            CacheMode::PassThrough => "everything goes to the origin only",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<CacheMode> {
        CacheMode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}
