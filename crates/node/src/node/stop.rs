//! The orderly end of a node, within a limit even for unresponsive devices.
//!
//! Order: the change that is being made, clients, then all volumes at once, then all pools, then
//! the arrays. Parts that do not end in their time are left as after a crash, and are named.
//!
//! Invariant: a volume that is quiesced when the end begins is not written any more; the content of
//! its origin is not taken for hotset's own.

use super::{Node, NodeVolume, Refusal};
use crate::event::NodeEvent;
use crate::platform::Platform;
use crate::seconds;
use block::{Device, Nanos};
use control::config::Name;
use futures_util::future::join_all;

/// Divisor of the origins' time limit that gives the limit of pools, and of arrays.
const SHORTER: u64 = 4;

impl<P: Platform> Node<P> {
    /// Longest time of [`Node::stop`]: for the change being made and the clients, the origins, the
    /// pools and the arrays.
    pub fn stop_max(&self) -> Nanos {
        let (grace, stop) = (self.grace.get(), self.stop.get());
        let shorter = Nanos(stop.0 / SHORTER);
        grace + grace + stop + shorter + shorter
    }

    /// Stops accepting requests, finishes those in flight, and makes their data durable.
    pub async fn stop(&self) -> Result<(), Refusal> {
        self.look_for_losses();
        self.stopped.set(true);
        self.waits.notify();
        self.change_ended().await;
        self.end_waiting().await;
        let volumes = self.volumes.borrow().clone();
        let is_quiesced = |served: &NodeVolume<P>| served.volume.cached().is_quiesced();
        let (quiesced, volumes): (Vec<_>, Vec<_>) = volumes
            .into_iter()
            .partition(|(_, served)| is_quiesced(served));
        let closes = quiesced.iter().map(async |(_, served)| {
            // Held back changes fail: others use the origin now.
            let close = async {
                if let Some(log) = served.volume.log() {
                    log.engine().close().await;
                }
                served.volume.cached().close().await;
            };
            let _ = self.env().timer.timeout(self.grace.get(), close).await;
        });
        join_all(closes).await;
        let frontends = self.frontends.iter();
        join_all(frontends.map(|frontend| frontend.shut_down(self.grace.get()))).await;
        let ends = volumes.iter().map(|(name, served)| self.end(name, served));
        let mut lost: Vec<_> = join_all(ends).await.into_iter().flatten().collect();
        let shorter = Nanos(self.stop.get().0 / SHORTER);
        let timer = self.env().timer;
        let pools = self.pools.borrow().clone();
        let closes = pools.iter().map(async |(name, pool)| {
            if timer.timeout(shorter, pool.cache.close()).await.is_none() {
                self.platform.event(NodeEvent::PoolNotClosed {
                    pool: name.clone(),
                    limit: shorter,
                });
            }
        });
        join_all(closes).await;
        match timer.timeout(shorter, self.devices.stop()).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                lost.push(format!("an array may have lost writes: {error}; check it"));
            }
            None => lost.push(format!(
                "an array may have lost writes: it has not ended within {}; check its members",
                seconds(shorter)
            )),
        }
        if lost.is_empty() {
            Ok(())
        } else {
            Err(lost.join("; "))
        }
    }

    /// Waits a limited time for the change that is being made, and for logs that are being opened
    /// again; no other begins. Draining a log would take too long, so it is cancelled and goes on
    /// at the next start.
    async fn change_ended(&self) {
        for detaching in self.detaching.borrow().values() {
            detaching.cancel();
        }
        let ended = async {
            self.queue.idle().await;
            self.reopening.idle().await;
        };
        let timer = self.env().timer;
        let _ = timer.timeout(self.grace.get(), ended).await;
    }

    /// Makes a volume durable and ends it. Returns the reason if writes may be lost.
    async fn end(&self, name: &Name, served: &NodeVolume<P>) -> Option<String> {
        let work = async {
            served.volume.flush().await?;
            served.volume.cached().close().await;
            // If the origin cannot be read, the next start does not trust it.
            let _ = served.guard.renew().await;
            Ok(())
        };
        if !self.end_log(name, served).await {
            return None;
        }
        let timer = self.env().timer;
        let result: Option<block::IoResult> = timer.timeout(self.stop.get(), work).await;
        let why = match result {
            Some(Ok(())) => return None,
            Some(Err(error)) => error.to_string(),
            None => format!(
                "its origin {} has not answered for {}",
                served.origin,
                seconds(self.stop.get())
            ),
        };
        Some(format!(
            "volume {name} may have lost writes: {why}; check it"
        ))
    }
}
