//! A volume held by a connection until the connection ends.

use crate::Later;
use block::Spawn;
use control::protocol::Reply;

/// A quiesced volume, and the work that resumes it.
pub struct Hold {
    spawn: Spawn,
    end: Option<Later<'static, Reply>>,
}

impl Hold {
    /// Makes a hold that ends with `end`, in a task of its own if its connection ends first.
    pub(crate) fn new(spawn: Spawn, end: Later<'static, Reply>) -> Hold {
        let end = Some(end);
        Hold { spawn, end }
    }

    /// Resumes the volume, and returns the result.
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
