//! The orderly end of a node, within a limit even for unresponsive devices.
//!
//! Order: the change that is being made, clients, then all volumes at once, then all pools, then
//! the arrays. Parts that do not end in their time are left as after a crash, and are named.
//!
//! Invariant: a volume that is quiesced when the end begins is not written any more; the content of
//! its origin is not taken for hotset's own.

use super::ending::{EndStep, EndWait};
use super::{Node, NodeVolume, Refusal};
use crate::event::NodeEvent;
use crate::platform::{Platform, ReservationStep};
use crate::seconds;
use block::{Device, Nanos};
use control::config::{ByteCount, Name};
use futures_util::future::{join, join_all};
use std::collections::BTreeSet;

/// Divisor of the origins' time limit that gives the limit of pools, and of arrays.
const SHORTER: u64 = 4;
/// A device that has answered nothing for so long is named.
const UNANSWERED: Nanos = Nanos::from_secs(1);

impl<P: Platform> Node<P> {
    /// Longest time of [`Node::stop`]: for the change being made, the clients, the origins, the
    /// logs that stay dirty, the pools and the arrays.
    pub fn stop_max(&self) -> Nanos {
        let (grace, stop) = (self.grace.get(), self.stop.get());
        let shorter = Nanos(stop.0 / SHORTER);
        grace + grace + grace + stop + shorter + shorter
    }

    /// Stops accepting requests, finishes those in flight, and makes their data durable.
    pub async fn stop(&self) -> Result<(), Refusal> {
        self.look_for_losses();
        self.stopped.set(true);
        self.waits.notify();
        self.ending.begin(self.env().timer.now() + self.stop_max());
        let by = self.env().timer.now() + self.grace.get();
        self.change_ended().await;
        self.end_waiting(by).await;
        self.ending.go_on(EndStep::Clients);
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
        let frontends = self.frontends.iter();
        let frontends = frontends.map(|frontend| frontend.shut_down(self.grace.get()));
        join(join_all(closes), join_all(frontends)).await;
        let names = volumes.iter().map(|(name, _)| name.clone());
        self.ending.go_on(EndStep::Volumes(names.collect()));
        let ends = volumes.iter().map(async |(name, served)| {
            let lost = self.end(name, served).await;
            self.ending.is_done(name);
            lost
        });
        let mut lost: Vec<_> = join_all(ends).await.into_iter().flatten().collect();
        let shorter = Nanos(self.stop.get().0 / SHORTER);
        let timer = self.env().timer;
        self.close_pools(shorter).await;
        self.ending.go_on(EndStep::Arrays);
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

    async fn close_pools(&self, limit: Nanos) {
        let pools = self.pools.borrow().clone();
        self.ending
            .go_on(EndStep::Pools(pools.keys().cloned().collect()));
        let timer = self.env().timer;
        let closes = pools.iter().map(async |(name, pool)| {
            if timer.timeout(limit, pool.cache.close()).await.is_none() {
                self.platform.event(NodeEvent::PoolNotClosed {
                    pool: name.clone(),
                    limit,
                });
            }
            self.ending.is_done(name);
        });
        join_all(closes).await;
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
        let timer = self.env().timer;
        let by = timer.now() + self.stop.get();
        if !self.end_log(name, served).await {
            return None;
        }
        let left = by.since(timer.now());
        let result: Option<block::IoResult> = timer.timeout(left, work).await;
        let why = match result {
            Some(Ok(())) => {
                if let Some(place) = &served.reserved {
                    self.end_reservation(name, place, ReservationStep::Release)
                        .await;
                }
                return None;
            }
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

impl<P: Platform> Node<P> {
    /// The parts that the end waits for; `None` before the end begins.
    pub fn waits_at_end(&self) -> Option<EndWait> {
        let now = self.env().timer.now();
        let left = self.ending.by.get()?.since(now);
        let step = self.step_of_end();
        let (mut what, mut line) = (step.clone(), format!("waiting for {step}"));
        line += &self.dirty_at_end();
        let open = self.devices.open.borrow();
        for (name, opened) in open.iter() {
            let meter = opened.leaf.meter();
            let since = meter.unanswered_since();
            let Some(since) = since.filter(|since| now.since(*since) >= UNANSWERED) else {
                continue;
            };
            what += &format!(", {name}");
            let count = meter.in_flight();
            line += &format!(
                "; device {name} has answered none of {count} operations for {}: see to it",
                whole_seconds(now.since(since))
            );
        }
        line += &format!("; the end comes within {}", whole_seconds(left));
        Some(EndWait { what, line })
    }

    /// The dirty data of volumes that have not ended.
    fn dirty_at_end(&self) -> String {
        let EndStep::Volumes(left) = &*self.ending.step.borrow() else {
            return String::new();
        };
        let dirty = left.iter().filter_map(|name| {
            let dirty = self.log_status(name)?.dirty_bytes;
            (dirty > 0).then(|| format!("; {} of volume {name} are dirty", ByteCount(dirty)))
        });
        dirty.collect()
    }

    fn step_of_end(&self) -> String {
        match &*self.ending.step.borrow() {
            EndStep::Changes if self.queue.is_busy() => "the change that is being made".into(),
            EndStep::Changes => "volumes and logs that are being opened".into(),
            EndStep::Clients => "clients to end their requests".into(),
            EndStep::Volumes(left) => format!("the last writes of {}", names("volume", left)),
            EndStep::Pools(left) => format!("{} to keep what is cached", names("pool", left)),
            EndStep::Arrays => "arrays to end".into(),
        }
    }
}

fn names(kind: &str, names: &BTreeSet<Name>) -> String {
    let list: Vec<&str> = names.iter().map(Name::as_str).collect();
    let plural = if list.len() == 1 { "" } else { "s" };
    format!("{kind}{plural} {}", list.join(", "))
}

fn whole_seconds(span: Nanos) -> String {
    format!("{} s", span.0.div_ceil(1_000_000_000))
}
