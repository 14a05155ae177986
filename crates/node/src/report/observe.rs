//! The observations of a volume, for advice on its pool.

use super::of_clients;
use crate::node::{Node, NodePool, NodeVolume};
use crate::platform::Platform;
use block::{Driver, SECTOR_BYTES};
use cache::Counter;
use control::config::Name;
use control::observed::{Observed, ObservedKind, QUANTILES, ServiceReport};
use filter::{AccessVerb, StatsInterval, VerbTally};
use std::collections::BTreeSet;

const BLOCK_BYTES: u64 = 4096;

impl<P: Platform> Node<P> {
    /// Observations of `volume` since it was added.
    pub fn observe(&self, volume: &str) -> Result<Observed, String> {
        let name = Name::new(volume)?;
        let volumes = self.volumes.borrow();
        let none = || self.no_volume(name.as_str());
        let served = volumes.get(&name).ok_or_else(none)?;
        let pools = self.pools.borrow();
        let pool = &pools[&served.pool];
        let sharing = volumes.values().filter(|other| other.pool == served.pool);
        let counters = served.volume.cached().counters();
        let devices: BTreeSet<Name> = pool.devices.borrow().keys().cloned().collect();
        Ok(Observed {
            volume: name.to_string(),
            pool: served.pool.to_string(),
            policy: pool.policy.to_owned(),
            mode: served.volume.mode().name().to_owned(),
            volumes_in_pool: sharing.count() as u32,
            pool_bytes: pool_bytes(pool),
            profile: profile(self, served),
            written: Some(served.volume.profiling().written()),
            blocks_hit: counters.get(Counter::BlocksHit),
            blocks_missed: counters.get(Counter::BlocksMissed),
            blocks_streamed: counters.get(Counter::BlocksStreamed),
            promoted_bytes: counters.get(Counter::BlocksPromoted) * BLOCK_BYTES,
            updated_bytes: counters.get(Counter::BlocksUpdated) * BLOCK_BYTES,
            read_total: of_clients(served.volume.latencies().reads()),
            write_total: of_clients(served.volume.latencies().writes()),
            origin: self.service(|device| *device == served.origin),
            cache: self.service(|device| devices.contains(device)),
        })
    }

    /// The requests that the open devices selected by `which` have served since they were opened.
    fn service(&self, which: impl Fn(&Name) -> bool) -> ServiceReport {
        let now = self.platform.local().env().timer.now();
        let open = self.devices.open.borrow();
        let of = open.iter().filter(|(name, _)| which(name));
        let intervals: Vec<StatsInterval> = of
            .map(|(_, opened)| opened.leaf.meter().snapshot(now).since(&opened.at_first))
            .collect();
        let busy: f64 = intervals.iter().map(StatsInterval::utilisation).sum();
        let span_s: f64 = intervals.iter().map(|i| i.span().as_secs_f64()).sum();
        let devices = intervals.len().max(1) as f64;
        ServiceReport {
            reads: kind(&intervals, AccessVerb::Read),
            writes: kind(&intervals, AccessVerb::Write),
            flushes: kind(&intervals, AccessVerb::Flush),
            busy: busy / devices,
            span_s: span_s / devices,
        }
    }
}

fn profile<P: Platform>(node: &Node<P>, served: &NodeVolume<P>) -> policy::profile::Profile {
    served
        .volume
        .profiling()
        .tick(node.platform.local().env().timer.now());
    served.volume.profiling().profile()
}

fn pool_bytes<D: Driver>(pool: &NodePool<D>) -> u64 {
    let (_, lines) = pool.cache.lines();
    u64::from(lines) * u64::from(pool.line_bytes)
}

fn kind(intervals: &[StatsInterval], verb: AccessVerb) -> ObservedKind {
    let tallies: Vec<&VerbTally> = intervals.iter().map(|i| i.tally(verb)).collect();
    let Some(first) = tallies.first() else {
        return ObservedKind::default();
    };
    let mut latency = first.latency.clone();
    for tally in &tallies[1..] {
        let added = latency.add(&tally.latency);
        added.expect("it grows as far as the other");
    }
    let quantile = |i: usize| (i as f64 + 0.5) / QUANTILES as f64;
    let us = |ns: u64| ns as f64 / 1e3;
    let quantiles = (0..QUANTILES).map(|i| us(latency.value_at_quantile(quantile(i))));
    ObservedKind {
        requests: tallies.iter().map(|t| t.requests).sum(),
        bytes: tallies.iter().map(|t| t.sectors).sum::<u64>() * SECTOR_BYTES,
        latency_us_mean: latency.mean() / 1e3,
        latency_us: if latency.is_empty() {
            Vec::new()
        } else {
            quantiles.collect()
        },
    }
}
