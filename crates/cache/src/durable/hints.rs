//! Policy hints: the learnt state of the policy, and the heat of each line in the order of
//! adoption.
//!
//! Each member has the records of its own lines with their ranks among all, so that the loss of one
//! leaves the order of the rest. The learnt state is with the first member. No hint is needed: a
//! damaged or outdated one costs order, never truth.

use super::io::{Do, READ_MAX, perform, read};
use crate::core::CacheCore;
use crate::counters::Counter;
use crate::devices::PoolMember;
use block::{Device, Fua};
use layout::{BLOCK_BYTES, HintRow, decode_hints, encode_hints};
use std::rc::Rc;

/// Blocks that are read or written at once.
const CHUNK_BYTES: usize = 16 * BLOCK_BYTES;

/// Writes the policy's hints of now, to be named by the next superblocks.
pub(super) async fn write_hints<P: Device>(core: &Rc<CacheCore<P>>) {
    let members = core.state.borrow().devices.kept();
    let mut learnt = core.state.borrow().policy.save();
    let mut ranks = vec![Vec::new(); members.len()];
    let mut rank = 0;
    core.state.borrow().policy.export(&mut |_, slot, heat| {
        let here = |m: &Rc<PoolMember<P>>| m.slots.contains(&slot.0);
        if let Some(at) = members.iter().position(here) {
            let slot = slot.0 - members[at].slots.start;
            ranks[at].push(HintRow {
                rank,
                slot,
                heat: heat.0,
            });
            rank += 1;
        }
    });
    for (part, (member, ranks)) in (0..).zip(members.iter().zip(ranks)) {
        let store = member.store.as_ref().expect("a member that is kept");
        let which = store.hints.get().map_or(0, |(which, ..)| 1 - which);
        let area = store.plan.hints[usize::from(which)];
        let mut bytes = encode_hints(&std::mem::take(&mut learnt), &ranks);
        if bytes.len() > area.blocks as usize * BLOCK_BYTES {
            bytes = encode_hints(&[], &ranks);
        }
        let (len, crc) = (bytes.len() as u32, crc_fast::crc32_iscsi(&bytes));
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let mut block = 0;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let mut buf = core.env.pool.take(chunk.len());
            buf.copy_from_slice(chunk);
            let write = Do::Write(store.at(area, block), buf.share(), Fua::Yes);
            if !perform(core, member, write).await {
                return;
            }
            block += (chunk.len() / BLOCK_BYTES) as u64;
        }
        store.hints.set(Some((which, len, crc, part)));
    }
}

/// Returns the hints of `member` for its lines. The policy takes its learnt state from them here.
pub(super) async fn read_hints<P: Device>(
    core: &Rc<CacheCore<P>>,
    member: &PoolMember<P>,
) -> Vec<HintRow> {
    let store = member.store.as_ref().expect("a member that is warmed");
    let Some((which, len, crc, _)) = store.hints.get() else {
        return Vec::new();
    };
    let area = store.plan.hints[usize::from(which)];
    let blocks = (len as usize).div_ceil(BLOCK_BYTES) as u64;
    let mut bytes = Vec::new();
    while (bytes.len() / BLOCK_BYTES) < blocks.min(area.blocks) as usize {
        let at = (bytes.len() / BLOCK_BYTES) as u64;
        let here = ((blocks - at) as usize * BLOCK_BYTES).min(CHUNK_BYTES);
        let at = store.at(area, at);
        match read(&member.device, at, here, &core.env, READ_MAX).await {
            Ok(buf) => bytes.extend_from_slice(&buf),
            Err(_) => break,
        }
    }
    bytes.truncate(len as usize);
    let sound = bytes.len() == len as usize && crc_fast::crc32_iscsi(&bytes) == crc;
    let Some((learnt, ranks)) = decode_hints(&bytes).filter(|_| sound) else {
        core.counters.count(Counter::HintsDamaged);
        return Vec::new();
    };
    if !learnt.is_empty() && !core.state.borrow_mut().policy.restore(learnt) {
        core.counters.count(Counter::HintsDamaged);
    }
    ranks
}
