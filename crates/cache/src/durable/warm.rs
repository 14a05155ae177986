//! Reading back the contents of the pool: the map, the log over the map, and the policy's hints.
//! Clients are served meanwhile, from the origins.
//!
//! An entry is trusted if its volume is known and its region is marked neither on the device nor
//! since. Other entries are dropped and logged as dropped, before any bit is cleared. Unreadable
//! entries are dropped likewise. Since a log may seem to end early for the same reason, the first
//! record after a restart ends the old log for good.

use super::PoolMetadata;
use super::hints::read_hints;
use super::io::{READ_MAX, read};
use super::superblocks::write_superblocks;
use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::{DeviceState, PoolMember};
use crate::health::DeviceFault;
use crate::state::CacheState;
use block::{Device, Nanos};
use layout::{BLOCK_BYTES, LogReader, MapPage, entries_per_page};
use policy::{Heat, LineKey, SlotNumber};
use std::ops::Range;
use std::rc::Rc;

/// Blocks of map or log that are read at once.
const CHUNK_BLOCKS: u64 = 64;
/// Number of slots that are put to use at once.
pub(super) const BATCH: usize = 4096;

/// Reason not to trust a member's map.
enum Unusable {
    /// The metadata cannot be read.
    Unread(DeviceFault),
    /// The metadata contradicts itself.
    Damaged,
    /// The member has left the pool: its slots may be another's by now.
    Left,
}

impl From<block::IoError> for Unusable {
    fn from(error: block::IoError) -> Unusable {
        Unusable::Unread(DeviceFault::of(error.kind()))
    }
}

/// Reads the map of `member`; the last of all to be read brings the lines of all
/// into use.
pub(super) async fn warm<P: Device>(
    core: Rc<CacheCore<P>>,
    durable: Rc<PoolMetadata>,
    member: Rc<PoolMember<P>>,
) {
    let store = member.store.as_ref().expect("a member that is warmed");
    match load(&core, &member).await {
        Ok(keys) => *store.keys.borrow_mut() = keys,
        Err(Unusable::Unread(fault)) => core.state.borrow_mut().eject(&member, fault),
        Err(Unusable::Damaged) => {
            core.counters.count(Counter::MapsDamaged);
            begin_cold(&core, &durable, &member).await;
            *store.keys.borrow_mut() = vec![0; member.slots.len()];
        }
        Err(Unusable::Left) => {}
    }
    durable.loading.set(durable.loading.get() - 1);
    if durable.loading.get() > 0 {
        return;
    }
    adopt(&core, &durable).await;
    for member in core.state.borrow().devices.kept() {
        let store = member.store.as_ref().expect("a member that is kept");
        store.warm.set(true);
    }
    durable.note();
    durable.warmed.notify();
}

/// Makes the map of `member` empty, on the device too: its log begins where no
/// block of the old one can be taken for one of the new.
async fn begin_cold<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &Rc<PoolMetadata>,
    member: &Rc<PoolMember<P>>,
) {
    let store = member.store.as_ref().expect("a member that is warmed");
    let next = store.log_next.get().max(store.log_start.get()) + 2 * store.plan.log.blocks;
    store.map.set(None);
    store.log_start.set(next);
    store.log_next.set(next);
    let _held = durable.lock.lock().await;
    write_superblocks(core, durable).await;
}

/// Reads map and log; returns the line of each slot, 0 for none. Validity and checksums go to their
/// tables, where they are invisible until the slots are in use.
async fn load<P: Device>(
    core: &Rc<CacheCore<P>>,
    member: &Rc<PoolMember<P>>,
) -> Result<Vec<u64>, Unusable> {
    let store = member.store.as_ref().expect("a member that is warmed");
    let found = store.found.as_ref().expect("a member that was found");
    if found.bitmap.is_none() {
        return Err(Unusable::Damaged);
    }
    let mut keys = vec![0; member.slots.len()];
    let mut lost = vec![false; member.slots.len()];
    // A log of the former version has lines where the table areas are now.
    lost.resize(store.plan.places as usize, true);
    if let Some(map) = store.map.get() {
        load_map(core, member, map, &mut keys, &mut lost).await?;
    }
    let end = replay(core, member, &mut keys, &lost).await?;
    if end < found.log_end_min {
        return Err(Unusable::Damaged);
    }
    store.log_next.set(end);
    mark_dirty(core, member, 0..1);
    Ok(keys)
}

