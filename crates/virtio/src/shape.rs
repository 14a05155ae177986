//! The properties of a disk, for all modules.

use block::Geometry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Destination of log lines for an operator.
pub type Log = Arc<dyn Fn(String) + Send + Sync>;

/// Raises an event of a monitor, and never waits.
pub type Bell = Box<dyn FnMut() + Send>;
/// Makes a bell from an eventfd.
pub type Bells = Arc<dyn Fn(OwnedFd) -> io::Result<Bell> + Send + Sync>;

/// Most queues of a guest.
pub const QUEUES_MAX: u16 = 64;
/// Most descriptors of a ring.
pub const RING_MAX: u16 = 1024;

/// A disk from its guest's view.
#[derive(Clone, Debug)]
pub struct GuestDiskShape {
    /// Size and blocks.
    pub geometry: Geometry,
    /// True if every operation that writes is refused.
    pub read_only: bool,
    /// Name of the disk: a guest sees the first 20 bytes as its serial number.
    pub name: String,
    /// Most requests that a shard serves at one time; more wait in the guest.
    pub depth: u16,
}

/// Counts since the listener began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GuestDiskCounters {
    /// Monitors that connected.
    pub connections: u64,
    /// True if a monitor is connected.
    pub connected: bool,
    /// Requests served for a second time, after the end of a daemon or a connection.
    pub repeated: u64,
    /// Broken rings.
    pub broken: u64,
}
