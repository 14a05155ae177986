//! What opening a place gives.

use crate::platform::Platform;
use ::nbd::client::Standing;
use block::{BoxDevice, IoError, IoResult, Kind, Nanos, Timer};
use shard::Disk;

/// What is at a place.
pub(super) struct Raw<P: Platform> {
    pub(super) device: Bare<P>,
    /// What keeps other users away, where there may be any.
    pub(super) hold: Option<P::Hold>,
    /// The file or URI.
    pub(super) place: String,
    pub(super) is_file: bool,
    /// Of an export.
    pub(super) standing: Option<Standing>,
}

/// Disks are a case of their own, so that a hit is a direct call.
pub(super) enum Bare<P: Platform> {
    Disk(Disk<P::Driver>),
    Other(BoxDevice),
}

/// What a device is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A volume's own data.
    Origin,
    /// The cache of volumes.
    Pool,
    /// A copy of a volume's log.
    Log,
    /// Of an array that takes it for lost after so long.
    Member(Nanos),
}

impl Role {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Role::Origin => "origin",
            Role::Pool => "pool",
            Role::Log => "log",
            Role::Member(_) => "member",
        }
    }
}

/// How often a claim is tried, and how long after each time: ten seconds in all. Who has
/// a place releases it a moment after its end.
pub const CLAIM_ATTEMPTS: u32 = 200;

/// See [`CLAIM_ATTEMPTS`].
pub const CLAIM_PAUSE: Nanos = Nanos::from_millis(50);

/// What `claim` comes to, which is tried again while another is `Busy` with it.
pub async fn claimed<T>(timer: &Timer, claim: impl AsyncFnMut() -> IoResult<T>) -> IoResult<T> {
    let is_busy = |error: &IoError| error.kind() == Kind::Busy;
    retried(timer, CLAIM_ATTEMPTS, is_busy, claim).await
}

/// What `work` comes to in so many attempts, [`CLAIM_PAUSE`] apart, the next one only after
/// an error that `passes`.
pub async fn retried<T>(
    timer: &Timer,
    attempts: u32,
    mut passes: impl FnMut(&IoError) -> bool,
    mut work: impl AsyncFnMut() -> IoResult<T>,
) -> IoResult<T> {
    for _ in 1..attempts {
        match work().await {
            Err(error) if passes(&error) => {}
            other => return other,
        }
        timer.sleep(CLAIM_PAUSE).await;
    }
    work().await
}