/// Fails if the tables at the slots of `member` are not its own any more; checked after every
/// pause.
fn still_here<P: Device>(member: &PoolMember<P>) -> Result<(), Unusable> {
    match member.state.get() {
        DeviceState::Online => Ok(()),
        _ => Err(Unusable::Left),
    }
}

/// Marks slots of `member` to be logged before any bit is cleared. A part of map or log that is
/// unreadable now may be readable at the next start, and would be trusted then.
pub(super) fn mark_dirty<P: Device>(
    core: &CacheCore<P>,
    member: &PoolMember<P>,
    slots: Range<usize>,
) {
    let contents = &mut core.state.borrow_mut().contents;
    for local in slots {
        contents.mark_dirty(SlotNumber(member.slots.start + local as u32));
    }
}

async fn load_map<P: Device>(
    core: &Rc<CacheCore<P>>,
    member: &Rc<PoolMember<P>>,
    map: u8,
    keys: &mut [u64],
    lost: &mut [bool],
) -> Result<(), Unusable> {
    let store = member.store.as_ref().expect("a member that is warmed");
    let plan = &store.plan;
    let area = plan.maps[usize::from(map)];
    let each = entries_per_page(plan.line_blocks) as usize;
    let mut page = 0;
    while page < plan.pages() {
        let pages = (plan.pages() - page).min(CHUNK_BLOCKS);
        let bytes = pages as usize * BLOCK_BYTES;
        let at = store.at(area, page);
        let buf = read(&member.device, at, bytes, &core.env, READ_MAX).await?;
        still_here(member)?;
        for (number, block) in (page..).zip(buf.chunks_exact(BLOCK_BYTES)) {
            let generation = store.generation.get();
            let first = number as usize * each;
            let slots = first..(first + each).min(keys.len());
            match MapPage::decode(block, store.device, plan.line_blocks, number, generation) {
                // A map of the former version has entries of lines where the table areas are now.
                Ok(page) if page.entries.len() >= slots.len() => {
                    let state = &mut *core.state.borrow_mut();
                    for (local, entry) in slots.zip(&page.entries) {
                        keys[local] = entry.key;
                        let slot = SlotNumber(member.slots.start + local as u32);
                        state.contents.restore(slot, &entry.valid, &entry.crcs);
                    }
                }
                _ => {
                    core.counters.count(Counter::MapPagesDamaged);
                    mark_dirty(core, member, slots.clone());
                    lost[slots].fill(true);
                }
            }
        }
        page += pages;
    }
    Ok(())
}

/// Applies the log; returns the sequence number after its last block.
async fn replay<P: Device>(
    core: &Rc<CacheCore<P>>,
    member: &Rc<PoolMember<P>>,
    keys: &mut [u64],
    lost: &[bool],
) -> Result<u64, Unusable> {
    let store = member.store.as_ref().expect("a member that is warmed");
    let ring = store.plan.log.blocks;
    let (mut sequence, mut incarnation) = (store.log_start.get(), 0);
    let last = sequence + ring;
    while sequence < last {
        let blocks = (ring - sequence % ring)
            .min(CHUNK_BLOCKS)
            .min(last - sequence);
        let bytes = blocks as usize * BLOCK_BYTES;
        let at = store.log_at(sequence);
        let buf = read(&member.device, at, bytes, &core.env, READ_MAX).await?;
        still_here(member)?;
        for block in buf.chunks_exact(BLOCK_BYTES) {
            let reader = LogReader::open(block, store.device, store.plan.line_blocks, sequence);
            let Ok(reader) = reader else {
                return Ok(sequence);
            };
            if reader.incarnation() < incarnation {
                return Ok(sequence);
            }
            incarnation = reader.incarnation();
            let state = &mut *core.state.borrow_mut();
            for change in reader {
                let Ok(change) = change else {
                    return Err(Unusable::Damaged);
                };
                let local = change.slot as usize;
                match lost.get(local) {
                    Some(false) => {}
                    Some(true) => continue,
                    None => return Err(Unusable::Damaged),
                }
                if let Some(key) = change.key {
                    keys[local] = key;
                }
                let slot = SlotNumber(member.slots.start + change.slot);
                state.contents.replay(slot, &change);
            }
            sequence += 1;
        }
    }
    Ok(sequence)
}

