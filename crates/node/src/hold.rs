//! What a connection holds until it ends.

use crate::Later;
use block::Spawn;
use control::protocol::Reply;

/// A volume that is quiesced, and what has it go on.
pub struct Hold {
    spawn: Spawn,
    end: Option<Later<'static, Reply>>,
}

impl Hold {
    /// One that ends by `end`, in a task of its own if its connection ends before.
    pub(crate) fn new(spawn: Spawn, end: Later<'static, Reply>) -> Hold {
        let end = Some(end);
        Hold { spawn, end }
    }

    /// Has the volume go on; what came of it.
    pub(crate) async fn release(mut self) -> Reply {
        match self.end.take() {
            Some(end) => end.await,
            None => Reply::Done,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.spawn.spawn(async move {
                end.await;
            });
        }
    }
}
