//! Volumes that a pool remembers beside those that are served: so many, and with so long records
//! of their origins, that superblocks have no room for all of them.
//!
//! All records change together. So after any cut all records are of one generation, and of no
//! earlier one than the newest that was made durable.

use super::bench::CrashBench;
use super::case::Leaf;
use block::{BoxDevice, IoResult, Sectors};
use cache::{Cache, CacheMode, VolumeConfig};
use shard::Local;
use sim::SimDriver;

/// Bytes of a record: the most that there can be.
const RECORD_BYTES: usize = layout::ORIGIN_RECORD_BYTES_MAX;
/// The size of each volume, and of the disk that is the origin of all.
pub(super) const SECTORS: Sectors = Sectors(8);

fn name(number: u64) -> String {
    format!("neighbour-{number}")
}

/// True if a volume that a pool remembers is a neighbour.
pub(super) fn is_one(bench: &CrashBench, volume: &str) -> bool {
    (0..bench.case.neighbours).any(|number| name(number) == volume)
}

/// A daemon opens the pool: checks the remembered records, and adds the neighbours.
pub(super) fn greet(bench: &CrashBench, local: &Local<SimDriver>, cache: &Cache<Leaf>) -> IoResult {
    let Some(origin) = bench.neighbours else {
        return Ok(());
    };
    let generation = |number| {
        let record = cache.origin_record(&name(number));
        let word = record.first_chunk().map(|word| u32::from_le_bytes(*word));
        let is_whole = record == word.unwrap_or(0).to_le_bytes().repeat(record.len() / 4);
        is_whole.then_some(word.unwrap_or(0))
    };
    let all: Vec<_> = (0..bench.case.neighbours).map(generation).collect();
    let (durable, newest) = (bench.records.durable.get(), bench.records.newest.get());
    let is_right = all[0].is_some_and(|word| (durable..=newest).contains(&word));
    if !is_right || all.iter().any(|word| *word != all[0]) {
        bench.violate(format!(
            "a pool that had records {durable} to {newest} of its volumes has {all:?}"
        ));
    }
    for number in 0..bench.case.neighbours {
        let config = VolumeConfig {
            name: name(number).into(),
            sectors: Some(SECTORS),
            mode: CacheMode::PassThrough,
        };
        let origin = local.disk(origin).expect("a disk");
        cache.add_volume(config, BoxDevice::new(origin))?;
    }
    renew(bench, cache);
    Ok(())
}

/// Gives all neighbours new records, which are durable by the next [`Cache::remember`].
fn renew(bench: &CrashBench, cache: &Cache<Leaf>) {
    let generation = bench.records.newest.get() + 1;
    bench.records.newest.set(generation);
    let record = generation.to_le_bytes().repeat(RECORD_BYTES / 4);
    for number in 0..bench.case.neighbours {
        cache.set_origin_record(&name(number), &record);
    }
}

/// Makes the present records durable.
pub(super) async fn remember(bench: &CrashBench, cache: &Cache<Leaf>) {
    let generation = bench.records.newest.get();
    let under_way = &bench.records.under_way;
    under_way.set(under_way.get() + 1);
    cache.remember().await;
    under_way.set(under_way.get() - 1);
    let durable = bench.records.durable.get().max(generation);
    bench.records.durable.set(durable);
}

/// Gives all neighbours new records, and makes these durable.
pub(super) async fn renew_durably(bench: &CrashBench, cache: &Cache<Leaf>) {
    renew(bench, cache);
    remember(bench, cache).await;
}