/// A slot that is about to be put to use.
struct WarmLine {
    rank: u32,
    /// The member with the line.
    at: usize,
    slot: u32,
    heat: Heat,
}

/// Gives the slots of all members to the policy, with the lines that are
/// trusted, the least recently used first.
async fn adopt<P: Device>(core: &Rc<CacheCore<P>>, durable: &PoolMetadata) {
    let members = core.state.borrow().devices.kept();
    let mut lines = Vec::new();
    let mut maps = Vec::new();
    for (at, member) in members.iter().enumerate() {
        let store = member.store.as_ref().expect("a member that is kept");
        let keys = store.keys.take();
        let mut ranked = vec![false; keys.len()];
        for rank in read_hints(core, member).await {
            if let Some(ranked) = ranked.get_mut(rank.slot as usize) {
                lines.push(WarmLine {
                    rank: rank.rank,
                    at,
                    slot: rank.slot,
                    heat: Heat(rank.heat),
                });
                *ranked = true;
            }
        }
        // Later entries are the newest.
        let others = (0..).zip(ranked).filter(|(_, ranked)| !ranked);
        lines.extend(others.map(|(slot, _)| WarmLine {
            rank: u32::MAX,
            at,
            slot,
            heat: Heat::default(),
        }));
        maps.push(keys);
    }
    lines.sort_by_key(|line| line.rank);
    for batch in lines.chunks(BATCH) {
        {
            let state = &mut *core.state.borrow_mut();
            let online = |line: &&WarmLine| members[line.at].state.get() == DeviceState::Online;
            let lines: Vec<&WarmLine> = batch.iter().filter(online).collect();
            let place = |line: &WarmLine| members[line.at].slots.start + line.slot;
            let slots = lines.iter().map(|line| place(line)..place(line) + 1);
            state.policy.revive(&slots.collect::<Vec<_>>());
            for line in lines {
                let key = LineKey(maps[line.at][line.slot as usize]);
                let trusted = durable.is_trusted(key, core.shape.shift());
                adopt_line(
                    core,
                    state,
                    SlotNumber(place(line)),
                    key,
                    line.heat,
                    trusted,
                );
            }
        }
        // Clients come between two batches.
        core.env.timer.sleep(Nanos(1)).await;
    }
}

/// Gives a slot that was put to use its line, if the line is trusted. Returns true if the slot has
/// one.
pub(super) fn adopt_line<P: Device>(
    core: &CacheCore<P>,
    state: &mut CacheState<P>,
    slot: SlotNumber,
    key: LineKey,
    heat: Heat,
    trusted: bool,
) -> bool {
    if key == LineKey(0) || state.contents.is_empty(slot) {
        state.contents.wipe(slot);
        return false;
    }
    let held = state.contents.held(slot);
    let adopted = trusted && state.policy.adopt(key, slot, heat, held);
    core.counters.count(match adopted {
        true => Counter::LinesRestored,
        false => Counter::LinesSuspect,
    });
    if !adopted {
        state.contents.clear(slot.0..slot.0 + 1);
    }
    adopted
}
