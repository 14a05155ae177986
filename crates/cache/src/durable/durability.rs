//! What a pool that remembers is to be.

use block::BoxDevice;

/// What a pool that remembers is to be.
pub struct Durability {
    /// What the pool is called.
    pub label: String,
    /// Names this host for ever.
    pub host: String,
    /// A small device that outlives the pool's, such as a file of the system
    /// disk. Without it nothing that was on the pool is trusted.
    pub witness: Option<BoxDevice>,
    /// Random numbers, to name the pool and its devices.
    pub uuids: Box<dyn FnMut() -> u128>,
    /// Take devices that hold something else: it is overwritten.
    pub overwrite: bool,
    /// Trust nothing that is on the pool.
    pub cold: bool,
}
