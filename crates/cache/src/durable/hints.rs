//! Policy hints: what the policy has learnt, and the heat of each line in
//! the order in which they are to be adopted.
//!
//! Each member has the records of its own lines with their ranks among all, so
//! that the loss of one leaves the order of the rest. What was learnt is with
//! the first member. None of it is needed: what is damaged or out of date costs
//! order, never truth.
//!
//! ```text
//! bytes of what was learnt u32 | those bytes | rank u32, slot u32, heat u16 ...
//! ```

use super::io::{Do, READ_MAX, perform, read};
use crate::core::Core;
use crate::counters::Counter;
use crate::devices::Member;
use block::{Device, Fua};
use layout::BLOCK_BYTES;
use policy::Heat;
use std::rc::Rc;

/// Blocks that are read or written at once.
const CHUNK_BYTES: usize = 16 * BLOCK_BYTES;
const RECORD_BYTES: usize = 10;

/// Where a line comes among all, the slot on its device, and how hot it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) slot: u32,
    pub(super) heat: Heat,
}

fn encode(learnt: &[u8], ranks: &[Rank]) -> Vec<u8> {
    let mut bytes = (learnt.len() as u32).to_le_bytes().to_vec();
    bytes.extend(learnt);
    for Rank { rank, slot, heat } in ranks {
        bytes.extend(rank.to_le_bytes());
        bytes.extend(slot.to_le_bytes());
        bytes.extend(heat.0.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<(&[u8], Vec<Rank>)> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (learnt, records) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    let record = |bytes: &[u8]| Rank {
        rank: u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")),
        slot: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
        heat: Heat(u16::from_le_bytes(
            bytes[8..].try_into().expect("two bytes"),
        )),
    };
    let records = records.chunks_exact(RECORD_BYTES);
    let whole = records.remainder().is_empty();
    whole.then(|| (learnt, records.map(record).collect()))
}

/// Writes the policy's hints of now, to be named by the next superblocks.
pub(super) async fn write_hints<P: Device>(core: &Rc<Core<P>>) {
    let members = core.state.borrow().devices.kept();
    let mut learnt = core.state.borrow().policy.save();
    let mut ranks = vec![Vec::new(); members.len()];
    let mut rank = 0;
    core.state.borrow().policy.export(&mut |_, slot, heat| {
        let here = |m: &Rc<Member<P>>| m.slots.contains(&slot.0);
        if let Some(at) = members.iter().position(here) {
            let slot = slot.0 - members[at].slots.start;
            ranks[at].push(Rank { rank, slot, heat });
            rank += 1;
        }
    });
    for (part, (member, ranks)) in (0..).zip(members.iter().zip(ranks)) {
        let store = member.store.as_ref().expect("a member that is kept");
        let which = store.hints.get().map_or(0, |(which, ..)| 1 - which);
        let area = store.plan.hints[usize::from(which)];
        let mut bytes = encode(&std::mem::take(&mut learnt), &ranks);
        if bytes.len() > area.blocks as usize * BLOCK_BYTES {
            bytes = encode(&[], &ranks);
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

/// The hints of `member` for its lines. What the policy had learnt, it takes
/// up here.
pub(super) async fn read_hints<P: Device>(core: &Rc<Core<P>>, member: &Member<P>) -> Vec<Rank> {
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
    let Some((learnt, ranks)) = decode(&bytes).filter(|_| sound) else {
        core.counters.count(Counter::HintsDamaged);
        return Vec::new();
    };
    if !learnt.is_empty() && !core.state.borrow_mut().policy.restore(learnt) {
        core.counters.count(Counter::HintsDamaged);
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let ranks = [1, 2].map(|n| Rank {
            rank: n,
            slot: n * 7,
            heat: Heat(n as u16),
        });
        let bytes = encode(b"learnt", &ranks);
        let (learnt, again) = decode(&bytes).unwrap();
        assert_eq!((learnt, &again[..]), (&b"learnt"[..], &ranks[..]));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(&[9, 0, 0, 0]), None);
    }
}
