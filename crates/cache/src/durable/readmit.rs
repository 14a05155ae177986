//! Taking back a pool device that was bypassed for being late.
//!
//! Order: all requests to the device have ended, and the device answers a few reads in time. The
//! superblocks of the others record that it was away. Like a new device, it is claimed and gets its
//! bitmap. All superblocks record its membership. Its resting lines are adopted, and a checkpoint
//! puts them into its map. After a crash between two steps the device has no lines, or those of a
//! map that was written since its return.

use super::open::write_new_bitmap;
use super::superblocks::write_superblocks;
use super::warm::{BATCH, adopt_line, mark_dirty};
use super::{MemberStore, PoolMetadata};
use crate::cache::Cache;
use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::{DeviceId, DeviceState, PoolMember};
use crate::health::DeviceFault;
use block::{Deadline, Device, IoError, IoErrorKind, IoResult, Nanos};
use layout::{BLOCK_BYTES, MEMBERS_MAX};
use policy::SlotNumber;
use std::ops::Range;
use std::rc::Rc;

/// Reads that a device has to answer in time before its return.
const PROBES: u64 = 8;

impl<P: Device> Cache<P> {
    /// Takes back a device that was ejected for being late, with those of its lines that are still
    /// right. Returns their number. `Err`: the device stays out, and the return may be tried again.
    pub async fn readmit(&self, id: DeviceId) -> IoResult<u64> {
        let core = self.0.clone();
        let returning = async move { readmit(&core, id).await };
        // Once the device has begun to be a member, all superblocks are to record that.
        self.0.env.spawn.persist(returning).await
    }
}

async fn readmit<P: Device>(core: &Rc<CacheCore<P>>, id: DeviceId) -> IoResult<u64> {
    let member = core.state.borrow().devices.get(id);
    let (Some(member), Some(durable)) = (member, &core.durable) else {
        return Err(IoError::new(
            IoErrorKind::Invalid,
            "the pool has no such device",
        ));
    };
    may_return(core, durable, &member)?;
    answers_in_time(core, &member).await?;
    let store = member.store.as_ref().expect("it may return");
    {
        let _held = durable.lock.lock().await;
        if durable.departed.get() {
            write_superblocks(core, durable).await;
        }
        may_return(core, durable, &member)?;
        store.restart();
        member.health.forget();
        core.state.borrow_mut().contents.show(&member.slots);
        member.state.set(DeviceState::Online);
        // The device counts from here on, and gets no fewer marks than the present ones.
        drop(durable.table.intent.image());
        let epoch = durable.superblock.now().epoch;
        write_new_bitmap(core, durable, &member, epoch).await;
        write_superblocks(core, durable).await;
    }
    let lines = adopt(core, durable, &member).await;
    if member.state.get() != DeviceState::Online {
        return Err(late(&member, "was late again as it was taken back"));
    }
    core.counters.count(Counter::DevicesReturned);
    store.checkpoint_due.set(true);
    mark_dirty(core, &member, 0..1);
    durable.note();
    Ok(lines)
}

fn late<P: Device>(member: &PoolMember<P>, what: &'static str) -> IoError {
    member.device.geometry().error(IoErrorKind::Timeout, what)
}

/// Returns true if only the device itself may still prevent its return.
fn may_return<P: Device>(
    core: &CacheCore<P>,
    durable: &PoolMetadata,
    member: &PoolMember<P>,
) -> IoResult {
    let error = |kind, what| Err(member.device.geometry().error(kind, what));
    if member.state.get() != DeviceState::Ejected(DeviceFault::Late) || !member.may_return() {
        let what = "was not ejected for being late; see `hotset pool list`";
        return error(IoErrorKind::Invalid, what);
    }
    if member.operations.count() > 0 {
        return error(
            IoErrorKind::Timeout,
            "has not answered all that it was asked for",
        );
    }
    if durable.closed.get() {
        let what = "its pool is closed; try again once a daemon serves it";
        return error(IoErrorKind::Invalid, what);
    }
    let store = member.store.as_ref().expect("it may return");
    if store.plan.volumes() < durable.superblock.now().volumes.len() {
        let what = "has no room for the volumes that the pool remembers by now; replace it by a \
                    larger device";
        return error(IoErrorKind::Invalid, what);
    }
    match core.state.borrow().devices.kept().len() < MEMBERS_MAX {
        true => Ok(()),
        false => error(
            IoErrorKind::Invalid,
            "its pool is full of others: remove one",
        ),
    }
}

