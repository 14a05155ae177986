//! Every filter is still a device.

use super::common::on_disk;
use super::contract::Checked;
use crate::{DelayPacer, Delayed, Metered, ObservedDevice, Profiling, RawAccess, Swappable};
use block::conformance::{device, gate};
use block::{BoxDevice, Device, Env, Nanos};
use shard::ShardDisk;
use sim::SimDriver;

const SEEDS: [(u64, u64); 2] = [(1, 1), (2, 8)];

fn passes<D: Device>(wrap: impl Fn(ShardDisk<SimDriver>, &Env) -> D + Clone + 'static) {
    for (seed, block) in SEEDS {
        let wrap = wrap.clone();
        on_disk(seed, block, async move |disk, env| {
            device(&wrap(disk, &env), &env, seed).await;
        });
    }
}

#[test]
fn the_bare_disk_passes() {
    passes(|disk, _| disk);
}

#[test]
fn checked_passes() {
    passes(|disk, _| Checked::new(disk));
}

#[test]
fn swappable_passes() {
    passes(|disk, _| Swappable::new(BoxDevice::new(disk)));
}

#[test]
fn metered_passes() {
    passes(|disk, env| Metered::meter(disk, env.timer.clone()));
}

#[test]
fn profiled_passes() {
    passes(|disk, env| {
        let profiling = Profiling::new(disk.geometry().sectors, 4096, env.timer.now());
        ObservedDevice::new(disk, profiling, env.timer.clone())
    });
}

/// Every request takes 200 microseconds after the one before it.
#[derive(Default)]
struct OneByOne {
    due: Vec<(Nanos, u64)>,
}

impl DelayPacer for OneByOne {
    fn arrive(&mut self, now: Nanos, id: u64, _: &RawAccess) {
        let after = self.due.last().map_or(now, |(at, _)| *at);
        self.due.push((after + Nanos::from_micros(200), id));
    }
    fn next_due(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| *at)
    }
    fn take_due(&mut self, now: Nanos, due: &mut Vec<u64>) {
        let ready = self.due.iter().take_while(|(at, _)| *at <= now).count();
        due.extend(self.due.drain(..ready).map(|(_, id)| id));
    }
}

#[test]
fn delayed_passes() {
    passes(|disk, env| Delayed::new(disk, OneByOne::default(), env.clone()));
}

#[test]
fn the_gate_keeps_the_contract_of_the_device_below() {
    for (seed, block) in SEEDS {
        on_disk(seed, block, async move |disk, env| {
            gate(Checked::new(disk), &env, seed).await;
        });
    }
}
