//! An origin with answers that are older than they look.
//!
//! A simulated disk reads at the very end of a read. A real disk may have read long before its
//! answer arrives, so that the answer lacks the writes acknowledged in between. Here some answers
//! are held back for a while.

use super::shared::Leaf;
use block::{Buf, Device, Env, IoResult, Layer, Lba, Nanos};
use sim::SimRng;
use std::cell::RefCell;

pub(crate) struct TestOrigin {
    disk: Leaf,
    env: Env,
    rng: RefCell<SimRng>,
    /// The longest that an answer is held back.
    lag_max: Nanos,
}

impl TestOrigin {
    pub(crate) fn new(disk: Leaf, env: Env, rng: SimRng, lag_max: Nanos) -> TestOrigin {
        TestOrigin {
            disk,
            env,
            rng: RefCell::new(rng),
            lag_max,
        }
    }

    /// Time for which the next answer is held back.
    fn lag(&self) -> Option<Nanos> {
        let mut rng = self.rng.borrow_mut();
        rng.chance(0.3)
            .then(|| Nanos(rng.between(1, self.lag_max.0)))
    }
}

impl Layer for TestOrigin {
    type Below = Leaf;

    fn below(&self) -> &Leaf {
        &self.disk
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let answer = self.disk.read(at, buf).await;
        if let Some(lag) = self.lag() {
            self.env.timer.sleep(lag).await;
        }
        answer
    }
}
