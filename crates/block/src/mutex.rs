//! One task at a time, in order of arrival.

use crate::range_lock::{Access, RangeLock};
use crate::units::{Extent, Lba, Sectors};

/// A value that one task of the shard has at a time, over awaits.
#[derive(Default)]
pub struct Mutex(RangeLock);

impl Mutex {
    /// Waits until the value is free; the value is free again when the returned guard is dropped.
    pub async fn lock(&self) -> impl Drop {
        let all = Extent::new(Lba::ZERO, Sectors(1));
        self.0.lock(all, Access::Exclusive).await
    }
}
