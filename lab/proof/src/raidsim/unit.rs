//! A member to be.

use block::TargetId;
use raid::Level;

/// A member to be.
#[derive(Clone, Debug)]
pub(crate) struct ArrayUnit {
    /// Its disks: one, or those of the nested array.
    pub(crate) targets: Vec<TargetId>,
    /// The level of a nested array.
    pub(crate) level: Option<Level>,
}
