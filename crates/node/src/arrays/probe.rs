//! The first reply of an opened device: opening sends no request to the device.

use super::OpenDevices;
use crate::place::OpenedPlace;
use crate::platform::Platform;
use crate::seconds;
use block::{Deadline, Device as _, IoError, IoErrorKind, IoResult, Lba, Nanos};

/// Time limit for the first reply of a pool or log device.
const ANSWER_MAX: Nanos = Nanos::from_secs(10);

impl<P: Platform> OpenDevices<P> {
    /// Refuses an unresponsive device: a pool can run without the device, and must not wait for it.
    pub(super) async fn answers_at_all(&self, opened: &OpenedPlace<P>) -> IoResult {
        let env = self.env();
        let geometry = opened.leaf.geometry();
        let buf = env.pool.get(geometry.block.bytes() as usize).await;
        let reading = opened.leaf.read(Lba::ZERO, buf);
        match Deadline::new(&env.timer, ANSWER_MAX).bound(reading).await {
            // The user of the device handles an error.
            Some(_) => Ok(()),
            None => {
                let limit = seconds(ANSWER_MAX);
                let what = format!("has not answered for {limit}; see to it or its controller");
                let name = geometry.name.to_string();
                Err(IoError::new(IoErrorKind::Timeout, what).on(name))
            }
        }
    }
}