/// Reads here and there on the device, each within the limit of a hit.
async fn answers_in_time<P: Device>(
    core: &Rc<CacheCore<P>>,
    member: &Rc<PoolMember<P>>,
) -> IoResult {
    for probe in 0..PROBES {
        let slot = member.slots.len() as u64 * probe / PROBES;
        let at = member.at(SlotNumber(member.slots.start + slot as u32), 0);
        let (device, buf) = (member.clone(), core.env.pool.take(BLOCK_BYTES));
        let reading = core.env.spawn.persist(async move {
            device.operations.begin();
            let (_, result) = device.device.read(at, buf).await;
            device.operations.end();
            result
        });
        let deadline = Deadline::new(&core.env.timer, core.config.hit_latency_max);
        match deadline.bound(reading).await {
            // Some bad sectors are no reason, as for a device that serves.
            Some(Err(error)) if error.kind() != IoErrorKind::Media => return Err(error),
            Some(_) => {}
            None => return Err(late(member, "does not answer in time yet")),
        }
    }
    Ok(())
}

/// Gives the slots of `member` to the policy again, with the lines that rested.
async fn adopt<P: Device>(
    core: &Rc<CacheCore<P>>,
    durable: &PoolMetadata,
    member: &Rc<PoolMember<P>>,
) -> u64 {
    let mut empty = vec![true; member.slots.len()];
    let (mut at, mut lines) = (0, 0);
    let serves = || member.state.get() == DeviceState::Online;
    while serves() {
        {
            let state = &mut *core.state.borrow_mut();
            let batch = state.resting.adopt(member.id, at, BATCH);
            if batch.is_empty() {
                break;
            }
            at += batch.len();
            let slots = batch.iter().map(|line| line.slot.0..line.slot.0 + 1);
            state.policy.revive(&slots.collect::<Vec<_>>());
            for line in batch {
                empty[(line.slot.0 - member.slots.start) as usize] = false;
                let known = durable.knows(line.key);
                let adopted = adopt_line(core, state, line.slot, line.key, line.heat, known);
                lines += u64::from(adopted);
            }
        }
        // Clients come between two batches.
        core.env.timer.sleep(Nanos(1)).await;
    }
    if serves() {
        let state = &mut *core.state.borrow_mut();
        state.resting.end(member.id);
        let ranges = runs(&empty, member.slots.start);
        let slots = ranges.iter().cloned().flatten();
        slots.for_each(|slot| state.contents.wipe(SlotNumber(slot)));
        state.policy.revive(&ranges);
    }
    lines
}

/// The runs of slots from `start` on that are set.
fn runs(set: &[bool], start: u32) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for (slot, _) in (start..).zip(set).filter(|(_, set)| **set) {
        match runs.last_mut().filter(|run| run.end == slot) {
            Some(run) => run.end += 1,
            None => runs.push(slot..slot + 1),
        }
    }
    runs
}

impl MemberStore {
    /// Makes the device a member again. Its contents are not used, and its log begins where no
    /// block of the old one can be taken for one of the new.
    fn restart(&self) {
        let next = self.log_next.get().max(self.log_start.get()) + 2 * self.plan.log.blocks;
        self.log_start.set(next);
        self.log_next.set(next);
        self.map.set(None);
        self.generation.set(self.generation.get().wrapping_add(1));
        self.hints.set(None);
        self.copies.forget();
    }
}
