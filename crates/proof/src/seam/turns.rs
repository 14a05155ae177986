//! One task at a time, in order of arrival.

use block::{Access, Extent, Lba, RangeLock, Sectors};

/// What tasks take turns at.
#[derive(Default)]
pub(crate) struct Turns(RangeLock);

impl Turns {
    /// Waits for a turn, which ends when what is returned is dropped.
    pub(crate) async fn next(&self) -> impl Drop {
        let all = Extent::new(Lba::ZERO, Sectors(1));
        self.0.lock(all, Access::Exclusive).await
    }
}
