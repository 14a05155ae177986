//! Bringing the map on the devices up to date, a period at a time.
//!
//! Order of a commit: origins are flushed, the due records are taken, each member is flushed, and
//! its log is written. Then bits are cleared of regions without a write since the first of these
//! steps. So a line is in the log only after its bytes are on the device. A bit is cleared only
//! after the origin's writes in its region are durable and the log has the present state of the
//! lines. No record is under an id of a volume that the superblocks have not given.
//!
//! Before the first commit after a volume was added, its origin is flushed once.
//!
//! Order of a checkpoint: the place in the log is noted, all pages are written, then a commit, then
//! the superblock. Pages may hold newer states than that place in the log. Replaying the later
//! records gives the same map all the same, since every record written since is after that place.

use super::bitmap::write_bitmap;
use super::io::{Do, perform};
use super::{PoolMetadata, REGION_BLOCKS};
use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::{DeviceState, PoolMember};
use crate::writes::OriginDurability;
use block::{Device, Fua, Proof};
use layout::{BLOCK_BYTES, LogBlock, MapEntry, MapPage, SlotChange, entries_per_page};
use policy::SlotNumber;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// Blocks of log or map that are written at once.
const CHUNK_BLOCKS: usize = 16;

const _: () = assert!(REGION_BLOCKS as usize >= 256, "a line is in one region");

/// Commits at most once a period, while changes are due.
pub(super) async fn keep_committed<P: Device>(core: Weak<CacheCore<P>>, durable: Rc<PoolMetadata>) {
    loop {
        let due = || match core.upgrade() {
            None => true,
            Some(core) => is_due(&core, &durable),
        };
        durable.activity.until(due).await;
        let Some((timer, period)) = core
            .upgrade()
            .map(|core| (core.env.timer.clone(), core.config.commit_period))
        else {
            return;
        };
        timer.sleep(period).await;
        let Some(core) = core.upgrade() else { return };
        if durable.closed.get() {
            return;
        }
        durable.table.tick();
        let ticks = core.config.mark_idle_periods;
        commit(&core, &durable, ticks).await;
    }
}

fn is_due<P: Device>(core: &CacheCore<P>, durable: &PoolMetadata) -> bool {
    let state = core.state.borrow();
    durable.superblock.is_due()
        || state.contents.changes_due() > 0
        || state.devices.all_warm() && !durable.table.intent.marked().is_empty()
}

/// Makes one commit; bits that were idle for `ticks` periods are cleared.
pub(super) async fn commit<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &Rc<PoolMetadata>,
    ticks: u32,
) {
    let _one = durable.committing.lock().await;
    // A line promoted from an origin that was written before it was added, and not flushed, could
    // outlive its bytes on that origin.
    let began = |writes: &Rc<OriginDurability>| writes.began_durable();
    let began = durable.origins.borrow().values().all(began);
    if !began && !flush_origins(core, durable).await {
        return;
    }
    let mut idle = Vec::new();
    if core.state.borrow().devices.all_warm() {
        idle = durable.table.idle(ticks);
        if !idle.is_empty() && !flush_origins(core, durable).await {
            idle.clear();
        }
    }
    if durable.superblock.is_due() {
        let _held = durable.lock.lock().await;
        super::superblocks::write_superblocks(core, durable).await;
    }
    let mut complete = true;
    let members = core.state.borrow().devices.kept();
    for member in &members {
        let store = member.store.as_ref().expect("a member that is kept");
        if !store.warm.get() {
            continue;
        }
        let due = store.checkpoint_due.take();
        if due || store.log_used() > store.plan.log.blocks / 2 {
            let done = checkpoint(core, durable, member).await;
            store.checkpoint_due.set(due && !done);
        }
        complete &= write_log(core, durable, member).await;
    }
    if complete && durable.table.clear(&idle, ticks) {
        durable.image_due.set(true);
        durable.signal.notify();
    }
}

/// Makes writes to the origins durable; true if that succeeded. If not,
/// these writes are distrusted, and the next flush of the volume's user fails.
async fn flush_origins<P: Device>(core: &Rc<CacheCore<P>>, durable: &PoolMetadata) -> bool {
    let due = |writes: &&Rc<OriginDurability>| !writes.are_durable();
    let due: Vec<_> = durable
        .origins
        .borrow()
        .values()
        .filter(due)
        .cloned()
        .collect();
    let mut all = true;
    for writes in due {
        all &= writes.flush(core).await.is_ok();
    }
    all
}

/// Writes the due records of `member`; false if they are not durable.
async fn write_log<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &Rc<PoolMetadata>,
    member: &Rc<PoolMember<P>>,
) -> bool {
    let store = member.store.as_ref().expect("a member that is kept");
    let ids = loop {
        if let Some(ids) = durable.ids_known() {
            break ids;
        }
        let _held = durable.lock.lock().await;
        if durable.ids_are_due() {
            super::superblocks::write_superblocks(core, durable).await;
        }
        // The witness cannot be written, and is not waited for any more.
        if durable.closed.get() && durable.ids_are_due() {
            return false;
        }
    };
    let mut due = records(core, member, ids);
    if due.is_empty() {
        return true;
    }
    core.counters.count(Counter::MapCommits);
    if !perform(core, member, Do::Flush).await {
        return false;
    }
    while !due.is_empty() {
        let first = store.log_next.get();
        // The ring's end, and the part of the log for a checkpoint, bound a write.
        let ring = store.plan.log.blocks;
        let room = (ring - first % ring).min(ring - store.log_used());
        assert!(room > 0, "the log is full: a checkpoint comes before");
        let blocks = room.min(CHUNK_BLOCKS as u64) as usize;
        let mut buf = core.env.pool.take(blocks * BLOCK_BYTES);
        let mut filled = 0;
        while filled < blocks && !due.is_empty() {
            let bytes = &mut buf[filled * BLOCK_BYTES..][..BLOCK_BYTES];
            let mut block = LogBlock::new(bytes, store.plan.line_blocks);
            while due.front().is_some_and(|change| block.push(change)) {
                due.pop_front();
            }
            let sequence = first + filled as u64;
            block.seal(store.device, sequence, durable.incarnation.get());
            filled += 1;
        }
        if first > 0 && first.is_multiple_of(ring) {
            core.counters.count(Counter::LogWraps);
        }
        let data = buf.share().slice(0..filled * BLOCK_BYTES);
        let write = Do::Write(store.log_at(first), data, Fua::Yes);
        if !perform(core, member, write).await {
            return false;
        }
        store.log_next.set(first + filled as u64);
    }
    true
}

