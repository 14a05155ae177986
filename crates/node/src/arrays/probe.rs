//! Whether a device that was opened answers: opening it asks nothing of it.

use super::Devices;
use crate::place::Opened;
use crate::platform::Platform;
use crate::seconds;
use block::{Deadline, Device as _, IoError, IoResult, Kind, Lba, Nanos};

/// How long a pool device may take for its first answer.
const ANSWER_MAX: Nanos = Nanos::from_secs(10);

impl<P: Platform> Devices<P> {
    /// Refuses what answers nothing: a pool can do without it, and is not to wait for it.
    pub(super) async fn answers_at_all(&self, opened: &Opened<P>) -> IoResult {
        let env = self.env();
        let geometry = opened.leaf.geometry();
        let buf = env.pool.get(geometry.block.bytes() as usize).await;
        let reading = opened.leaf.read(Lba::ZERO, buf);
        match Deadline::new(&env.timer, ANSWER_MAX).bound(reading).await {
            // What it answers, its user sees.
            Some(_) => Ok(()),
            None => {
                let limit = seconds(ANSWER_MAX);
                let what = format!("has not answered for {limit}; see to it or its controller");
                let name = geometry.name.to_string();
                Err(IoError::new(Kind::Timeout, what).on(name))
            }
        }
    }
}
