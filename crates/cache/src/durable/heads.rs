//! Writing the heads: who is in the pool, and which volumes it may hold.
//!
//! Order: both copies on every member, one after the other, then those of the
//! witness. What follows is not done before all have it. A device that becomes a
//! member is claimed before anything else is written to it.

use super::Durable;
use super::io::{Do, perform, readable};
use crate::cache::Core;
use crate::counters::Counter;
use crate::devices::Member;
use block::{BoxDevice, Device, Fua, Lba, Nanos};
use futures_util::future::join_all;
use layout::{BLOCK_BYTES, HEAD_BLOCKS, Head, HeadError, Role};
use std::ops::Range;
use std::rc::Rc;

const HEAD_BYTES: usize = HEAD_BLOCKS as usize * BLOCK_BYTES;
/// Sectors that a witness needs: two heads.
pub(super) const WITNESS_SECTORS: u64 = 2 * HEAD_BLOCKS * layout::BLOCK_SECTORS;
/// How long a witness that fails is left alone before it is tried again.
const RETRY: Nanos = Nanos::from_millis(100);

/// Writes the heads of all members and of the witness; with a greater epoch if
/// a member was lost. The caller holds the lock.
///
/// A witness that cannot be written holds up what needs the heads, since a
/// device that was lost could otherwise come back alone and be believed.
pub(super) async fn write_heads<P: Device>(core: &Rc<Core<P>>, durable: &Rc<Durable>) {
    loop {
        if durable.departed.take() {
            durable.epoch.set(durable.epoch.get() + 1);
        }
        durable.heads_due.set(false);
        durable.sequence.set(durable.sequence.get() + 1);
        core.counters.count(Counter::HeadWrites);
        let members = core.state.borrow().devices.kept();
        let shared = head_of_pool(durable, &members);
        let given = shared.next_volume;
        let writes = members
            .iter()
            .map(|member| write_head(core, durable, &shared, member));
        join_all(writes).await;
        if durable.departed.get() {
            continue;
        }
        let Some(witness) = &durable.witness else {
            return ids_are_given(durable, given);
        };
        let head = Head {
            device: durable.witness_uuid.get(),
            name: "witness".to_owned(),
            ..shared
        };
        let mut buf = core.env.pool.take(HEAD_BYTES);
        let bytes = head.encode(&mut buf);
        let data = buf.share().slice(0..bytes);
        while !write_witness(witness, data.clone()).await {
            core.counters.count(Counter::WitnessErrors);
            // When the pool is closed, nobody writes what would need it.
            if durable.closed.get() {
                return;
            }
            core.env.timer.sleep(RETRY).await;
        }
        if !durable.departed.get() {
            return ids_are_given(durable, given);
        }
    }
}

/// All heads know of the ids below `given`.
fn ids_are_given(durable: &Durable, given: u32) {
    durable.given.set(given);
    durable.marked.wake();
}

/// The second copy first: if the power goes amid the first write of all, what it
/// leaves there says nothing, and then there is one that holds.
async fn write_witness(witness: &BoxDevice, data: block::Shared) -> bool {
    for copy in [1, 0] {
        let at = Lba(copy * HEAD_BLOCKS * layout::BLOCK_SECTORS);
        if witness.write(at, data.clone(), Fua::Yes).await.is_err() {
            return false;
        }
    }
    true
}

/// What all heads of the pool say.
fn head_of_pool<P: Device>(durable: &Durable, members: &[Rc<Member<P>>]) -> Head {
    let member = |member: &Rc<Member<P>>| {
        let store = member.store.as_ref().expect("a member that is kept");
        layout::Member {
            device: store.device,
            slots: store.plan.slots,
            name: store.name.clone(),
            domain: member.controller.to_string(),
        }
    };
    Head {
        role: Role::Witness,
        clean: durable.clean.get(),
        pool: durable.pool,
        device: durable.pool,
        sequence: durable.sequence.get(),
        epoch: durable.epoch.get(),
        blocks: 0,
        slots: 0,
        line_blocks: 1,
        region_blocks: super::REGION_BLOCKS,
        map: None,
        generation: 0,
        log_start: 0,
        log_end: 0,
        next_volume: durable.next_volume.get(),
        memo: None,
        label: durable.label.clone(),
        name: String::new(),
        host: durable.host.clone(),
        members: members.iter().map(member).collect(),
        volumes: durable.volumes.borrow().clone(),
    }
}

/// Writes the head of a member that begins anew: it names the pool and an epoch that
/// was, and is never believed, for no witness knows the device by its new name. The
/// epoch stays, lest an old witness find nobody who knows better.
///
/// Both copies, since the marks that follow do not go with what an old one says; the
/// one that holds last, so that one of them is ours at any moment. Of a device that
/// holds nothing that is the first.
pub(super) async fn claim<P: Device>(
    core: &Rc<Core<P>>,
    durable: &Durable,
    member: &Rc<Member<P>>,
    epoch: u64,
) -> bool {
    let shared = Head {
        clean: false,
        sequence: 0,
        epoch,
        ..head_of_pool::<P>(durable, &[])
    };
    let store = member.store.as_ref().expect("a member that is kept");
    let first = store.at(store.plan.heads[0], 0);
    let first = readable(&member.device, first, HEAD_BYTES, &core.env).await;
    let first = first.ok().flatten().map(|bytes| Head::decode(&bytes));
    let order = match first {
        None | Some(Err(HeadError::Damaged(_))) => [0..1, 1..2],
        Some(_) => [1..2, 0..1],
    };
    for copy in order {
        if !write_copies(core, durable, &shared, member, copy).await {
            return false;
        }
    }
    true
}

async fn write_head<P: Device>(
    core: &Rc<Core<P>>,
    durable: &Durable,
    shared: &Head,
    member: &Rc<Member<P>>,
) -> bool {
    write_copies(core, durable, shared, member, 0..2).await
}

async fn write_copies<P: Device>(
    core: &Rc<Core<P>>,
    durable: &Durable,
    shared: &Head,
    member: &Rc<Member<P>>,
    copies: Range<usize>,
) -> bool {
    let store = member.store.as_ref().expect("a member that is kept");
    let clean = durable.clean.get() && store.warm.get();
    let head = Head {
        role: Role::Member,
        clean,
        device: store.device,
        blocks: store.plan.blocks,
        slots: store.plan.slots,
        line_blocks: store.plan.line_blocks,
        map: store.map.get(),
        generation: store.generation.get(),
        log_start: store.log_start.get(),
        log_end: if clean { store.log_next.get() } else { 0 },
        memo: store.memo.get(),
        name: store.name.clone(),
        ..shared.clone()
    };
    let mut buf = core.env.pool.take(HEAD_BYTES);
    let bytes = head.encode(&mut buf);
    let data = buf.share().slice(0..bytes);
    for area in &store.plan.heads[copies] {
        let write = Do::Write(store.at(*area, 0), data.clone(), Fua::Yes);
        if !perform(core, member, write).await {
            return false;
        }
    }
    true
}
