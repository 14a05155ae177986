//! A member to be.

use block::TargetId;
use raid::Level;

/// A member to be.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Its disks: one, or those of the array that it is.
    pub(crate) targets: Vec<TargetId>,
    /// Of an array.
    pub(crate) level: Option<Level>,
}
