//! What a disk is, for all who have to do with it.

use block::Geometry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where lines for who operates the daemon go.
pub type Log = Arc<dyn Fn(String) + Send + Sync>;

/// Raises an event of a monitor's, and never waits.
pub type Bell = Box<dyn FnMut() + Send>;
/// Makes one of an eventfd.
pub type Bells = Arc<dyn Fn(OwnedFd) -> io::Result<Bell> + Send + Sync>;

/// The most queues that a guest may have.
pub const QUEUES_MAX: u16 = 64;
/// The most descriptors of a ring.
pub const RING_MAX: u16 = 1024;
/// A disk as its guest sees it.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its size and blocks.
    pub geometry: Geometry,
    /// Refuse everything that writes.
    pub read_only: bool,
    /// What it is called: a guest sees the first 20 bytes as its serial number.
    pub name: String,
    /// Requests that are served at one time; more wait in the guest.
    pub depth: u16,
}

/// What happened, since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Monitors that connected.
    pub connections: u64,
    /// Whether one is connected.
    pub connected: bool,
    /// Requests served for a second time, after a daemon or a connection had ended.
    pub repeated: u64,
    /// Rings that made no sense.
    pub broken: u64,
}
