//! The result of opening a place.

use crate::platform::Platform;
use ::nbd::client::ExportStanding;
use block::{BoxDevice, IoError, IoErrorKind, IoResult, Nanos, Timer};
use shard::ShardDisk;

/// The device at a place.
pub(super) struct RawPlace<P: Platform> {
    pub(super) device: Bare<P>,
    /// Keeps other users away, if there may be any.
    pub(super) hold: Option<P::Hold>,
    /// File or URI of the device.
    pub(super) place: String,
    pub(super) is_file: bool,
    /// Connection of an export.
    pub(super) standing: Option<ExportStanding>,
}

/// Disks have a variant of their own, so that a hit is a direct call.
pub(super) enum Bare<P: Platform> {
    Disk(ShardDisk<P::Driver>),
    Other(BoxDevice),
}

/// Use of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawRole {
    /// The data of a volume.
    Origin,
    /// The cache of volumes.
    Pool,
    /// A copy of a volume's log.
    Log,
    /// A member of an array that counts the member as lost after this time without a reply.
    Member(Nanos),
}

impl RawRole {
    /// The role in one word.
    pub fn name(self) -> &'static str {
        match self {
            RawRole::Origin => "origin",
            RawRole::Pool => "pool",
            RawRole::Log => "log",
            RawRole::Member(_) => "member",
        }
    }
}

/// Number of attempts at a claim, [`CLAIM_PAUSE`] apart: ten seconds in all. A process that ends
/// releases its places a moment later.
pub const CLAIM_ATTEMPTS: u32 = 200;

/// See [`CLAIM_ATTEMPTS`].
pub const CLAIM_PAUSE: Nanos = Nanos::from_millis(50);

/// Tries `claim` again while the place is `Busy`. Returns the last result.
pub async fn claimed<T>(timer: &Timer, claim: impl AsyncFnMut() -> IoResult<T>) -> IoResult<T> {
    let is_busy = |error: &IoError| error.kind() == IoErrorKind::Busy;
    retried(timer, CLAIM_ATTEMPTS, is_busy, claim).await
}

/// Tries `work` up to `attempts` times, [`CLAIM_PAUSE`] apart, again only after an error that
/// `passes`. Returns the last result.
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
