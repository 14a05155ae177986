//! Freezes a volume: its changes wait while its origin is quiesced.

use block::Signal;
use std::cell::Cell;

#[derive(Default)]
pub(crate) struct Freeze {
    frozen: Cell<bool>,
    thawed: Signal,
}

impl Freeze {
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.get()
    }

    /// Makes changes wait from now on. Returns true if they did not before.
    pub(crate) fn freeze(&self) -> bool {
        !self.frozen.replace(true)
    }

    /// Resumes changes. Returns true if they were frozen.
    pub(crate) fn thaw(&self) -> bool {
        let was = self.frozen.replace(false);
        self.thawed.notify();
        was
    }

    /// Waits until changes may go on.
    #[inline]
    pub(crate) async fn thawed(&self) {
        if self.is_frozen() {
            self.thawed.until(|| !self.is_frozen()).await;
        }
    }
}
