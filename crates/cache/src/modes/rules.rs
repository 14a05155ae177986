//! What a mode says of reads and writes.

/// A mode as the read and the write path see it.
pub(crate) struct Rules {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// Reads look for their blocks in the pool, and bring what they miss there.
    pub(crate) reads_cached: bool,
    /// Writes leave their blocks in the pool.
    pub(crate) writes_update: bool,
}