/// Takes due changes of `member` in their present state: under ids that all superblocks have given.
fn records<P: Device>(
    core: &CacheCore<P>,
    member: &PoolMember<P>,
    _ids: Proof,
) -> VecDeque<SlotChange> {
    let state = &mut *core.state.borrow_mut();
    let due = state.contents.take_changes(&member.slots);
    let record = |(slot, pending): (u32, super::changes::PendingRecord)| {
        let valid = state.contents.valid_mask(SlotNumber(slot));
        let mut changed = pending.changed;
        for (changed, valid) in changed.iter_mut().zip(valid) {
            *changed &= valid;
        }
        let blocks = (0..256u32).filter(|b| changed[*b as usize / 64] >> (b % 64) & 1 == 1);
        SlotChange {
            slot: slot - member.slots.start,
            key: pending.key.map(|key| key.0),
            valid,
            changed,
            crcs: blocks
                .map(|b| state.contents.crc(SlotNumber(slot), b))
                .collect(),
        }
    };
    due.into_iter().map(record).collect()
}

/// Writes the whole map of `member` and lets its log start over.
async fn checkpoint<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &Rc<PoolMetadata>,
    member: &Rc<PoolMember<P>>,
) -> bool {
    let store = member.store.as_ref().expect("a member that is kept");
    let plan = &store.plan;
    let begin = store.log_next.get();
    let generation = store.generation.get().wrapping_add(1);
    let map = store.map.get().map_or(0, |map| 1 - map);
    let area = plan.maps[usize::from(map)];
    core.counters.count(Counter::Checkpoints);
    let keys = keys_of(core, member);
    let mut page = 0;
    while page < plan.pages() {
        let pages = (plan.pages() - page).min(CHUNK_BLOCKS as u64);
        let mut buf = core.env.pool.take(pages as usize * BLOCK_BYTES);
        for (number, bytes) in (page..).zip(buf.chunks_exact_mut(BLOCK_BYTES)) {
            let entries = entries(core, member, &keys, number);
            let page = MapPage {
                number,
                generation,
                entries,
            };
            page.encode(store.device, plan.line_blocks, bytes);
        }
        let write = Do::Write(store.at(area, page), buf.share(), Fua::No);
        if member.state.get() != DeviceState::Online || !perform(core, member, write).await {
            return false;
        }
        page += pages;
    }
    if !write_log(core, durable, member).await || !perform(core, member, Do::Flush).await {
        return false;
    }
    super::hints::write_hints(core).await;
    let _held = durable.lock.lock().await;
    store.map.set(Some(map));
    store.generation.set(generation);
    store.log_start.set(begin);
    super::superblocks::write_superblocks(core, durable).await;
    member.state.get() == DeviceState::Online
}

/// The lines in the slots of `member`; 0 for none.
fn keys_of<P: Device>(core: &CacheCore<P>, member: &PoolMember<P>) -> Vec<u64> {
    let mut keys = vec![0; member.slots.len()];
    core.state.borrow().policy.for_each(&mut |key, slot| {
        if member.slots.contains(&slot.0) {
            keys[(slot.0 - member.slots.start) as usize] = key.0;
        }
    });
    keys
}

fn entries<P: Device>(
    core: &CacheCore<P>,
    member: &PoolMember<P>,
    keys: &[u64],
    page: u64,
) -> Vec<MapEntry> {
    let state = core.state.borrow();
    let line_blocks = state.shape.blocks();
    let each = u64::from(entries_per_page(line_blocks));
    let first = (page * each) as usize;
    let last = (first + each as usize).min(keys.len());
    let entry = |local: usize| {
        let slot = SlotNumber(member.slots.start + local as u32);
        MapEntry {
            key: keys[local],
            valid: state.contents.valid_mask(slot),
            crcs: (0..line_blocks)
                .map(|b| state.contents.crc(slot, b))
                .collect(),
            ..MapEntry::default()
        }
    };
    (first..last).map(entry).collect()
}

/// Writes everything, so that the next incarnation finds all metadata complete. Metadata that
/// cannot be written stays marked.
pub(super) async fn close<P: Device>(core: &Rc<CacheCore<P>>, durable: &Rc<PoolMetadata>) {
    durable.closed.set(true);
    durable.table.tick();
    commit(core, durable, 0).await;
    write_bitmap(core, durable).await;
    super::hints::write_hints(core).await;
    let _held = durable.lock.lock().await;
    durable.superblock.change(|pool| pool.clean = true);
    super::superblocks::write_superblocks(core, durable).await;
}
