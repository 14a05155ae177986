//! The definition of a pool that remembers.

use block::BoxDevice;

/// The definition of a pool that remembers.
pub struct Durability {
    /// The name of the pool.
    pub label: String,
    /// Names this host for ever.
    pub host: String,
    /// A small device that outlives the pool's, such as a file of the system disk. Without a
    /// witness nothing of the pool's earlier contents is trusted.
    pub witness: Option<BoxDevice>,
    /// Random numbers, to name the pool and its devices.
    pub uuids: Box<dyn FnMut() -> u128>,
    /// Overwrite devices with foreign contents.
    pub overwrite: bool,
    /// Trust nothing that is on the pool.
    pub cold: bool,
}
